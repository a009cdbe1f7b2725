"""Authority over people: the one question that each change of a person's role, status, address or sign-in asks.

Whoever makes the change has the rank of a role, and reaches people up to this rank, before and after the change. The
rank of a person is that of the role; of a SCIM token and of an identity provider, that of the person who stands behind
it; of a service account, a developer's. The operator reaches everybody.
"""

from msgspec import Struct

from gateway.accounts.changes import OPERATOR
from gateway.accounts.models import Member, User
from gateway.accounts.roles import RANKS
from gateway.errors import Forbidden

OWNER = RANKS["owner"]
ADMIN = RANKS["admin"]
DEVELOPER = RANKS["developer"]


class Authority(Struct, frozen=True):
    """The rank of a door through which people are changed, and the error for people above it."""

    rank: int
    refusal: str

    def check(self, *roles: str) -> None:
        """Raise Forbidden unless the rank covers all of these roles: those of a person before and after a change."""
        if any(RANKS[role] > self.rank for role in roles):
            raise Forbidden(self.refusal)

    def covers(self, role: str) -> bool:
        """Return whether people with this role may be changed."""
        return RANKS[role] <= self.rank


def of_session(role: str) -> Authority:
    """Return the authority of a signed-in person with this role."""
    return Authority(RANKS[role], "Only an owner may make an owner, or change one.")


def of_service_account() -> Authority:
    """Return the authority of a service account: people with higher roles may do what its scopes do not allow."""
    return Authority(DEVELOPER, "A service account manages members with the role developer only.")


def of_scim_token(by_owner: bool) -> Authority:
    """Return the authority of a SCIM token. `by_owner`: an owner created it, and still is one."""
    text = (
        "Only a SCIM token that an owner created may change owners or make owners. Its creator must still be an owner."
    )
    return Authority(OWNER if by_owner else ADMIN, text)


def of_identity_provider(for_owners: bool) -> Authority:
    """Return the authority of an identity provider. `for_owners`: an owner allowed it for owners."""
    text = (
        "An admin set up this identity provider, so owners cannot sign in with it. An owner can allow it for owners in "
        "the settings of single sign-on."
    )
    return Authority(OWNER if for_owners else ADMIN, text)


def is_owner_now(organization_id: str, actor: str) -> bool:
    """Return whether the author of a change is the operator or at present an owner. Within a read or write."""
    if actor == OPERATOR:
        return True
    owners = Member.select().join(User).where(Member.organization == organization_id, Member.user == actor)
    return owners.where(Member.role == "owner", Member.status == "active", User.status == "active").exists()
