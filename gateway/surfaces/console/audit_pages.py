"""`/console/audit`: who changed what in an organization."""

import json
from collections.abc import Mapping
from typing import Any

from gateway.accounts import keys
from gateway.accounts.members import EMAIL_HOST, list_members
from gateway.accounts.projects import list_projects
from gateway.accounts.teams import list_teams
from gateway.callers.credential_sources import PROJECT_MODES
from gateway.money import format_usd
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.organization_choice import OrganizationChoice, choose_organization
from gateway.surfaces.console.page_calls import ManagementCall, PageCall, page_operations
from gateway.surfaces.web.http import Operation, Outbound

# Entries of the audit log in words: "API key limit updated" for `api_key.update_limit`.

# Words of actions and details → how the console writes them.
AUDIT_TERMS = {
    "api": "API",
    "cidrs": "networks",
    "hook": "webhook",
    "id": "ID",
    "oauth": "OAuth access",
    "s": "in seconds",
    "scim": "SCIM",
    "sso": "single sign-on",
    "ttl": "lifetime",
    "url": "URL",
}
# Name and value of a detail → how the console writes them.
AUDIT_PAIRS: dict[tuple[str, str | bool], str] = {
    ("kind", "user"): "allows: calling models, signing in clients",
    ("kind", "customer"): "allows: calling models",
    ("belongs", True): "added",
    ("belongs", False): "removed",
    **{("mode", mode): f"provider keys: {text}" for mode, text in PROJECT_MODES.items()},
}
# Actions that do not read well as subject, part and participle.
AUDIT_PHRASES = {
    "credits.unlimited": "Unlimited spending changed",
    "discount.set": "Discount set",
    "limit.set": "Limit set",
    "second_factor.use_recovery_code": "Recovery code used",
    "session.delete_others": "Other sessions ended",
    "sso.sign_out": "Signed out by the identity provider",
    "user.ask_password": "New password requested",
}
NANO_SUFFIX = "_nusd"
USD_SUFFIX = "_usd"


def describe_action(action: str) -> str:
    """Return an action of the audit log as a phrase."""
    if action in AUDIT_PHRASES:
        return AUDIT_PHRASES[action]
    subject, _, change = action.partition(".")
    verb, _, part = change.partition("_")
    words = [*_words(subject), *_words(part), _participle(verb)]
    phrase = " ".join(words)
    return phrase[:1].upper() + phrase[1:]


def describe_details(detail: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return the details of an entry as "name: value" pairs. `names` are names of people and things by their ids."""
    shown = {name: value for name, value in detail.items() if not _is_empty(value)}
    return ", ".join(_describe(name, value, names) for name, value in shown.items())


def _is_empty(value: Any) -> bool:
    """Return whether a value says nothing: empty, or the address of an account that is no person."""
    return value in ("", "{}", [], {}, None) or str(value).endswith(f"@{EMAIL_HOST}")


def _describe(name: str, value: Any, names: Mapping[str, str]) -> str:
    if name.endswith(NANO_SUFFIX) and isinstance(value, int):
        return f"{_write_name(name.removesuffix(NANO_SUFFIX))}: ${format_usd(value)}"
    if name.endswith(USD_SUFFIX):
        return f"{_write_name(name.removesuffix(USD_SUFFIX))}: ${value}"
    if isinstance(value, str | bool) and (name, value) in AUDIT_PAIRS:
        return AUDIT_PAIRS[name, value]
    return f"{_write_name(name)}: {_write_value(value, names)}"


def _write_name(name: str) -> str:
    return " ".join(_words(name))


def _write_value(value: Any, names: Mapping[str, str]) -> str:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(names.get(item, item) for item in value)
    return json.dumps(value, ensure_ascii=False).replace("true", "yes").replace("false", "no")


def _words(name: str) -> list[str]:
    return [AUDIT_TERMS.get(word, word) for word in name.split("_") if word]


def _participle(verb: str) -> str:
    if verb.endswith("e"):
        return f"{verb}d"
    if verb.endswith("y"):
        return f"{verb[:-1]}ied"
    return f"{verb}ed"


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
