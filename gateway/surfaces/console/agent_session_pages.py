"""`/console/sessions`: sessions of agents with their turns, tokens, cost and cache hits."""

from typing import Any
from urllib.parse import urlencode

from msgspec import to_builtins

from gateway.accounts.projects import list_projects
from gateway.metering.log.agent_sessions import AgentSession
from gateway.metering.log.archived_requests import find_session, list_sessions
from gateway.metering.session_ids import PLAIN_ID
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.management.agent_session_routes import show_session, write_cursor
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
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


OPERATIONS: tuple[Operation, ...] = page_operations(PATH, show_list)
