"""Hours of which the rows are removed piece by piece: what those that went have in the part HELD.

Moving that to the part REMOVED with each piece would write every row of the hour's sums again and again. It stays where
it is until the last piece is gone, and moves then by a single word. Meanwhile the part HELD is what the rows that lie
in the table tell and what stands here. What stands here under the number of a part which is not HELD any more was of
an hour that moved: it counts no longer, and is swept.
"""

from collections.abc import Sequence

from gateway.metering.rollups.rollup_table import fetch_sums, read_held
from gateway.metering.rollups.row_sums import Group
from gateway.metering.rollups.sum_tables import VALUES, sum_table, write_rows
from gateway.store.database import Database

KEY_COLUMNS = {  # and their types on PostgreSQL
    "hour": "integer",
    "part": "smallint",
    "low": "text",
    "project": "bytea",
    "api_key": "bytea",
    "provider": "text",
    "name": "text",
    "source": "text",
}
# In the order in which rows go, so that each step writes behind the one before.
PIECES = sum_table("removed_piece", KEY_COLUMNS, ("removed_at", "bigint", "excluded.removed_at"))
GROUPED = "project, api_key, provider, name, source"
READ = f"""
SELECT {GROUPED}, MIN(low), {", ".join(f"sum({name})" for name in VALUES)} FROM removed_piece
WHERE hour = ? AND part = ? GROUP BY {GROUPED}
"""
COUNT = "SELECT SUM(rows) FROM removed_piece WHERE hour = ? AND part = ?"
NEXT_HOUR = "SELECT hour FROM removed_piece WHERE hour > ? ORDER BY hour LIMIT 1"
ANY = "SELECT 1 FROM removed_piece WHERE hour = ? AND part = ? LIMIT 1"
BEYOND = "SELECT low FROM removed_piece WHERE hour = ? AND part = ? ORDER BY low LIMIT 1 OFFSET ?"
SWEEP_ROWS = 5_000  # at once


def add_pieces(database: Database, groups: Sequence[Group], now_us: int) -> None:
    """Remember what rows counted that go, within the transaction that removes them."""
    held = read_held(database, (one.hour for one in groups))
    rows = [((one.hour, held.get(one.hour, 0), one.low, *one[1:6], now_us), one.values) for one in groups]
    write_rows(database, PIECES, rows, adding=True)


def read_pieces(database: Database, hour: int, part: int) -> list[Group]:
    """What rows that went have in the part HELD of an hour, which is `part`. Inside a report."""
    found = []
    for project, key, provider, model, source, low, *values in fetch_sums(database, READ, (hour, part)):
        sums = [int(value or 0) for value in values]
        found.append(Group(hour, bytes(project), bytes(key), provider, model, source, low, low, sums))
    return found


def count_pieces(database: Database, hour: int, part: int) -> int:
    """How many rows they were. Inside a read."""
    return int(database.execute(COUNT, (hour, part)).fetchone()[0] or 0)


def list_pieces(database: Database) -> list[tuple[int, int, bool]]:
    """The hours that have any, under the number of which part, and whether that is the one HELD. Inside a read."""
    found = []
    last = -1
    while row := database.execute(NEXT_HOUR, (last,)).fetchone():
        last = int(row[0])
        held = read_held(database, [last]).get(last, 0)
        parts = [part for part in (0, 1) if database.execute(ANY, (last, part)).fetchone()]
        found += [(last, part, part == held) for part in parts]
    return found


def sweep_pieces(database: Database, hour: int, part: int) -> None:
    """Delete some thousand rows of what counts no longer, within an open transaction."""
    beyond = database.execute(BEYOND, (hour, part, SWEEP_ROWS)).fetchone()
    delete = "DELETE FROM removed_piece WHERE hour = ? AND part = ?"
    if beyond is None:
        database.execute(delete, (hour, part))
    else:
        database.execute(f"{delete} AND low <= ?", (hour, part, beyond[0]))
