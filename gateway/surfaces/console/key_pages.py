"""`/connect/keys`: the API keys that a person may see, switched on and off, and a new one of their own."""

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
# Where the public client leads who signs in with a key.
OF_CLIENTS = "/dashboard/api-keys"
SHOWN = 200
# State of a key → the button that it has.
BUTTONS = {"active": "deactivate", "inactive": "activate"}


class NewKey(Body):
    description = TextField(1, 1000, required=True)
    project = TextField(1, 80, required=True)
    limit = Usd()


def show(services: Services, inbound: Inbound) -> Outbound:
    """The newest keys, with what each spent and may spend."""
    return _page(services, inbound, require_visitor(services, inbound, PATH))


def act(services: Services, inbound: Inbound) -> Outbound:
    """What the buttons of the page do."""
    visitor, given = submitted_by_visitor(services, inbound, PATH, lambda _: FORM)
    step = pressed({"make": _make, "activate": _switch, "deactivate": _switch}, given)
    try:
        return step(services, inbound, visitor, given)
    except GatewayError as error:
        if error.blame != "caller":
            raise
        return _page(services, inbound, visitor, error, given)


def lead_client(services: Services, inbound: Inbound) -> Outbound:
    """The address that clients open for somebody who needs a key."""
    return redirect(inbound, PATH)


def _make(services: Services, inbound: Inbound, visitor: Visitor, given: dict[str, str]) -> Outbound:
    asked = read_fields(NewKey, given)
    project = visitor.project(asked["project"])
    draft = Draft(project.id, visitor.member(project.organization_id).id, asked["description"])
    made = services.management.create_key(draft, Limits(asked.get("limit")), actor=visitor.user_id)
    return page(inbound, "key_made.html", TITLE, token=made.token, description=made.info.description)


def _switch(services: Services, inbound: Inbound, visitor: Visitor, given: dict[str, str]) -> Outbound:
    key = visitor.key(given.get("key", "")[:80])
    action: Literal["activate", "deactivate"] = "activate" if given["action"] == "activate" else "deactivate"
    services.management.update_key(key, Change(action), actor=visitor.user_id)
    return redirect(inbound, PATH)


def _page(
    services: Services,
    inbound: Inbound,
    visitor: Visitor,
    error: GatewayError | None = None,
    given: dict[str, str] | None = None,
) -> Outbound:
    projects = {project.id: project for project in list_projects(services.store.database, list(visitor.memberships))}
    found = _list_keys(visitor, list(projects.values()))
    newest = found[:SHOWN]
    statuses = services.management.budgets.statuses([key.id for key in newest])
    return page(
        inbound,
        "keys.html",
        TITLE,
        error=error,
        wide=True,
        csrf=make_csrf(services, visitor, FORM),
        projects=[(one.id, one.name) for one in projects.values() if one.status == "active"],
        rows=[_show_row(key, statuses[key.id], projects) for key in newest],
        older=len(found) > SHOWN,
        typed={name: (given or {}).get(name, "") for name in ("description", "project", "limit")},
    )


def _list_keys(visitor: Visitor, projects: list[ProjectInfo]) -> list[KeyInfo]:
    """The newest keys of every organization that the visitor manages, and the newest of their own of others."""
    database = visitor.services.store.database
    found = []
    for organization_id, mine in visitor.memberships.items():
        places = [project.id for project in projects if project.organization_id == organization_id]
        if mine.role in MANAGERS:
            member_id = ""
        else:
            member_id = mine.id
        found += keys.list_keys(database, project_ids=places, member_id=member_id, newest=SHOWN + 1)
    return sorted(found, key=lambda key: key.id, reverse=True)


def _show_row(key: KeyInfo, status: Status, projects: dict[str, ProjectInfo]) -> dict[str, Any]:
    total = status.limits.total_nusd
    return {
        "id": key.id,
        "description": key.description,
        "mask": key.mask,
        "project": projects[key.project_id].name,
        "owner": key.creator_email,
        "state": key.state if key.owner_active else "owner inactive",
        "made": to_datetime(key.created_at_us).strftime("%Y-%m-%d"),
        "spent": format_usd(status.usage_nusd),
        "limit": "none" if total is None else format_usd(total),
        "button": BUTTONS.get(key.state, "") if key.owner_active else "",
    }


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", PATH, as_page(show)),
    Operation("POST", PATH, as_page(act), body="form"),
    Operation("GET", OF_CLIENTS, as_page(lead_client)),
)
