"""`/logs`: every request with its metadata; and retained payloads, to read and to delete."""

import base64
from typing import Any

from gateway.accounts import audit
from gateway.errors import NotFound
from gateway.metering.log.records import LoggedRequest
from gateway.metering.payload_table import ANSWER_CUT, SENT_CUT
from gateway.surfaces.management.access_groups import AccessGroup, Values, anywhere, check_anywhere
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors.log_answers import (
    LogDetailsAnswer,
    LoggedBodyAnswer,
    LogPageAnswer,
    UpstreamExchangeAnswer,
    show_attempt,
    show_request,
)
from gateway.surfaces.visitors.request_log_reader import LogsPageQuery
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Operation

TAG = "Logs"


def _find_request(visitor: Visitor, values: Values) -> LoggedRequest:
    check_anywhere(visitor, "logs:read")
    return request_log_reader_module.find_one(visitor, values["log_id"])


READER = AccessGroup("logs:read", "For owners and admins, and for the creator of the request's key.", _find_request)


def list_all(call: ManagedCall[None]) -> LogPageAnswer:
    """The newest first; a developer sees those of their own keys. `next` is the `cursor` of the following page, null at
    the end. A page reads a bounded number of rows: with filters that meet few of many requests it may be short, or
    empty, and still have a `next`."""
    page = request_log_reader_module.read_page(call.visitor, call.fields, call.inbound, call.fields["limit"])
    logs = [show_request(request) for request in page.requests]
    return LogPageAnswer(logs, request_log_reader_module.write_cursor(page))


def find(call: ManagedCall[LoggedRequest]) -> LogDetailsAnswer:
    """One request by its id or by the caller's x-request-id: every attempt with its cost by component, the routing
    decision while it is stored, and, if the project retained it, the payload: what the caller sent and received, and
    the exchange with providers."""
    request = call.subject
    answer = LogDetailsAnswer(
        show_request(request),
        [show_attempt(record) for record in request.attempts],
        _find_decision(call.visitor, request),
        None,
        None,
        [],
    )
    info = request.payload
    if info is not None:
        bodies = call.services.engine.retention.read(info)
        answer.request = _show_body(bodies.sent, info.sent_bytes, bool(info.flags & SENT_CUT))
        answer.response = _show_body(bodies.answer, info.answer_bytes, bool(info.flags & ANSWER_CUT))
        answer.upstream = [UpstreamExchangeAnswer(**exchange) for exchange in bodies.raw]
    return answer


def delete(call: ManagedCall[LoggedRequest]) -> None:
    """Delete a payload now. The request's cost stays on record, and so does the fee for retaining it."""
    request = call.subject
    if request.payload is None:
        raise NotFound(f"There is no payload of {request.request_id}: it was not retained, expired, or was deleted.")
    call.services.engine.retention.delete(request.payload, audit.append, actor=call.actor)


def _find_decision(visitor: Visitor, request: LoggedRequest) -> dict[str, Any] | None:
    try:
        decision = visitor.services.routing.decisions.find(f"proj_{request.owner.project.hex()}", request.request_id)
    except NotFound:
        return None
    return {name: value for name, value in decision.items() if name != "attempts"}


def _show_body(body: bytes, size: int, truncated: bool) -> LoggedBodyAnswer:
    """Text as it is, other bytes in base64. A cut may fall into a character, which is then omitted."""
    try:
        text = body.decode(errors="ignore" if truncated else "strict")
        return LoggedBodyAnswer(text, "utf-8", size, truncated)
    except UnicodeDecodeError:
        return LoggedBodyAnswer(base64.b64encode(body).decode(), "base64", size, truncated)


PATH = "/logs/<log_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/logs", list_all, "List requests", tag=TAG,
            who=anywhere("logs:read"), scope="logs:read", query=LogsPageQuery),
    managed("GET", PATH, find, "Show a request", tag=TAG, who=READER, scope="logs:read"),
    managed("DELETE", PATH, delete, "Delete a retained payload", tag=TAG,
            who=READER, scope="logs:write", message="The log was deleted.",
            audit="request_log.delete"),
)  # fmt: skip
