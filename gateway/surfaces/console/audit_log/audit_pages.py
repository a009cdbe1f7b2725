"""`/console/audit`: who changed what in an organization."""

from typing import Any

from gateway.accounts import keys
from gateway.accounts.members import list_members
from gateway.accounts.projects import list_projects
from gateway.accounts.teams import list_teams
from gateway.surfaces.console.audit_log.audit_text import describe_action, describe_details
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.management_calls import ManagementCall
from gateway.surfaces.console.organization_choice import OrganizationChoice, choose_organization
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.http import Operation, Outbound

TITLE = "Audit log"
PATH = "/console/audit"
READ = 1000  # newest entries that are searched and sorted; older ones are behind a link
COLUMNS = (
    Column("Time", "at"),
    Column("Person", "who"),
    Column("Change", "what"),
    Column("Subject", "subject_name"),
    Column("Details"),
)
LIST = ManagementCall("GET /orgs/<organization_id>/audit")
# Details that name a subject that has no name itself or was deleted.
NAMING = ("name", "label", "email", "description", "host")
SEARCHED = ("who", "what", "action", "subject_name", "detail_text")


def show_list(call: PageCall) -> Outbound:
    """Show the newest changes, with the names of people and things."""
    choice = choose_organization(call)
    fields = {"limit": READ}
    before = call.arguments.get("before", "")
    if before.isascii() and before.isdigit():
        fields["before"] = int(before[:18])
    log = call.run(LIST, fields, organization_id=choice.id)
    names = _names_of(call, choice)
    rows = [_show_row(entry, names) for entry in log["entries"]]
    shown = arrange(rows, COLUMNS, call.arguments, searched=SEARCHED, sort="-at")
    return call.page("audit_log/audit.html", TITLE, entries=shown, choice=choice, path=PATH, older=log["next"])


def _names_of(call: PageCall, choice: OrganizationChoice) -> dict[str, str]:
    """Return the names of the people and things of an organization by their ids."""
    database = call.services.store.database
    names = {choice.id: choice.chosen.name}
    for member in list_members(database, choice.id, service_accounts=True):
        names[member.id] = names[member.user_id] = member.name or member.email
    projects = list_projects(database, [choice.id])
    names |= {project.id: project.name for project in projects}
    names |= {team.id: team.name for team in list_teams(database, choice.id)}
    project_ids = [project.id for project in projects]
    names |= {key.id: key.description for key in keys.list_keys(database, project_ids=project_ids, deleted=True)}
    return names


def _show_row(entry: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    detail = entry["detail"]
    named = next((str(detail[name]) for name in NAMING if detail.get(name)), entry["subject"])
    subject_name = names.get(entry["subject"], named)
    # The column of subjects has the name already.
    others = {name: value for name, value in detail.items() if name not in NAMING or value != subject_name}
    return {
        **entry,
        "who": names.get(entry["actor"], entry["actor"]),
        "what": describe_action(entry["action"]),
        "subject_name": subject_name,
        "detail_text": describe_details(others, names),
    }


OPERATIONS: tuple[Operation, ...] = page_operations(PATH, show_list)
