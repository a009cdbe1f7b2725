"""The hours in which keys were used, from the rollups: a search skips all other hours.

An index of usage rows by key would cost every request what a search for one key saves, so there is none.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gateway.clock import HOUR_US
from gateway.metering.rollups.rollup_table import Series, read_state
from gateway.metering.rollups.row_sums import MARGIN_US
from gateway.store.database import Database
from gateway.store.partitions import id_at, time_of

# Hours of a key that one look brings.
MOST_HOURS = 100
USED = "SELECT DISTINCT hour FROM rollup WHERE series = ? AND owner = ? AND hour >= ? AND hour <= ? ORDER BY hour DESC"


class Ranges(NamedTuple):
    """Ranges [low, high) of request ids, newest first and apart. `whole`: there are no further ones; else older ones
    than the last may be."""

    ranges: list[tuple[bytes, bytes]]
    whole: bool


def used_within(database: Database, keys: Sequence[bytes], oldest: bytes, before: bytes) -> Ranges | None:
    """Where in [oldest, before) requests of the keys may lie; None where the rollups cannot tell. Inside a read."""
    state = read_state(database)
    if state is None or state.filling:
        return None
    # What was posted since the last round is in no rollup yet.
    recent = state.watermark - 2 * MARGIN_US
    first = time_of(oldest or bytes(16)) // HOUR_US
    last = time_of(before) // HOUR_US + 1
    hours: set[int] = set()
    least = 0
    for key in keys:
        params = (Series.KEY, key, first, min(last, 2**31 - 1), MOST_HOURS)
        found = [int(row[0]) for row in database.execute(f"{USED} LIMIT ?", params).fetchall()]
        hours.update(found)
        if len(found) == MOST_HOURS:
            least = max(least, found[-1])
    spans = [(hour * HOUR_US - MARGIN_US, (hour + 1) * HOUR_US) for hour in hours if hour >= least]
    merged = _merge([(recent, time_of(b"\xff" * 16)), *spans])
    ranges = [(max(oldest, id_at(low)), min(before, id_at(high))) for low, high in merged]
    return Ranges([one for one in ranges if one[0] < one[1]], not least)


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same without overlaps, newest first."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans, key=lambda span: span[1], reverse=True):
        if merged and high >= merged[-1][0]:
            merged[-1] = min(low, merged[-1][0]), merged[-1][1]
        else:
            merged.append((low, high))
    return merged
