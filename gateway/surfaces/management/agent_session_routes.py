"""`/logs/sessions`: sessions of agents, each with its turns, tokens, cost and cache hits."""

from msgspec import UNSET, UnsetType

from gateway.errors import NotFound
from gateway.metering.log.agent_sessions import AgentSession, SessionPart
from gateway.metering.log.archived_requests import find_session, list_sessions
from gateway.surfaces.management.access_groups import AccessGroup, Values, anywhere, check_anywhere
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors.request_log_reader import MAX_PAGE_SIZE
from gateway.surfaces.visitors.validation_schemas import Body, QueryInteger, TextField
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.answer_structs import Answer, Time, Usd
from gateway.surfaces.web.http import Operation

TAG = "Sessions of agents"


class SessionsQuery(Body):
    projectId = TextField(1, 80)
    apiKeyId = TextField(1, 80)
    cursor = TextField(1, 80)
    limit = QueryInteger(1, MAX_PAGE_SIZE, load_default=50)


class SessionPartAnswer(Answer):
    """The turns of a session with one model at one provider and one key."""

    provider: str
    model: str
    api_key_id: str
    source: str | None
    turns: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: Usd


class AgentSessionAnswer(Answer):
    """`cacheHitRate` is the part of the input tokens that was read from providers' prompt caches, in percent."""

    id: str
    project_id: str
    started_at: Time
    last_used_at: Time
    turns: int
    failed_attempts: int
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cache_hit_rate: float
    cost: Usd
    credits_cost: Usd
    data_storage_cost: Usd
    parts: list[SessionPartAnswer] | UnsetType = UNSET


class SessionPageAnswer(Answer):
    sessions: list[AgentSessionAnswer]
    next: str | None


def _find_session(visitor: Visitor, values: Values) -> AgentSession:
    check_anywhere(visitor, "logs:read")
    scopes = request_log_reader_module.scopes_of(visitor)
    session = find_session(visitor.services.store.database, scopes, values["agent_session"][:64])
    if session is None:
        raise NotFound("There is no session with this id, or its usage rows were removed.")
    return session


READER = AccessGroup(
    "logs:read", "For owners and admins, and for the creator of a key that the session used.", _find_session
)


def list_all(call: ManagedCall[None]) -> SessionPageAnswer:
    """The sessions with the newest requests first; a developer sees requests of their own keys. `next` is the `cursor`
    of the following page, null at the end."""
    fields = call.fields
    scopes = request_log_reader_module.scopes_of(call.visitor, fields.get("projectId", ""), fields.get("apiKeyId", ""))
    before = request_log_reader_module.read_cursor(fields.get("cursor", ""))
    page = list_sessions(call.database, scopes, before, fields["limit"])
    return SessionPageAnswer([show_session(session) for session in page.sessions], write_cursor(page.following))


def find(call: ManagedCall[AgentSession]) -> AgentSessionAnswer:
    """One session, also split by model, provider and key. Its requests are `GET /logs?session=…`."""
    answer = show_session(call.subject)
    answer.parts = [_show_part(part) for part in call.subject.parts]
    return answer


def show_session(session: AgentSession) -> AgentSessionAnswer:
    """Return a session as lists show it."""
    figures = session.figures
    return AgentSessionAnswer.of(
        session,
        id=session.session,
        started_at=session.first_us,
        last_used_at=session.last_us,
        failed_attempts=session.failures,
        input_tokens=figures.input_tokens,
        cached_tokens=figures.cached_tokens,
        cache_write_tokens=figures.cache_write_tokens,
        output_tokens=figures.output_tokens,
        reasoning_tokens=figures.reasoning_tokens,
        cache_hit_rate=round(100 * figures.cached_tokens / max(1, figures.input_tokens), 1),
        cost=figures.cost_nusd,
        credits_cost=figures.cost_nusd - figures.byok_nusd,
        data_storage_cost=figures.storage_nusd,
        parts=UNSET,
    )


def write_cursor(following: bytes | None) -> str | None:
    if following is None:
        return None
    return following.hex()


def _show_part(part: SessionPart) -> SessionPartAnswer:
    figures = part.figures
    return SessionPartAnswer.of(
        part,
        api_key_id=f"key_{part.api_key.hex()}",
        source=part.source or None,
        input_tokens=figures.input_tokens,
        cached_tokens=figures.cached_tokens,
        output_tokens=figures.output_tokens,
        cost=figures.cost_nusd,
    )


OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/logs/sessions", list_all, "List sessions of agents", tag=TAG,
            who=anywhere("logs:read"), scope="logs:read", query=SessionsQuery),
    managed("GET", "/logs/sessions/<agent_session>", find, "Show a session of an agent", tag=TAG,
            who=READER, scope="logs:read",
            inside="session"),
)  # fmt: skip
