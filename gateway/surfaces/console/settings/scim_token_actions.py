"""The part of the settings page for provisioning: SCIM tokens are created and revoked."""

from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.clock import from_datetime, to_iso
from gateway.errors import InvalidRequest
from gateway.surfaces.console.management_calls import ManagementCall
from gateway.surfaces.console.organization_choice import choose_organization
from gateway.surfaces.console.page_calls import PageCall

# Days until a new token expires → label.
LIFETIMES = {"90": "90 days", "365": "one year", "730": "two years"}
DEFAULT_LIFETIME_DAYS = "365"
LIST = ManagementCall("GET /orgs/<organization_id>/scim/tokens")
CREATE = ManagementCall("POST /orgs/<organization_id>/scim/tokens")
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
    created: dict[str, Any] = call.run(CREATE, fields, organization_id=choose_organization(call).id)
    return created


def revoke_token(call: PageCall) -> str:
    """Revoke a token."""
    token_id = call.form.get("token", "")
    call.run(REVOKE, organization_id=choose_organization(call).id, token_id=token_id)
    return "The SCIM token was revoked. The identity provider can no longer use it."
