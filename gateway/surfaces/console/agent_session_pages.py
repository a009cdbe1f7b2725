"""`/console/sessions`: sessions of agents with their turns, tokens, cost and cache hits; and one as a timeline."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from msgspec import to_builtins

from gateway.accounts.projects import list_projects
from gateway.clock import to_datetime
from gateway.errors import NotFound
from gateway.metering.log.agent_sessions import AgentSession
from gateway.metering.log.archived_requests import find_session, list_sessions, search_log
from gateway.metering.log.records import LoggedRequest
from gateway.metering.log.search import LogFilter, LogPage
from gateway.metering.session_ids import PLAIN_ID
from gateway.money import round_usd
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.console.plots import build_plot
from gateway.surfaces.console.shown_figures import round_count
from gateway.surfaces.management.agent_session_routes import show_session, write_cursor
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors.log_answers import show_request
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "Sessions"
PATH = "/console/sessions"
# Newest sessions that are searched and sorted; older ones are behind a link. All rows of each are summed: 300 sessions
# of a thousand requests took two seconds on SQLite.
READ = request_log_reader_module.MAX_PAGE_SIZE
COLUMNS = (
    Column("Session", "id"),
    Column("Last used", "last_us"),
    Column("Project", "project", extra=True),
    Column("App", "source", extra=True),
    Column("Models", "models"),
    Column("Turns", "turns", numeric=True),
    Column("Tokens in / out", "tokens", numeric=True),
    Column("Cache hits", "cacheHitRate", numeric=True),
    Column("Cost", "cost_nusd", numeric=True),
)
MAX_NAME_LENGTH = 255
SEARCHED = ("id", "project", "source", "models")


def show_list(call: PageCall) -> Outbound:
    """Show the sessions with the newest requests, with links to their requests and to older sessions. A search finds a
    session of any age by its complete name."""
    project_id = call.arguments.get("projectId", "")
    database = call.services.store.database
    scopes = request_log_reader_module.scopes_of(call.visitor, project_id)
    before = request_log_reader_module.read_cursor(call.arguments.get("cursor", ""))
    newest = list_sessions(database, scopes, before, READ)
    found = newest.sessions
    name = call.arguments.get("q", "").strip()
    if PLAIN_ID.fullmatch(name) and all(session.session != name for session in found):
        named = find_session(database, scopes, name)
        if named is not None:
            found = [*found, named]
    projects = {project.id: project.name for project in list_projects(database, list(call.visitor.memberships))}
    rows = [_show_row(session, projects) for session in found]
    shown = arrange(rows, COLUMNS, call.arguments, searched=SEARCHED, sort="-last_us")
    older = ""
    if newest.following is not None:
        older = shown.link(cursor=write_cursor(newest.following) or "", page="")
    return call.page(
        "sessions.html",
        TITLE,
        sessions=shown,
        read=len(newest.sessions),
        projects=[("", "All projects"), *projects.items()],
        project_id=project_id,
        older=older,
    )


def _show_row(session: AgentSession, projects: dict[str, str]) -> dict[str, Any]:
    row = to_builtins(show_session(session))
    used = sorted({f"{part.provider}/{part.model}" for part in session.parts})
    return {
        **row,
        "last_us": session.last_us,
        "cost_nusd": session.figures.cost_nusd,
        "tokens": session.figures.input_tokens + session.figures.output_tokens,
        "project": projects.get(session.project_id, session.project_id),
        "source": next((part.source for part in session.parts if part.source), ""),
        "models": ", ".join(used),
        "first_model": used[0],
        "more_models": len(used) - 1,
        "requests": urlencode({"projectId": session.project_id, "session": session.session}),
    }


# One session as a timeline: its turns in order, with the cost and the cache of each.

TURNS_PATH = "/console/sessions/turns"
MAX_TURNS = 200  # newest requests of a session that are shown
# A turn lost the cache when it read less than half of what the turn before read, and that was worth caching.
KEPT_SHARE = 0.5
WORTH_CACHING = 1_024


class ShownTurn(NamedTuple):
    """A request of a session. `lost` is how many tokens the turn before read from the prompt cache, if this one did
    not."""

    request: LoggedRequest
    fresh: int
    cached: int
    written: int
    output: int
    cost_nusd: int
    lost: int = 0


def read_turns(requests: Iterable[LoggedRequest]) -> list[ShownTurn]:
    """Return the turns of requests, oldest first."""
    turns: list[ShownTurn] = []
    for request in requests:
        attempts = request.attempts
        turn = ShownTurn(
            request,
            sum(one.input for one in attempts),
            sum(one.cache_read for one in attempts),
            sum(one.cache_write for one in attempts),
            sum(one.output for one in attempts),
            sum(one.cost_nusd for one in attempts),
        )
        before = turns[-1].cached if turns else 0
        if before >= WORTH_CACHING and turn.cached < before * KEPT_SHARE and turn.fresh + turn.written:
            turn = turn._replace(lost=before)
        turns.append(turn)
    return turns


def show_turns(call: PageCall) -> Outbound:
    """Show the turns of a session."""
    project_id, session = call.arguments.get("projectId", ""), call.arguments.get("session", "")[:MAX_NAME_LENGTH]
    scopes = request_log_reader_module.scopes_of(call.visitor, project_id)
    database = call.services.store.database
    found = search_log(database, scopes, LogFilter(session=session), None, MAX_TURNS) if session else LogPage([], None)
    if not found.requests:
        raise NotFound("There is no such session, or its requests have expired.")
    turns = read_turns(reversed(found.requests))
    steps = [to_datetime(turn.request.at_us).strftime("%Y-%m-%dT%H:%M:%S") for turn in turns]
    tokens = {
        "Read from the cache": [turn.cached for turn in turns],
        "Written to the cache": [turn.written for turn in turns],
        "Not cached": [turn.fresh for turn in turns],
        "Output": [turn.output for turn in turns],
    }
    return call.page(
        "session.html",
        session,
        path=PATH,
        logs="?" + urlencode({**({"projectId": project_id} if project_id else {}), "session": session}),
        turns=_show_turns(turns),
        more=found.following is not None,
        lost=sum(bool(turn.lost) for turn in turns),
        cost=sum(turn.cost_nusd for turn in turns),
        input=sum(turn.fresh + turn.cached + turn.written for turn in turns),
        output=sum(turn.output for turn in turns),
        cached=sum(turn.cached for turn in turns),
        tokens_plot=build_plot(steps, tokens, round_count, COLOURS),
        cost_plot=build_plot(steps, {"Cost": [turn.cost_nusd for turn in turns]}, round_usd),
    )


def _show_turns(turns: Sequence[ShownTurn]) -> list[dict[str, Any]]:
    shown = []
    total = 0
    for number, turn in enumerate(turns, 1):
        total += turn.cost_nusd
        size = turn.fresh + turn.cached + turn.written
        shown.append(
            {
                **to_builtins(show_request(turn.request)),
                "number": number,
                "at_us": turn.request.at_us,
                "input": size,
                "share": turn.cached * 100 // size if size else 0,
                "cost_nusd": turn.cost_nusd,
                "total_nusd": total,
                "lost": turn.lost,
            }
        )
    return shown


COLOURS = {"Read from the cache": "s1", "Written to the cache": "s2", "Not cached": "s0", "Output": "s7"}

OPERATIONS: tuple[Operation, ...] = (*page_operations(PATH, show_list), *page_operations(TURNS_PATH, show_turns))
