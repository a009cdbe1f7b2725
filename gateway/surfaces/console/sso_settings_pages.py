"""`/console/settings/sso`: identity providers, required single sign-on and group rules of an organization."""

from collections.abc import Mapping
from typing import Any

from gateway.callers.permissions import RANKS
from gateway.limits.periods import read_period
from gateway.surfaces.console.limit_forms import name_parts, read_limit_fields, read_number, read_role_in, read_words
from gateway.surfaces.console.organization_choice import choose_organization
from gateway.surfaces.console.page_calls import ManagementCall, PageAction, PageCall, page_operations
from gateway.surfaces.console.shown_figures import ATTRIBUTE_LABELS
from gateway.surfaces.management.limit_routes import PERIOD
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "Single sign-on"
PATH = "/console/settings/sso"
ORG = "/orgs/<organization_id>"
PROVIDER = f"{ORG}/identity-providers/<provider_id>"
LIST = ManagementCall(f"GET {ORG}/identity-providers")
CREATE = ManagementCall(f"POST {ORG}/identity-providers")
UPDATE = ManagementCall(f"PATCH {PROVIDER}")
DELETE = ManagementCall(f"DELETE {PROVIDER}")
TEST = ManagementCall(f"POST {PROVIDER}/test")
ADD_DOMAIN = ManagementCall(f"POST {PROVIDER}/domains")
VERIFY_DOMAIN = ManagementCall(f"POST {PROVIDER}/domains/<domain>/verify")
REMOVE_DOMAIN = ManagementCall(f"DELETE {PROVIDER}/domains/<domain>")
REQUIREMENT = ManagementCall(f"GET {ORG}/sso")
REQUIRE = ManagementCall(f"PUT {ORG}/sso")
RULES = ManagementCall(f"GET {ORG}/group-rules")
PREVIEW_RULE = ManagementCall(f"POST {ORG}/group-rules/preview")
ADD_RULE = ManagementCall(f"POST {ORG}/group-rules")
DELETE_RULE = ManagementCall(f"DELETE {ORG}/group-rules/<group_rule_id>")
TEAMS = ManagementCall(f"GET {ORG}/teams")
PROJECTS = ManagementCall(f"GET {ORG}/projects")
MEMBERS = ManagementCall(f"GET {ORG}/members")
# Field of the provider's form → label.
FLAGS = {
    "createPeople": "Create accounts at the first sign-in",
    "linkByEmail": "Connect members by their verified e-mail address",
    "trustEmail": "Trust e-mail addresses that are not marked as verified",
}


def show(call: PageCall, preview: dict[str, Any] | None = None) -> Outbound:
    """Show the single sign-on of an organization that the visitor manages; `preview` is what a rule would change."""
    choice = choose_organization(call)
    role = call.visitor.member(choice.id).role
    teams = call.run(TEAMS, organization_id=choice.id)
    projects = call.run(PROJECTS, organization_id=choice.id)
    names = {team["id"]: team["name"] for team in teams}
    rules = [
        {
            **rule,
            "teams": ", ".join(names.get(team, team) for team in rule["teamIds"]),
            "parts": name_parts(rule["roleIn"], teams, projects),
            "each": _describe_period(rule["period"]),
        }
        for rule in call.run(RULES, organization_id=choice.id)
    ]
    members = call.run(MEMBERS, organization_id=choice.id)
    providers = call.run(LIST, organization_id=choice.id)
    sources = _list_sources(call, choice.id, providers)
    return call.page(
        "single_sign_on/settings.html",
        TITLE,
        choice=choice,
        is_owner=role == "owner",
        providers=[{**provider, "claim_values": _show_claims(provider)} for provider in providers],
        attributes=ATTRIBUTE_LABELS,
        group_sources=sources,
        names_of_sources=dict(sources),
        roles=[(name, name) for name in sorted(RANKS, key=RANKS.__getitem__) if name != "owner" or role == "owner"],
        preview=preview,
        requirement=call.run(REQUIREMENT, organization_id=choice.id),
        owners=[
            (member["id"], member["email"])
            for member in members
            if member["role"] == "owner" and member["status"] == "active"
        ],
        rules=rules,
        teams=[(team["id"], team["name"]) for team in teams],
        projects=[(project["id"], project["name"]) for project in projects],
        flags=FLAGS,
        no_limits=dict.fromkeys(("usageLimit", *PERIOD)),
        path=PATH,
    )


def _list_sources(call: PageCall, organization_id: str, providers: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the sources of groups (id, name)."""
    configured = call.services.sso.service.providers.configured
    own = [(provider.id, provider.name) for provider in configured if organization_id in provider.organizations]
    own += [(provider["id"], provider["name"]) for provider in providers]
    return [("scim", "Provisioning (SCIM)"), *own]


def _show_claims(provider: dict[str, Any]) -> dict[str, str]:
    """Return the values of the fields of a provider's claims."""
    return {f"claim-{name}": provider["attributeClaims"].get(name, "") for name in ATTRIBUTE_LABELS}


def _describe_period(text: str | None) -> str:
    """Return a period such as 1mo in words."""
    if not text:
        return ""
    period = read_period(text)
    if period.amount == 1:
        return period.unit
    return f"{period.amount} {period.unit}s"


def _add(call: PageCall) -> str:
    form = call.form
    fields: dict[str, Any] = {
        "name": form.get("name", "").strip(),
        "issuer": form.get("issuer", "").strip(),
        "clientId": form.get("clientId", "").strip(),
        "clientSecret": form.get("clientSecret", "").strip(),
        "groupsClaim": form.get("groupsClaim", "").strip(),
        "attributeClaims": read_claims(form),
        **{name: form.get(name) == "on" for name in FLAGS},
    }
    if form.get("scopes", "").strip():
        fields["scopes"] = read_words(form["scopes"])
    made = call.run(CREATE, fields, organization_id=choose_organization(call).id)
    return f"The identity provider was added. Register {made['callbackUrl']} there as a redirect URI."


def read_claims(form: Mapping[str, str]) -> dict[str, str]:
    """Return the claims of attributes from a form, "" for those without one."""
    return {name: form.get(f"claim-{name}", "").strip() for name in ATTRIBUTE_LABELS}


def _set_claims(call: PageCall) -> str:
    form = call.form
    fields: dict[str, Any] = {"attributeClaims": read_claims(form)}
    groups = form.get("groupsClaim", "").strip()
    if groups != form.get("groupsBefore", ""):  # a change by an admin ends what an owner allowed
        fields["groupsClaim"] = groups
    call.run(UPDATE, fields, **_provider(call))
    return "The claims were saved. They count from the next sign-in or check of each person on."


def _test(call: PageCall) -> str:
    result = call.run(TEST, None, **_provider(call))
    if result["usable"]:
        return "The identity provider answers, and its keys were loaded."
    return str(result["problem"])


def _switch(call: PageCall) -> str:
    status = call.form.get("status", "")
    call.run(UPDATE, {"status": status}, **_provider(call))
    if status == "active":
        return "The identity provider is active."
    return "Sign-ins with this identity provider are now refused, and its sessions have ended."


def _allow_owners(call: PageCall) -> str:
    allowed = call.form.get("forOwners") == "on"
    call.run(UPDATE, {"forOwners": allowed}, **_provider(call))
    if allowed:
        return "Owners may sign in with this identity provider, and its groups may make owners."
    return "Owners can no longer sign in with this identity provider, and its groups make no owners."


def _replace_secret(call: PageCall) -> str:
    call.run(UPDATE, {"clientSecret": call.form.get("clientSecret", "").strip()}, **_provider(call))
    return "The client secret was replaced."


def _delete(call: PageCall) -> str:
    call.run(DELETE, None, **_provider(call))
    return "The identity provider was deleted, and its sessions have ended."


def _add_domain(call: PageCall) -> str:
    domain = call.form.get("domain", "").strip()
    call.run(ADD_DOMAIN, {"domain": domain}, **_provider(call))
    return f"The domain {domain} was added."


def _verify_domain(call: PageCall) -> str:
    call.run(VERIFY_DOMAIN, None, domain=call.form.get("domain", ""), **_provider(call))
    return "The domain was verified. People with addresses of this domain find the identity provider by them."


def _remove_domain(call: PageCall) -> str:
    call.run(REMOVE_DOMAIN, None, domain=call.form.get("domain", ""), **_provider(call))
    return "The domain was removed."


def _require(call: PageCall) -> str:
    required = call.form.get("required") == "on"
    fields: dict[str, Any] = {"required": required, "breakGlassMemberId": call.form.get("breakGlass", "")}
    call.run(REQUIRE, fields, organization_id=choose_organization(call).id)
    if required:
        return "Single sign-on is required. People who signed in with a password can no longer open this organization."
    return "Single sign-on is not required."


def _preview_rule(call: PageCall) -> Outbound:
    organization_id = choose_organization(call).id
    return show(call, call.run(PREVIEW_RULE, _read_rule(call), organization_id=organization_id))


def _add_rule(call: PageCall) -> str:
    call.run(ADD_RULE, _read_rule(call), organization_id=choose_organization(call).id)
    return "The group rule was added. It applies to members with known groups now, and to others at their next sign-in."


def _read_rule(call: PageCall) -> dict[str, Any]:
    form = call.form
    return {
        "group": form.get("group", "").strip(),
        "source": form.get("source", ""),
        "role": form.get("role") or None,
        "teamIds": [form["team"]] if form.get("team") else [],
        "roleIn": read_role_in(form),
        "priority": read_number(form, "priority", "priority"),
        "limits": {name: value for name, value in read_limit_fields(form).items() if value is not None},
    }


def _delete_rule(call: PageCall) -> str:
    organization_id = choose_organization(call).id
    call.run(DELETE_RULE, organization_id=organization_id, group_rule_id=call.form.get("rule", ""))
    return "The group rule was deleted. Its members lost what it gave."


def _provider(call: PageCall) -> dict[str, str]:
    return {"organization_id": choose_organization(call).id, "provider_id": call.form.get("provider", "")}


ACTIONS: dict[str, PageAction] = {
    "add": _add,
    "test": _test,
    "switch": _switch,
    "allow-owners": _allow_owners,
    "secret": _replace_secret,
    "claims": _set_claims,
    "delete": _delete,
    "add-domain": _add_domain,
    "verify-domain": _verify_domain,
    "remove-domain": _remove_domain,
    "require": _require,
    "preview-rule": _preview_rule,
    "add-rule": _add_rule,
    "delete-rule": _delete_rule,
}
OPERATIONS: tuple[Operation, ...] = page_operations(PATH, show, ACTIONS)
