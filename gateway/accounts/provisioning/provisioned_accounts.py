"""The accounts that provisioning may change, and those that it may add to an organization."""

from gateway.accounts.models import Member, User
from gateway.accounts.provisioning.models import ScimUser
from gateway.accounts.sso_models import UserIdentity
from gateway.store.database import Database


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


def has_outside_sign_in(database: Database, user: User, organization_id: str) -> bool:
    """Return whether an account can be signed in to in a way that proves nothing about its e-mail address: with a
    password, a passkey, or an identity at a provider of another organization. Within a read or write.

    The gateway does not verify the address of an invited person, because the inviter knows the token. The account may
    therefore belong to another person than the one whom an identity provider names.
    """
    if user.password_hash or database.fetch("SELECT 1 FROM passkey WHERE user_id = ? LIMIT 1", (user.id,)):
        return True
    trusted = UserIdentity.organization.in_(("", organization_id)) & (UserIdentity.email == user.email)
    return UserIdentity.select().where(UserIdentity.user_id == user.id, ~trusted).exists()
