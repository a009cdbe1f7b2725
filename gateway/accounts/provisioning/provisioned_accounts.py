"""The accounts that provisioning may change, and those that it may add to an organization."""

from gateway.accounts.models import Member, User
from gateway.accounts.provisioning.models import ScimUser
from gateway.accounts.sso_models import UserIdentity
from gateway.store.database import Database


def maker_of_account(user_id: str) -> str:
    """Return the organization that provisioned an account without a password, "" for any other account: an identity
    provider of the organization may open it. Within a read or write."""
    user = User.get_or_none(User.id == user_id)
    if user is None or user.password_hash:
        return ""
    return user.made_by or _made_by_former_release(user_id)


def _made_by_former_release(user_id: str) -> str:
    """Return the maker of an account that a worker of the former release made during an upgrade."""
    made = ScimUser.select(ScimUser.organization).join(Member, on=ScimUser.member == Member.id)
    row = made.where(Member.user == user_id, ScimUser.made_account == True).first()  # noqa: E712
    return row.organization if row is not None else ""


def organization_of_account(user_id: str) -> str:
    """Return the organization that an account belongs to alone, "" for any other account. Within a read or write.

    Provisioning of the organization created the account, it has no password, its person has no other membership, and
    only identity providers of the organization are connected to it. The organization then decides about the account.
    """
    organization_id = maker_of_account(user_id)
    elsewhere = Member.select().where(Member.user == user_id, Member.organization != organization_id)
    foreign = UserIdentity.select().where(UserIdentity.user_id == user_id, UserIdentity.organization != organization_id)
    if elsewhere.exists() or foreign.exists():
        return ""
    return organization_id


def is_provisioned(user_id: str, organization_id: str) -> bool:
    """Return whether an organization provisions a person. Within a read or write."""
    links = ScimUser.select().join(Member, on=ScimUser.member == Member.id)
    return links.where(Member.user == user_id, Member.organization == organization_id).exists()


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
