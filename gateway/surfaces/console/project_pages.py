"""`/console/projects`: the projects of an organization and the settings of each."""

from typing import Any

from gateway.callers.credential_sources import CREDITS, HYBRID, PROJECT_MODES
from gateway.callers.permissions import Permission
from gateway.surfaces.console.limit_forms import (
    RATES,
    list_further_fields,
    read_further_fields,
    read_number,
    read_rates,
    read_session_budget,
)
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.organization_choice import choose_organization
from gateway.surfaces.console.page_calls import ManagementCall, PageAction, PageCall, page_operations
from gateway.surfaces.console.subject_figures import FIGURES, SETTINGS, TABS, UsageSubject, chosen_tab, read_figures
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "Projects"
PATH = "/console/projects"
PROJECT = f"{PATH}/<project_id>"
COLUMNS = (
    Column("Project", "name"),
    Column("Provider keys", "mode_text"),
    Column("Response cache", "cache_text"),
    Column("Payloads", "retention_text"),
    Column("Routing", "routing_text"),
    Column("Status", "status"),
)
MARKERS = (
    ("automatic", "Set by the gateway"),
    ("client-managed", "Set by the caller"),
    ("disabled", "Never set"),
)
STRATEGIES = (
    ("auto", "Balance price, speed and uptime"),
    ("price", "Cheapest first"),
    ("throughput", "Highest throughput first"),
    ("latency", "Fastest first token"),
)
LIST = ManagementCall("GET /orgs/<organization_id>/projects")
CREATE = ManagementCall("POST /projects")
FIND = ManagementCall("GET /projects/<project_id>")
UPDATE = ManagementCall("PATCH /projects/<project_id>")
# Settings that the page shows in its own way. A field for each further one follows from its schema.
NUMBERS = {"cacheDurationSeconds": "duration of the response cache", "retentionDays": "days of retention"}
CHECKS = ("cachingEnabled", "hedging", "useSuccessors")
TEXTS = ("name", "mode", "cacheMarkers", "routing", "retention")
FURTHER = list_further_fields(UPDATE, (*TEXTS, *CHECKS, *NUMBERS, "status"))
FIND_RATES = ManagementCall("GET /projects/<project_id>/rate-limits")
SET_RATES = ManagementCall("PATCH /projects/<project_id>/rate-limits")
FIND_SESSION_BUDGET = ManagementCall("GET /projects/<project_id>/session-budget")
SET_SESSION_BUDGET = ManagementCall("PATCH /projects/<project_id>/session-budget")
SECRET = ManagementCall("GET /projects/<project_id>/callback-secret")
ADMINS = ManagementCall("GET /projects/<project_id>/admins")
ADD_ADMIN = ManagementCall("PUT /projects/<project_id>/admins/<member_id>")
REMOVE_ADMIN = ManagementCall("DELETE /projects/<project_id>/admins/<member_id>")
MEMBERS = ManagementCall("GET /orgs/<organization_id>/members")
ROLL_SECRET = ManagementCall("POST /projects/<project_id>/callback-secret/roll")


def show_list(call: PageCall) -> Outbound:
    """Show the projects with their most important settings."""
    choice = choose_organization(call, "projects:write")
    reach = call.visitor.reach(choice.id, "projects:write")
    projects = call.run(LIST, {"includeArchived": "true"}, organization_id=choice.id)
    rows = [_show_row(project) for project in projects if reach.whole or project["id"] in reach.projects]
    shown = arrange(rows, COLUMNS, call.arguments, searched=("name", "mode_text"), sort="name")
    return call.page("projects/projects.html", TITLE, projects=shown, choice=choice, path=PATH, manages=reach.whole)


def show_project(call: PageCall) -> Outbound:
    """Show the settings and rate limits of a project."""
    project_id = call.params["project_id"]
    rates = call.run(FIND_RATES, project_id=project_id)
    project = call.run(FIND, project_id=project_id)
    choices = {"modes": tuple(PROJECT_MODES.items()), "markers": MARKERS, "strategies": STRATEGIES}
    rows = [(name, label, rates[name]) for name, label in RATES]
    admins = call.run(ADMINS, project_id=project_id)
    authority = call.visitor.authority_for(project["organizationId"], "projects:write")
    tab = chosen_tab(call)
    subject = UsageSubject("model", {"projectId": project_id}, project["organizationId"], "project", project_id)
    return call.page(
        "projects/project.html",
        project["name"],
        project=_show_row(project),
        further=FURTHER,
        rates=rows,
        path=PATH,
        archives=call.visitor.manages("projects:create", project["organizationId"]),
        admins=[{**admin, "changeable": authority.covers(admin["role"])} for admin in admins],
        people=_list_people(call, project["organizationId"], admins),
        tabs=TABS,
        tab=tab,
        session_budget=call.run(FIND_SESSION_BUDGET, project_id=project_id) if tab == SETTINGS else {},
        budgets=_covers(call.visitor, project, "projects:budget"),
        figures=read_figures(call, subject) if tab == FIGURES else None,
        **choices,
    )


def _list_people(call: PageCall, organization_id: str, admins: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the visible members that the visitor may make admins of the project."""
    if not call.visitor.manages("members:read", organization_id):
        return []
    authority = call.visitor.authority_for(organization_id, "projects:write")
    held = {admin["id"] for admin in admins}
    listed = call.run(MEMBERS, organization_id=organization_id)
    return [
        (member["id"], member["name"] or member["email"])
        for member in listed
        if member["id"] not in held and member["status"] == "active" and authority.covers(member["role"])
    ]


def _add_admin(call: PageCall) -> str:
    call.run(ADD_ADMIN, project_id=call.params["project_id"], member_id=call.form.get("member", ""))
    return "The member is an admin of the project."


def _remove_admin(call: PageCall) -> str:
    call.run(REMOVE_ADMIN, project_id=call.params["project_id"], member_id=call.form.get("member", ""))
    return "The member is no admin of the project any more."


def _create(call: PageCall) -> str:
    """Create a project. Where every other one uses own provider keys, it does too, so that its requests find them."""
    organization_id = choose_organization(call).id
    fields = {"organizationId": organization_id, "name": call.form.get("name", "").strip()}
    others = call.run(LIST, organization_id=organization_id)
    if others and all(project["mode"] != CREDITS for project in others):
        fields["mode"] = HYBRID
    project = call.run(CREATE, fields)
    return f"The project {project['name']} was created. Open it to change its settings."


def _save(call: PageCall) -> str:
    form = call.form
    fields = {
        **{name: form.get(name, "").strip() for name in TEXTS},
        **{name: form.get(name) == "on" for name in CHECKS},
        **{name: read_number(form, name, label) for name, label in NUMBERS.items()},
        **read_further_fields(form, FURTHER),
    }
    call.run(UPDATE, fields, project_id=call.params["project_id"])
    return "The settings were saved. They are in force on every worker."


def _covers(visitor: Visitor, project: dict[str, Any], permission: Permission) -> bool:
    """Return whether a permission of the visitor covers a project."""
    reach = visitor.reach(project["organizationId"], permission)
    return reach.whole or project["id"] in reach.projects


def _set_session_budget(call: PageCall) -> str:
    call.run(SET_SESSION_BUDGET, read_session_budget(call.form), project_id=call.params["project_id"])
    return "The budgets of sessions were saved."


def _set_rates(call: PageCall) -> str:
    call.run(SET_RATES, read_rates(call.form), project_id=call.params["project_id"])
    return "The rate limits were saved."


def _archive(call: PageCall) -> str:
    call.run(UPDATE, {"status": "archived"}, project_id=call.params["project_id"])
    return "The project is archived: its keys are refused."


def _restore(call: PageCall) -> str:
    call.run(UPDATE, {"status": "active"}, project_id=call.params["project_id"])
    return "The project is active again."


def _show_secret(call: PageCall) -> str:
    secret = call.run(SECRET, project_id=call.params["project_id"])
    if secret is None:
        return "The project has no callback secret yet."
    return f"The callback secret is {secret}"


def _roll_secret(call: PageCall) -> str:
    secret = call.run(ROLL_SECRET, project_id=call.params["project_id"])
    return f"The new callback secret is {secret}"


def _show_row(project: dict[str, Any]) -> dict[str, Any]:
    cache = "off"
    if project["cachingEnabled"]:
        cache = f"{project['cacheDurationSeconds']:,} s"
    retention = "not retained"
    if project["retention"] == "retain":
        retention = f"retained for {project['retentionDays']} days"
    mode = PROJECT_MODES[project["mode"]]
    routing = dict(STRATEGIES)[project["routing"]]
    texts = {"mode_text": mode, "cache_text": cache, "retention_text": retention, "routing_text": routing}
    return {**project, **texts}


OF_PROJECT: dict[str, PageAction] = {
    "save": _save,
    "rates": _set_rates,
    "session-budget": _set_session_budget,
    "archive": _archive,
    "restore": _restore,
    "add-admin": _add_admin,
    "remove-admin": _remove_admin,
    "secret": _show_secret,
    "roll-secret": _roll_secret,
}
OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show_list, {"create": _create}),
    *page_operations(PROJECT, show_project, OF_PROJECT),
)
