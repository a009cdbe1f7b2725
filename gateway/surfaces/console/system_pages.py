"""`/console/system`: the state of the installation for its operators, and the credits, discounts and caps that they set
for each organization."""

from typing import Any

from msgspec.structs import asdict, replace

from gateway.accounts.organizations import list_organizations
from gateway.limits.rate_rules import KINDS, SCOPES
from gateway.routing.cooldowns import POLICIES
from gateway.surfaces.console.limit_forms import read_number
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.page_calls import ManagementCall, PageAction, PageCall, page_operations
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "System"
PATH = "/console/system"
ORGANIZATION = f"{PATH}/organizations/<organization_id>"
STATE = ManagementCall("GET /installation")
RATES = ManagementCall("GET /rate-limits")
SET_RATE = ManagementCall("PUT /rate-limits")
REMOVE_RATE = ManagementCall("DELETE /rate-limits/<scope>/<path:subject>")
FIND = ManagementCall("GET /installation/organizations/<organization_id>")
SET_STATUS = ManagementCall("PATCH /installation/organizations/<organization_id>")
POST_CREDITS = ManagementCall("POST /orgs/<organization_id>/credits")
SET_UNLIMITED = ManagementCall("PATCH /orgs/<organization_id>/credits")
DISCOUNTS = ManagementCall("GET /discounts")
SET_DISCOUNT = ManagementCall("PUT /discounts")
REMOVE_DISCOUNT = ManagementCall("DELETE /discounts/<discount_id>")
SET_CAPS = ManagementCall("PATCH /orgs/<organization_id>/key-caps")
COLUMNS = (
    Column("Organization", "name"),
    Column("Status", "status"),
    Column("Credits", numeric=True),
    Column("Created", "created_at_us", extra=True),
)
# Kinds of postings that operators choose → label.
KINDS_OF_POSTING = (("grant", "Grant"), ("adjustment", "Adjustment"), ("refund", "Refund"))
CAP_NAMES = {"maxKeys": "Active keys", "maxKeysPerMember": "Active keys of each person"}


def show(call: PageCall) -> Outbound:
    """Show workers, jobs, cooldowns, database and disk, the rate limits of the installation and its organizations."""
    state = call.run(STATE)
    names = {ident: one.name for ident, one in call.services.routing.catalogue.current().providers.items()}
    rows = [asdict(info) for info in list_organizations(call.services.store.database)]
    found = arrange(rows, COLUMNS, call.arguments, searched=("name", "id"), sort="name")
    # There may be thousands: the credits of those on this page are read.
    shown = [call.run(FIND, organization_id=row["id"]) for row in found.rows]
    return call.page(
        "system/system.html",
        TITLE,
        path=PATH,
        state=state,
        store=state["store"],
        nodes=len({worker["node"] for worker in state["workers"]}),
        versions=len({worker["version"] for worker in state["workers"] if worker["version"]}),
        failed=[job for job in state["jobs"] if job["error"]],
        cooldowns=[
            {**one, "name": names.get(one["provider"], one["provider"]), "text": POLICIES[one["reason"]].text}
            for one in state["cooldowns"]
        ],
        rates=[rate for rate in call.run(RATES) if rate["scope"] in SCOPES],
        scopes=[(scope, scope.replace("_", " ")) for scope in SCOPES],
        kinds=[(kind, kind) for kind in KINDS],
        organizations=replace(found, rows=shown),
    )


def show_organization(call: PageCall) -> Outbound:
    """Show the credits and discounts of an organization, with what operators may change."""
    organization_id = call.params["organization_id"]
    organization = call.run(FIND, organization_id=organization_id)
    discounts = [one for one in call.run(DISCOUNTS) if one["organizationId"] in (organization_id, "*", "")]
    return call.page(
        "system/organization.html",
        organization["name"],
        path=PATH,
        organization=organization,
        discounts=[{**one, "own": one["organizationId"] == organization_id} for one in discounts],
        postings=KINDS_OF_POSTING,
        caps=CAP_NAMES.items(),
    )


def _set_rate(call: PageCall) -> str:
    form = call.form
    fields = {name: form.get(name, "").strip() for name in ("scope", "subject", "kind")}
    made = call.run(SET_RATE, {**fields, "amount": read_number(form, "amount", "The amount")})
    return f"The rate limit was set. {made['warning'] or ''}".strip()


def _remove_rate(call: PageCall) -> str:
    form = call.form
    call.run(REMOVE_RATE, {"kind": form.get("kind", "")}, scope=form.get("scope", ""), subject=form.get("subject", ""))
    return "The rate limit was removed."


def _post(call: PageCall) -> str:
    form = call.form
    fields = {name: form.get(name, "").strip() for name in ("amount", "kind", "note", "reference")}
    call.run(POST_CREDITS, {name: value for name, value in fields.items() if value}, **_path(call))
    return "The credits were posted."


def _set_unlimited(call: PageCall) -> str:
    unlimited = call.form.get("unlimited") == "yes"
    call.run(SET_UNLIMITED, {"unlimited": unlimited}, **_path(call))
    return "The organization spends without credits." if unlimited else "The organization spends its credits."


def _set_discount(call: PageCall) -> str:
    form = call.form
    fields = {name: form.get(name, "").strip() for name in ("provider", "model", "startsAt", "endsAt")}
    given = {name: value for name, value in fields.items() if value}
    call.run(SET_DISCOUNT, {**given, "fraction": form.get("fraction", "").strip(), "organizationId": _id_of(call)})
    return "The discount was set."


def _remove_discount(call: PageCall) -> str:
    call.run(REMOVE_DISCOUNT, discount_id=call.form.get("discount", ""))
    return "The discount was removed."


def _set_caps(call: PageCall) -> str:
    changes: dict[str, Any] = {
        name: read_number(call.form, name, label) if call.form.get(name, "").strip() else None
        for name, label in CAP_NAMES.items()
    }
    call.run(SET_CAPS, changes, **_path(call))
    return "The caps were saved."


def _block(call: PageCall) -> str:
    call.run(SET_STATUS, {"status": "blocked"}, **_path(call))
    return "The organization is blocked: its keys are refused."


def _unblock(call: PageCall) -> str:
    call.run(SET_STATUS, {"status": "active"}, **_path(call))
    return "The organization is active."


def _path(call: PageCall) -> dict[str, Any]:
    return {"organization_id": _id_of(call)}


def _id_of(call: PageCall) -> str:
    return call.params["organization_id"]


IN_SYSTEM: dict[str, PageAction] = {"set-rate": _set_rate, "remove-rate": _remove_rate}
IN_ORGANIZATION: dict[str, PageAction] = {
    "post": _post,
    "unlimited": _set_unlimited,
    "set-discount": _set_discount,
    "remove-discount": _remove_discount,
    "caps": _set_caps,
    "block": _block,
    "unblock": _unblock,
}
OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show, IN_SYSTEM),
    *page_operations(ORGANIZATION, show_organization, IN_ORGANIZATION),
)
