"""`/connect/keys`: lists the API keys that the visitor can see, activates and deactivates them, and creates keys."""

from operator import attrgetter
from typing import Any, Literal

from gateway.accounts import keys
from gateway.accounts.keys import Change, Draft, KeyInfo
from gateway.accounts.projects import ProjectInfo, list_projects
from gateway.clock import to_datetime
from gateway.errors import GatewayError
from gateway.limits.budgets import Limits, Status
from gateway.money import format_usd
from gateway.surfaces.console.pages import page, redirect
from gateway.surfaces.console.visits import as_page, make_csrf, pressed, require_visitor, submitted_by_visitor
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.validation_schemas import Body, TextField, Usd, read_fields
from gateway.surfaces.visitor import MANAGERS, Visitor
from gateway.worker.services import Services

TITLE = "API keys"
PATH = "/connect/keys"
FORM = "keys"
# The public command-line client opens this path for sign-in with a key.
CLIENT_PATH = "/dashboard/api-keys"
SHOWN = 200
# State of a key → action of its button.
BUTTONS = {"active": "deactivate", "inactive": "activate"}


class NewKey(Body):
    description = TextField(1, 1000, required=True)
    project = TextField(1, 80, required=True)
    limit = Usd()


def show(services: Services, inbound: Inbound) -> Outbound:
    """Show the newest keys with their spending and limits."""
    return _page(services, inbound, require_visitor(services, inbound, PATH))


def act(services: Services, inbound: Inbound) -> Outbound:
    """Run the action of the button that was pressed."""
    visitor, form = submitted_by_visitor(services, inbound, PATH, FORM)
    action = pressed({"make": _create, "activate": _change_state, "deactivate": _change_state}, form)
    try:
        return action(services, inbound, visitor, form)
    except GatewayError as error:
        if error.blame != "caller":
            raise
        return _page(services, inbound, visitor, error, form)


def redirect_client(services: Services, inbound: Inbound) -> Outbound:
    """Redirect the path that command-line clients open for people who need a key."""
    return redirect(inbound, PATH)


def _create(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    fields = read_fields(NewKey, form)
    project = visitor.project(fields["project"])
    draft = Draft(project.id, visitor.member(project.organization_id).id, fields["description"])
    created = services.management.create_key(draft, Limits(fields.get("limit")), actor=visitor.user_id)
    return page(inbound, "key_created.html", TITLE, token=created.token, description=created.info.description)


def _change_state(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    key = visitor.key(form.get("key", "")[:80])
    action: Literal["activate", "deactivate"] = "deactivate"
    if form["action"] == "activate":
        action = "activate"
    services.management.update_key(key, Change(action), actor=visitor.user_id)
    return redirect(inbound, PATH)


def _page(
    services: Services,
    inbound: Inbound,
    visitor: Visitor,
    error: GatewayError | None = None,
    form: dict[str, str] | None = None,
) -> Outbound:
    projects = {project.id: project for project in list_projects(services.store.database, list(visitor.memberships))}
    visible = _list_keys(visitor, list(projects.values()))
    newest = visible[:SHOWN]
    statuses = services.management.budgets.statuses([key.id for key in newest])
    return page(
        inbound,
        "keys.html",
        TITLE,
        error=error,
        wide=True,
        csrf=make_csrf(services, visitor, FORM),
        projects=[(project.id, project.name) for project in projects.values() if project.status == "active"],
        rows=[_show_row(key, statuses[key.id], projects) for key in newest],
        older=len(visible) > SHOWN,
        typed={name: (form or {}).get(name, "") for name in ("description", "project", "limit")},
    )


def _list_keys(visitor: Visitor, projects: list[ProjectInfo]) -> list[KeyInfo]:
    """Return the newest keys of the organizations that the visitor manages, and the visitor's keys in others."""
    database = visitor.services.store.database
    visible = []
    for organization_id, membership in visitor.memberships.items():
        project_ids = [project.id for project in projects if project.organization_id == organization_id]
        if membership.role in MANAGERS:
            member_id = ""
        else:
            member_id = membership.id
        visible += keys.list_keys(database, project_ids=project_ids, member_id=member_id, newest=SHOWN + 1)
    return sorted(visible, key=attrgetter("id"), reverse=True)


def _show_row(key: KeyInfo, status: Status, projects: dict[str, ProjectInfo]) -> dict[str, Any]:
    limit = "none"
    if status.limits.total_nusd is not None:
        limit = format_usd(status.limits.total_nusd)
    state = "owner inactive"
    button = ""
    if key.owner_active:
        state = key.state
        button = BUTTONS.get(key.state, "")
    return {
        "id": key.id,
        "description": key.description,
        "mask": key.mask,
        "project": projects[key.project_id].name,
        "owner": key.creator_email,
        "state": state,
        "created": to_datetime(key.created_at_us).strftime("%Y-%m-%d"),
        "spent": format_usd(status.usage_nusd),
        "limit": limit,
        "button": button,
    }


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", PATH, as_page(show)),
    Operation("POST", PATH, as_page(act), body="form"),
    Operation("GET", CLIENT_PATH, as_page(redirect_client)),
)
