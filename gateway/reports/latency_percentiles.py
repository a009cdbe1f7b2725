"""Median and 95th percentile of latency by provider and model, from the newest usage rows of some projects.

Sums of hours cannot give percentiles, so the rows are read: of each project at most so many that the report takes a
known time, newest first, through their index. Rows that exist in the archive only are not counted.
"""

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from gateway.metering.activity import ActivityScope, Span
from gateway.metering.models import CACHED, SETTLEMENT
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database
from gateway.store.partitions import id_at

NEWEST = 10_000  # rows of all projects together
MIN_ROWS = 200  # rows of a project, even if there are many projects
PROJECTS = 100  # further projects are left out
COLUMNS = "provider, served, member, kind, flags, error, duration_ms, ttft_ms"
PART = (
    f"SELECT * FROM (SELECT {COLUMNS} FROM usage WHERE project = ? AND request >= ? AND request < ? "
    "ORDER BY request DESC LIMIT ?) AS newest_{number}"
)
OF_MEMBER = " WHERE member = ?"
# Nearest rank: the least value that so many percent of the calls do not exceed.
RANKED = (
    "WITH newest AS ({parts}), "
    "answered AS (SELECT provider, served, duration_ms, ttft_ms FROM newest "
    f"WHERE kind = {SETTLEMENT} AND error IS NULL AND (flags & {CACHED}) = 0), "
    "timed AS (SELECT provider, served, 0 AS measure, duration_ms AS ms FROM answered "
    "UNION ALL SELECT provider, served, 1, ttft_ms FROM answered WHERE ttft_ms > 0), "
    "ranked AS (SELECT provider, served, measure, ms, "
    "ROW_NUMBER() OVER (PARTITION BY provider, served, measure ORDER BY ms) AS place, "
    "COUNT(*) OVER (PARTITION BY provider, served, measure) AS calls FROM timed) "
    "SELECT provider, served, measure, MAX(calls), MIN(CASE WHEN place * 100 >= calls * 50 THEN ms END), "
    "MIN(CASE WHEN place * 100 >= calls * 95 THEN ms END) FROM ranked GROUP BY provider, served, measure"
)
DURATION = 0


class Percentiles(NamedTuple):
    """Milliseconds that half of the calls, and 95 % of them, did not exceed."""

    p50: int
    p95: int


class ModelLatency(NamedTuple):
    """The answered upstream calls of a model at a provider. `wait` is the time to the first content; None where no call
    has one."""

    provider: str
    model: str
    calls: int
    duration: Percentiles
    wait: Percentiles | None


def read_percentiles(database: Database, places: Sequence[ActivityScope], span: Span) -> list[ModelLatency]:
    """Return the latency of each model, that with the most calls first. Failed calls and answers from the gateway's
    cache are left out."""
    scopes = ((project_id, place.member_id) for place in places for project_id in place.project_ids)
    read = list(islice(scopes, PROJECTS))
    if not read:
        return []
    rows = database.view(partial(_read, database, read, span))
    waits = {(row[0], row[1]): _percentiles(row) for row in rows if row[2] != DURATION}
    models = [
        ModelLatency(row[0], row[1], int(row[3]), _percentiles(row), waits.get((row[0], row[1])))
        for row in rows
        if row[2] == DURATION
    ]
    return sorted(models, key=lambda model: (-model.calls, model.provider, model.model))


def _read(database: Database, scopes: Sequence[tuple[str, str]], span: Span) -> list[Any]:
    maximum = max(NEWEST // len(scopes), MIN_ROWS)
    parts: list[str] = []
    params: list[Any] = []
    for number, (project_id, member_id) in enumerate(scopes):
        parts.append(PART.format(number=number))
        params += [raw_id(project_id), id_at(span.start_us), id_at(span.end_us), maximum]
        if member_id:
            parts[-1] += OF_MEMBER
            params.append(raw_id(member_id))
    return database.fetch(RANKED.format(parts=" UNION ALL ".join(parts)), params)


def _percentiles(row: Sequence[Any]) -> Percentiles:
    return Percentiles(int(row[4]), int(row[5]))
