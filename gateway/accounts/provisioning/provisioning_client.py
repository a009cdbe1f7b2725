"""Values that all changes of provisioning share: the client that makes them, and conflicts of versions."""

from collections.abc import Callable

from msgspec import Struct

from gateway.errors import Conflict, Forbidden

# Stores the names of a member's provisioned groups and applies the group rules to the member, within a transaction:
# (organization id, member id, names, actor, now in microseconds).
GroupEffect = Callable[[str, str, list[str], str, int], None]


class ProvisioningClient(Struct, frozen=True):
    """The SCIM token that a change is made with: its organization and its id, which is the actor of audit entries.
    `by_owner`: an owner created the token, so that it may change owners."""

    organization_id: str
    actor: str
    by_owner: bool

    def check_owner_change(self, role_before: str, role_after: str) -> None:
        """Raise Forbidden for a change to or from an owner with a token that an admin created."""
        if "owner" in (role_before, role_after) and not self.by_owner:
            raise Forbidden("Only a SCIM token that an owner created may change owners or make owners.")


class StaleVersion(Conflict):
    """The resource changed after its version was read."""

    status = 412
    code = "precondition_failed"

    def __init__(self, message: str = "The resource was changed meanwhile. Read it again.") -> None:
        super().__init__(message)
