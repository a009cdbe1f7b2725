"""Linked identities: which account at an identity provider belongs to which person, by issuer and subject."""

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.models import SsoLogin, UserIdentity
from gateway.accounts.sso_logins import delete_logins
from gateway.callers.models import User
from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.store.database import Database

MAX_IDENTITIES = 20  # of a person


class LinkedIdentity(Struct, frozen=True):
    """An identity of a person. `organization_id` is that of its provider, "" for one of the installation."""

    id: str
    organization_id: str
    provider_id: str
    issuer: str
    subject: str
    user_id: str
    email: str
    created_at_us: int
    used_at_us: int


def find_identity(organization_id: str, issuer: str, subject: str) -> LinkedIdentity | None:
    """Return the identity of a subject. Within a read or write."""
    row = UserIdentity.get_or_none(
        UserIdentity.organization == organization_id, UserIdentity.issuer == issuer, UserIdentity.subject == subject
    )
    return None if row is None else _info(row)


def list_identities(database: Database, user_id: str) -> list[LinkedIdentity]:
    """Return the identities of a person, oldest first."""
    rows = UserIdentity.select().where(UserIdentity.user_id == user_id).order_by(UserIdentity.id)
    return database.read(lambda: [_info(row) for row in rows])


def lacks_credentials(database: Database, user_id: str) -> bool:
    """Return whether a user has neither a password nor an identity: the first owner, who came by a link."""
    without = User.select().where(User.id == user_id, User.password_hash == "")
    return database.read(lambda: without.exists() and not has_identity(user_id))


def has_identity(user_id: str, organization_ids: Sequence[str] | None = None) -> bool:
    """Return whether a person has an identity at a provider of these organizations ("": of the installation), None: at
    any. Within a read or write."""
    rows = UserIdentity.select().where(UserIdentity.user_id == user_id)
    if organization_ids is not None:
        rows = rows.where(UserIdentity.organization.in_(organization_ids))
    return rows.exists()


def insert_identity(
    organization_id: str, provider_id: str, issuer: str, subject: str, user_id: str, email: str, *, actor: str, now: int
) -> None:
    """Link an identity to a person. Within a write. Raises Conflict (linked already), InvalidRequest (too many)."""
    if find_identity(organization_id, issuer, subject) is not None:
        raise Conflict("This identity provider account is connected to another person.", code="identity_taken")
    if UserIdentity.select().where(UserIdentity.user_id == user_id).count() >= MAX_IDENTITIES:
        raise InvalidRequest(f"A person has at most {MAX_IDENTITIES} connected identities.", code="too_many")
    identity_id = ids.new("ident")
    UserIdentity.insert(
        id=identity_id,
        organization=organization_id,
        issuer=issuer,
        subject=subject,
        user_id=user_id,
        provider=provider_id,
        email=email,
        created_at=now,
        used_at=now,
    ).execute()
    detail = {"user": user_id, "issuer": issuer, "provider": provider_id}
    audit.append("identity.link", identity_id, actor=actor, at_us=now, organization_id=organization_id, detail=detail)


def note_use(identity_id: str, provider_id: str, email: str, now: int) -> None:
    """Record a sign-in with an identity. Within a write."""
    values = {"used_at": now, "provider": provider_id, "email": email}
    UserIdentity.update(**values).where(UserIdentity.id == identity_id).execute()


def unlink(database: Database, user_id: str, identity_id: str) -> None:
    """Disconnect an identity of a person, and end its sign-ins. Raises NotFound."""
    database.write(partial(_unlink, database, user_id, identity_id))


def _unlink(database: Database, user_id: str, identity_id: str) -> None:
    row = UserIdentity.get_or_none(UserIdentity.id == identity_id, UserIdentity.user_id == user_id)
    if row is None:
        raise NotFound("You have no connected identity with this id.")
    delete_logins((SsoLogin.user_id == user_id) & (SsoLogin.issuer == row.issuer) & (SsoLogin.subject == row.subject))
    UserIdentity.delete().where(UserIdentity.id == identity_id).execute()
    detail = {"user": user_id, "issuer": row.issuer, "provider": row.provider}
    now = database.now_us()
    audit.append(
        "identity.unlink", identity_id, actor=user_id, at_us=now, organization_id=row.organization, detail=detail
    )


def _info(row: UserIdentity) -> LinkedIdentity:
    return LinkedIdentity(
        row.id,
        row.organization,
        row.provider,
        row.issuer,
        row.subject,
        row.user_id,
        row.email,
        row.created_at,
        row.used_at,
    )
