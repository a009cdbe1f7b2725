"""Values that all changes of provisioning share: the client that makes them, and conflicts of versions."""

from collections.abc import Callable

from msgspec import Struct

from gateway.accounts.authority import Authority, of_scim_token
from gateway.accounts.group_rules import GroupNames
from gateway.errors import Conflict

# Stores the names of a member's provisioned groups and applies the group rules to the member, within a transaction:
# (organization id, member id, names, actor, now in microseconds).
GroupEffect = Callable[[str, str, GroupNames, str, int], None]


class ProvisioningClient(Struct, frozen=True):
    """The SCIM token that a change is made with: its organization and its id, which is the actor of audit entries.
    `by_owner`: an owner stands behind the token, so that it may change owners."""

    organization_id: str
    actor: str
    by_owner: bool

    @property
    def authority(self) -> Authority:
        return of_scim_token(self.by_owner)


class StaleVersion(Conflict):
    """The resource changed after its version was read."""

    status = 412
    code = "precondition_failed"

    def __init__(self, message: str = "The resource was changed meanwhile. Read it again.") -> None:
        super().__init__(message)
