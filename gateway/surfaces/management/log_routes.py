"""`/logs`: every request with its metadata; and retained payloads, to read and to delete."""

import base64
from typing import Any

from gateway.errors import NotFound
from gateway.metering.log.records import LoggedRequest
from gateway.metering.payload_table import ANSWER_CUT, SENT_CUT
from gateway.surfaces import request_log_reader
from gateway.surfaces.http import Inbound, Operation
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed
from gateway.surfaces.request_log_reader import LogsPageQuery, show_attempt, show_request
from gateway.surfaces.validation_schemas import read_query
from gateway.surfaces.visitor import Visitor

TAG = "Logs"


def list_all(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The newest first; a developer sees those of their own keys. `next` is the `cursor` of the following page, null at
    the end. A page reads a bounded number of rows: with filters that meet few of many requests it may be short, or
    empty, and still have a `next`."""
    given = read_query(LogsPageQuery, inbound)
    page = request_log_reader.read_page(visitor, given, inbound, given["limit"])
    return {"logs": [show_request(one) for one in page.found], "next": request_log_reader.write_cursor(page)}


def find(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """One request by its id or by the caller's x-request-id: every attempt with its cost by component, the routing
    decision while it is stored, and, if the project retained it, the payload: what the caller sent and received, and
    the exchange with providers."""
    one = request_log_reader.find_one(visitor, inbound.params["log_id"])
    return {
        "log": show_request(one),
        "attempts": [show_attempt(record) for record in one.attempts],
        "routing": _find_decision(visitor, one),
        **_show_payload(visitor, one),
    }


def delete(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Delete a payload now. The request's cost stays on record, and so does the fee for retaining it."""
    one = request_log_reader.find_one(visitor, inbound.params["log_id"])
    if one.payload is None:
        raise NotFound(f"There is no payload of {one.request_id}: it was not retained, expired, or was deleted.")
    visitor.services.engine.retention.delete(one.payload, actor=visitor.user_id)
    return {"message": "The log was deleted."}


def _find_decision(visitor: Visitor, one: LoggedRequest) -> dict[str, Any] | None:
    try:
        found = visitor.services.routing.decisions.find(f"proj_{one.owner.project.hex()}", one.request_id)
    except NotFound:
        return None
    return {name: value for name, value in found.items() if name != "attempts"}


def _show_payload(visitor: Visitor, one: LoggedRequest) -> dict[str, Any]:
    info = one.payload
    if info is None:
        return {"request": None, "response": None, "upstream": []}
    bodies = visitor.services.engine.retention.read(info)
    return {
        "request": _show_body(bodies.sent, info.sent_bytes, bool(info.flags & SENT_CUT)),
        "response": _show_body(bodies.answer, info.answer_bytes, bool(info.flags & ANSWER_CUT)),
        "upstream": bodies.raw,
    }


def _show_body(body: bytes, size: int, truncated: bool) -> dict[str, Any]:
    """Text as it is; what is no text in base64. A cut may fall into a character, which is left out then."""
    known = {"bytes": size, "truncated": truncated}
    try:
        return {"text": body.decode(errors="ignore" if truncated else "strict"), "encoding": "utf-8", **known}
    except UnicodeDecodeError:
        return {"text": base64.b64encode(body).decode(), "encoding": "base64", **known}


LOG = shapes.named(
    "Log",
    id="string",
    requestId="string?",
    requestCount="integer",
    createdAt="string",
    projectId="string",
    apiKeyId="string",
    operation="string?",
    path="string?",
    model="string",
    served="string?",
    provider="string?",
    status="integer",
    error="string?",
    finish="string?",
    streamed="boolean",
    cached="boolean",
    mode="string?",
    source="string?",
    attempts="integer",
    inputTokens="integer",
    outputTokens="integer",
    durationMs="integer",
    cost="string",
    dataStorageCost="string",
    discountSavings="string",
    metadata="object",
    retained="boolean",
    requestBytes="integer?",
    responseBytes="integer?",
    expiresAt="string?",
)
ATTEMPT = shapes.named(
    "LoggedAttempt",
    number="integer",
    startedAt="string",
    provider="string",
    model="string",
    region="string?",
    status="integer",
    error="string?",
    upstreamError="string?",
    finish="string?",
    mode="string",
    usageBasis="string",
    durationMs="integer",
    timeToFirstTokenMs="integer?",
    inputTokens="integer",
    cachedTokens="integer",
    cacheWriteTokens="integer",
    outputTokens="integer",
    reasoningTokens="integer",
    cost="string",
    costs="object",
    dataStorageCost="string",
    discountSavings="string",
    priceVersion="string?",
)
BODY = shapes.named("LoggedBody", text="string", encoding="string", bytes="integer", truncated="boolean")
BODY_OR_NONE = {"oneOf": [BODY, {"type": "null"}]}
EXCHANGE = shapes.named(
    "UpstreamExchange",
    provider="string",
    model="string",
    method="string",
    url="string",
    request="string",
    status="integer",
    response="string",
    truncated="boolean",
)
ONE = "/logs/<log_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/logs", list_all, "List requests", tag=TAG, query=LogsPageQuery,
            answer=shapes.shape(logs=[LOG], next="string?")),
    managed("GET", ONE, find, "Show a request", tag=TAG,
            answer=shapes.shape(log=LOG, attempts=[ATTEMPT], routing="object?", request=BODY_OR_NONE,
                                response=BODY_OR_NONE, upstream=[EXCHANGE])),
    managed("DELETE", ONE, delete, "Delete a retained payload", tag=TAG, answer=shapes.DONE),
)  # fmt: skip
