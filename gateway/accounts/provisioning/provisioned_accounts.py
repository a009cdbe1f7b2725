"""Accounts that provisioning created and that belong to one organization alone."""

from gateway.accounts.models import Member, User
from gateway.accounts.provisioning.models import ScimUser
from gateway.accounts.sso_models import UserIdentity


def organization_of_account(user_id: str) -> str:
    """Return the organization that an account belongs to alone, "" for any other account. Within a read or write.

    Provisioning of the organization created the account, it has no password, its person has no other membership, and
    only identity providers of the organization are connected to it. The organization then decides about the account.
    """
    memberships = list(Member.select(Member.id, Member.organization).where(Member.user == user_id).limit(2))
    user = User.get_or_none(User.id == user_id)
    if len(memberships) != 1 or user is None or user.password_hash:
        return ""
    (membership,) = memberships
    made = ScimUser.select().where(ScimUser.member == membership.id, ScimUser.made_account == True)  # noqa: E712
    organization_id: str = membership.organization_id
    foreign = UserIdentity.select().where(UserIdentity.user_id == user_id, UserIdentity.organization != organization_id)
    if not made.exists() or foreign.exists():
        return ""
    return organization_id
