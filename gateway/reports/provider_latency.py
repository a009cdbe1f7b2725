"""Outcomes and latency of a provider over hours or days, from the usage rows of some projects or keys.

The archive of usage rows answers if reports are read there and it has all rows of the time in question.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway.errors import Unavailable
from gateway.metering.activity import Owners, Span
from gateway.metering.log.archived_requests import usable_archive
from gateway.metering.models import CACHED, SETTLEMENT
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database
from gateway.store.partitions import id_at


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
