"""Members of an organization that are no people: they own the API keys of service accounts and workload identities.

Each has a user that never signs in. As members they are developers, so that their keys read no more than their own
usage.
"""

from gateway.accounts.members import insert_member
from gateway.accounts.models import ApiKey, Member, User

# A reserved domain (RFC 2606): its addresses cannot be registered and receive no mail.
EMAIL_HOST = "service-account.invalid"


def insert(new_ids: tuple[str, str], organization_id: str, name: str, *, actor: str, now: int) -> None:
    """Insert a member and its user, which get the ids `new_ids`. Within a transaction."""
    insert_member(
        new_ids,
        organization_id,
        f"{new_ids[1]}@{EMAIL_HOST}",
        "developer",
        name=name,
        password_hash="",
        actor=actor,
        now=now,
        kind="service",
    )


def rename(user_id: str, name: str, now: int) -> None:
    """Change the displayed name. Within a transaction."""
    User.update(name=name, updated_at=now).where(User.id == user_id).execute()


def end(member_id: str, user_id: str, now: int) -> None:
    """Deactivate the member with its keys, which stay for the history; remove it if it has none. Within a
    transaction."""
    keys = ApiKey.member == member_id
    if not ApiKey.select().where(keys).exists():
        Member.delete().where(Member.id == member_id).execute()
        User.delete().where(User.id == user_id).execute()
        return
    Member.update(status="inactive", updated_at=now).where(Member.id == member_id).execute()
    User.update(status="inactive", updated_at=now).where(User.id == user_id).execute()
    ApiKey.update(generation=ApiKey.generation + 1).where(keys).execute()
