"""`/orgs/…/key-caps`: how many active API keys an organization and each of its members may have."""

from typing import Any

from gateway.accounts.key_caps import LARGEST, OwnCaps
from gateway.errors import Forbidden
from gateway.surfaces.http import Inbound, Operation
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed, require_some
from gateway.surfaces.management.presenters import show_key_caps
from gateway.surfaces.validation_schemas import StrictBody, WholeNumber, read_body
from gateway.surfaces.visitor import Visitor

TAG = "API keys"


class CapChange(StrictBody):
    """Absent members stay unchanged; null restores the installation's value, 0 means no cap."""

    maxKeys = WholeNumber(0, LARGEST, allow_none=True)
    maxKeysPerMember = WholeNumber(0, LARGEST, allow_none=True)


def find(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The caps in force, and how many active keys there are."""
    organization_id = visitor.managed_organization(inbound)
    return _show(visitor, organization_id)


def change(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Set an organization's own caps; existing keys above them are kept. Only for the operator of the installation."""
    given = require_some(read_body(CapChange, inbound))
    if not visitor.is_operator():
        raise Forbidden("Caps on API keys are set by the owners of this installation's first organization.")
    organization_id = inbound.params["organization_id"]
    management = visitor.services.management
    own, _ = management.find_key_caps(organization_id)
    caps = OwnCaps(given.get("maxKeys", own.total), given.get("maxKeysPerMember", own.member))
    management.set_key_caps(organization_id, caps, actor=visitor.user_id)
    return _show(visitor, organization_id)


def _show(visitor: Visitor, organization_id: str) -> dict[str, Any]:
    management = visitor.services.management
    own, caps = management.find_key_caps(organization_id)
    return {"keyCaps": show_key_caps(own, caps, management.find_key_cap_usage(organization_id).count)}


ANSWER = shapes.shape(keyCaps=shapes.KEY_CAPS)
PATH = "/orgs/<organization_id>/key-caps"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", PATH, find, "Show caps on active API keys", tag=TAG, answer=ANSWER),
    managed("PATCH", PATH, change, "Set an organization's caps on active API keys", tag=TAG, request=CapChange,
            answer=ANSWER),
)  # fmt: skip
