"""Erasure: deletes what names a person in an organization, and keeps what the books need under a pseudonym.

The member's id stays in usage rows, keys, the ledger and the audit trail. It leads to an account without name and
address from then on. An account that belongs to no other organization is deleted with everything that hangs on it.
docs/erasure.md lists the tables.
"""

import json
from typing import Any

from msgspec import Struct

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.alert_hooks import MAILTO
from gateway.accounts.changes import commit
from gateway.accounts.members import MemberInfo, change_member
from gateway.accounts.models import ApiKey, Audit, Invitation, Member, TeamMember, User
from gateway.control.version import Control
from gateway.errors import Conflict
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database

ERASED_HOST = "erased.invalid"
DESCRIPTION = "Key of an erased person"
LIVE = ("active", "inactive", "revoked")
# Rows of a person's account without a foreign key that deletes them with it.
OF_ACCOUNT = ("second_factor", "passkey", "passkey_challenge", "oauth_grant", "user_identity", "sso_login", "session")
OF_MEMBER = ("scim_group_member", "scim_user")
OF_MEMBER_BY_NAME = ("member_group", "group_grant")


class Erasure(Struct, frozen=True):
    """The counts of an erasure. `account_deleted`: the person's account belonged to no other organization."""

    member_id: str
    keys: int
    audit_entries: int
    account_deleted: bool


def erase_member(database: Database, control: Control, member: MemberInfo, *, actor: str) -> Erasure:
    """Erase a member; their keys are refused once this returns. Conflict (last owner, break-glass account, or a service
    account)."""
    placeholder = ids.new("user")

    def work(now: int) -> Erasure:
        user = User.get_by_id(member.user_id)
        if user.kind != "person":
            raise Conflict("Only people can be erased; delete a service account instead.", code="not_a_person")
        change_member(member.organization_id, member.id, active=False, actor=actor, now=now)
        words = _words_of(database, member, user)
        keys = ApiKey.update(status="deleted", description=DESCRIPTION, updated_at=now).where(
            ApiKey.member == member.id, ApiKey.status.in_(LIVE)
        )
        count = keys.execute()
        ApiKey.update(description=DESCRIPTION).where(ApiKey.member == member.id).execute()
        _delete_of_member(database, member, words, now)
        User.insert(
            id=placeholder,
            email=f"{placeholder}@{ERASED_HOST}",
            status="inactive",
            kind="erased",
            created_at=now,
            updated_at=now,
        ).execute()
        Member.update(user=placeholder, role="developer", updated_at=now).where(Member.id == member.id).execute()
        alone = not Member.select().where(Member.user == user.id).exists()
        if alone:
            for table in OF_ACCOUNT:
                database.execute(f"DELETE FROM {table} WHERE user_id = ?", (user.id,))
            User.delete().where(User.id == user.id).execute()
        redacted = audit.redact(words if alone else words - _own_words(user), actor=actor, at_us=now)
        detail = {"keys": count, "entries": redacted, "account": alone}
        audit.append(
            "member.erase", member.id, actor=actor, at_us=now, organization_id=member.organization_id, detail=detail
        )
        return Erasure(member.id, count, redacted, alone)

    return commit(database, control, work)


def export_member(database: Database, member: MemberInfo) -> dict[str, Any]:
    """Return what is stored about a member and their account, without secrets, as JSON values."""

    def read() -> dict[str, Any]:
        user = User.get_by_id(member.user_id)
        keys = ApiKey.select().where(ApiKey.member == member.id).order_by(ApiKey.id)
        teams = TeamMember.select().where(TeamMember.member == member.id)
        acted = (Audit.organization == member.organization_id) & (
            (Audit.actor == user.id) | (Audit.subject.in_([member.id, user.id]))
        )
        entries = Audit.select().where(acted).order_by(Audit.seq.desc()).limit(1000)
        scim = database.fetch(
            "SELECT user_name, external_id, email, attributes FROM scim_user WHERE member_id = ?", [member.id]
        )
        identities = database.fetch("SELECT issuer, subject, email FROM user_identity WHERE user_id = ?", [user.id])
        requests = database.fetch(
            "SELECT COUNT(*), COALESCE(SUM(cost_nusd), 0) FROM usage WHERE member = ?", [raw_id(member.id)]
        )
        return {
            "member": {
                "id": member.id,
                "role": member.role,
                "status": member.status,
                "teams": [row.team_id for row in teams],
            },
            "account": {"id": user.id, "email": user.email, "name": user.name, "created_at": user.created_at},
            "keys": [
                {"id": key.id, "description": key.description, "mask": key.mask, "created_at": key.created_at}
                for key in keys
            ],
            "provisioned": [
                {"user_name": name, "external_id": external, "email": email, "attributes": json.loads(attributes)}
                for name, external, email, attributes in scim
            ],
            "identities": [
                {"issuer": issuer, "subject": subject, "email": email} for issuer, subject, email in identities
            ],
            "usage": {"rows": int(requests[0][0]), "cost_nusd": int(requests[0][1])},
            "audit": [
                {
                    "at": row.at,
                    "actor": row.actor,
                    "action": row.action,
                    "subject": row.subject,
                    "detail": json.loads(row.detail),
                }
                for row in entries
            ],
        }

    return database.report(read)


def _own_words(user: User) -> set[str]:
    return {word for word in (user.email, user.name) if word}


def _words_of(database: Database, member: MemberInfo, user: User) -> set[str]:
    """Return the addresses and names by which a person is known here, former ones too."""
    words = _own_words(user)
    sql = "SELECT user_name, external_id, email, attributes FROM scim_user WHERE member_id = ?"
    for name, external_id, email, attributes in database.fetch(sql, (member.id,)):
        words |= {name, external_id, email, *_texts(json.loads(attributes))}
    for (email,) in database.fetch("SELECT email FROM user_identity WHERE user_id = ?", (user.id,)):
        words.add(email)
    for row in Audit.select().where(Audit.subject.in_([member.id, user.id])):
        words |= {text for text in _texts(json.loads(row.detail)) if "@" in text}
    return {word for word in words if word}


def _texts(value: Any) -> set[str]:
    """Return all texts in a JSON value that may name a person."""
    if isinstance(value, dict):
        return set().union(*map(_texts, value.values()))
    if isinstance(value, list):
        return set().union(*map(_texts, value))
    if isinstance(value, str) and len(value) > 2:
        return {value}
    return set()


def _delete_of_member(database: Database, member: MemberInfo, words: set[str], now: int) -> None:
    addresses = [word for word in words if "@" in word]
    TeamMember.delete().where(TeamMember.member == member.id).execute()
    for table in OF_MEMBER:
        database.execute(f"DELETE FROM {table} WHERE member_id = ?", (member.id,))
    for table in OF_MEMBER_BY_NAME:
        database.execute(f"DELETE FROM {table} WHERE member = ?", (member.id,))
    Invitation.delete().where(
        Invitation.organization == member.organization_id, Invitation.email.in_(addresses)
    ).execute()
    for address in addresses:
        sql = "DELETE FROM alert_hook WHERE organization = ? AND url = ?"
        database.execute(sql, (member.organization_id, MAILTO + address))
    # Alerts and gauges name people; those in the store are sent or replaced within minutes.
    for word in _own_words(User.get_by_id(member.user_id)):
        for kind, key, value in database.fetch(
            "SELECT kind, key, value FROM document WHERE kind IN ('alert', 'gauge')"
        ):
            if word.encode() in bytes(value):
                database.execute("DELETE FROM document WHERE kind = ? AND key = ?", (kind, key))
    # The payload job deletes what has expired, and counts its storage.
    owner = raw_id(member.id)
    database.execute("UPDATE request_log SET expires_at = ? WHERE member = ? AND expires_at > ?", (now, owner, now))
    database.execute("UPDATE log_entry SET metadata = NULL WHERE member = ?", (owner,))
