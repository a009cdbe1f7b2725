"""`/logs/export` and `/activity/export`: the request log and the usage rows as CSV or JSON lines.

Both are read page by page while they are sent, each page in a separate short transaction, so that an export of any size
holds neither memory nor a transaction; what is added meanwhile is not part of it. Where usage rows were removed, the
export says from when on they exist: statistics of the time before are in `GET /activity`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from gateway.accounts.members import list_members
from gateway.accounts.projects import find_project
from gateway.callers.permissions import Permission
from gateway.clock import DAY_US, to_iso
from gateway.errors import Forbidden, RateLimited, Unauthenticated
from gateway.metering.figures import CLIENT_CODES
from gateway.metering.log.archived_requests import log_begins_us, search_log
from gateway.metering.log.records import LoggedRequest
from gateway.metering.log.search import LogFilter
from gateway.metering.models import CACHED
from gateway.metering.usage_table import UsageRecord
from gateway.money import format_usd
from gateway.runtime.loop_turns import low_priority_turn
from gateway.store.shared_slots import HeldSlots
from gateway.surfaces.management.access_groups import anywhere
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors import tabular as tabular_module
from gateway.surfaces.visitors.log_answers import COMPONENTS, LogAnswer, LoggedAttemptAnswer, show_attempt, show_request
from gateway.surfaces.visitors.report_windows import read_window
from gateway.surfaces.visitors.request_log_reader import LogsQuery
from gateway.surfaces.visitors.usage_report import ActivityQuery
from gateway.surfaces.visitors.validation_schemas import OneOf
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Operation, Outbound
from gateway.telemetry.request_observers import ClosingBody

# Shared parts of all exports: a limit per organization, response headers, and checks that the visitor has access.

BUSY_RETRY_AFTER_S = 10.0


def download(
    visitor: Visitor,
    owners: Collection[str],
    file: str,
    media: str,
    pieces: Iterator[bytes],
    more: Sequence[tuple[str, str]] = (),
) -> Outbound:
    """Return the `pieces` as a file. It takes an export slot of each organization in `owners`. Raises RateLimited."""
    held = take_slots(visitor, owners)
    headers = [
        ("Content-Type", media),
        ("Cache-Control", "no-store"),
        ("Content-Disposition", f'attachment; filename="{file}"'),
        *more,
    ]
    return Outbound(200, headers, hold_while(pieces, held))


def take_slots(visitor: Visitor, owners: Collection[str]) -> HeldSlots:
    """Return an export slot of each organization in `owners`. Raises RateLimited."""
    held = visitor.services.background.exports.take(owners)
    if held is None:
        raise RateLimited(
            "Your organization has reached its limit of simultaneous exports. Try again when one of them has ended.",
            code="too_many_exports",
            retry_after=BUSY_RETRY_AFTER_S,
        )
    return held


def hold_while(pieces: Iterator[bytes], held: HeldSlots) -> ClosingBody:
    """Return the `pieces` as a body that gives the slots back whether it is read to its end, breaks off, or is never
    begun; the pieces are closed with it."""

    def end() -> None:
        try:
            close = getattr(pieces, "close", None)
            if close is not None:
                close()
        finally:
            held.give()

    return ClosingBody(_holding(pieces, held), end)


def check_again(visitor: Visitor) -> None:
    """Check that the visitor still has the access with which the export began. Raises Unauthenticated if the session
    has ended, Forbidden if the visitor's access has changed. The error makes a broken export recognizable; an export
    that silently shows less would look complete."""
    services = visitor.services
    if visitor.account is not None:
        services.accounts.service_accounts.check(visitor.token)
        return
    if all(member.id != visitor.session.id for member in services.management.sessions.list_sessions(visitor.user_id)):
        raise Unauthenticated("The session has ended.", code="session_invalid")
    memberships = list_members(services.store.database, user_id=visitor.user_id)
    roles = {member.organization_id: member.role for member in memberships if member.status == "active"}
    if any(roles.get(member.organization_id) != member.role for member in visitor.memberships.values()):
        raise Forbidden("Your membership changed during the export. Start it again.")


def _holding(pieces: Iterator[bytes], held: HeldSlots) -> Iterator[bytes]:
    try:
        for piece in pieces:
            held.renew()
            yield piece
    finally:
        held.give()


TAG = "Exports"
# Since when usage rows are there, where an export would begin before that.
ROWS_SINCE = "X-LLMGateway-Rows-Since"
PAGE = 200
ROWS_PER_TURN = 16  # rows written in one turn of the event loop, less than half a millisecond
# How long after it came in a request may still make attempts.
MAX_REQUEST_US = 2 * DAY_US
LOG_COLUMNS = LogAnswer.__struct_encode_fields__
CALL_FIELDS = LoggedAttemptAnswer.__struct_encode_fields__
COSTS = CALL_FIELDS.index("costs")
USAGE_COLUMNS = (
    *("id", "requestId", "projectId", "apiKeyId", "operation", "requestedModel", "source"),
    *(*CALL_FIELDS[:COSTS], *COMPONENTS, "otherCost", *CALL_FIELDS[COSTS + 1 :]),
    *("requestCount", "errorCount", "clientErrorCount", "cacheCount"),
)


class LogsExportQuery(LogsQuery):
    format = OneOf(tabular_module.FORMATS, load_default=tabular_module.CSV)


class UsageExportQuery(ActivityQuery):
    format = OneOf(tabular_module.FORMATS, load_default=tabular_module.CSV)


def export_logs(call: ManagedCall[None]) -> Outbound:
    """Every request that matches the filters of `GET /logs`, newest first; for a developer of their own keys only. In
    CSV, texts that a spreadsheet would evaluate as formulas begin with an apostrophe."""
    visitor = call.visitor
    fields = call.fields
    filters = _until_now(
        visitor, request_log_reader_module.filter_of(fields, call.inbound, call.services.clock.now_us())
    )
    pages = (
        [to_builtins(show_request(request)) for request in page]
        for page in _read_pages(visitor, fields, filters, "logs:read")
    )
    return _download(visitor, fields, "logs", tabular_module.write_rows(pages, LOG_COLUMNS, fields["format"]))


def export_usage(call: ManagedCall[None]) -> Outbound:
    """The usage rows of a window of `GET /activity`, one for each upstream call, newest requests first: its columns add
    up to what that report shows. `requestCount` is 1 in the last attempt of a request and 0 in the others. Where the
    window begins before the oldest stored row, the header `X-LLMGateway-Rows-Since` has the time of that row."""
    visitor = call.visitor
    fields = call.fields
    span = read_window(fields, visitor.services.clock.now_us()).span
    filters = _until_now(visitor, LogFilter(from_us=span.start_us - MAX_REQUEST_US, to_us=span.end_us))
    pages = (
        [
            _show_usage(request, record)
            for request in page
            for record in request.attempts
            if span.start_us <= record.at < span.end_us
        ]
        for page in _read_pages(visitor, fields, filters, "usage:read")
    )
    since_us = log_begins_us(call.database)
    more = [(ROWS_SINCE, to_iso(since_us))] if span.start_us < since_us else []
    return _download(visitor, fields, "usage", tabular_module.write_rows(pages, USAGE_COLUMNS, fields["format"]), more)


def _read_pages(
    visitor: Visitor, fields: Mapping[str, Any], filters: LogFilter, permission: Permission
) -> Iterator[list[LoggedRequest]]:
    """Return the pages of requests. Permissions are checked before the first byte and again for each page, because an
    export can outlast a membership."""
    scopes = request_log_reader_module.scopes_of(
        visitor, fields.get("projectId", ""), fields.get("apiKeyId", ""), fields.get("userId", ""), permission
    )

    def read() -> Iterator[list[LoggedRequest]]:
        before = None
        while True:
            page = search_log(visitor.services.store.database, scopes, filters, before, PAGE)
            for start in range(0, len(page.requests), ROWS_PER_TURN):
                yield page.requests[start : start + ROWS_PER_TURN]
                low_priority_turn()
            before = page.following
            if before is None:
                return
            check_again(visitor)

    return read()


def _until_now(visitor: Visitor, filters: LogFilter) -> LogFilter:
    """Return the filters without requests that arrive during the export."""
    now_us = visitor.services.clock.now_us()
    if filters.to_us is None:
        return filters._replace(to_us=now_us)
    return filters._replace(to_us=min(now_us, filters.to_us))


def _show_usage(request: LoggedRequest, record: UsageRecord) -> dict[str, Any]:
    shown = to_builtins(show_attempt(record))
    owner = request.owner
    last = int(record is request.last)
    named = {name: shown["costs"][name] for name in COMPONENTS}
    other = sum(record.details.get("nusd", {}).values())
    return {
        "id": request.request_id,
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
    visitor: Visitor,
    fields: Mapping[str, Any],
    name: str,
    pieces: Iterator[bytes],
    more: Sequence[tuple[str, str]] = (),
) -> Outbound:
    project_id = fields.get("projectId", "")
    form = fields["format"]
    if project_id:
        owners = [find_project(visitor.services.store.database, project_id).organization_id]
    else:
        owners = sorted(visitor.memberships)
    return download(visitor, owners, f"{name}.{form}", tabular_module.MEDIA[form], pieces, more)


OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/logs/export", export_logs, "Export requests", tag=TAG,
            who=anywhere("logs:read"), scope="logs:read",
            query=LogsExportQuery, errors=(429,), media=tabular_module.MEDIA[tabular_module.CSV],
            also=(tabular_module.MEDIA[tabular_module.JSON_LINES],)),
    managed("GET", "/activity/export", export_usage, "Export usage rows", tag=TAG,
            who=anywhere("usage:read"), scope="usage:read",
            query=UsageExportQuery, errors=(429,), media=tabular_module.MEDIA[tabular_module.CSV],
            also=(tabular_module.MEDIA[tabular_module.JSON_LINES],)),
)  # fmt: skip
