"""Attribution of requests: the session of an agent, and metadata by which the log is searched and usage is summed, from
headers and from the fields of bodies."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from gateway.billing.context import MODELS_HEADER, PROVIDER_HEADER, RequestContext
from gateway.billing.session_budgets import RUN_BUDGET, SESSION_BUDGET
from gateway.callers.access import keeps_nothing
from gateway.callers.authentication import Caller
from gateway.errors import InvalidRequest
from gateway.ids import digest
from gateway.metering.session_ids import SESSIONS
from gateway.money import parse_usd
from gateway.secret_text import hide_tokens

PREFIX = "x-llmgateway-"
USER = "user"
USER_MEMBERS = ("user_id", USER)  # of a body's metadata
# Headers with the prefix that are no metadata.
OPTIONS = frozenset((MODELS_HEADER, PROVIDER_HEADER, f"{PREFIX}session", SESSION_BUDGET, RUN_BUDGET))
# Limits of what one request may store: the number of pairs, characters of a name and of a value, and of all together.
MAX_PAIRS = 16
MAX_NAME_LENGTH = 64
MAX_VALUE_LENGTH = 256
MAX_CHARACTERS = 2048
MAX_MEMBERS = 64  # members of an object that are read
NO_ATTRIBUTES: Mapping[str, str] = {}
Pairs = Iterable[tuple[str, str]]


def read_headers(headers: Mapping[str, str], given: Mapping[str, str] = NO_ATTRIBUTES) -> dict[str, str]:
    """Return the metadata in headers beside `given`: `X-LLMGateway-Team: search` is {"team": "search"}."""
    return _bounded(given, ((name[len(PREFIX) :], _as_text(text)) for name, text in headers.items() if _is_own(name)))


def add_body(context: RequestContext, user: str | None, metadata: Any = None) -> None:
    """Add the `metadata` and `user` of an OpenAI body, except for names that a header set. Under zero data retention
    nothing is added, since these fields are not addressed to the gateway."""
    if not (user or metadata):
        return
    named = user
    if isinstance(metadata, dict):
        _add_session(context, SESSIONS.of_metadata(metadata))
        named = user or next(
            (name for key in USER_MEMBERS if isinstance(name := metadata.get(key), str) and name), None
        )
    _add_end_user(context, named)
    if not keeps_nothing(context.caller.rules):
        context.metadata = _bounded(context.metadata, _pairs_of(user, metadata))
    context.attribute()


def read_session(context: RequestContext, headers: Mapping[str, str]) -> None:
    """Set the session and the end user that headers name."""
    _add_session(context, SESSIONS.of_headers(headers))
    _add_end_user(context, context.metadata.get(USER) or SESSIONS.user_of_headers(headers))


def read_budgets(headers: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the budgets that headers set for the session and for its run. InvalidRequest for an invalid amount."""
    return _read_amount(headers, SESSION_BUDGET), _read_amount(headers, RUN_BUDGET)


def add_user_id(context: RequestContext, user_id: str) -> None:
    """Set the session that an Anthropic body names in `metadata.user_id`, unless a header named one."""
    session = SESSIONS.of_user_id(user_id)
    _add_session(context, session)
    # An agent that names its session names its installation beside it, which the key tells already.
    _add_end_user(context, SESSIONS.user_of_user_id(user_id), tagged=not session)
    context.attribute()


def add_cache_key(context: RequestContext, prompt_cache_key: str) -> None:
    """Set the session that a prompt cache key names, if the client uses a key for each session."""
    _add_session(context, SESSIONS.of_cache_key(context.source, prompt_cache_key))
    context.attribute()


def _add_session(context: RequestContext, session: str) -> None:
    """Set the session unless it is known."""
    if session and not context.session:
        context.session = stored_session(context.caller, session)


def stored_session(caller: Caller, session: str) -> str:
    """Return a session as it is stored: under zero data retention, and for a key, its digest."""
    if keeps_nothing(caller.rules) or hide_tokens(session) != session:
        return digest(session)
    return session


def _add_end_user(context: RequestContext, user: str | None, tagged: bool = True) -> None:
    """Set the end user of the caller unless it is known; a long name, and any under zero data retention, is
    stored as its digest. With `tagged` it is the tag USER too, by which usage is summed; not under zero data
    retention."""
    name = hide_tokens((user or "")[: 2 * MAX_VALUE_LENGTH]).strip().replace("\0", "")
    if not name or context.end_user:
        return
    if len(user or "") > MAX_VALUE_LENGTH or keeps_nothing(context.caller.rules):
        name = digest(user or "")
    context.end_user = name.encode("utf-8", "replace").decode()
    if tagged and not keeps_nothing(context.caller.rules):
        context.metadata = _bounded(context.metadata, ((USER, name),))


def _read_amount(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name)
    if text is None:
        return None
    try:
        nusd = parse_usd(text)
    except ValueError:
        nusd = -1
    if nusd < 0:
        raise InvalidRequest(f"{name} must be an amount in US dollars, such as 0.50.", param=name)
    return nusd


def _pairs_of(user: str | None, metadata: Any) -> Iterator[tuple[str, str]]:
    if isinstance(metadata, dict):
        for name, value in islice(metadata.items(), MAX_MEMBERS):
            if isinstance(value, str | int | float):
                yield name.lower(), str(value)
    if user:
        yield USER, user


def _bounded(given: Mapping[str, str], pairs: Pairs) -> dict[str, str]:
    """Return the pairs that fit beside those in `given`, which take precedence. Longer values are cut."""
    kept = dict(given)
    room = MAX_CHARACTERS - sum(len(name) + len(text) for name, text in kept.items())
    for name, value in pairs:
        name = name.strip()
        text = hide_tokens(value[: 2 * MAX_VALUE_LENGTH]).strip()[:MAX_VALUE_LENGTH]
        if not 0 < len(name) <= MAX_NAME_LENGTH or name in kept:
            continue
        room -= len(name) + len(text)
        if room < 0 or len(kept) == MAX_PAIRS:
            break
        kept[name] = text.encode("utf-8", "replace").decode()
    return kept


def _is_own(header: str) -> bool:
    return header.startswith(PREFIX) and header not in OPTIONS


def _as_text(value: str) -> str:
    """Decode a header value, which servers read as Latin-1, as the UTF-8 that most clients mean."""
    try:
        return value.encode("latin-1").decode()
    except (UnicodeEncodeError, UnicodeDecodeError):
        return value
