"""`/console/settings`: name, credits, compliance policy, key caps, access rules, managed settings and provisioning of
an organization."""

from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.clock import from_datetime, to_iso
from gateway.errors import InvalidRequest
from gateway.surfaces.console.limit_forms import (
    ORGANIZATION,
    ManagedSettingsForm,
    RulePlace,
    list_rules,
    read_words,
    rule_actions,
    rule_fields,
)
from gateway.surfaces.console.organization_choice import choose_organization
from gateway.surfaces.console.page_calls import ManagementCall, PageAction, PageCall, page_operations
from gateway.surfaces.web.http import Operation, Outbound

# The part of the settings page for provisioning: SCIM tokens are created and revoked.

# Days until a new token expires → label.
LIFETIMES = {"90": "90 days", "365": "one year", "730": "two years"}
DEFAULT_LIFETIME_DAYS = "365"
LIST = ManagementCall("GET /orgs/<organization_id>/scim/tokens")
CREATE_SCIM_TOKEN = ManagementCall("POST /orgs/<organization_id>/scim/tokens")
REVOKE = ManagementCall("DELETE /orgs/<organization_id>/scim/tokens/<token_id>")


def scim_fields(call: PageCall, organization_id: str) -> dict[str, Any]:
    """Return the values that the part of the page shows."""
    return {
        "scim_tokens": call.run(LIST, organization_id=organization_id),
        "scim_url": f"{call.inbound.base_url.rstrip('/')}/scim/v2",
        "scim_lifetimes": LIFETIMES,
        "scim_usual": DEFAULT_LIFETIME_DAYS,
    }


def create_token(call: PageCall) -> dict[str, Any]:
    """Create a token and return it with its secret."""
    days = call.form.get("lifetime", DEFAULT_LIFETIME_DAYS)
    if days not in LIFETIMES:
        raise InvalidRequest("Choose one of the lifetimes.", param="lifetime")
    end = datetime.fromtimestamp(call.services.clock.now_us() / 1_000_000, UTC) + timedelta(days=int(days))
    fields = {"name": call.form.get("scim_name", "").strip(), "expiresAt": to_iso(from_datetime(end))}
    created: dict[str, Any] = call.run(CREATE_SCIM_TOKEN, fields, organization_id=choose_organization(call).id)
    return created


def revoke_token(call: PageCall) -> str:
    """Revoke a token."""
    token_id = call.form.get("token", "")
    call.run(REVOKE, organization_id=choose_organization(call).id, token_id=token_id)
    return "The SCIM token was revoked. The identity provider can no longer use it."


TITLE = "Settings"
PATH = "/console/settings"
ENTRIES = 20  # of the ledger
# Flag of the compliance policy → label.
FLAGS = {
    "requireSoc2": "Require SOC 2",
    "requireSoc2Type2": "Require SOC 2 type 2",
    "requireIso27001": "Require ISO 27001",
    "requireSoc2OrIso27001": "Require SOC 2 or ISO 27001",
    "requireGdpr": "Require GDPR compliance",
    "blockApiTraining": "Block training on requests",
    "blockPromptLogging": "Block logging of prompts",
    "zeroDataRetention": "Require zero data retention",
    "blockStealthProviders": "Block stealth providers",
}
# Set of the compliance policy → label.
SETS = {
    "allowedCountries": "Allowed countries",
    "allowedProviders": "Allowed providers",
    "blockedProviders": "Blocked providers",
    "allowedModels": "Allowed models",
    "blockedModels": "Blocked models",
    "allowUnlistedModels": "Allow unlisted models of",
    "blockUnlistedModels": "Block unlisted models of",
}
FIND = ManagementCall("GET /orgs/<organization_id>")
CHANGE = ManagementCall("PATCH /orgs/<organization_id>")
POLICY = ManagementCall("GET /orgs/<organization_id>/policy")
SET_POLICY = ManagementCall("PUT /orgs/<organization_id>/policy")
CREDITS = ManagementCall("GET /orgs/<organization_id>/credits")
HISTORY = ManagementCall("GET /orgs/<organization_id>/credits/history")
CAPS = ManagementCall("GET /orgs/<organization_id>/key-caps")
CREATE = ManagementCall("POST /orgs")


def show(call: PageCall, new_token: dict[str, Any] | None = None) -> Outbound:
    """Show the settings of an organization that the visitor manages. `new_token` is a SCIM token that was just
    created."""
    choice = choose_organization(call, "credits:read")
    credits = {
        "choice": choice,
        "organization": call.run(FIND, organization_id=choice.id),
        "credits": call.run(CREDITS, organization_id=choice.id),
        "history": call.run(HISTORY, {"limit": ENTRIES}, organization_id=choice.id),
        "path": PATH,
    }
    if not call.visitor.manages("organization:write", choice.id):
        return call.page("settings/credits.html", TITLE, **credits)
    policy = call.run(POLICY, organization_id=choice.id)
    return call.page(
        "settings/settings.html",
        TITLE,
        flags=[(name, label, policy.get(name, False)) for name, label in FLAGS.items()],
        sets=[(name, label, ", ".join(policy.get(name, ()))) for name, label in SETS.items()],
        **credits,
        caps=call.run(CAPS, organization_id=choice.id),
        rules=list_rules(call, _place_of(call)),
        managed_settings=MANAGED_SETTINGS.text(call),
        new_token=new_token,
        **scim_fields(call, choice.id),
        **rule_fields(call),
    )


def _save(call: PageCall) -> str:
    fields = {"name": call.form.get("name", "").strip(), "leadsAddMembers": call.form.get("leadsAddMembers") == "on"}
    call.run(CHANGE, fields, organization_id=choose_organization(call).id)
    return "The organization was saved."


def _set_policy(call: PageCall) -> str:
    policy: dict[str, Any] = {name: True for name in FLAGS if call.form.get(name) == "on"}
    policy |= {name: read_words(call.form[name]) for name in SETS if call.form.get(name, "").strip()}
    call.run(SET_POLICY, policy, organization_id=choose_organization(call).id)
    return "The policy was saved. Requests use only providers that meet it."


def _create(call: PageCall) -> str:
    made = call.run(CREATE, {"name": call.form.get("name", "").strip()})
    return f"The organization {made['name']} was created; you are its owner."


def _create_token(call: PageCall) -> Outbound:
    created = create_token(call)
    return show(PageCall(call.visitor, call.inbound, message="The SCIM token was created; see Provisioning."), created)


def _place_of(call: PageCall) -> RulePlace:
    organization_id = choose_organization(call).id
    return RulePlace(organization_id, "organization", organization_id)


def _path_of(call: PageCall) -> dict[str, Any]:
    return {"organization_id": choose_organization(call).id}


MANAGED_SETTINGS = ManagedSettingsForm(ORGANIZATION, _path_of)
ACTIONS: dict[str, PageAction] = {
    **MANAGED_SETTINGS.actions,
    "save": _save,
    "policy": _set_policy,
    "create": _create,
    "create-scim-token": _create_token,
    "revoke-scim-token": revoke_token,
    **rule_actions(_place_of),
}
OPERATIONS: tuple[Operation, ...] = page_operations(PATH, show, ACTIONS)
