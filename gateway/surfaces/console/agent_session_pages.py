"""`/console/sessions`: sessions of agents with their turns, tokens, cost and cache hits; and one as a timeline."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

from msgspec import to_builtins
from msgspec.structs import replace

from gateway.accounts.agent_budgets import find_agent_budgets
from gateway.billing.session_budgets import budget_of
from gateway.clock import to_datetime
from gateway.errors import GatewayError, NotFound
from gateway.limits.models import SESSION
from gateway.metering.log.agent_sessions import AgentSession
from gateway.metering.log.archived_requests import find_session, list_sessions, search_log
from gateway.metering.log.records import LoggedRequest
from gateway.metering.log.search import LogFilter, LogPage
from gateway.metering.session_ids import MAX_ID_LENGTH, PLAIN_ID
from gateway.money import round_usd
from gateway.routes.route_prices import RoutePrices
from gateway.runtime.threads import compute_if
from gateway.surfaces.console.choice_bar import build_bar, choose_project
from gateway.surfaces.console.earlier_requests import INLINE_BYTES, compare_requests
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.console.plots import build_plot
from gateway.surfaces.console.request_sharing import end_link, make_link, show_links
from gateway.surfaces.console.session_branches import (
    CAUSES,
    MAIN,
    SIDE,
    SUB,
    Branch,
    ShownTurn,
    describe_branch,
    draw_lanes,
    find_branches,
    read_turns,
)
from gateway.surfaces.console.shown_figures import round_count
from gateway.surfaces.management.agent_session_routes import show_session, write_cursor
from gateway.surfaces.management.share_routes import draft_of_session
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors.log_answers import show_request
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Operation, Outbound
from gateway.telemetry.cache_watch import PREFIX

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
    projects = {project.id: project.name for project in call.visitor.projects()}
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
        bar=build_bar(call.inbound, choose_project(call.visitor, project_id)),
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


OWN_PATH = "/console/sessions/own"
OWN = 5


def show_own(call: PageCall) -> Outbound:
    """Show the visitor's own newest sessions, which the overview loads when it is shown."""
    scopes = request_log_reader_module.scopes_of(call.visitor, user_id=call.visitor.user_id)
    database = call.services.store.database
    sessions = list_sessions(database, scopes, None, OWN).sessions if scopes else []
    projects = {project.id: project.name for project in call.visitor.projects()}
    return call.page("sessions_own.html", "Your sessions", sessions=[_show_row(one, projects) for one in sessions])


# One session as a timeline: its turns in branches, with the cost and the cache of each.

TURNS_PATH = "/console/sessions/turns"
MAX_TURNS = 200  # newest requests of a session that are shown
MAX_NAMED = 12  # branches that are named by what their first request said
MAX_NAMED_BYTES = 1_500_000  # of the first request of a branch, and of all of them MAX_READ_BYTES
MAX_READ_BYTES = 6_000_000
MAX_EXPLAINED = 3  # turns without a cache whose prompts are compared
LABELS = {MAIN: "Main agent", SUB: "Sub-agent", SIDE: "Side call"}
COLOURS = {"Read from the cache": "s1", "Written to the cache": "s2", "Not cached": "s0", "Output": "s7"}


def show_turns(call: PageCall) -> Outbound:
    """Show the turns of a session."""
    found = _find(call)
    return show_session_turns(call, _read_name(call)[1], found)


def _find(call: PageCall) -> LogPage:
    """Return the newest requests of a session that the visitor may see. Raises NotFound without any."""
    project_id, session = _read_name(call)
    scopes = request_log_reader_module.scopes_of(call.visitor, project_id)
    database = call.services.store.database
    found = search_log(database, scopes, LogFilter(session=session), None, MAX_TURNS) if session else LogPage([], None)
    if not found.requests:
        raise NotFound("There is no such session, or its requests have expired.")
    return found


def share(call: PageCall) -> Outbound:
    """Make a link by which colleagues see the session."""
    _find(call)
    return _show_result(call, make_link(call, draft_of_session(*_read_name(call), call.visitor)))


def unshare(call: PageCall) -> Outbound:
    """End a link to the session."""
    return _show_result(call, end_link(call, draft_of_session(*_read_name(call), call.visitor)))


def _show_result(call: PageCall, message: str) -> Outbound:
    """Show the session that a form names, with the result of its button."""
    query = urlencode(dict(zip(("projectId", "session"), _read_name(call), strict=True)))
    return show_turns(PageCall(call.visitor, replace(call.inbound, query=query), message=message))


def _read_name(call: PageCall) -> tuple[str, str]:
    """Return the project and the session of the address, or of the form that was pressed."""
    given = {**call.arguments, **call.form}
    return given.get("projectId", ""), given.get("session", "")[:MAX_ID_LENGTH]


def show_session_turns(
    call: PageCall,
    session: str,
    found: LogPage,
    shared: Mapping[str, Any] | None = None,
    with_payloads: bool = True,
) -> Outbound:
    """Show these requests of a session, newest first, as its turns. `shared` describes the link by which the page was
    opened, if by one."""
    turns = read_turns(reversed(found.requests))
    branches = find_branches(turns)
    first_changes: dict[str, str] = {}
    if with_payloads:
        _name_branches(call.visitor, branches)
        first_changes = _find_changes(call.visitor, branches)
    project_id = f"proj_{found.requests[0].owner.project.hex()}"
    steps = [to_datetime(turn.begins_us).strftime("%Y-%m-%dT%H:%M:%S") for turn in turns]
    tokens = {
        "Read from the cache": [turn.cached for turn in turns],
        "Written to the cache": [turn.written for turn in turns],
        "Not cached": [turn.fresh for turn in turns],
        "Output": [turn.output for turn in turns],
    }
    values = {
        "path": PATH,
        "name_fields": {"projectId": project_id, "session": session},
        "requests_path": shared["path"] if shared else "/console/logs",
        "shared": shared,
        "links": [] if shared else show_links(call, draft_of_session(project_id, session, call.visitor)),
        "logs": "?" + urlencode({"projectId": project_id, "session": session}),
        "turns": _show_turns(call, turns, branches),
        "lanes": draw_lanes(turns, branches),
        "causes": CAUSES,
        "changes": first_changes,
        "more": found.following is not None,
        "lost": sum(bool(turn.lost) for turn in turns),
        "cost": sum(turn.cost_nusd for turn in turns),
        "input": sum(turn.size for turn in turns),
        "output": sum(turn.output for turn in turns),
        "cached": sum(turn.cached for turn in turns),
        "budget": _read_budget(call, project_id, session, found.requests),
        "tokens_plot": build_plot(steps, tokens, round_count, COLOURS),
        "cost_plot": build_plot(steps, {"Cost": [turn.cost_nusd for turn in turns]}, round_usd),
    }
    task = next((branch.name for branch in branches if branch.kind == MAIN and branch.name), "")
    return call.page("session.html", task or session, session=session, **values)


def _show_turns(call: PageCall, turns: Sequence[ShownTurn], branches: Sequence[Branch]) -> list[dict[str, Any]]:
    shown = []
    labels = label_branches(branches)
    prices = RoutePrices(call.services.routing.catalogue.current)
    total = 0
    for number, turn in enumerate(turns, 1):
        total += turn.cost_nusd
        answer = to_builtins(show_request(turn.request))
        shown.append(
            {
                **answer,
                "number": number,
                "at_us": turn.begins_us,
                "input": turn.size,
                "share": turn.cached * 100 // turn.size if turn.size else 0,
                "cost_nusd": turn.cost_nusd,
                "total_nusd": total,
                "lost": turn.lost,
                "cause": turn.cause,
                "lost_nusd": prices.lost_cache_nusd("/".join(turn.place), turn.lost) if turn.lost else 0,
                "branch": turn.branch,
                "branch_name": labels[turn.branch],
            }
        )
    return shown


def label_branches(branches: Sequence[Branch]) -> list[str]:
    """Return what a page calls each branch; those of the same kind are counted."""
    counts: Counter[str] = Counter()
    labels = []
    for branch in branches:
        label = LABELS[branch.kind] if branch.is_known else "Branch"
        counts[label] += 1
        labels.append(label if branch.kind == MAIN else f"{label} {counts[label]}")
    return labels


def _name_branches(visitor: Visitor, branches: Sequence[Branch]) -> None:
    """Name branches by the first message of their first request, where that was retained and is not too long."""
    room = MAX_READ_BYTES
    for branch in branches[:MAX_NAMED]:
        request = branch.turns[0].request
        if request.payload is None or request.payload.sent_bytes > min(room, MAX_NAMED_BYTES):
            continue
        room -= request.payload.sent_bytes
        try:
            sent = visitor.services.engine.retention.read(request.payload).sent
        except GatewayError:  # it was deleted meanwhile
            continue
        compute_if(len(sent) > INLINE_BYTES, describe_branch, branch, sent)


def _find_changes(visitor: Visitor, branches: Sequence[Branch]) -> dict[str, str]:
    """Return what changed in the prompts of the first turns that lost the cache, by the ids of their requests, where
    both payloads were retained and are not too long."""
    found: dict[str, str] = {}
    pairs = (pair for branch in branches for pair in pairwise(branch.turns))
    lost = [(before.request, turn.request) for before, turn in pairs if turn.cause == PREFIX]
    for before, request in lost[:MAX_EXPLAINED]:
        sizes = [one.payload.sent_bytes for one in (before, request) if one.payload is not None]
        if request.payload is None or len(sizes) < 2 or max(sizes) > MAX_NAMED_BYTES:
            continue
        try:
            sent = visitor.services.engine.retention.read(request.payload).sent
        except GatewayError:  # it was deleted meanwhile
            continue
        difference = compare_requests(visitor, before, sent)
        if difference is not None and difference.changes:
            change = difference.changes[0]
            found[request.request_id] = f"{change.place} ({change.kind})"
    return found


def _read_budget(
    call: PageCall, project_id: str, session: str, requests: Sequence[LoggedRequest]
) -> dict[str, int] | None:
    """Return the lowest budget that the keys of a session and its project set for it, and what is used; None without
    one. A budget in a header is not stored."""
    database = call.services.store.database
    setters = {f"key_{request.owner.api_key.hex()}" for request in requests}
    budgets = [find_agent_budgets(database, one).session_nusd for one in (project_id, *sorted(setters)[:MAX_NAMED])]
    limit = min((amount for amount in budgets if amount is not None), default=None)
    if limit is None:
        return None
    status = call.services.billing.budgets.status(budget_of(SESSION, project_id, session))
    return {"used_nusd": status.usage_nusd, "limit_nusd": limit}


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show_list),
    *page_operations(OWN_PATH, show_own),
    *page_operations(TURNS_PATH, show_turns, {"share": share, "unshare": unshare}),
)
