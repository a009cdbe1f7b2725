"""The turns of agents' sessions in the order in which they were recorded, for jobs that follow them."""

from functools import partial
from typing import Any, NamedTuple

from gateway.metering.models import CACHED, SETTLEMENT
from gateway.store.database import Database

COLUMNS = (
    "posted_at, request, at, organization, project, api_key, session, provider, served, input, cache_read, "
    "cache_write, flags"
)


class TurnPosition(NamedTuple):
    """A place in the order of recording: rows up to this one were read."""

    posted_at: int
    request: bytes = b""


class SessionTurn(NamedTuple):
    """An answered chat request of a session. Ids are prefixed; `fresh`, `cached` and `written` are its input tokens
    outside the provider's prompt cache, from it and into it."""

    request_id: str
    at_us: int
    organization_id: str
    project_id: str
    key_id: str
    session: str
    provider: str
    model: str
    fresh: int
    cached: int
    written: int

    @property
    def input_tokens(self) -> int:
        return self.fresh + self.cached + self.written


class TurnPage(NamedTuple):
    """A page of turns. `position` is that of its last row; the last page is not `full`."""

    turns: list[SessionTurn]
    position: TurnPosition
    full: bool


def read_turns(database: Database, after: TurnPosition, until_us: int, limit: int) -> TurnPage:
    """Return at most `limit` turns that were recorded after a position and until `until_us`, oldest first. Answers
    from the gateway's cache and failed calls are left out. Raises Unavailable."""
    return database.report(partial(_read, database, after, until_us, limit))


def _read(database: Database, after: TurnPosition, until_us: int, limit: int) -> TurnPage:
    sql = (
        f"SELECT {COLUMNS} FROM usage WHERE posted_at >= ? AND posted_at <= ? AND (posted_at > ? OR request > ?) "
        "AND session IS NOT NULL AND operation = 'chat' AND kind = ? AND error IS NULL "
        "ORDER BY posted_at, request LIMIT ?"
    )
    values = (after.posted_at, until_us, after.posted_at, after.request, SETTLEMENT, limit)
    rows = list(database.fetch(sql, values))
    if not rows:
        return TurnPage([], after, False)
    position = TurnPosition(rows[-1][0], bytes(rows[-1][1]))
    return TurnPage([_turn(row) for row in rows if not row[12] & CACHED], position, len(rows) == limit)


def _turn(row: tuple[Any, ...]) -> SessionTurn:
    owners = (f"org_{bytes(row[3]).hex()}", f"proj_{bytes(row[4]).hex()}", f"key_{bytes(row[5]).hex()}")
    return SessionTurn(bytes(row[1]).hex(), row[2], *owners, *row[6:12])
