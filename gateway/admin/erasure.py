"""Erasure: deletes what names a person in an organization, and keeps what the books need under a pseudonym.

The member's id stays in usage rows, keys, the ledger and the audit trail. It leads to an account without name and
address from then on. An account that belongs to no other organization is deleted with everything that hangs on it.
docs/erasure.md lists the tables.
"""

import json
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from msgspec import Struct

from gateway import ids
from gateway.accounts import audit, member_attributes
from gateway.accounts.alert_hooks import MAILTO, STORED_ALERTS
from gateway.accounts.changes import commit
from gateway.accounts.member_attributes import AttributePeriod
from gateway.accounts.members import MemberInfo, change_member
from gateway.accounts.scoped_roles import end_roles
from gateway.callers.models import ApiKey, Audit, Invitation, Member, ScopedRole, TeamMember, User
from gateway.control.version import Control
from gateway.errors import Conflict
from gateway.metering.outcomes.outcome_sums import MemberOutcome, list_of_member
from gateway.metering.outcomes.outcome_table import delete_of_key
from gateway.metering.usage_table import raw_id
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.store.database import Database
from gateway.store.documents import Documents

KIND = "erasure"  # documents that name members whose requests still have metadata and payloads
KIND_TTL_S = 30 * 86_400.0
PAGE_ROWS = 500
ERASED_HOST = "erased.invalid"
ERASED_NAME = "Erased person"
DESCRIPTION = "Key of an erased person"
LIVE = ("active", "inactive", "revoked")
ENDED_LONG_AGO = 1  # microseconds since 1970; what ended then is purged
CANCEL_BATCHES = (
    "UPDATE batch_job SET state = 'cancelling', canceled_at = {now} "
    "WHERE api_key = ? AND state IN ('validating', 'in_progress')"
)
# Rows of a person's account without a foreign key that deletes them with it.
OF_ACCOUNT = ("second_factor", "passkey", "passkey_challenge", "oauth_grant", "user_identity", "sso_login", "session")
SCIM = "SELECT user_name, external_id, email, attributes FROM scim_user WHERE member_id = ?"
# The data of an export. Sessions of a provider of another organization, and applications of its keys, are not part.
FORGET_ALERTS = (
    "DELETE FROM past_alert WHERE organization = ? "
    "AND (LOWER(message) LIKE LOWER(?) ESCAPE '\\' OR LOWER(facts) LIKE LOWER(?) ESCAPE '\\')"
)
FORGET_END_USER = (
    "UPDATE budget SET member = 'erased' WHERE limit_id IN (SELECT id FROM limits WHERE organization = ?) "
    "AND member <> '' AND LOWER(member) LIKE LOWER(?) ESCAPE '\\'"
)
GROUPS = "SELECT name, source FROM member_group WHERE member = ? ORDER BY source, name"
INVITATIONS = (
    "SELECT id, email, role, status, created_at FROM invitation WHERE organization_id = ? AND email = ? ORDER BY id"
)
ALERT_ADDRESSES = "SELECT url FROM alert_hook WHERE organization = ? AND url = ? ORDER BY id"
SESSIONS = (
    "SELECT s.agent, s.created_at, s.refreshed_at, s.expires_at FROM session s LEFT JOIN sso_login l "
    "ON l.id = s.sso_login WHERE s.user_id = ? AND COALESCE(l.organization, '') IN ('', ?) ORDER BY s.id"
)
RAISE_REQUESTS = (
    "SELECT id, name, amount_nusd, until, note, created_at FROM limit_request WHERE user_id = ? AND organization = ? "
    "ORDER BY id"
)
VIEWS = "SELECT name, query FROM saved_view WHERE user_id = ? AND organization_id = ? ORDER BY id"
PRESETS = "SELECT name, content FROM playground_preset WHERE user_id = ? AND organization_id = ? ORDER BY id"
PASSKEYS = "SELECT name, created_at, used_at FROM passkey WHERE user_id = ? ORDER BY id"
SECOND_FACTOR = "SELECT 1 FROM second_factor WHERE user_id = ? AND confirmed_at IS NOT NULL"
APPLICATIONS = (
    "SELECT g.client_name, g.api_key, g.created_at, g.used_at FROM oauth_grant g JOIN api_key k ON k.id = g.api_key "
    "JOIN project p ON p.id = k.project_id WHERE g.user_id = ? AND p.organization_id = ? ORDER BY g.id"
)
MAX_ENTRIES = 1_000
NAMING = ("displayName", "nickName", "formatted", "givenName", "middleName", "familyName", "userName", "value")
OF_MEMBER = ("scim_group_member", "scim_user")
OF_PERSON = ("view_subscription", "saved_view", "last_visit", "playground_preset", "request_share")
OF_MEMBER_BY_NAME = ("member_group", "group_grant")


class Erasure(Struct, frozen=True):
    """The counts of an erasure. `account_deleted`: the person's account belonged to no other organization."""

    member_id: str
    keys: int
    audit_entries: int
    account_deleted: bool


class Provisioned(Struct, frozen=True):
    """The attributes of a person that an identity provider sent by SCIM."""

    user_name: str
    external_id: str
    email: str
    attributes: dict[str, Any]


class ExportedGroup(Struct, frozen=True):
    """A group of a person, and the identity provider or provisioning that states it."""

    name: str
    source: str


class ExportedInvitation(Struct, frozen=True):
    """An invitation to the organization for the person's address."""

    id: str
    email: str
    role: str
    status: str
    created_at_us: int


class ExportedSession(Struct, frozen=True):
    """A sign-in of the person: the program, and when it was used."""

    agent: str
    created_at_us: int
    last_used_at_us: int
    expires_at_us: int


class ExportedPasskey(Struct, frozen=True):
    """A passkey of the person."""

    name: str
    created_at_us: int
    last_used_at_us: int


class ExportedApplication(Struct, frozen=True):
    """An application that the person connected to a key of the organization."""

    name: str
    api_key_id: str
    created_at_us: int
    last_used_at_us: int


class ExportedRaiseRequest(Struct, frozen=True):
    """A request of the person for more of a limit of the organization."""

    id: str
    limit_id: str
    amount_nusd: int
    until_us: int
    note: str
    created_at_us: int


class ExportedView(Struct, frozen=True):
    """A view of usage that the person saved."""

    name: str
    query: str


class ExportedPreset(Struct, frozen=True):
    """Settings of the playground that the person saved; `sealed` is their encrypted JSON."""

    name: str
    sealed: str


class PersonalData(Struct, frozen=True):
    """The data about a person besides those of the member and the keys. `role_in` are the teams that the person leads,
    and the projects of which the person is an admin; `attributes` are those of all times."""

    created_at_us: int
    team_ids: tuple[str, ...]
    role_in: tuple[str, ...]
    attributes: tuple[AttributePeriod, ...]
    provisioned: tuple[Provisioned, ...]
    groups: tuple[ExportedGroup, ...]
    invitations: tuple[ExportedInvitation, ...]
    alert_addresses: tuple[str, ...]
    sessions: tuple[ExportedSession, ...]
    passkeys: tuple[ExportedPasskey, ...]
    second_factor: bool
    applications: tuple[ExportedApplication, ...]
    limit_requests: tuple[ExportedRaiseRequest, ...]
    views: tuple[ExportedView, ...]
    presets: tuple[ExportedPreset, ...]
    outcomes: tuple[MemberOutcome, ...]
    entries: tuple[audit.AuditEntry, ...]


def erase_member(
    database: Database, control: Control, member: MemberInfo, *, actor: str, words: Collection[str] = ()
) -> Erasure:
    """Erase a member; their keys are refused once this returns. `words` name the person besides those that are stored.
    Conflict (last owner, break-glass account, or a service account)."""
    return commit(database, control, erasing(database, member, actor=actor, words=words))


def erasing(
    database: Database, member: MemberInfo, *, actor: str, words: Collection[str] = ()
) -> Callable[[int], Erasure]:
    """Return the erasure of a member as the work of a transaction: it is called with the time and may be repeated."""
    placeholder = ids.new("user")

    def work(now: int) -> Erasure:
        user = User.get_by_id(member.user_id)
        if user.kind != "person":
            raise Conflict("Only people can be erased; delete a service account instead.", code="not_a_person")
        change_member(member.organization_id, member.id, active=False, actor=actor, now=now)
        named = _words_of(database, member, user).union(filter(None, words))
        keys = ApiKey.update(status="deleted", description=DESCRIPTION, updated_at=now).where(
            ApiKey.member == member.id, ApiKey.status.in_(LIVE)
        )
        count = keys.execute()
        ApiKey.update(description=DESCRIPTION, tags="").where(ApiKey.member == member.id).execute()
        _delete_of_member(database, member, named)
        # Metadata and payloads may be in millions of rows, which a job walks through afterwards.
        Documents(database).put(KIND, member.id, b"", KIND_TTL_S)
        User.insert(
            id=placeholder,
            email=f"{placeholder}@{ERASED_HOST}",
            name=ERASED_NAME,
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
        addresses = {word for word in named if "@" in word}
        organizations = [member.organization_id, *([""] if alone else [])]
        redaction = audit.Redaction(organizations, (member.id, user.id), addresses, named - addresses)
        redacted = audit.redact(redaction, actor=actor, at_us=now)
        detail = {"keys": count, "entries": redacted, "account": alone}
        audit.append(
            "member.erase", member.id, actor=actor, at_us=now, organization_id=member.organization_id, detail=detail
        )
        return Erasure(member.id, count, redacted, alone)

    return work


def export_member(database: Database, member: MemberInfo) -> PersonalData:
    """Return what is stored about a member and their account, without secrets, and without what concerns other
    organizations. Entries of the audit trail: the newest MAX_ENTRIES that the person caused or that concern the
    person."""

    def read() -> PersonalData:
        user = User.get_by_id(member.user_id)
        teams = TeamMember.select().where(TeamMember.member == member.id)
        roles = ScopedRole.select().where(ScopedRole.member == member.id).order_by(ScopedRole.scope_id)
        acted = (Audit.actor == user.id) | (Audit.subject.in_([member.id, user.id]))
        entries = Audit.select().where(Audit.organization == member.organization_id, acted)
        of_member, of_user = (member.id,), (user.id,)
        here = (user.id, member.organization_id)
        address = (member.organization_id, user.email)
        factors = database.fetch(SECOND_FACTOR, of_user)
        return PersonalData(
            created_at_us=user.created_at,
            team_ids=tuple(row.team_id for row in teams),
            role_in=tuple(row.scope_id for row in roles),
            attributes=tuple(member_attributes.load_periods([member.id]).get(member.id, ())),
            provisioned=tuple(
                Provisioned(name, external_id, email, json.loads(attributes))
                for name, external_id, email, attributes in database.fetch(SCIM, of_member)
            ),
            groups=tuple(ExportedGroup(*row) for row in database.fetch(GROUPS, of_member)),
            invitations=tuple(ExportedInvitation(*row) for row in database.fetch(INVITATIONS, address)),
            alert_addresses=tuple(
                url for (url,) in database.fetch(ALERT_ADDRESSES, (member.organization_id, MAILTO + user.email))
            ),
            sessions=tuple(ExportedSession(*row) for row in database.fetch(SESSIONS, here)),
            passkeys=tuple(ExportedPasskey(*row) for row in database.fetch(PASSKEYS, of_user)),
            second_factor=bool(factors),
            applications=tuple(ExportedApplication(*row) for row in database.fetch(APPLICATIONS, here)),
            views=tuple(ExportedView(*row) for row in database.fetch(VIEWS, here)),
            presets=tuple(ExportedPreset(*row) for row in database.fetch(PRESETS, here)),
            outcomes=tuple(list_of_member(database, member.id)),
            limit_requests=tuple(ExportedRaiseRequest(*row) for row in database.fetch(RAISE_REQUESTS, here)),
            entries=tuple(map(audit.read_entry, entries.order_by(Audit.seq.desc()).limit(MAX_ENTRIES))),
        )

    return database.report(read)


def _words_of(database: Database, member: MemberInfo, user: User) -> set[str]:
    """Return the addresses and names by which a person is known here, former addresses too."""
    words = {user.email, user.name}
    for name, external_id, email, attributes in database.fetch(SCIM, (member.id,)):
        words |= {name, external_id, email, *_names_in(json.loads(attributes))}
    for (email,) in database.fetch("SELECT email FROM user_identity WHERE user_id = ?", (user.id,)):
        words.add(email)
    for row in Audit.select().where(Audit.subject.in_([member.id, user.id])):
        words |= {text for text in _texts(json.loads(row.detail)) if "@" in text}
    return {word for word in words if word}


def _names_in(attributes: Any) -> set[str]:
    """Return the names, addresses and numbers of a person among SCIM attributes (RFC 7643, section 4.1)."""
    if isinstance(attributes, list):
        return set().union(*map(_names_in, attributes))
    if not isinstance(attributes, dict):
        return set()
    found = {value for name, value in attributes.items() if name in NAMING and isinstance(value, str)}
    return found.union(*map(_names_in, attributes.values()))


def _texts(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set().union(*map(_texts, value.values()))
    if isinstance(value, list):
        return set().union(*map(_texts, value))
    return {value} if isinstance(value, str) else set()


def _delete_of_member(database: Database, member: MemberInfo, words: set[str]) -> None:
    addresses = [word for word in words if "@" in word]
    TeamMember.delete().where(TeamMember.member == member.id).execute()
    end_roles(member_id=member.id)
    member_attributes.erase(member.id, words)
    for table in OF_MEMBER:
        database.execute(f"DELETE FROM {table} WHERE member_id = ?", (member.id,))
    for table in OF_MEMBER_BY_NAME:
        database.execute(f"DELETE FROM {table} WHERE member = ?", (member.id,))
    Invitation.delete().where(
        Invitation.organization == member.organization_id, Invitation.email.in_(addresses)
    ).execute()
    sql = "DELETE FROM limit_request WHERE organization = ? AND user_id = ?"
    database.execute(sql, (member.organization_id, member.user_id))
    for table in OF_PERSON:
        sql = f"DELETE FROM {table} WHERE organization_id = ? AND user_id = ?"
        database.execute(sql, (member.organization_id, member.user_id))
    for address in addresses:
        # Applications name end users by their addresses; the counter of such a member stays.
        pattern = "%" + address.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        database.execute(FORGET_END_USER, (member.organization_id, pattern))
        database.execute(FORGET_ALERTS, (member.organization_id, pattern, pattern))
        sql = "DELETE FROM alert_hook WHERE organization = ? AND url = ?"
        database.execute(sql, (member.organization_id, MAILTO + address))
    for key, value in database.fetch("SELECT key, value FROM document WHERE kind = ?", (STORED_ALERTS,)):
        if _is_about(json.loads(bytes(value)), member.organization_id, addresses):
            database.execute("DELETE FROM document WHERE kind = ? AND key = ?", (STORED_ALERTS, key))


def _is_about(waiting: dict[str, Any], organization_id: str, addresses: Collection[str]) -> bool:
    """Return whether a stored alert of an organization has one of the addresses."""
    data = waiting.get("event", {}).get("data", {})
    text = json.dumps(data).lower()
    return data.get("organization") == organization_id and any(address.lower() in text for address in addresses)


class ErasureJob:
    """Deletes metadata of requests of erased members, and lets their payloads, files, batches, videos and background
    responses expire, which purges then delete. Batches in progress are cancelled before."""

    def __init__(self, database: Database, documents: Documents) -> None:
        self._database = database
        self._documents = documents

    def finish(self, should_continue: ShouldContinue = always) -> None:
        """Finish all erasures in short steps; safe to repeat. Unavailable."""
        for member_id, _ in self._documents.entries(KIND):
            if not all(should_continue() for _ in _walk_requests(self._database, member_id)):
                return
            if _end_jobs(self._database, member_id):
                self._documents.delete(KIND, member_id)


def _walk_requests(database: Database, member_id: str) -> Iterator[None]:
    keys = database.query_rows("SELECT id, project_id FROM api_key WHERE member_id = ?", (member_id,))
    for key_id, _ in keys:
        owner = raw_id(key_id)
        for page in _pages(database, "log_entry", "api_key", owner):
            sql = "UPDATE log_entry SET metadata = NULL WHERE api_key = ? AND request BETWEEN ? AND ?"
            database.change_rows(sql, (owner, page[0][0], page[-1][0]))
            yield
    for project_id in {project_id for _, project_id in keys}:
        for page in _pages(database, "request_log", "project", raw_id(project_id)):
            own = [(request,) for request, member in page if bytes(member) == raw_id(member_id)]
            sql = f"UPDATE request_log SET expires_at = {database.moment_sql()} WHERE request = ?"
            if own:
                database.write(partial(database.execute_many, sql, own))
            yield


def _end_jobs(database: Database, member_id: str) -> bool:
    """Delete what agents reported with a member's keys, and let their files, batches, videos and background responses
    expire. False as long as a batch or video has not ended: its results are still to be written."""
    now = database.moment_sql()
    ended = True
    for (key_id,) in database.query_rows("SELECT id FROM api_key WHERE member_id = ?", (member_id,)):
        delete_of_key(database, raw_id(key_id))
        database.change_rows(CANCEL_BATCHES.format(now=now), (key_id,))
        for table in ("batch_job", "video_job"):
            jobs = database.query_rows(f"SELECT id, completed_at FROM {table} WHERE api_key = ?", (key_id,))
            for ident, completed_at in jobs:
                if completed_at is None:
                    ended = False
                    continue
                database.change_rows(f"UPDATE {table} SET completed_at = ? WHERE id = ?", (ENDED_LONG_AGO, ident))
        # Their inputs, which are `kept`, are deleted with the batches.
        sql = f"UPDATE stored_file SET expires_at = {now} WHERE api_key = ? AND state <> 'kept'"
        database.change_rows(sql, (key_id,))
        for (ident,) in database.query_rows("SELECT id FROM response_job WHERE api_key = ?", (key_id,)):
            sql = (
                "UPDATE response_job SET state = CASE WHEN completed_at IS NULL THEN 'cancelled' ELSE state END, "
                "completed_at = ?, due_at = NULL, request = '' WHERE id = ?"
            )
            database.change_rows(sql, (ENDED_LONG_AGO, ident))
    # What the member stored in the console.
    database.change_rows(f"UPDATE stored_file SET expires_at = {now} WHERE api_key = ?", (member_id,))
    return ended


def _pages(database: Database, table: str, column: str, owner: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
    """Return request and member of all rows of a key or project, by their index."""
    last = b""
    while True:
        sql = (
            f"SELECT request, member FROM {table} WHERE {column} = ? AND request > ? ORDER BY request LIMIT {PAGE_ROWS}"
        )
        page = database.query_rows(sql, (owner, last))
        if not page:
            return
        yield page
        last = bytes(page[-1][0])
