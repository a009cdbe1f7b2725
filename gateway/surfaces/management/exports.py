"""`/logs/export` and `/activity/export`: the request log and the usage rows as CSV or JSON lines.

Both are read page by page while they are sent, each page in a short read of its own, so that an export of any size
holds neither memory nor a transaction; what is added meanwhile is not part of it. Where usage rows were removed, the
export says from when on they exist: statistics of the time before are in `GET /activity`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gateway.clock import DAY_US, to_iso
from gateway.metering.figures import CLIENT_CODES
from gateway.metering.log.records import LoggedRequest
from gateway.metering.log.search import LogFilter, search
from gateway.metering.models import CACHED
from gateway.metering.rollups.queries import rows_begin_us
from gateway.metering.usage_table import UsageRecord
from gateway.money import format_usd
from gateway.runtime.threads import pause
from gateway.surfaces import request_log_reader, tabular
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.management.described import managed
from gateway.surfaces.management.downloads import check_again, download
from gateway.surfaces.management.log_routes import LOG
from gateway.surfaces.report_windows import read_window
from gateway.surfaces.request_log_reader import LogsQuery, show_attempt, show_request
from gateway.surfaces.usage_report import ActivityQuery
from gateway.surfaces.validation_schemas import OneOf, read_query
from gateway.surfaces.visitor import Visitor

TAG = "Exports"
# Since when usage rows are there, where an export would begin before that.
ROWS_SINCE = "X-LLMGateway-Rows-Since"
PAGE = 200
# How long after it came in a request may still make attempts.
LONGEST_US = 2 * DAY_US
LOG_COLUMNS = tuple(LOG["properties"])
USAGE_COLUMNS = (
    *("id", "requestId", "projectId", "apiKeyId", "operation", "requestedModel", "source", "number", "startedAt"),
    *("provider", "model", "region", "status", "error", "upstreamError", "finish", "mode", "usageBasis", "durationMs"),
    *("timeToFirstTokenMs", "inputTokens", "cachedTokens", "cacheWriteTokens", "outputTokens", "reasoningTokens"),
    *("cost", "inputCost", "outputCost", "cachedInputCost", "cacheWriteInputCost", "otherCost", "dataStorageCost"),
    *("discountSavings", "priceVersion", "requestCount", "errorCount", "clientErrorCount", "cacheCount"),
)
NAMED_COSTS = ("inputCost", "outputCost", "cachedInputCost", "cacheWriteInputCost")


class LogsExportQuery(LogsQuery):
    format = OneOf(tabular.FORMATS, load_default=tabular.CSV)


class UsageExportQuery(ActivityQuery):
    format = OneOf(tabular.FORMATS, load_default=tabular.CSV)


def export_logs(visitor: Visitor, inbound: Inbound) -> Outbound:
    """Every request that matches the filters of `GET /logs`, newest first; for a developer of their own keys only. In
    CSV, texts that a spreadsheet would evaluate as formulas begin with an apostrophe."""
    given = read_query(LogsExportQuery, inbound)
    wanted = _until_now(visitor, request_log_reader.filter_of(given, inbound))
    pages = ([show_request(one) for one in page] for page in _pages(visitor, given, wanted))
    return _download(visitor, given, "logs", tabular.write_rows(pages, LOG_COLUMNS, given["format"]))


def export_usage(visitor: Visitor, inbound: Inbound) -> Outbound:
    """The usage rows of a window of `GET /activity`, one for each upstream call, newest requests first: its columns add
    up to what that report shows. `requestCount` is 1 in the last attempt of a request and 0 in the others. Where the
    window begins before the rows that are there still, the header `X-LLMGateway-Rows-Since` says when those begin."""
    given = read_query(UsageExportQuery, inbound)
    span = read_window(given, visitor.services.clock.now_us()).span
    wanted = _until_now(visitor, LogFilter(from_us=span.start_us - LONGEST_US, to_us=span.end_us))
    pages = (
        [
            _show_usage(one, record)
            for one in page
            for record in one.attempts
            if span.start_us <= record.at < span.end_us
        ]
        for page in _pages(visitor, given, wanted)
    )
    database = visitor.services.store.database
    since_us = database.read(partial(rows_begin_us, database))
    if span.start_us < since_us:
        more = [(ROWS_SINCE, to_iso(since_us))]
    else:
        more = []
    return _download(visitor, given, "usage", tabular.write_rows(pages, USAGE_COLUMNS, given["format"]), more)


def _pages(visitor: Visitor, given: Mapping[str, Any], wanted: LogFilter) -> Iterator[list[LoggedRequest]]:
    """Page by page. Who is refused is refused before anything is sent, and looked at again for each page: an export can
    take longer than a membership."""
    scopes = request_log_reader.scopes_of(visitor, given.get("projectId", ""), given.get("apiKeyId", ""))

    def read() -> Iterator[list[LoggedRequest]]:
        before = None
        while True:
            page = search(visitor.services.store.database, scopes, wanted, before, PAGE)
            yield page.found
            pause(0)  # writing a page takes milliseconds: others have their turn in between
            before = page.following
            if before is None:
                return
            check_again(visitor)

    return read()


def _until_now(visitor: Visitor, wanted: LogFilter) -> LogFilter:
    """Without what comes in while it is sent."""
    now_us = visitor.services.clock.now_us()
    return wanted._replace(to_us=now_us if wanted.to_us is None else min(now_us, wanted.to_us))


def _show_usage(one: LoggedRequest, record: UsageRecord) -> dict[str, Any]:
    shown = show_attempt(record)
    owner = one.owner
    last = int(record is one.last)
    named = {name: shown["costs"][name] for name in NAMED_COSTS}
    other = sum(record.details.get("nusd", {}).values())
    return {
        "id": one.request_id,
        "requestId": record.label,
        "projectId": f"proj_{owner.project.hex()}",
        "apiKeyId": f"key_{owner.api_key.hex()}",
        "operation": record.operation,
        "requestedModel": record.asked,
        "source": record.source or None,
        **{name: value for name, value in shown.items() if name != "costs"},
        **named,
        "otherCost": format_usd(other),
        "requestCount": last,
        "errorCount": last if record.error is not None else 0,
        "clientErrorCount": last if record.error in CLIENT_CODES else 0,
        "cacheCount": last if record.flags & CACHED else 0,
    }


def _download(
    visitor: Visitor, given: Mapping[str, Any], name: str, pieces: Iterator[bytes], more: Sequence[tuple[str, str]] = ()
) -> Outbound:
    project_id = given.get("projectId", "")
    form = given["format"]
    if project_id:
        owners = [visitor.project(project_id).organization_id]
    else:
        owners = sorted(visitor.memberships)
    return download(visitor, owners, f"{name}.{form}", tabular.MEDIA[form], pieces, more)


OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/logs/export", export_logs, "Export requests", tag=TAG, query=LogsExportQuery, errors=(429,),
            media=tabular.MEDIA[tabular.CSV], also=(tabular.MEDIA[tabular.JSON_LINES],)),
    managed("GET", "/activity/export", export_usage, "Export usage rows", tag=TAG, query=UsageExportQuery,
            errors=(429,), media=tabular.MEDIA[tabular.CSV], also=(tabular.MEDIA[tabular.JSON_LINES],)),
)  # fmt: skip
