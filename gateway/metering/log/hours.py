"""The hours in which keys were used, from the rollups: a search skips all other hours, and lists of keys show the last.

There is no index of usage rows by key: maintaining it would cost every request as much as it saves a search.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from gateway.clock import HOUR_US
from gateway.metering.rollups.rollup_table import Series, read_state
from gateway.metering.rollups.row_sums import START_MARGIN_US
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database
from gateway.store.partitions import id_at, time_of

# Hours of a key that one query reads.
MAX_HOURS = 100
USED = "SELECT DISTINCT hour FROM rollup WHERE series = ? AND owner = ? AND hour >= ? AND hour <= ? ORDER BY hour DESC"
# One seek to the end of each key's range of the primary key.
LAST = "SELECT column1, (SELECT MAX(hour) FROM rollup WHERE series = ? AND owner = column1) FROM (VALUES {}) given"
MAX_KEYS = 500  # keys of one statement


class Ranges(NamedTuple):
    """Ranges [low, high) of request ids, newest first and disjoint. `whole`: no older ranges exist; otherwise there may
    be some."""

    ranges: list[tuple[bytes, bytes]]
    whole: bool


def used_within(database: Database, keys: Sequence[bytes], oldest: bytes, before: bytes) -> Ranges | None:
    """Return where in [oldest, before) requests of the keys may lie; None while the rollups are incomplete. Inside a
    read."""
    state = read_state(database)
    if state is None or state.filling:
        return None
    # Rows that were posted since the last round are in no rollup yet.
    recent = state.watermark - 2 * START_MARGIN_US
    first = time_of(oldest or bytes(16)) // HOUR_US
    last = time_of(before) // HOUR_US + 1
    hours: set[int] = set()
    minimum = 0
    for key in keys:
        params = (Series.KEY, key, first, min(last, 2**31 - 1), MAX_HOURS)
        used = [int(row[0]) for row in database.execute(f"{USED} LIMIT ?", params).fetchall()]
        hours.update(used)
        if len(used) == MAX_HOURS:
            minimum = max(minimum, used[-1])
    spans = [(hour * HOUR_US - START_MARGIN_US, (hour + 1) * HOUR_US) for hour in hours if hour >= minimum]
    merged = _merge([(recent, time_of(b"\xff" * 16)), *spans])
    ranges = [(max(oldest, id_at(low)), min(before, id_at(high))) for low, high in merged]
    return Ranges([(low, high) for low, high in ranges if low < high], not minimum)


def find_last_hours(database: Database, key_ids: Sequence[str]) -> dict[str, int]:
    """Return the start of the hour in which each key was last used, in µs, without keys that were not used."""
    last_us = {}
    for start in range(0, len(key_ids), MAX_KEYS):
        some = {raw_id(key_id): key_id for key_id in key_ids[start : start + MAX_KEYS]}
        sql = LAST.format(", ".join(["(?)"] * len(some)))
        rows = database.view(partial(database.fetch, sql, (Series.KEY, *some)))
        last_us.update({some[bytes(key)]: int(hour) * HOUR_US for key, hour in rows if hour is not None})
    return last_us


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge overlapping spans, newest first."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans, key=lambda span: span[1], reverse=True):
        if merged and high >= merged[-1][0]:
            merged[-1] = min(low, merged[-1][0]), merged[-1][1]
        else:
            merged.append((low, high))
    return merged
