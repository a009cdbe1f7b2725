"""`/console/automation`: the service accounts and workload identities of an organization."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from gateway.callers.rule_values import ADDRESS_RULES
from gateway.errors import InvalidRequest
from gateway.surfaces.console.limit_forms import RulePlace, list_rules, rule_actions, rule_fields
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.organization_choice import choose_organization
from gateway.surfaces.console.page_calls import ManagementCall, PageAction, PageCall, page_operations, show_instead
from gateway.surfaces.management.access_groups import SCOPES
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "Automation"
PATH = "/console/automation"
ACCOUNT = f"{PATH}/<organization_id>/accounts/<account_id>"
IDENTITY = f"{PATH}/<organization_id>/identities/<workload_identity_id>"
FIRST_SCOPE = "usage:read"
ACCOUNT_COLUMNS = (
    Column("Name", "name"),
    Column("Scopes", "scope_names"),
    Column("Last used", "lastUsedAt"),
    Column("Expires", "expiresAt"),
    Column("Status", "status"),
)
IDENTITY_COLUMNS = (
    Column("Name", "name"),
    Column("Issuer", "issuer"),
    Column("Spent", "spent", numeric=True),
    Column("Status", "status"),
)

ACCOUNTS = "/orgs/<organization_id>/service-accounts"
LIST_ACCOUNTS = ManagementCall(f"GET {ACCOUNTS}")
CREATE_ACCOUNT = ManagementCall(f"POST {ACCOUNTS}")
FIND_ACCOUNT = ManagementCall(f"GET {ACCOUNTS}/<account_id>")
UPDATE_ACCOUNT = ManagementCall(f"PATCH {ACCOUNTS}/<account_id>")
ROLL_ACCOUNT = ManagementCall(f"POST {ACCOUNTS}/<account_id>/roll")
DELETE_ACCOUNT = ManagementCall(f"DELETE {ACCOUNTS}/<account_id>")
IDENTITIES = "/orgs/<organization_id>/workload-identities"
LIST_IDENTITIES = ManagementCall(f"GET {IDENTITIES}")
CREATE_IDENTITY = ManagementCall(f"POST {IDENTITIES}")
FIND_IDENTITY = ManagementCall(f"GET {IDENTITIES}/<workload_identity_id>")
UPDATE_IDENTITY = ManagementCall(f"PATCH {IDENTITIES}/<workload_identity_id>")
DELETE_IDENTITY = ManagementCall(f"DELETE {IDENTITIES}/<workload_identity_id>")
CHECK_TOKEN = ManagementCall(f"POST {IDENTITIES}/check")
PROJECTS = ManagementCall("GET /orgs/<organization_id>/projects")


def show_list(call: PageCall, check: Mapping[str, Any] | None = None) -> Outbound:
    """Show the service accounts and workload identities, with forms for new ones and for the check of a token."""
    choice = choose_organization(call)
    projects = [(project["id"], project["name"]) for project in call.run(PROJECTS, organization_id=choice.id)]
    accounts = [
        {**account, "scope_names": ", ".join(account["scopes"])}
        for account in call.run(LIST_ACCOUNTS, organization_id=choice.id)
    ]
    identities = [
        {**identity, "spent": float(identity["key"]["usage"])}
        for identity in call.run(LIST_IDENTITIES, organization_id=choice.id)
    ]
    return call.page(
        "automation/automation.html",
        TITLE,
        accounts=arrange(
            accounts, ACCOUNT_COLUMNS, call.arguments, searched=("name", "scope_names", "status"), sort="name"
        ),
        identities=arrange(
            identities,
            IDENTITY_COLUMNS,
            call.arguments,
            searched=("name", "issuer", "audience", "status"),
            sort="name",
            page_name="identities-page",
        ),
        projects=projects,
        scopes=_mark_scopes((FIRST_SCOPE,)),
        choice=choice,
        check=check,
        identity_names={identity["id"]: identity["name"] for identity in identities},
        path=PATH,
    )


def show_account(call: PageCall) -> Outbound:
    """Show a service account with its scopes, expiry and address rules."""
    account = call.run(FIND_ACCOUNT, **call.params)
    fields = rule_fields(call)
    return call.page(
        "automation/account.html",
        account["name"],
        account=account,
        scopes=_mark_scopes(account["scopes"]),
        rules=list_rules(call, _place_of(call)),
        rule_types=[rule_type for rule_type in fields["rule_types"] if rule_type[0] in ADDRESS_RULES],
        organization_id=call.params["organization_id"],
        path=PATH,
    )


def show_identity(call: PageCall) -> Outbound:
    """Show a workload identity with its claims and its key."""
    identity = call.run(FIND_IDENTITY, **call.params)
    return call.page(
        "automation/identity.html",
        identity["name"],
        identity=identity,
        claims=_write_lines(identity["claims"]),
        attribution=_write_lines(identity["attribution"]),
        jwks=json.dumps(identity["jwks"], indent=2) if identity["jwks"] else "",
        organization_id=call.params["organization_id"],
        path=PATH,
    )


def _create_account(call: PageCall) -> Outbound:
    form = call.form
    choice = choose_organization(call)
    fields: dict[str, Any] = {"name": form.get("name", ""), "scopes": _read_scopes(form)}
    if form.get("expiresAt"):
        fields["expiresAt"] = form["expiresAt"]
    fields["ipCidrs"] = _read_list(form.get("networks", ""))
    return _show_token(call, choice.id, call.run(CREATE_ACCOUNT, fields, organization_id=choice.id))


def _show_token(call: PageCall, organization_id: str, account: Mapping[str, Any]) -> Outbound:
    return call.page(
        "automation/token.html", "Save the token", account=account, organization_id=organization_id, path=PATH
    )


def _save_account(call: PageCall) -> str:
    form = call.form
    expiry = form.get("expiresAt") or None
    fields: dict[str, Any] = {"name": form.get("name", ""), "scopes": _read_scopes(form), "expiresAt": expiry}
    call.run(UPDATE_ACCOUNT, fields, **call.params)
    return "The service account was saved."


def _switch_account(call: PageCall) -> str:
    call.run(UPDATE_ACCOUNT, {"status": call.form.get("status", "")}, **call.params)
    return "The service account was changed."


def _roll_account(call: PageCall) -> Outbound:
    account = call.run(ROLL_ACCOUNT, **call.params)
    return _show_token(call, call.params["organization_id"], account)


def _delete_account(call: PageCall) -> Outbound:
    call.run(DELETE_ACCOUNT, **call.params)
    return show_instead(call, PATH, show_list, "The service account was deleted.")


def _create_identity(call: PageCall) -> str:
    form = call.form
    choice = choose_organization(call)
    fields: dict[str, Any] = {
        "name": form.get("identityName", ""),
        "projectId": form.get("project", ""),
        "issuer": form.get("issuer", "").strip(),
        "audience": form.get("audience", ""),
        **_read_identity(form),
    }
    if form.get("usageLimit", "").strip():
        fields["usageLimit"] = form["usageLimit"].strip()
    identity = call.run(CREATE_IDENTITY, fields, organization_id=choice.id)
    return f"The workload identity {identity['name']} was created. Its limits are those of its key."


def _save_identity(call: PageCall) -> str:
    fields: dict[str, Any] = {"name": call.form.get("identityName", ""), **_read_identity(call.form)}
    call.run(UPDATE_IDENTITY, fields, **call.params)
    return "The workload identity was saved."


def _switch_identity(call: PageCall) -> str:
    call.run(UPDATE_IDENTITY, {"status": call.form.get("status", "")}, **call.params)
    return "The workload identity was changed."


def _delete_identity(call: PageCall) -> Outbound:
    call.run(DELETE_IDENTITY, **call.params)
    return show_instead(call, PATH, show_list, "The workload identity was deleted.")


def _check_token(call: PageCall) -> Outbound:
    choice = choose_organization(call)
    result = call.run(CHECK_TOKEN, {"token": call.form.get("token", "").strip()}, organization_id=choice.id)
    # The page does not show the token again.
    return show_list(PageCall(call.visitor, call.inbound), result)


def _read_identity(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the members that can be changed later. Raises InvalidRequest."""
    claims = {name: _read_list(text) for name, text in _read_lines(form.get("claims", "")).items()}
    jwks = form.get("jwks", "").strip()
    try:
        keys = json.loads(jwks) if jwks else None
    except (ValueError, RecursionError):
        raise InvalidRequest("The key set is not JSON.", param="jwks") from None
    return {
        "claims": claims,
        "attribution": _read_lines(form.get("attribution", "")),
        "jwksUrl": form.get("jwksUrl", "").strip(),
        "jwks": keys,
    }


def _read_lines(text: str) -> dict[str, str]:
    """Return the pairs of lines such as `sub = repo:acme/*`. Raises InvalidRequest."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, gap, value = line.partition("=")
        if not gap or not name.strip() or not value.strip():
            raise InvalidRequest(f"Write each line as: name = value. This line has another form: {line[:80]}")
        pairs[name.strip()] = value.strip()
    return pairs


def _write_lines(pairs: Mapping[str, Any]) -> str:
    return "\n".join(
        f"{name} = {value if isinstance(value, str) else ', '.join(value)}" for name, value in pairs.items()
    )


def _read_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _read_scopes(form: Mapping[str, str]) -> list[str]:
    return [scope for scope in SCOPES if form.get(f"scope-{scope}")]


def _mark_scopes(chosen: Collection[str]) -> list[tuple[str, bool]]:
    """Return each scope, and whether it is chosen."""
    return [(scope, scope in chosen) for scope in SCOPES]


def _place_of(call: PageCall) -> RulePlace:
    return RulePlace(call.params["organization_id"], "service_account", call.params["account_id"])


OF_LIST: dict[str, PageAction] = {
    "create-account": _create_account,
    "create-identity": _create_identity,
    "check": _check_token,
}
OF_ACCOUNT: dict[str, PageAction] = {
    "save": _save_account,
    "switch": _switch_account,
    "roll": _roll_account,
    "delete": _delete_account,
    **rule_actions(_place_of),
}
OF_IDENTITY: dict[str, PageAction] = {"save": _save_identity, "switch": _switch_identity, "delete": _delete_identity}
OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show_list, OF_LIST),
    *page_operations(ACCOUNT, show_account, OF_ACCOUNT),
    *page_operations(IDENTITY, show_identity, OF_IDENTITY),
)
