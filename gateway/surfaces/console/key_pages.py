"""`/console/keys`: the API keys that the visitor can see, a form for a new key, and the page of each key."""

from collections.abc import Mapping
from typing import Any

import msgspec
import orjson
from msgspec.structs import replace

from gateway.accounts import keys
from gateway.accounts.keys import KeyInfo
from gateway.accounts.members import list_members
from gateway.accounts.projects import ProjectInfo
from gateway.callers.permissions import reach_of
from gateway.errors import GatewayError
from gateway.surfaces.console.client_settings import group_clients
from gateway.surfaces.console.limit_forms import (
    RATES,
    RulePlace,
    describe_rules,
    read_limit_change,
    read_rates,
    read_rule,
    read_session_budget,
    rule_actions,
    rule_fields,
)
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.page_calls import ManagementCall, PageAction, PageCall, page_operations, show_instead
from gateway.surfaces.console.pages import redirect
from gateway.surfaces.console.subject_figures import FIGURES, SETTINGS, TABS, UsageSubject, chosen_tab, read_figures
from gateway.surfaces.management import key_routes
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

TITLE = "API keys"
PATH = "/console/keys"
NEW = f"{PATH}/new"
KEY = f"{PATH}/<key_id>"
# The public command-line client opens this path for sign-in with a key.
CLIENT_PATH = "/dashboard/api-keys"
COLUMNS = (
    Column("Name", "description"),
    Column("Project", "project"),
    Column("Owner", "owner"),
    Column("Spent", "spent", numeric=True),
    Column("Last used", "lastUsedAt"),
    Column("Expires", "expiresAt", extra=True),
    Column("Status", "state"),
)
COUNTED = ("spent", "lastUsedAt")  # columns that need the counters of every key
STATES = [state for state in dict.fromkeys(keys.TRANSITIONS.values()) if state != "deleted"]
CREATE = ManagementCall("POST /keys/api")
FIND = ManagementCall("GET /keys/api/<key_id>")
UPDATE = ManagementCall("PATCH /keys/api/<key_id>")
SET_LIMITS = ManagementCall("PATCH /keys/api/limit/<key_id>")
FIND_RATES = ManagementCall("GET /keys/api/<key_id>/rate-limits")
SET_RATES = ManagementCall("PATCH /keys/api/<key_id>/rate-limits")
FIND_TAGS = ManagementCall("GET /keys/api/<key_id>/tags")
SET_TAGS = ManagementCall("PUT /keys/api/<key_id>/tags")
FIND_SESSION_BUDGET = ManagementCall("GET /keys/api/<key_id>/session-budget")
SET_SESSION_BUDGET = ManagementCall("PATCH /keys/api/<key_id>/session-budget")
ROLL = ManagementCall("POST /keys/api/<key_id>/roll")
DELETE = ManagementCall("DELETE /keys/api/<key_id>")
ADD_RULE = ManagementCall("POST /keys/api/<key_id>/iam")
END_APPLICATION = ManagementCall("DELETE /auth/applications/<application_id>")
APPLICATIONS = ManagementCall("GET /keys/api/<key_id>/applications")


def show_list(call: PageCall) -> Outbound:
    """Show the keys with their spending and limits."""
    visitor = call.visitor
    projects = _projects_of(visitor)
    infos = {info.id: info for info in key_routes.list_visible(visitor)}
    if call.arguments.get("sort", "").removeprefix("-") in COUNTED:
        rows = _show_rows(visitor, list(infos.values()), projects)
    else:  # everything else of a row is read for the shown rows only
        rows = [_outline(info, projects) for info in infos.values()]
    state = call.arguments.get("state", "")
    if state:
        rows = [row for row in rows if row["state"] == state]
    shown = arrange(
        rows, COLUMNS, call.arguments, searched=("description", "project", "owner", "maskedToken"), sort="-createdAt"
    )
    shown = replace(shown, rows=_show_rows(visitor, [infos[row["id"]] for row in shown.rows], projects))
    states = [("", "All states"), *((name, name.capitalize()) for name in STATES)]
    return call.page("keys/keys.html", TITLE, keys=shown, path=PATH, state=state, states=states)


def show_new(call: PageCall) -> Outbound:
    """Show the form for a new key."""
    projects = [(key, info.name) for key, info in _projects_of(call.visitor).items() if info.status == "active"]
    manages = call.visitor.manages("keys:restrict")
    return call.page(
        "keys/key_new.html",
        "Create key",
        projects=projects,
        manages=manages,
        people=_list_colleagues(call),
        chosen=call.form.get("member", "") or call.arguments.get("member", ""),
        rates=RATES if manages else (),
        **rule_fields(call),
    )


def _list_colleagues(call: PageCall) -> list[tuple[str, str]]:
    """Return the members for whom the visitor may create a key; with the organization's name if there are several."""
    visitor = call.visitor
    people = []
    for organization in visitor.organizations():
        own = visitor.memberships[organization.id]
        reach = visitor.reach(organization.id, "keys:create")
        if not (reach.whole or reach.projects):
            continue
        authority = visitor.authority_for(organization.id, "keys:create")
        note = f" ({organization.name})" if len(visitor.memberships) > 1 else ""
        for member in list_members(call.services.store.database, organization.id):
            has_keys = reach_of(member.role, "keys:use")
            if member.status == "active" and member.id != own.id and has_keys and authority.covers(member.role):
                people.append((member.id, (member.name or member.email) + note))
    return people


def show_key(call: PageCall) -> Outbound:
    """Show a key with its spending, limits, rules and applications, and its rate limits to those who may set them."""
    key = call.run(FIND, key_id=call.params["key_id"])
    projects = _projects_of(call.visitor)
    organization_id = projects[key["projectId"]].organization_id
    changeable = call.visitor.may_change_key(call.visitor.key(key["id"]))
    reach = call.visitor.reach(organization_id, "keys:restrict")
    manages = changeable and (reach.whole or key["projectId"] in reach.projects)
    rates = {}
    if manages:
        rates = call.run(FIND_RATES, key_id=key["id"])
    tags = call.run(FIND_TAGS, key_id=key["id"])["tags"]
    tab = chosen_tab(call)
    subject = UsageSubject("model", {"apiKeyId": key["id"]}, organization_id, "key", key["id"])
    return call.page(
        "keys/key.html",
        key["description"],
        key=_show_row(key, projects) | ({} if changeable else {"switch": ""}),
        rules=describe_rules(key["iamRules"]),
        applications=call.run(APPLICATIONS, key_id=key["id"]),
        manages=manages,
        changeable=changeable,
        tags=", ".join(f"{name}={value}" for name, value in tags.items()),
        rates=[(name, label, rates[name]) for name, label in RATES if rates],
        path=PATH,
        tabs=TABS,
        tab=tab,
        session_budget=call.run(FIND_SESSION_BUDGET, key_id=key["id"]) if tab == SETTINGS else {},
        figures=read_figures(call, subject) if tab == FIGURES else None,
        **rule_fields(call),
    )


def redirect_client(services: Services, inbound: Inbound) -> Outbound:
    """Redirect the path that command-line clients open for people who need a key."""
    return redirect(inbound, PATH)


def _create(call: PageCall) -> Outbound:
    form = call.form
    fields = {"description": form.get("description", ""), "projectId": form.get("project", "")}
    if form.get("member"):
        fields["memberId"] = form["member"]
    if form.get("kind"):
        fields["kind"] = form["kind"]
    if form.get("expiresAt"):
        fields["expiresAt"] = form["expiresAt"]
    limits = {name: value for name, value in read_limit_change(form).items() if value is not None}
    rates = {name: value for name, value in read_rates(form).items() if value is not None}
    created = call.run(CREATE, {**fields, **limits})
    try:
        if rates:
            call.run(SET_RATES, rates, key_id=created["id"])
        if form.get("models", "").strip():
            rule = read_rule({"ruleType": "allow_models", "ruleValue": form["models"]})
            call.run(ADD_RULE, rule, key_id=created["id"])
    except GatewayError:  # such as Forbidden for a developer: a key without its limits must not remain
        call.run(DELETE, key_id=created["id"])
        raise
    return _show_token(call, created)


def _show_token(call: PageCall, key: Mapping[str, Any]) -> Outbound:
    groups = group_clients(call.inbound.base_url, key["token"], "auto")
    return call.page("keys/key_created.html", "Save your key", key=key, path=PATH, groups=groups)


def _activate(call: PageCall) -> str:
    call.run(UPDATE, {"status": "active"}, key_id=_key_of(call))
    return "The key is active."


def _deactivate(call: PageCall) -> str:
    call.run(UPDATE, {"status": "inactive"}, key_id=_key_of(call))
    return "The key is deactivated: its requests are refused."


def _save(call: PageCall) -> str:
    expiry = call.form.get("expiresAt", "")
    fields = {"description": call.form.get("description", ""), "expiresAt": expiry or None}
    call.run(UPDATE, fields, key_id=_key_of(call))
    return "The key was saved."


def _set_limits(call: PageCall) -> str:
    call.run(SET_LIMITS, read_limit_change(call.form), key_id=_key_of(call))
    return "The limits were saved."


def _set_rates(call: PageCall) -> str:
    call.run(SET_RATES, read_rates(call.form), key_id=_key_of(call))
    return "The rate limits were saved."


def _set_tags(call: PageCall) -> str:
    pairs = [part.partition("=") for part in call.form.get("tags", "").split(",") if part.strip()]
    tags = {name.strip().lower(): value.strip() for name, _, value in pairs}
    call.run(SET_TAGS, {"tags": tags}, key_id=_key_of(call))
    return "The tags were saved."


def _set_session_budget(call: PageCall) -> str:
    call.run(SET_SESSION_BUDGET, read_session_budget(call.form), key_id=_key_of(call))
    return "The budgets of sessions were saved."


def _roll(call: PageCall) -> Outbound:
    return _show_token(call, call.run(ROLL, key_id=_key_of(call)))


def _delete(call: PageCall) -> Outbound:
    call.run(DELETE, key_id=_key_of(call))
    return show_instead(call, PATH, show_list, "The key was deleted.")


def _end_application(call: PageCall) -> str:
    call.run(END_APPLICATION, application_id=call.form.get("application", ""))
    return "The application has no access any more."


def _place_of(call: PageCall) -> RulePlace:
    key = call.visitor.key(_key_of(call))
    return RulePlace(key.organization_id, "key", key.id)


def _key_of(call: PageCall) -> str:
    return call.params.get("key_id") or call.form.get("key", "")


def _projects_of(visitor: Visitor) -> dict[str, ProjectInfo]:
    return {project.id: project for project in visitor.projects()}


def _outline(info: KeyInfo, projects: dict[str, ProjectInfo]) -> dict[str, Any]:
    """Return what a list of keys is searched and sorted by, without counters."""
    return {
        "id": info.id,
        "description": info.description,
        "maskedToken": info.mask,
        "createdAt": info.created_at_us,
        "expiresAt": info.expires_at_us,
        "project": projects[info.project_id].name,
        "owner": info.creator_name or info.creator_email,
        "state": info.state if info.owner_active else "owner inactive",
    }


def _show_rows(visitor: Visitor, infos: list[KeyInfo], projects: dict[str, ProjectInfo]) -> list[dict[str, Any]]:
    shown = orjson.loads(msgspec.json.encode(key_routes.show_keys(visitor, infos)))
    rows = [_show_row(key, projects) for key in shown]
    for info, row in zip(infos, rows, strict=True):
        if not visitor.may_change_key(info):
            row["switch"] = ""
    return rows


def _show_row(key: dict[str, Any], projects: dict[str, ProjectInfo]) -> dict[str, Any]:
    creator = key["creator"]
    state = key["state"] if key["ownerActive"] else "owner inactive"
    return {
        **key,
        "project": projects[key["projectId"]].name,
        "owner": creator["name"] or creator["email"],
        "spent": float(key["usage"]),
        "state": state,
        "switch": {"active": "deactivate", "inactive": "activate"}.get(state, ""),
    }


IN_LIST: dict[str, PageAction] = {"activate": _activate, "deactivate": _deactivate}
IN_KEY: dict[str, PageAction] = {
    **IN_LIST,
    "save": _save,
    "limits": _set_limits,
    "rates": _set_rates,
    "tags": _set_tags,
    "session-budget": _set_session_budget,
    "roll": _roll,
    "delete": _delete,
    "end-application": _end_application,
    **rule_actions(_place_of),
}
OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show_list, IN_LIST),
    *page_operations(NEW, show_new, {"create": _create}),
    *page_operations(KEY, show_key, IN_KEY),
    Operation("GET", CLIENT_PATH, redirect_client),
)
