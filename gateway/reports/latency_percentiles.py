"""Median and 95th percentile of latency by provider and model, from the newest usage rows of some projects.

Sums of hours cannot give percentiles, so the rows are read: of each project at most so many that the report takes a
known time, newest first, through their index. Rows that exist in the archive only are not counted.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from gateway.errors import Unavailable
from gateway.metering.activity import ActivityScope, Owners, Span
from gateway.metering.log.archived_requests import usable_archive
from gateway.metering.models import CACHED, SETTLEMENT
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database
from gateway.store.partitions import id_at

# Outcomes and latency of a provider over hours or days, from the usage rows of some projects or keys.
#
# The archive of usage rows answers if reports are read there and it has all rows of the time in question.


class LatencyStep(NamedTuple):
    """The upstream calls of one hour or day, which is its number since the epoch (UTC). `wait_ms` is the average time
    to the first content and `duration_ms` that to the end, of calls that answered; None without any."""

    step: int
    answered: int
    failed: int
    wait_ms: float | None
    duration_ms: float | None


def read_latency(database: Database, owners: Owners, provider: str, span: Span, step_us: int) -> list[LatencyStep]:
    """Return the steps with calls. Answers from the gateway's cache are left out. Raises Unavailable."""
    columns = (("project", owners.project_ids), ("api_key", owners.key_ids))
    owned = {column: [raw_id(ident) for ident in idents] for column, idents in columns if idents}
    if not owned:
        return []
    archive = usable_archive(database)
    begin_us = archive.begin_us() if archive else None
    if archive is not None and begin_us is not None and begin_us <= span.start_us:
        try:
            return _steps(archive.read_latency(owned, provider, span.start_us, span.end_us, step_us))
        except Unavailable:
            archive.leave()
    return _steps(_read_stored(database, owned, provider, span, step_us))


def _read_stored(
    database: Database, owned: dict[str, list[bytes]], provider: str, span: Span, step_us: int
) -> list[Any]:
    owner = " OR ".join(f"{column} IN ({', '.join('?' * len(ids))})" for column, ids in owned.items())
    timed = "error IS NULL AND ttft_ms > 0"
    sql = (
        f"SELECT at / {step_us} AS step, SUM(CASE WHEN error IS NULL THEN 1 ELSE 0 END), "
        "SUM(CASE WHEN error IS NULL THEN 0 ELSE 1 END), "
        f"AVG(CASE WHEN {timed} THEN ttft_ms END), AVG(CASE WHEN error IS NULL THEN duration_ms END) "
        f"FROM usage WHERE ({owner}) AND request >= ? AND request < ? AND provider = ? AND at >= ? AND at < ? "
        f"AND kind = {SETTLEMENT} AND (flags & {CACHED}) = 0 GROUP BY 1 ORDER BY 1"
    )
    owners = [ident for ids in owned.values() for ident in ids]
    bounds = [id_at(span.start_us), id_at(span.end_us), provider, span.start_us, span.end_us]
    return database.report(lambda: list(database.fetch(sql, [*owners, *bounds])))


def _steps(rows: Iterable[Any]) -> list[LatencyStep]:
    return [
        LatencyStep(int(step), int(answered), int(failed), _number(wait), _number(duration))
        for step, answered, failed, wait, duration in rows
    ]


def _number(value: object) -> float | None:
    if value is None:
        return None
    return float(str(value))


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


# Single calls, from which percentiles by any name are computed: the newest ones of each project in each step.

SAMPLED = 30_000  # rows of all projects and steps together
MIN_SAMPLED = 20  # rows of a project in a step
BUSIEST = 10  # projects; further ones are left out
PROBES = 40  # steps of projects in one statement
CALL_COLUMNS = "at, api_key, provider, served, source, session, tags, operation, output, duration_ms, ttft_ms"
PROBE = (
    f"SELECT {{step}}, {CALL_COLUMNS} FROM (SELECT {CALL_COLUMNS}, kind, error, flags FROM usage WHERE project = ? "
    "AND request >= ? AND request < ? ORDER BY request DESC LIMIT ?) AS newest_{number} "
    f"WHERE kind = {SETTLEMENT} AND error IS NULL AND (flags & {CACHED}) = 0"
)


class TimedCall(NamedTuple):
    """An answered upstream call in the step with this index. Ids are the 16 bytes after their prefix."""

    step: int
    project: bytes
    at_us: int
    api_key: bytes
    provider: str
    served: str
    source: str
    session: str | None
    tags: str | None
    operation: str
    output: int
    duration_ms: int
    ttft_ms: int


def sample_calls(database: Database, project_ids: Sequence[str], steps: Sequence[tuple[int, int]]) -> list[TimedCall]:
    """Return the newest answered calls of the first BUSIEST projects in each step, a pair of microseconds. Calls that
    failed and answers from the gateway's cache are left out. Unavailable."""
    raw = [raw_id(project_id) for project_id in project_ids[:BUSIEST]]
    probes = [(place, project) for place in range(len(steps)) for project in raw]
    maximum = max(SAMPLED // max(1, len(probes)), MIN_SAMPLED)
    calls: list[TimedCall] = []
    for start in range(0, len(probes), PROBES):
        some = probes[start : start + PROBES]
        sql = " UNION ALL ".join(PROBE.format(step=number, number=number) for number in range(len(some)))
        params: list[Any] = []
        for place, project in some:
            params += [project, *map(id_at, steps[place]), maximum]
        rows = database.view(partial(database.fetch, sql, params))
        calls += [TimedCall(*some[int(number)], at_us, bytes(key), *rest) for number, at_us, key, *rest in rows]
    return calls


def rank_percentile(values: list[int], percent: int) -> int | None:
    """Return the least of the sorted values that so many percent do not exceed (nearest rank); None of none."""
    if not values:
        return None
    return values[max(0, -(-len(values) * percent // 100) - 1)]


def _percentiles(row: Sequence[Any]) -> Percentiles:
    return Percentiles(int(row[4]), int(row[5]))
