"""The check of the rollups: they must agree with the usage rows, series with each other, days with their hours."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gateway.clock import HOUR_US
from gateway.metering.figures import FIGURES, last_params, rows_sql, sums_sql
from gateway.metering.rollups.rollup_table import (
    BLOCK_DAYS,
    BLOCK_HOURS,
    BLOCKS,
    DAILY,
    ERROR,
    HOURS,
    IS_UNUSUAL,
    MAX_SOURCES,
    OPERATION,
    SESSION,
    VALUES,
    Series,
    State,
    read_state,
)
from gateway.metering.rollups.row_sums import HEX
from gateway.store.database import Database

ROWS = "usage rows"  # the name of that side of a comparison
# Compares two sides that are given as one query: returns the first figure that differs, and both values.
FIRST_DIFFERENCE = """
SELECT subject, {figure}, {left}, {right} FROM (
    SELECT {subject} AS subject, {sums} FROM ({both}) b GROUP BY {keys}
) d WHERE {differ}
"""

# Rows of hours, with the number of their part HELD.
HOURLY = "rollup JOIN rollup_hour USING (hour)"
# Usage of deleted rows that is still included in the part HELD of its hour.
REMOVED_PIECES = "removed_piece JOIN rollup_hour USING (hour)"

Comparison = tuple[str, tuple[Any, ...], tuple[str, str]]


class SummedRows(NamedTuple):
    """A series that is compared with usage rows. `owner` is the column of its owner in usage rows, `names` are its
    further keys with their columns there. `of_rows` is a condition on usage rows ("{}": their prefix), `of_sums` the
    same on the sums."""

    series: Series
    owner: str
    names: Mapping[str, str]
    of_rows: str = ""
    of_sums: str = ""


OF_MODELS = SummedRows(Series.KEY_MODEL, "api_key", {"provider": "provider", "name": "served"})
OF_NAMES = {
    "sessions": SummedRows(
        Series.PROJECT_TAG, "project", {}, " AND {}session IS NOT NULL", f" AND provider = '{SESSION}'"
    ),
    "operations": SummedRows(
        Series.PROJECT_TAG,
        "project",
        {},
        f" AND {{}}{IS_UNUSUAL}",
        f" AND provider = '{OPERATION}'",
    ),
    "errors": SummedRows(Series.PROJECT_TAG, "project", {}, " AND {}error IS NOT NULL", f" AND provider = '{ERROR}'"),
}


def compare_rollups(database: Database, first_hour: int) -> Iterator[Comparison]:
    """Yield statements with params, and the names of both sides. Rows of a statement (subject, figure, left, right) are
    differences in hours from `first_hour` since the epoch on. Yields nothing until existing rows are all summed. Inside
    a read."""
    state = read_state(database)
    if state is None or state.filling:
        return
    hexed = HEX[database.kind].format
    yield _rows_sql(database, OF_MODELS), _rows_params(database, state, first_hour), ("rollup", ROWS)
    for series in (Series.PROJECT_MODEL, Series.KEY, Series.KEY_MODEL):
        yield _series_sql(Series.PROJECT, series), (first_hour,), ("projects", series.name.lower().replace("_", " by "))
    yield _series_sql(Series.PROJECT_SOURCE, Series.KEY_SOURCE), (first_hour,), ("sources of projects", "of keys")
    yield _sources_sql(hexed("t.owner")), (first_hour,), ("sources", "projects")
    yield _series_sql(Series.PROJECT_TAG, Series.KEY_TAG), (first_hour,), ("tags of projects", "of keys")
    yield _tags_sql(hexed("t.owner")), (first_hour,), ("tags", "projects")
    if state.named == state.version:
        for name, summed in OF_NAMES.items():
            yield _rows_sql(database, summed), _rows_params(database, state, first_hour), (name, ROWS)
    first = -(-first_hour // HOURS) * HOURS
    computed_hours = (first, state.days_through * HOURS) * 2
    yield _coarse_sql(HOURS, DAILY, 0, "NOT IN (SELECT day FROM rollup_day)"), computed_hours, ("day", "its hours")
    first = -(-first_hour // BLOCK_HOURS) * BLOCK_HOURS
    computed_hours = (first, state.days_through // BLOCK_DAYS * BLOCK_HOURS) * 2
    blocks = "IN (SELECT block FROM rollup_block WHERE made = 1)"
    yield _coarse_sql(BLOCK_HOURS, BLOCKS, DAILY, blocks), computed_hours, ("block", "its days")
    yield _removed_sql(hexed("owner"), hexed("api_key")), (), ("rollup", "spent by removed rows")


def _comparison(both: str, subject: str, keys: str) -> str:
    """Return a comparison; `both` has a left and a right column (l_, r_) for each of VALUES."""
    return FIRST_DIFFERENCE.format(
        figure=_case(lambda name: f"'{name}'"),
        left=_case(lambda name: f"l_{name}"),
        right=_case(lambda name: f"r_{name}"),
        subject=subject,
        sums=", ".join(f"SUM(l_{name}) AS l_{name}, SUM(r_{name}) AS r_{name}" for name in VALUES),
        both=both,
        keys=keys,
        differ=" OR ".join(f"l_{name} <> r_{name}" for name in VALUES),
    )


def _case(shown: Any) -> str:
    return f"CASE {' '.join(f'WHEN l_{name} <> r_{name} THEN {shown(name)}' for name in VALUES)} END"


def _left() -> str:
    return ", ".join(f"COALESCE({name}, 0) AS l_{name}, 0 AS r_{name}" for name in VALUES)


def _right_columns() -> str:
    return ", ".join(f"0 AS l_{name}, COALESCE({name}, 0) AS r_{name}" for name in VALUES)


def _rows_sql(database: Database, summed: SummedRows) -> str:
    """Compare the part HELD of a series with the rows in the table and the removed pieces."""
    condition = f"w.posted_at < ? AND w.request >= ? AND w.at >= ?{summed.of_rows.format('w.')}"
    sums = [f"SUM(1) AS r_{VALUES[0]}"]
    sums += [f"{sum_} AS r_{name}" for name, sum_ in zip(FIGURES, sums_list(database), strict=True)]
    zeros = [f"0 AS l_{name}" for name in VALUES]
    keys = ", ".join(("owner", "hour", *summed.names))
    columns = [f"u.{summed.owner}", f"u.at / {HOUR_US}", *(f"u.{column}" for column in summed.names.values())]
    shown = [f"{column} AS {key}" for column, key in zip(columns, keys.split(", "), strict=True)]
    rows = f"SELECT {', '.join((*shown, *zeros, *sums))} FROM {rows_sql(condition)} GROUP BY {', '.join(columns)}"
    ordered = ", ".join(f"l_{name}, r_{name}" for name in VALUES)
    held = (
        f"SELECT {keys}, {_left()} FROM {HOURLY} WHERE series = {summed.series} AND part = held{summed.of_sums} "
        "AND hour >= ?"
    )
    of_pieces = ", ".join((summed.owner, "hour", *summed.names))
    condition = f"part = held{summed.of_rows.format('')} AND hour >= ?"
    removed = f"SELECT {of_pieces}, {_right_columns()} FROM {REMOVED_PIECES} WHERE {condition}"
    both = f"SELECT {keys}, {ordered} FROM ({rows}) x UNION ALL {held} UNION ALL {removed}"
    subject = f"{HEX[database.kind].format('owner')} || ' hour ' || hour"
    if summed.names:
        named = " || '/' || ".join(summed.names)
        subject = f"{subject} || ' ' || {named}"
    return _comparison(both, subject, keys)


def sums_list(database: Database) -> list[str]:
    """Return the SQL of the sum of each figure."""
    return [sums_sql(database, (name,)) for name in FIGURES]


def _rows_params(database: Database, state: State, first_hour: int) -> tuple[Any, ...]:
    lowest = database.execute("SELECT MIN(low) FROM rollup_hour WHERE hour >= ?", (first_hour,)).fetchone()[0]
    low = bytes.fromhex(lowest or "")
    last = last_params(state.watermark, bytes.fromhex(state.purged))
    return (*last, state.watermark, low, first_hour * HOUR_US, first_hour, first_hour)


def _series_sql(left: Series, right: Series) -> str:
    """Compare two series that must have equal sums by hour."""
    both = (
        f"SELECT hour, part, {_left()} FROM rollup WHERE series = {left} "
        f"UNION ALL SELECT hour, part, {_right_columns()} FROM rollup WHERE series = {right}"
    )
    within = f"SELECT * FROM ({both}) h WHERE hour >= ?"
    return _comparison(within, "'hour ' || hour || ' part ' || part", "hour, part")


def _sources_sql(owner: str) -> str:
    """Compare the sums of sources with those of their project; they may be lower only if it exceeds MAX_SOURCES."""
    return f"""
    SELECT {owner} || ' hour ' || t.hour, 'rows', s.held, t.held FROM (
        SELECT owner, hour, SUM(rows) AS held FROM rollup WHERE series = {Series.PROJECT} AND hour >= ?
        GROUP BY owner, hour
    ) t JOIN (
        SELECT owner, hour, SUM(rows) AS held, COUNT(DISTINCT name) AS names FROM rollup
        WHERE series = {Series.PROJECT_SOURCE} GROUP BY owner, hour
    ) s ON s.owner = t.owner AND s.hour = t.hour WHERE s.held > t.held OR (s.held < t.held AND s.names < {MAX_SOURCES})
    """


def _tags_sql(owner: str) -> str:
    """Compare the sums of each tag with those of its project, which are never lower."""
    return f"""
    SELECT {owner} || ' hour ' || t.hour, 'rows', s.held, t.held FROM (
        SELECT owner, hour, SUM(rows) AS held FROM rollup WHERE series = {Series.PROJECT} AND hour >= ?
        GROUP BY owner, hour
    ) t JOIN (
        SELECT owner, hour, provider, SUM(rows) AS held FROM rollup
        WHERE series = {Series.PROJECT_TAG} GROUP BY owner, hour, provider
    ) s ON s.owner = t.owner AND s.hour = t.hour WHERE s.held > t.held
    """


def _coarse_sql(hours: int, coarse: int, fine: int, ready: str) -> str:
    """Compare computed sums of `hours` hours with the sums that they were computed from."""
    within = (
        f"SELECT series & {DAILY - 1} AS series, hour / {hours} AS step, {{sides}} FROM rollup "
        f"WHERE series >= {{from_}} AND series < {{from_}} + {DAILY} AND hour >= ? AND hour < ?"
    )
    left, right = (within.format(sides=s, from_=f) for s, f in ((_left(), coarse), (_right_columns(), fine)))
    both = f"SELECT * FROM ({left} UNION ALL {right}) h WHERE step {ready}"
    return _comparison(both, "step || ' series ' || series", "step, series")


def _removed_sql(owner: str, key: str) -> str:
    """Compare the cost of removed rows by key with `removed_spend`."""
    return f"""
    SELECT id, 'cost_nusd', SUM(mine), SUM(theirs) FROM (
        SELECT {owner} AS id, COALESCE(cost_nusd, 0) AS mine, 0 AS theirs FROM {HOURLY}
        WHERE series = {Series.KEY} AND part <> held
        UNION ALL SELECT {key}, COALESCE(cost_nusd, 0), 0 FROM {REMOVED_PIECES} WHERE part = held
        UNION ALL SELECT owner, 0, nusd FROM removed_spend WHERE kind = 'api_key'
    ) r GROUP BY id HAVING SUM(mine) <> SUM(theirs)
    """
