"""Outcomes and latency of a provider over hours or days, from the usage rows of some projects or keys."""

from typing import NamedTuple

from gateway.metering.activity import Owners, Span
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
    owned = " OR ".join(f"{column} IN ({', '.join('?' * len(ids))})" for column, ids in columns if ids)
    if not owned:
        return []
    timed = "error IS NULL AND ttft_ms > 0"
    sql = (
        f"SELECT at / {step_us} AS step, SUM(CASE WHEN error IS NULL THEN 1 ELSE 0 END), "
        "SUM(CASE WHEN error IS NULL THEN 0 ELSE 1 END), "
        f"AVG(CASE WHEN {timed} THEN ttft_ms END), AVG(CASE WHEN error IS NULL THEN duration_ms END) "
        f"FROM usage WHERE ({owned}) AND request >= ? AND request < ? AND provider = ? AND at >= ? AND at < ? "
        f"AND kind = {SETTLEMENT} AND (flags & {CACHED}) = 0 GROUP BY 1 ORDER BY 1"
    )
    ids = [raw_id(ident) for _, idents in columns for ident in idents]
    bounds = [id_at(span.start_us), id_at(span.end_us), provider, span.start_us, span.end_us]
    rows = database.report(lambda: list(database.fetch(sql, [*ids, *bounds])))
    return [
        LatencyStep(int(step), int(answered), int(failed), _number(wait), _number(duration))
        for step, answered, failed, wait, duration in rows
    ]


def _number(value: object) -> float | None:
    if value is None:
        return None
    return float(str(value))
