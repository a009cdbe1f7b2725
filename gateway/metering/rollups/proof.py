"""The proof of the rollups: they say what the usage rows say, all series the same, and days what their hours say."""

from collections.abc import Iterator
from typing import Any

from gateway.clock import HOUR_US
from gateway.metering.figures import FIGURES, last_params, rows_sql, sums_sql
from gateway.metering.rollups.rows import HEX
from gateway.metering.rollups.table import DAILY, HELD, HOURS, MOST_SOURCES, REMOVED, VALUES, Series, State, read_state
from gateway.store.database import Database

ROWS = "usage rows"  # how what is compared with them is named
# Both sides of a comparison in one: its first figure that differs, and what both say of it.
UNLIKE = """
SELECT subject, {figure}, {left}, {right} FROM (
    SELECT {subject} AS subject, {sums} FROM ({both}) b GROUP BY {keys}
) d WHERE {differ}
"""

Comparison = tuple[str, tuple[Any, ...], tuple[str, str]]


def compare_rollups(database: Database, first_hour: int) -> Iterator[Comparison]:
    """Statements with params whose rows (subject, figure, left, right) are differences, and what both sides are called:
    hours from `first_hour` since the epoch on. Nothing while the rows of before are still being summed up. Inside a
    read."""
    state = read_state(database)
    if state is None or state.filling:
        return
    hexed = HEX[database.kind].format
    yield _rows_sql(database), _rows_params(database, state, first_hour), ("rollup", ROWS)
    for series in (Series.PROJECT_MODEL, Series.KEY, Series.KEY_MODEL):
        yield _series_sql(Series.PROJECT, series), (first_hour,), ("projects", series.name.lower().replace("_", " by "))
    yield _series_sql(Series.PROJECT_SOURCE, Series.KEY_SOURCE), (first_hour,), ("sources of projects", "of keys")
    yield _sources_sql(hexed("t.owner")), (first_hour,), ("sources", "projects")
    yield _days_sql(), (first_hour, state.days_through * HOURS), ("day", "its hours")
    yield _removed_sql(hexed("owner")), (), ("rollup", "spent by removed rows")


def _unlike(both: str, subject: str, keys: str) -> str:
    """`both` has, of each of VALUES, a left and a right column (l_, r_)."""
    return UNLIKE.format(
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


def _right() -> str:
    return ", ".join(f"0 AS l_{name}, COALESCE({name}, 0) AS r_{name}" for name in VALUES)


def _rows_sql(database: Database) -> str:
    """The part HELD of keys by provider and model, with the rows that lie in the table."""
    hexed = HEX[database.kind].format
    condition = "w.posted_at < ? AND w.request >= ? AND w.at >= ?"
    sums = [f"SUM(1) AS r_{VALUES[0]}"]
    sums += [f"{sum_} AS r_{name}" for name, sum_ in zip(FIGURES, sums_list(database), strict=True)]
    zeros = ", ".join(f"0 AS l_{name}" for name in VALUES)
    rows = (
        f"SELECT u.api_key AS owner, u.at / {HOUR_US} AS hour, u.provider AS provider, u.served AS name, {zeros}, "
        f"{', '.join(sums)} FROM {rows_sql(condition)} GROUP BY u.api_key, u.at / {HOUR_US}, u.provider, u.served"
    )
    ordered = ", ".join(f"l_{name}, r_{name}" for name in VALUES)
    held = (
        f"SELECT owner, hour, provider, name, {_left()} FROM rollup WHERE series = {Series.KEY_MODEL} "
        f"AND part = {HELD} AND hour >= ?"
    )
    both = f"SELECT owner, hour, provider, name, {ordered} FROM ({rows}) x UNION ALL {held}"
    subject = f"{hexed('owner')} || ' hour ' || hour || ' ' || provider || '/' || name"
    return _unlike(both, subject, "owner, hour, provider, name")


def sums_list(database: Database) -> list[str]:
    """The sum of each figure, one by one."""
    return [sums_sql(database, (name,)) for name in FIGURES]


def _rows_params(database: Database, state: State, first_hour: int) -> tuple[Any, ...]:
    lowest = database.execute("SELECT MIN(low) FROM rollup_hour WHERE hour >= ?", (first_hour,)).fetchone()[0]
    low = bytes.fromhex(lowest or "")
    last = last_params(state.watermark, bytes.fromhex(state.purged))
    return (*last, state.watermark, low, first_hour * HOUR_US, first_hour)


def _series_sql(left: Series, right: Series) -> str:
    """Two series that tell the same by hour."""
    both = (
        f"SELECT hour, part, {_left()} FROM rollup WHERE series = {left} "
        f"UNION ALL SELECT hour, part, {_right()} FROM rollup WHERE series = {right}"
    )
    within = f"SELECT * FROM ({both}) h WHERE hour >= ?"
    return _unlike(within, "'hour ' || hour || CASE WHEN part = 0 THEN '' ELSE ' (removed)' END", "hour, part")


def _sources_sql(owner: str) -> str:
    """What has a source is all there is, unless a project has too many of them in an hour."""
    return f"""
    SELECT {owner} || ' hour ' || t.hour, 'rows', s.held, t.held FROM (
        SELECT owner, hour, SUM(rows) AS held FROM rollup WHERE series = {Series.PROJECT} AND hour >= ?
        GROUP BY owner, hour
    ) t JOIN (
        SELECT owner, hour, SUM(rows) AS held, COUNT(DISTINCT name) AS names FROM rollup
        WHERE series = {Series.PROJECT_SOURCE} GROUP BY owner, hour
    ) s ON s.owner = t.owner AND s.hour = t.hour WHERE s.held > t.held OR (s.held < t.held AND s.names < {MOST_SOURCES})
    """


def _days_sql() -> str:
    """Days that are summed up, with their hours."""
    both = (
        f"SELECT series - {DAILY} AS series, hour / {HOURS} AS day, hour, {_left()} FROM rollup "
        f"WHERE series >= {DAILY} UNION ALL "
        f"SELECT series, hour / {HOURS}, hour, {_right()} FROM rollup WHERE series < {DAILY}"
    )
    within = (
        f"SELECT * FROM ({both}) h WHERE day * {HOURS} >= ? AND hour < ? AND day NOT IN (SELECT day FROM rollup_day)"
    )
    return _unlike(within, "'day ' || day || ' series ' || series", "day, series")


def _removed_sql(owner: str) -> str:
    """What removed rows cost, of keys."""
    return f"""
    SELECT id, 'cost_nusd', SUM(mine), SUM(theirs) FROM (
        SELECT {owner} AS id, COALESCE(cost_nusd, 0) AS mine, 0 AS theirs FROM rollup
        WHERE series = {Series.KEY} AND part = {REMOVED}
        UNION ALL SELECT owner, 0, nusd FROM removed_spend WHERE kind = 'api_key'
    ) r GROUP BY id HAVING SUM(mine) <> SUM(theirs)
    """
