"""`GET /activity` and `/activity/sources`: usage by hour or day, as the public client prints it, and the latency of
calls."""

from typing import Any

from gateway.accounts.projects import ProjectInfo
from gateway.clock import HOUR_US, to_iso
from gateway.metering.activity import Owners, Span, last_hours, measure, merge
from gateway.metering.rollups.queries import Row, at_once
from gateway.reports.latency_percentiles import ModelLatency, Percentiles, read_percentiles
from gateway.surfaces.management.access_groups import anywhere, in_project
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors.report_windows import RANGES, read_window
from gateway.surfaces.visitors.usage_report import (
    MAX_DATE_LENGTH,
    ActivityLatency,
    ActivityQuery,
    ActivityReport,
    ActivitySource,
    LatencyPercentiles,
    describe_report,
    places_of,
    usage_of,
    write_short,
    write_split,
)
from gateway.surfaces.visitors.validation_schemas import Body, OneOf, TextField
from gateway.surfaces.web.http import Operation

TAG = "Activity"
UNKNOWN = "unknown"  # the source of requests that recorded none


class LatencyQuery(Body):
    projectId = TextField(1, 80)
    timeRange = OneOf(tuple(RANGES))
    first = TextField(1, MAX_DATE_LENGTH, data_key="from")
    last = TextField(1, MAX_DATE_LENGTH, data_key="to")


class SourcesQuery(LatencyQuery):
    projectId = TextField(1, 80, required=True)


def activity(call: ManagedCall[None]) -> ActivityReport:
    """Usage of a project or of all accessible ones; a developer's own keys only."""
    return usage_of(call.visitor, call.inbound.arguments())


def sources(call: ManagedCall[ProjectInfo]) -> list[ActivitySource]:
    """The apps that used a project, the most expensive first."""
    span = read_window(call.fields, call.services.clock.now_us()).span
    owners = Owners(project_ids=(call.subject.id,))
    database = call.database
    known = call.services.accounts.sources

    def read() -> tuple[list[Row], dict[tuple[Any, ...], int]]:
        rows = measure(database, owners, Span(span.first, span.end, "all"), "source")
        return rows, last_hours(database, owners, span)

    rows, hours = at_once(database, read)
    for row in rows:
        row.last_hour = hours.get(row.value, row.last_hour)
    # The table of clients may know more names than it did when they were recorded.
    merged = merge(rows, [(known.canonical(row.value[0]) or UNKNOWN,) for row in rows])
    ranked = sorted(merged, key=lambda row: (-row.figures.cost_nusd, row.value))
    return [_write_source(row) for row in ranked]


def latency(call: ManagedCall[None]) -> list[ActivityLatency]:
    """The median and the 95th percentile of the upstream calls of a project or of all accessible ones, by provider and
    model; a developer's own calls only. Only the newest 10,000 usage rows of the period are read, as `calls` shows."""
    span = read_window(call.fields, call.services.clock.now_us()).span
    places = places_of(call.visitor, call.fields.get("projectId"))
    return [_write_latency(one) for one in read_percentiles(call.database, places, span)]


def _write_latency(one: ModelLatency) -> ActivityLatency:
    return {
        "provider": one.provider,
        "model": one.model,
        "calls": one.calls,
        "durationMs": _write_percentiles(one.duration),
        "timeToFirstTokenMs": _write_percentiles(one.wait) if one.wait else None,
    }


def _write_percentiles(percentiles: Percentiles) -> LatencyPercentiles:
    return {"p50": percentiles.p50, "p95": percentiles.p95}


def _write_source(row: Row) -> ActivitySource:
    last = to_iso(row.last_hour * HOUR_US)
    figures = row.figures
    return {"source": row.value[0], **write_short(figures), **write_split(figures), "lastUsedAt": last}


OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/activity", activity, "Usage by hour or day", tag=TAG,
            who=anywhere("usage:read"), scope="usage:read", query=ActivityQuery,
            schema=describe_report()),
    managed("GET", "/activity/sources", sources, "Usage by app", tag=TAG,
            who=in_project("usage:apps"), scope="usage:read", query=SourcesQuery,
            inside="sources"),
    managed("GET", "/activity/latency", latency, "Latency by provider and model", tag=TAG,
            who=anywhere("usage:read"), scope="usage:read", query=LatencyQuery,
            inside="latency"),
)  # fmt: skip
