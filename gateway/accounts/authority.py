"""Authority over people: the one question that each change of a person's role, status, address or sign-in asks.

Whoever makes the change reaches people with the roles that have nothing beyond the own role, before and after the
change, as the table of permissions says. The role of a SCIM token and of an identity provider is that of the person who
stands behind it; a service account reaches developers only. The operator reaches everybody.
"""

from msgspec import Struct

from gateway.accounts.changes import OPERATOR
from gateway.callers.models import Member, User
from gateway.callers.permissions import roles_within
from gateway.errors import Forbidden

# People in the reach of leads of teams and of admins of projects, and of service accounts.
WITHOUT_RIGHTS = frozenset(("developer", "viewer"))
DEVELOPERS = frozenset(("developer",))


class Authority(Struct, frozen=True):
    """The roles of the people that a door reaches, and the error for people with other roles."""

    roles: frozenset[str]
    refusal: str

    def check(self, *roles: str) -> None:
        """Raise Forbidden unless all of these roles are covered: those of a person before and after a change."""
        if not self.roles.issuperset(roles):
            raise Forbidden(self.refusal)

    def covers(self, role: str) -> bool:
        """Return whether people with this role may be changed."""
        return role in self.roles


def of_session(role: str) -> Authority:
    """Return the authority of a signed-in person with this role."""
    if role == "admin":
        return Authority(roles_within(role), "Only an owner may make an owner, or change one.")
    return Authority(roles_within(role), "You may neither give nor change a role that may do more than yours.")


def of_limits(role: str) -> Authority:
    """Return the authority of a signed-in person over the spending limits of others: billing sets those that an admin
    sets."""
    return of_session("admin" if role == "billing" else role)


def of_part(role: str) -> Authority:
    """Return the authority of the lead of a team, or the admin of a project, who has this role in the organization."""
    text = "A team lead and the admin of a project change only developers and viewers."
    return Authority(roles_within(role) | WITHOUT_RIGHTS, text)


def of_service_account() -> Authority:
    """Return the authority of a service account: people with other roles may do what its scopes do not allow."""
    return Authority(DEVELOPERS, "A service account manages members with the role developer only.")


def of_scim_token(by_owner: bool) -> Authority:
    """Return the authority of a SCIM token. `by_owner`: an owner created it, and still is one."""
    text = (
        "Only a SCIM token that an owner created may change owners or make owners. Its creator must still be an owner."
    )
    return Authority(roles_within("owner" if by_owner else "admin"), text)


def of_identity_provider(for_owners: bool) -> Authority:
    """Return the authority of an identity provider. `for_owners`: an owner allowed it for owners."""
    text = (
        "An admin set up this identity provider, so owners cannot sign in with it. An owner can allow it for owners in "
        "the settings of single sign-on."
    )
    return Authority(roles_within("owner" if for_owners else "admin"), text)


def is_owner_now(organization_id: str, actor: str) -> bool:
    """Return whether the author of a change is the operator or at present an owner. Within a read or write."""
    if actor == OPERATOR:
        return True
    owners = Member.select().join(User).where(Member.organization == organization_id, Member.user == actor)
    return owners.where(Member.role == "owner", Member.status == "active", User.status == "active").exists()
