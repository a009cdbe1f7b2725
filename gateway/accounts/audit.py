"""The audit trail: appended only, every entry bound to the one before it by a hash.

Its oldest entries may go by their age; then the number and the hash of the last that went are kept, which the first
that is left must follow. Words that name an erased person are replaced in place: a later entry of the chain then
vouches for what stands there now, and the old hash still binds the entries after it.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from msgspec import Struct
from peewee import fn

from gateway.callers.models import Audit, AuditHead
from gateway.runtime.threads import pause
from gateway.store.database import Database

GENESIS = "0" * 64
PAGE = 250
MAX_DETAIL_LENGTH, MAX_VALUE_LENGTH = 16_384, 1024  # characters
REDACT = "audit.redact"
ERASED = "erased"  # stands in place of a word that named a person
HEAD, FORGOTTEN = 1, 2  # rows of audit_head: the newest entry, and the last that went by its age


class AuditEntry(Struct, frozen=True):
    """One change: its actor (a user id, a key id or "operator"), its action (such as "api_key.roll") and its target."""

    seq: int
    at_us: int
    organization_id: str
    actor: str
    action: str
    subject: str
    detail: str


def append(
    action: str,
    subject: str,
    *,
    actor: str,
    at_us: int,
    organization_id: str = "",
    detail: Mapping[str, object] | None = None,
) -> None:
    """Add an entry; to be called within the transaction of the change itself. `detail` holds no secret."""
    # The update comes first because its row lock puts concurrent appends in order.
    AuditHead.update(seq=AuditHead.seq + 1).where(AuditHead.id == HEAD).execute()
    head = AuditHead.get_by_id(HEAD)
    text = _write(detail or {})
    if len(text) > MAX_DETAIL_LENGTH:
        text = _write({name: _shorten(value) for name, value in (detail or {}).items()})
    entry = AuditEntry(head.seq, at_us, organization_id, actor, action, subject, text)
    digest = hash_entry(entry, head.hash)
    Audit.insert(
        seq=entry.seq,
        at=at_us,
        organization=organization_id,
        actor=actor,
        action=action,
        subject=subject,
        detail=text,
        previous_hash=head.hash,
        hash=digest,
    ).execute()
    AuditHead.update(hash=digest).where(AuditHead.id == HEAD).execute()


def hash_entry(entry: AuditEntry, previous: str) -> str:
    """SHA-256 over the previous hash and every field, as hex."""
    fields = [previous, entry.seq, entry.at_us, entry.organization_id, entry.actor, entry.action, entry.subject]
    return hashlib.sha256(json.dumps([*fields, entry.detail]).encode()).hexdigest()


def list_entries(
    database: Database, organization_id: str = "", *, limit: int = 100, before: int = 0
) -> list[AuditEntry]:
    """The newest `limit` entries first, of one organization or ("") of all, older than entry `before` if given."""

    def read() -> list[AuditEntry]:
        query = Audit.select().order_by(Audit.seq.desc()).limit(limit)
        if organization_id:
            query = query.where(Audit.organization == organization_id)
        if before:
            query = query.where(Audit.seq < before)
        return [read_entry(row) for row in query]

    return database.report(read)


SEARCHED = 2_000  # newest entries of an organization in which changes are searched


def list_changes(
    database: Database, organization_id: str, actions: Collection[str], span_us: tuple[int, int], limit: int
) -> list[AuditEntry]:
    """The newest `limit` entries of an organization with one of some actions and a time within [first, end), among its
    SEARCHED newest ones."""

    def read() -> list[AuditEntry]:
        newest = (
            Audit.select(Audit.seq)
            .where(Audit.organization == organization_id)
            .order_by(Audit.seq.desc())
            .limit(SEARCHED)
            .alias("newest")
        )
        query = (
            Audit.select()
            .join(newest, on=(Audit.seq == newest.c.seq))
            .where(Audit.action.in_(list(actions)), Audit.at >= span_us[0], Audit.at < span_us[1])
            .order_by(Audit.seq.desc())
            .limit(limit)
        )
        return [read_entry(row) for row in query]

    return database.report(read)


def verify(database: Database) -> tuple[int, list[str]]:
    """Verify the whole chain and return (entries seen, problems). It detects changed, missing, added and cut-off
    entries. It yields to other work between pages."""
    # The head is read first: entries added during the walk lie behind it and are not looked at.
    last, head_hash = database.read(_read_head)
    problems: list[str] = []
    begin, previous = database.read(_read_forgotten)
    seq = begin
    while seq < last and not problems:
        seq, previous = database.report(partial(_check_page, seq, last, previous, problems))
        pause(0)
    if not problems and previous != head_hash:
        problems.append(f"entry {last} is not the one that was written last")
    return seq - begin, problems


def shorten(oldest_us: int, maximum: int) -> int:
    """Forget at most `maximum` of the first entries that are older than `oldest_us`, within an open transaction; how
    many. Never the newest one."""
    newest = AuditHead.get_by_id(HEAD).seq
    going: list[Audit] = []
    for row in Audit.select(Audit.seq, Audit.at, Audit.hash).order_by(Audit.seq).limit(maximum):
        if row.at >= oldest_us or row.seq >= newest:
            break
        going.append(row)
    if not going:
        return 0
    last = going[-1]
    AuditHead.insert(id=FORGOTTEN, seq=last.seq, hash=last.hash).on_conflict(
        conflict_target=[AuditHead.id], update={AuditHead.seq: last.seq, AuditHead.hash: last.hash}
    ).execute()
    deleted: int = Audit.delete().where(Audit.seq <= last.seq).execute()
    return deleted


class Redaction(Struct, frozen=True):
    """The words that name a person. Addresses are replaced wherever they stand in entries of the organizations, names
    where they are a whole value in entries about one of the subjects: other people and teams may be called alike."""

    organizations: Collection[str]
    subjects: Collection[str]
    addresses: Collection[str]
    names: Collection[str]


def redact(redaction: Redaction, *, actor: str, at_us: int) -> int:
    """Replace the words of a person within the transaction that erases the person; returns the number of changed
    entries."""
    addresses = {word.lower() for word in redaction.addresses}
    names = {word.lower() for word in redaction.names} | addresses
    found = Audit.subject.in_([*redaction.subjects, *addresses])
    for address in addresses:
        found |= fn.LOWER(Audit.detail).contains(json.dumps(address)[1:-1])
    count = 0
    for row in list(Audit.select().where(Audit.organization.in_(list(redaction.organizations)), found)):
        words = names if row.subject in redaction.subjects else addresses
        subject, detail = _replace(row.subject, words), _write(_replace(json.loads(row.detail), words))
        if (subject, detail) == (row.subject, row.detail):
            continue
        row.subject, row.detail = subject, detail
        changed = hash_entry(read_entry(row), row.previous_hash)
        vouched = {"sha256": changed}
        append(REDACT, str(row.seq), actor=actor, at_us=at_us, organization_id=row.organization, detail=vouched)
        vouching = AuditHead.get_by_id(HEAD).seq
        Audit.update(subject=subject, detail=detail, redacted_by=vouching).where(Audit.seq == row.seq).execute()
        count += 1
    return count


def _replace(value: Any, words: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {name: _replace(part, words) for name, part in value.items()}
    if isinstance(value, list):
        return [_replace(part, words) for part in value]
    if not isinstance(value, str):
        return value
    if value.lower() in words:
        return ERASED
    for word in words:
        if "@" in word:
            # Not the end of a longer address: ann@x.example contains nn@x.example.
            value = re.sub(rf"(?<![\w.+-]){re.escape(word)}(?![\w-]|\.\w)", ERASED, value, flags=re.IGNORECASE)
    return value


def _write(detail: Mapping[str, object]) -> str:
    return json.dumps(detail, sort_keys=True, separators=(",", ":"))


def _shorten(value: object) -> object:
    """The value itself, or its size and digest where it is large: callers choose it, and each change keeps one."""
    text = json.dumps(value)
    if len(text) <= MAX_VALUE_LENGTH:
        return value
    return {"bytes": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _check_page(seq: int, last: int, previous: str, problems: list[str]) -> tuple[int, str]:
    """The next page of the chain: number and hash of its last entry."""
    page = _page(seq, last)
    if not page:
        problems.append(f"entries {seq + 1} to {last} are missing")
    for row in page:
        seq, previous = _check(row, seq, previous, problems)
    return seq, previous


def _check(row: Audit, seq: int, previous: str, problems: list[str]) -> tuple[int, str]:
    if row.seq != seq + 1:
        problems.append(f"entry {seq + 1} is missing")
    elif row.previous_hash != previous:
        problems.append(f"entry {row.seq} does not follow entry {seq}")
    elif not _is_unchanged(row, hash_entry(read_entry(row), previous)):
        problems.append(f"entry {row.seq} was changed")
    return row.seq, row.hash


def _is_unchanged(row: Audit, digest: str) -> bool:
    """Return whether an entry is as it was written, or as a later entry says that it was redacted."""
    if row.redacted_by is None:
        return row.hash == digest
    vouching = Audit.get_or_none(Audit.seq == row.redacted_by, Audit.action == REDACT, Audit.subject == str(row.seq))
    return row.seq < row.redacted_by and vouching is not None and json.loads(vouching.detail) == {"sha256": digest}


def _page(after: int, last: int) -> list[Audit]:
    return list(Audit.select().where(Audit.seq > after, Audit.seq <= last).order_by(Audit.seq).limit(PAGE))


def _read_head() -> tuple[int, str]:
    head = AuditHead.get_by_id(HEAD)
    return head.seq, head.hash


def _read_forgotten() -> tuple[int, str]:
    row = AuditHead.get_or_none(AuditHead.id == FORGOTTEN)
    if row is None:
        return (0, GENESIS)
    return (row.seq, row.hash)


def read_entry(row: Audit) -> AuditEntry:
    """Return a row of the trail."""
    return AuditEntry(row.seq, row.at, row.organization, row.actor, row.action, row.subject, row.detail)
