"""Sums of removed rows of hours that are removed piece by piece, and that still count for the part HELD.

Moving these sums to the part REMOVED with each piece would rewrite every sum of the hour again and again. They stay in
this table until the last piece is removed, and move then with a single update. Until then, the part HELD is the sum of
the rows in the usage table and the pieces here. Pieces under a part number that is no longer HELD belong to an hour
that has moved: they are obsolete, and are deleted.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from gateway.metering.rollups.rollup_table import fetch_sums, read_held
from gateway.metering.rollups.row_sums import Group
from gateway.metering.rollups.sum_tables import VALUES, sum_table, write_rows
from gateway.store.database import Database

KEY_COLUMNS = {  # with their types on PostgreSQL
    "hour": "integer",
    "part": "smallint",
    "low": "text",
    "project": "bytea",
    "api_key": "bytea",
    "provider": "text",
    "name": "text",
    "source": "text",
}
# In the order in which rows are removed, so that each step appends behind the previous one.
LABEL_COLUMNS = {"session": "text", "tags": "text"}
PIECES_TABLE = sum_table("removed_piece", KEY_COLUMNS, ("removed_at", "bigint"), LABEL_COLUMNS)
DIGEST_BYTES = 8
GROUPED = "project, api_key, provider, name, source, session, tags"
READ = f"""
SELECT {GROUPED}, MIN(low), {", ".join(f"sum({name})" for name in VALUES)} FROM removed_piece
WHERE hour = ? AND part = ? GROUP BY {GROUPED}
"""
COUNT_ROWS = "SELECT SUM(rows) FROM removed_piece WHERE hour = ? AND part = ?"
NEXT_HOUR = "SELECT hour FROM removed_piece WHERE hour > ? ORDER BY hour LIMIT 1"
HAS_PIECES = "SELECT 1 FROM removed_piece WHERE hour = ? AND part = ? LIMIT 1"
BEYOND = "SELECT low FROM removed_piece WHERE hour = ? AND part = ? ORDER BY low LIMIT 1 OFFSET ?"
SWEEP_ROWS = 5_000  # at once


def add_pieces(database: Database, groups: Sequence[Group], now_us: int) -> None:
    """Store the sums of rows that are about to be removed, within the transaction that removes them."""
    held = read_held(database, (group.hour for group in groups))
    rows = [(_head(group, held.get(group.hour, 0), now_us), group.values) for group in groups]
    write_rows(database, PIECES_TABLE, rows, adding=True)


def _head(group: Group, part: int, now_us: int) -> tuple[Any, ...]:
    """Return the key of a piece and the columns beside it. Session and tags, which are too long for a key, are in it as
    a digest."""
    low = group.low
    if group.session or group.tags:
        text = f"{group.session or ''}\0{group.tags or ''}"
        low = f"{low}-{blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()}"
    return (group.hour, part, low, *group[1:6], now_us, group.session, group.tags)


def read_pieces(database: Database, hour: int, part: int) -> list[Group]:
    """Return the sums of removed rows that count for the part HELD of an hour; `part` is its number. Inside a
    report."""
    groups = []
    for project, key, provider, model, source, session, tags, low, *values in fetch_sums(database, READ, (hour, part)):
        sums = [int(value or 0) for value in values]
        place = (hour, bytes(project), bytes(key), provider, model, source, session, tags)
        groups.append(Group(*place, low, low, sums))
    return groups


def count_pieces(database: Database, hour: int, part: int) -> int:
    """Return the number of removed rows in the pieces of an hour. Inside a read."""
    return int(database.execute(COUNT_ROWS, (hour, part)).fetchone()[0] or 0)


def list_pieces(database: Database) -> list[tuple[int, int, bool]]:
    """Return the hours with pieces, the number of their part, and whether that part is HELD. Inside a read."""
    pieces = []
    last = -1
    while row := database.execute(NEXT_HOUR, (last,)).fetchone():
        last = int(row[0])
        held = read_held(database, [last]).get(last, 0)
        parts = [part for part in (0, 1) if database.execute(HAS_PIECES, (last, part)).fetchone()]
        pieces += [(last, part, part == held) for part in parts]
    return pieces


def sweep_pieces(database: Database, hour: int, part: int) -> None:
    """Delete some thousand obsolete rows, within an open transaction."""
    beyond = database.execute(BEYOND, (hour, part, SWEEP_ROWS)).fetchone()
    delete = "DELETE FROM removed_piece WHERE hour = ? AND part = ?"
    if beyond is None:
        database.execute(delete, (hour, part))
    else:
        database.execute(f"{delete} AND low <= ?", (hour, part, beyond[0]))
