"""Sums of usage rows: what a batch, a range or an hour of them adds to the rollups."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gateway.clock import HOUR_US
from gateway.metering.figures import (
    COLUMNAR,
    EXTRA_FIGURES,
    SUM_EXPRESSIONS,
    column_sums_sql,
    kept_sums_sql,
    last_params,
    rows_sql,
    sums_sql,
)
from gateway.metering.models import SETTLEMENT
from gateway.metering.rollups.rollup_table import fetch_exact
from gateway.metering.rollups.sum_tables import VALUES
from gateway.store.database import Database

# An attempt begins at most this long after its request arrived, even with differing clocks.
START_MARGIN_US = HOUR_US
HEX = {"sqlite": "lower(hex({0}))", "postgresql": "encode({0}, 'hex')"}
DIMENSIONS = f"u.at / {HOUR_US}, u.project, u.api_key, u.provider, u.served, u.source, u.session, u.tags"
VALUE_INDEX = {name: place for place, name in enumerate(VALUES)}
EXTRA_INDEXES = tuple(VALUE_INDEX[name] for name in EXTRA_FIGURES)
# The rows that represented their requests before a batch brought later attempts.
OUTRUN_ROWS = f"""
(SELECT w.*, -1 AS last FROM usage w WHERE w.kind = {SETTLEMENT} AND w.posted_at < ? AND w.request IN (
    SELECT b.request FROM usage b WHERE b.posted_at >= ? AND b.posted_at < ? AND b.attempt > w.attempt)
AND NOT EXISTS (SELECT 1 FROM usage v WHERE v.request = w.request AND v.attempt > w.attempt AND v.posted_at < ?)
AND (w.attempt = 0 OR w.request >= ? OR EXISTS (SELECT 1 FROM usage f WHERE f.request = w.request
    AND f.attempt < w.attempt AND f.posted_at < ?))) u
"""


class Group(NamedTuple):
    """Usage rows of one hour with equal dimensions: their range of request ids (hex), and the sums of VALUES."""

    hour: int
    project: bytes
    key: bytes
    provider: str
    model: str
    source: str
    session: str | None
    tags: str | None  # JSON
    low: str
    high: str
    values: list[int]


def sum_rows(
    database: Database, condition: str, params: Sequence[Any], horizon_us: int, purged: bytes
) -> tuple[list[Group], bool]:
    """Return groups of the usage rows `w` that meet a condition, and whether they include second attempts. Only rows
    posted before `horizon_us` decide which attempt is the last. Inside a report."""
    ident = HEX[database.kind].format("u.request")
    sql = (
        f"SELECT {DIMENSIONS}, MIN({ident}), MAX({ident}), MAX(u.attempt), COUNT(u.extra), COUNT(*), "
        f"{column_sums_sql()} FROM {rows_sql(condition)} GROUP BY {DIMENSIONS}"
    )
    sql_params = (*last_params(horizon_us, purged), *params)
    groups = []
    retried = False
    has_extra = False
    for row in fetch_exact(database, sql, sql_params):
        groups.append(_group(row[:10], row[12], zip(COLUMNAR, row[13:], strict=True)))
        retried = retried or row[10] > 0
        has_extra = has_extra or row[11] > 0
    return (_add_kept(database, groups, condition, params) if has_extra else groups), retried


def _add_kept(database: Database, groups: list[Group], condition: str, params: Sequence[Any]) -> list[Group]:
    """Add the figures from `extra`. Few rows have one, and reading it for every row would double the time."""
    sql = (
        f"SELECT {DIMENSIONS}, {kept_sums_sql(database)} FROM usage u WHERE {condition.replace('w.', 'u.')} "
        f"AND u.extra IS NOT NULL GROUP BY {DIMENSIONS}"
    )
    known = {group[:8]: group.values for group in groups}
    for row in fetch_exact(database, sql, params):
        hour, project, key, *names = row[:8]
        values = known[int(hour), bytes(project), bytes(key), *names]
        for place, value in zip(EXTRA_INDEXES, row[8:], strict=True):
            values[place] += int(value)
    return groups


def sum_outrun(database: Database, start_us: int, end_us: int, purged: bytes) -> list[Group]:
    """Return the corrections for requests that a batch, posted in [start, end), extended by later attempts: negative
    counts of requests for the earlier attempts. Inside a report."""
    ident = HEX[database.kind].format("u.request")
    sql = (
        f"SELECT {DIMENSIONS}, MIN({ident}), MAX({ident}), {sums_sql(database, SUM_EXPRESSIONS)} "
        f"FROM {OUTRUN_ROWS} GROUP BY {DIMENSIONS}"
    )
    params = (start_us, start_us, end_us, start_us, purged, start_us)
    rows = fetch_exact(database, sql, params)
    return [_group(row[:10], 0, zip(SUM_EXPRESSIONS, row[10:], strict=True)) for row in rows]


def _group(dimensions: Sequence[Any], rows: int, figures: Iterable[tuple[str, Any]]) -> Group:
    hour, project, key, provider, model, source, session, tags, low, high = dimensions
    values = [0] * len(VALUES)
    values[0] = rows
    for name, value in figures:
        values[VALUE_INDEX[name]] = int(value)
    return Group(int(hour), bytes(project), bytes(key), provider, model, source, session, tags, low, high, values)
