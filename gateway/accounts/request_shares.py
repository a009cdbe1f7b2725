"""Links by which members of an organization show a request or a session to colleagues who do not see it otherwise.

Nothing is shared without a link. A link names a request or a session, and expires. The page decides which visitors may
open it: members who may read requests of the organization, be it only their own ones.
"""

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import astuple, replace

from gateway import ids
from gateway.accounts import audit
from gateway.clock import DAY_US
from gateway.errors import InvalidRequest, NotFound
from gateway.store.database import Database

REQUEST, SESSION = "request", "session"
LIFE_US = 30 * DAY_US
MAX_LISTED = 5_000
MAX_SHARES = 100  # of a person in an organization, without expired ones
COLUMNS = "id, organization_id, project_id, user_id, member_id, kind, subject, expires_at"


class RequestShare(Struct, frozen=True):
    """A link. `subject` is the id of a request (32 hex digits), or the name of a session of the project, of which the
    link shows the requests of `member_id`, "" for those of all members."""

    id: str
    organization_id: str
    project_id: str
    user_id: str
    member_id: str
    kind: str
    subject: str
    expires_at_us: int


def add(database: Database, draft: RequestShare) -> RequestShare:
    """Return the link of a person to a request or session, made anew with an id or kept for another LIFE_US.
    InvalidRequest (too many)."""

    def work() -> RequestShare:
        now = database.now_us()
        database.execute("DELETE FROM request_share WHERE expires_at <= ?", (now,))
        expires_at_us = now + LIFE_US
        known = _find_own(database, draft)
        if known is not None:
            values = (expires_at_us, draft.member_id, known)
            database.execute("UPDATE request_share SET expires_at = ?, member_id = ? WHERE id = ?", values)
            return replace(draft, id=known, expires_at_us=expires_at_us)
        counted = "SELECT COUNT(*) FROM request_share WHERE organization_id = ? AND user_id = ?"
        if database.execute(counted, (draft.organization_id, draft.user_id)).fetchone()[0] >= MAX_SHARES:
            raise InvalidRequest(f"A person shares at most {MAX_SHARES} requests and sessions. End one first.")
        share = replace(draft, id=ids.new("share"), expires_at_us=expires_at_us)
        marks = ", ".join("?" * 9)
        database.execute(f"INSERT INTO request_share ({COLUMNS}, created_at) VALUES ({marks})", (*astuple(share), now))
        _note(database, "request.share", share, share.user_id)
        return share

    return database.write(work)


def remove(database: Database, share: RequestShare, actor: str) -> None:
    """End a link; nothing happens if it has already ended."""

    def work() -> None:
        if database.execute("DELETE FROM request_share WHERE id = ?", (share.id,)).rowcount:
            _note(database, "request.unshare", share, actor)

    database.write(work)


def find(database: Database, share_id: str, organization_ids: Collection[str]) -> RequestShare:
    """Return a link of one of these organizations. Raises NotFound, also for an expired one."""
    row = database.query_row(f"SELECT {COLUMNS} FROM request_share WHERE id = ?", (share_id,))
    share = None if row is None else RequestShare(*row)
    if share is None or share.organization_id not in organization_ids or share.expires_at_us <= database.now_us():
        raise NotFound("There is no such link, or it has ended.")
    return share


def list_shares(
    database: Database, organization_id: str, project_id: str, kind: str, subject: str
) -> list[RequestShare]:
    """Return the links to a request or session, oldest first."""
    sql = (
        f"SELECT {COLUMNS} FROM request_share WHERE organization_id = ? AND project_id = ? AND kind = ? "
        "AND subject = ? AND expires_at > ? ORDER BY id"
    )
    values = (organization_id, project_id, kind, subject, database.now_us())
    return [RequestShare(*row) for row in database.query_rows(sql, values)]


def list_of_organization(database: Database, organization_id: str) -> list[RequestShare]:
    """Return the links of an organization that have not expired, oldest first, at most MAX_LISTED."""
    sql = f"SELECT {COLUMNS} FROM request_share WHERE organization_id = ? AND expires_at > ? ORDER BY id LIMIT ?"
    return [RequestShare(*row) for row in database.query_rows(sql, (organization_id, database.now_us(), MAX_LISTED))]


def _find_own(database: Database, draft: RequestShare) -> str | None:
    sql = (
        "SELECT id FROM request_share WHERE organization_id = ? AND user_id = ? AND project_id = ? AND kind = ? "
        "AND subject = ?"
    )
    values = (draft.organization_id, draft.user_id, draft.project_id, draft.kind, draft.subject)
    row = database.execute(sql, values).fetchone()
    return None if row is None else str(row[0])


def _note(database: Database, action: str, share: RequestShare, actor: str) -> None:
    audit.append(
        action,
        share.id,
        actor=actor,
        at_us=database.now_us(),
        organization_id=share.organization_id,
        detail={"project": share.project_id, "kind": share.kind, "subject": share.subject},
    )
