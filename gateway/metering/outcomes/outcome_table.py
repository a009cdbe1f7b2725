"""The tables of outcomes: sums by hour, key, session, agent and model; the last value of each cumulative series; and
the exports that were counted.

Workers that store at the same time lock in the same order: exports, series, sums, each sorted by its key. A transaction
that is repeated because its outcome was lost finds its exports counted and changes nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gateway.clock import DAY_US, HOUR_US, MINUTE_US
from gateway.metering.outcomes.names import OUTCOMES
from gateway.metering.outcomes.outcome_points import OutcomeExport, OutcomePoint
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.threads import pause
from gateway.store.database import Database

# An export is repeated within minutes; a series that sent nothing for so long is forgotten.
REPEATED_US = DAY_US
SERIES_KEPT_US = 8 * DAY_US
# Points that claim to be older, or from the future, count for the hour in which they arrived.
OLDEST_US = DAY_US
AHEAD_US = 5 * MINUTE_US
# Callers choose sessions, models and attributes, so that their number is limited for each key.
MAX_SERIES = 5_000  # of a key
MAX_ROWS = 500  # of a key in an hour; further sessions and models count as OTHER
OTHER = "(other)"
MAX_AMOUNT = 10**15  # of one outcome in one row; the store's sums of many rows stay within 64 bits
STEP_ROWS = 500
PAUSE_S = 0.02

KEYS = "api_key, hour, session, agent, model"
ADDED = ", ".join(
    f"{name} = CASE WHEN outcome.{name} + excluded.{name} > {MAX_AMOUNT} THEN {MAX_AMOUNT} "
    f"ELSE outcome.{name} + excluded.{name} END"
    for name in OUTCOMES
)
# A session seldom changes its repository; the last one that an agent named counts.
ADD = (
    f"INSERT INTO outcome ({KEYS}, organization, project, member, repository, {', '.join(OUTCOMES)}) "
    f"VALUES ({', '.join('?' * (9 + len(OUTCOMES)))}) ON CONFLICT ({KEYS}) DO UPDATE SET {ADDED}, "
    "repository = CASE WHEN excluded.repository <> '' THEN excluded.repository ELSE outcome.repository END"
)
CLAIM = "INSERT INTO outcome_export (api_key, digest, at) VALUES (?, ?, ?) ON CONFLICT (api_key, digest) DO NOTHING"
BEGIN_SERIES = (
    "INSERT INTO outcome_series (api_key, series, amount, time_us, at) VALUES (?, ?, 0, 0, ?) "
    "ON CONFLICT (api_key, series) DO NOTHING"
)
READ_SERIES = "SELECT amount, time_us FROM outcome_series WHERE api_key = ? AND series = ?"
ROW_LOCK = {"sqlite": "", "postgresql": " FOR UPDATE"}
WRITE_SERIES = "UPDATE outcome_series SET amount = ?, time_us = ?, at = ? WHERE api_key = ? AND series = ?"
COUNT_SERIES = "SELECT COUNT(*) FROM outcome_series WHERE api_key = ?"
COUNT_ROWS = "SELECT COUNT(*) FROM outcome WHERE api_key = ? AND hour = ?"
HAS_ROW = "SELECT 1 FROM outcome WHERE api_key = ? AND hour = ? AND session = ? AND agent = ? AND model = ?"
TABLES = ("outcome_export", "outcome_series", "outcome")


class RowKey(NamedTuple):
    """The key of a row of sums."""

    api_key: bytes
    hour: int
    session: str
    agent: str
    model: str


class StoredCounts(NamedTuple):
    """The points that were counted, and those that were left out: their export was counted before, or their key has too
    many series."""

    counted: int
    repeated: int
    dropped: int


def store_exports(database: Database, exports: Sequence[OutcomeExport]) -> StoredCounts:
    """Add the points of exports to the sums, in one transaction. Unavailable."""
    return database.write(lambda: _Storing(database).store(exports))


class _Storing:
    """One transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._now_us = database.now_us()
        self._sums: dict[RowKey, list[int]] = {}
        self._repositories: dict[RowKey, str] = {}
        self._owners: dict[bytes, tuple[bytes, bytes, bytes]] = {}
        self._series: dict[bytes, int] = {}  # of a key, once it has a new one
        self._counted = 0
        self._dropped = 0

    def store(self, exports: Sequence[OutcomeExport]) -> StoredCounts:
        new = [export for export in sorted(exports, key=_export_key) if self._claim(export)]
        cumulative: dict[tuple[bytes, bytes], list[OutcomePoint]] = defaultdict(list)
        for export in new:
            self._owners[export.api_key] = (export.organization, export.project, export.member)
            for point in export.points:
                if point.series:
                    cumulative[export.api_key, point.series].append(point)
                else:
                    self._add(export.api_key, point, point.amount)
        for (api_key, series), points in sorted(cumulative.items()):
            self._follow(api_key, series, sorted(points, key=lambda point: point.time_us))
        self._write_sums()
        total = sum(len(export.points) for export in exports)
        kept = sum(len(export.points) for export in new)
        return StoredCounts(self._counted, total - kept, self._dropped)

    def _claim(self, export: OutcomeExport) -> bool:
        return self._database.execute(CLAIM, (export.api_key, export.digest, self._now_us)).rowcount > 0

    def _follow(self, api_key: bytes, series: bytes, points: Sequence[OutcomePoint]) -> None:
        """Count by how much the points of a series exceed the last one. A series that began before SERIES_KEPT_US may
        have been counted and forgotten, so its first point is only where counting begins."""
        database = self._database
        is_new = not database.fetch(READ_SERIES, (api_key, series))
        if is_new and not self._has_room(api_key):
            self._dropped += len(points)
            return
        database.execute(BEGIN_SERIES, (api_key, series, self._now_us))
        ((amount, time_us),) = database.fetch(READ_SERIES + ROW_LOCK[database.kind], (api_key, series))
        for point in points:
            began_long_ago = bool(point.start_us) and point.start_us < self._now_us - SERIES_KEPT_US
            if not time_us and began_long_ago:
                more = 0
            elif point.amount >= amount:
                more = point.amount - amount
            elif point.time_us > time_us:  # a restart that kept its start
                more = point.amount
            else:
                continue  # an older point that arrived late
            self._add(api_key, point, more)
            # A sender whose clock was ahead must not hide the restarts that follow.
            amount, time_us = point.amount, max(time_us, min(point.time_us, self._now_us + AHEAD_US))
        database.execute(WRITE_SERIES, (amount, time_us, self._now_us, api_key, series))

    def _has_room(self, api_key: bytes) -> bool:
        """Count a further series of a key; return whether the key may have it."""
        if api_key not in self._series:
            self._series[api_key] = self._database.fetch(COUNT_SERIES, (api_key,))[0][0]
        if self._series[api_key] >= MAX_SERIES:
            return False
        self._series[api_key] += 1
        return True

    def _add(self, api_key: bytes, point: OutcomePoint, amount: int) -> None:
        self._counted += 1
        if not amount:
            return
        at_us = point.time_us
        if not self._now_us - OLDEST_US <= at_us <= self._now_us + AHEAD_US:
            at_us = self._now_us
        key = RowKey(api_key, at_us // HOUR_US, point.session, point.agent, point.model)
        if point.repository:
            self._repositories[key] = point.repository
        sums = self._sums.setdefault(key, [0] * len(OUTCOMES))
        sums[OUTCOMES.index(point.outcome)] += amount

    def _write_sums(self) -> None:
        rows: dict[RowKey, list[int]] = {}
        counts: dict[tuple[bytes, int], int] = {}
        for key, sums in sorted(self._sums.items()):
            place = self._place(key, counts)
            known = rows.get(place)
            rows[place] = sums if known is None else [a + b for a, b in zip(known, sums, strict=True)]
        for key, sums in sorted(rows.items()):
            values = [min(value, MAX_AMOUNT) for value in sums]
            repository = self._repositories.get(key, "")
            self._database.execute(ADD, (*key, *self._owners[key.api_key], repository, *values))

    def _place(self, key: RowKey, counts: dict[tuple[bytes, int], int]) -> RowKey:
        """Return the row that a sum is added to."""
        group = (key.api_key, key.hour)
        if group not in counts:
            counts[group] = self._database.fetch(COUNT_ROWS, group)[0][0]
        if not self._database.fetch(HAS_ROW, key):
            if counts[group] >= MAX_ROWS:
                return key._replace(session=OTHER, model="")
            counts[group] += 1
        return key


def _export_key(export: OutcomeExport) -> tuple[bytes, bytes]:
    return export.api_key, export.digest


def forget_outcomes(database: Database, kept_days: int, should_continue: ShouldContinue = always) -> None:
    """Delete exports and series that are over, and sums that are older than a number of days (0: none), in small steps;
    safe to repeat. Unavailable."""
    now_us = database.now_us()
    ends = [
        ("outcome_export", "at", "api_key, digest", now_us - REPEATED_US),
        ("outcome_series", "at", "api_key, series", now_us - SERIES_KEPT_US),
    ]
    if kept_days:
        ends.append(("outcome", "hour", KEYS, (now_us - kept_days * DAY_US) // HOUR_US))
    for table, column, key, oldest in ends:
        listed = f"SELECT {key} FROM {table} WHERE {column} < ? LIMIT ?"
        delete = f"DELETE FROM {table} WHERE ({key}) IN ({listed})"
        while should_continue():
            if _delete(database, delete, (oldest, STEP_ROWS)) < STEP_ROWS:
                break
            pause(PAUSE_S)


def delete_of_key(database: Database, api_key: bytes) -> None:
    """Delete all that the agents of a key reported. Unavailable."""
    for table in TABLES:
        database.change_rows(f"DELETE FROM {table} WHERE api_key = ?", (api_key,))


def _delete(database: Database, sql: str, values: Iterable[int]) -> int:
    return database.change_rows(sql, tuple(values))
