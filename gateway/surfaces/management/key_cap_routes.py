"""`/orgs/…/key-caps`: how many active API keys an organization and each of its members may have."""

from gateway.accounts.key_caps import MAX_CAP, OwnCaps
from gateway.surfaces.management.access_groups import OPERATOR, in_organization
from gateway.surfaces.management.answers import KeyCapsAnswer, OwnCapsAnswer
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import StrictBody, WholeNumber
from gateway.surfaces.web.http import Operation

TAG = "API keys"
CAP_WORDS = {"none": 0, "default": None}
CAP_DESCRIPTION = "a number, none, or default (the installation's)."


class CapChange(StrictBody):
    """Absent members stay unchanged; null restores the installation's value, 0 means no cap."""

    maxKeys = WholeNumber(
        0, MAX_CAP, allow_none=True, words=CAP_WORDS, about=f"Maximum of active API keys: {CAP_DESCRIPTION}"
    )
    maxKeysPerMember = WholeNumber(
        0, MAX_CAP, allow_none=True, words=CAP_WORDS, about=f"Maximum per member: {CAP_DESCRIPTION}"
    )


def find(call: ManagedCall[str]) -> KeyCapsAnswer:
    """The caps in force, and how many active keys there are."""
    own, caps = call.management.find_key_caps(call.subject)
    count = call.management.find_key_cap_usage(call.subject).count
    return KeyCapsAnswer(caps.total or None, caps.member or None, count, OwnCapsAnswer(own.total, own.member))


def change(call: ManagedCall[str]) -> KeyCapsAnswer:
    """Set an organization's own caps; existing keys above them are kept."""
    own, _ = call.management.find_key_caps(call.subject)
    caps = OwnCaps(call.fields.get("maxKeys", own.total), call.fields.get("maxKeysPerMember", own.member))
    call.management.set_key_caps(call.subject, caps, actor=call.actor)
    return find(call)


PATH = "/orgs/<organization_id>/key-caps"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", PATH, find, "Show caps on active API keys", tag=TAG,
            who=in_organization("key_caps:read"), scope="keys:read",
            inside="keyCaps", commands=("organizations key-caps <organization_id>",)),
    managed("PATCH", PATH, change, "Set an organization's caps on active API keys", tag=TAG, who=OPERATOR,
            request=CapChange, inside="keyCaps", audit="organization.update_key_caps",
            commands=("organizations key-caps <organization_id> --max=maxKeys --per-member=maxKeysPerMember",)),
)  # fmt: skip
