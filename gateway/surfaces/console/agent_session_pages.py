"""`/console/sessions`: sessions of agents with their turns, tokens, cost and cache hits."""

from typing import Any
from urllib.parse import urlencode

from msgspec import to_builtins

from gateway.accounts.projects import list_projects
from gateway.metering.log.agent_sessions import AgentSession, list_sessions
from gateway.surfaces import request_log_reader
from gateway.surfaces.console.pages import page
from gateway.surfaces.console.visits import as_page, require_visitor
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.management.agent_session_routes import SessionsQuery, show_session, write_cursor
from gateway.surfaces.validation_schemas import read_query
from gateway.worker.services import Services

TITLE = "Sessions"
PATH = "/console/sessions"


def show_list(services: Services, inbound: Inbound) -> Outbound:
    """Show the sessions with the newest requests, with links to their requests and to older sessions."""
    visitor = require_visitor(services, inbound, PATH)
    fields = read_query(SessionsQuery, inbound)
    project_id = fields.get("projectId", "")
    database = services.store.database
    scopes = request_log_reader.scopes_of(visitor, project_id)
    before = request_log_reader.read_cursor(fields.get("cursor", ""))
    sessions = list_sessions(database, scopes, before, fields["limit"])
    projects = {project.id: project.name for project in list_projects(database, list(visitor.memberships))}
    older = ""
    if sessions.following is not None:
        older = "?" + urlencode({"projectId": project_id, "cursor": write_cursor(sessions.following)})
    return page(
        inbound,
        "sessions.html",
        TITLE,
        visitor=visitor,
        wide=True,
        path=PATH,
        projects=[(ident, name, ident == project_id) for ident, name in projects.items()],
        rows=[_show_row(session, projects) for session in sessions.sessions],
        older=older,
    )


def _show_row(session: AgentSession, projects: dict[str, str]) -> dict[str, Any]:
    row = to_builtins(show_session(session))
    used = sorted({f"{part.provider}/{part.model}" for part in session.parts})
    return {
        **row,
        "last_us": session.last_us,
        "project": projects.get(session.project_id, session.project_id),
        "source": next((part.source for part in session.parts if part.source), ""),
        "models": used,
        "requests": urlencode({"projectId": session.project_id, "session": session.session}),
    }


OPERATIONS: tuple[Operation, ...] = (Operation("GET", PATH, as_page(show_list)),)
