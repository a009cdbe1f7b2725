"""Past alerts: the problems of the last months with their times, for the marks on plots and for people who look later.

Alerts themselves are deleted once they were delivered. Every worker that notes a problem records it, under the same id,
so that it has one row.
"""

import hashlib
from collections.abc import Collection, Sequence
from typing import Any

import orjson
from msgspec import Struct

from gateway.clock import DAY_US
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.state_changes import StateChange
from gateway.runtime.threads import pause
from gateway.store.database import Database

DAYS = 90  # how long past alerts are kept
MAX_MESSAGE_LENGTH = 500
COLUMNS = "id, organization, event, subject, message, facts, began_at, ended_at"
STEP_ROWS = 500
PAUSE_S = 0.02


class PastAlert(Struct, frozen=True):
    """A problem. `organization_id` "" concerns the installation; `facts` are the ids and names that it is about;
    `ended_us` is 0 while it continues, or when its end was never seen."""

    id: str
    organization_id: str
    event: str
    subject: str
    message: str
    facts: dict[str, Any]
    began_us: int
    ended_us: int


class AlertHistory:
    """The past alerts of all organizations. All methods raise Unavailable when the store is down."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, change: StateChange, began_us: int) -> None:
        """Record the problem of an incident that began at `began_us`; nothing if it is recorded already."""
        ident = _ident(change.event, change.subject, began_us)
        if self._database.query_row("SELECT 1 FROM past_alert WHERE id = ?", (ident,)):
            return
        facts = {name: value for name, value in change.facts.items() if isinstance(value, str | int | float)}
        owner = str(facts.pop("organization", ""))
        message = change.message[:MAX_MESSAGE_LENGTH].replace("\0", "")
        values = (ident, owner, change.event, change.subject, message, orjson.dumps(facts).decode(), began_us, 0)
        sql = f"INSERT INTO past_alert ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
        self._database.write(lambda: self._database.execute(sql, values))

    def end(self, subject: str, events: Sequence[str], began_us: int, at_us: int) -> None:
        """Record the end of an incident with these events."""
        idents = [_ident(event, subject, began_us) for event in events]
        sql = f"UPDATE past_alert SET ended_at = ? WHERE id IN ({', '.join('?' * len(idents))})"
        self._database.write(lambda: self._database.execute(sql, (at_us, *idents)))

    def read(
        self, organization_ids: Collection[str], from_us: int, until_us: int, limit: int, events: Collection[str] = ()
    ) -> list[PastAlert]:
        """Return the problems that began within [from_us, until_us), the newest first; of some `events` only, unless
        there are none. `organization_ids` may include "" for those of the installation."""
        if not organization_ids:
            return []
        among = f" AND event IN ({', '.join('?' * len(events))})" if events else ""
        sql = (
            f"SELECT {COLUMNS} FROM past_alert WHERE organization IN ({', '.join('?' * len(organization_ids))}) "
            f"AND began_at >= ? AND began_at < ?{among} ORDER BY began_at DESC, id LIMIT ?"
        )
        rows = self._database.query_rows(sql, (*organization_ids, from_us, until_us, *events, limit))
        return [
            PastAlert(ident, owner, event, subject, message, orjson.loads(facts), began_us, ended_us)
            for ident, owner, event, subject, message, facts, began_us, ended_us in rows
        ]

    def forget(self, should_continue: ShouldContinue = always) -> int:
        """Delete what is older than DAYS, in small steps; return how many rows."""
        oldest_us = self._database.now_us() - DAYS * DAY_US
        sql = "DELETE FROM past_alert WHERE id IN (SELECT id FROM past_alert WHERE began_at < ? LIMIT ?)"
        deleted = 0
        while should_continue():
            count = self._database.write(lambda: self._database.execute(sql, (oldest_us, STEP_ROWS)).rowcount)
            deleted += count
            if count < STEP_ROWS:
                break
            pause(PAUSE_S)
        return deleted


def _ident(event: str, subject: str, began_us: int) -> str:
    return hashlib.sha256(f"{event}\n{subject}\n{began_us}".encode()).hexdigest()[:32]
