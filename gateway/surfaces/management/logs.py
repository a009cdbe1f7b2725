"""`/logs`: the payloads of requests that a project retained, to look at and to forget."""

import base64
from typing import Any

from gateway.clock import to_iso
from gateway.errors import Forbidden, InvalidRequest, NotFound
from gateway.metering.payload_table import ANSWER_CUT, SENT_CUT, STREAMED, LogInfo, Wanted, list_logs
from gateway.metering.usage_table import raw_id
from gateway.money import format_usd
from gateway.surfaces.http import Inbound, Operation
from gateway.surfaces.management import shapes
from gateway.surfaces.management.activity import places_of
from gateway.surfaces.management.described import managed
from gateway.surfaces.schemas import Body, Counted, Moment, TextField, read_query
from gateway.surfaces.visitor import MANAGERS, Visitor

TAG = "Logs"
MOST = 100
LATEST_US = 1 << 62


class LogsQuery(Body):
    projectId = TextField(1, 80)
    apiKeyId = TextField(1, 80)
    model = TextField(1, 255)
    first = Moment(data_key="from")
    last = Moment(data_key="to")
    cursor = TextField(1, 80)
    limit = Counted(1, MOST, load_default=50)


def list_all(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The newest first, without payloads; a developer sees those of their own keys. `next` is the `cursor` of the
    following page, null at the end."""
    given = read_query(LogsQuery, inbound)
    places = places_of(visitor, given.get("projectId"))
    wanted = Wanted(
        _read_key(given.get("apiKeyId", "")),
        given.get("model", ""),
        given.get("first"),
        given.get("last"),
        _read_cursor(given["cursor"]) if "cursor" in given else None,
    )
    limit = given["limit"]
    found = list_logs(visitor.services.store.database, places, wanted, limit + 1)
    more = len(found) > limit
    return {
        "logs": [show_log(info) for info in found[:limit]],
        "next": f"{found[limit - 1].at}-{found[limit - 1].request_id}" if more else None,
    }


def find(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """One with what the caller sent and got, and what went to providers and came back if that was asked for."""
    info = _find(visitor, inbound)
    bodies = visitor.services.engine.retention.read(info)
    return {
        "log": show_log(info),
        "request": _show_body(bodies.sent, info.sent_bytes, bool(info.flags & SENT_CUT)),
        "response": _show_body(bodies.answer, info.answer_bytes, bool(info.flags & ANSWER_CUT)),
        "upstream": bodies.raw,
    }


def delete(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Forget a payload now. What the request cost stays on record, and so does the fee for having kept it."""
    info = _find(visitor, inbound)
    visitor.services.engine.retention.delete(info, actor=visitor.user_id)
    return {"message": "The log was deleted."}


def show_log(info: LogInfo) -> dict[str, Any]:
    return {
        "id": info.request_id,
        "projectId": f"proj_{info.project.hex()}",
        "apiKeyId": f"key_{info.api_key.hex()}",
        "operation": info.operation,
        "path": info.path,
        "model": info.asked,
        "served": info.served or None,
        "status": info.status,
        "streamed": bool(info.flags & STREAMED),
        "finish": info.finish or None,
        "error": info.error or None,
        "attempts": info.attempts,
        "inputTokens": info.input_tokens,
        "outputTokens": info.output_tokens,
        "durationMs": info.duration_ms,
        "cost": format_usd(info.cost_nusd),
        "dataStorageCost": format_usd(info.storage_nusd),
        "requestBytes": info.sent_bytes,
        "responseBytes": info.answer_bytes,
        "createdAt": to_iso(info.at),
        "expiresAt": to_iso(info.expires_at),
    }


def _find(visitor: Visitor, inbound: Inbound) -> LogInfo:
    """The log of the path. NotFound for another organization's as for one that is not there; Forbidden for one that a
    developer's own keys did not make."""
    ident = inbound.params["log_id"]
    info = visitor.services.engine.retention.find(ident)
    mine = visitor.memberships.get(f"org_{info.organization.hex()}") if info else None
    if info is None or mine is None:
        raise NotFound(f"There is no log {ident}: it was not retained, expired, or was deleted.")
    if mine.role not in MANAGERS and info.member != raw_id(mine.id):
        raise Forbidden("You have no permission for this log: developers see the requests of keys that they created.")
    return info


def _show_body(body: bytes, size: int, truncated: bool) -> dict[str, Any]:
    """Text as it is; what is no text in base64. A cut may fall into a character, which is left out then."""
    known = {"bytes": size, "truncated": truncated}
    try:
        return {"text": body.decode(errors="ignore" if truncated else "strict"), "encoding": "utf-8", **known}
    except UnicodeDecodeError:
        return {"text": base64.b64encode(body).decode(), "encoding": "base64", **known}


def _read_key(text: str) -> str:
    try:
        raw_id(text)
    except ValueError:
        raise NotFound(f"There is no API key {text}.") from None
    return text


def _read_cursor(text: str) -> tuple[int, bytes]:
    at, _, request = text.partition("-")
    try:
        place = int(at), bytes.fromhex(request)
    except ValueError:
        place = (LATEST_US, b"")
    if not 0 <= place[0] < LATEST_US:
        raise InvalidRequest("The cursor is not one that a page of logs gave.", param="cursor")
    return place


LOG = shapes.named(
    "Log",
    id="string",
    projectId="string",
    apiKeyId="string",
    operation="string",
    path="string",
    model="string",
    served="string?",
    status="integer",
    streamed="boolean",
    finish="string?",
    error="string?",
    attempts="integer",
    inputTokens="integer",
    outputTokens="integer",
    durationMs="integer",
    cost="string",
    dataStorageCost="string",
    requestBytes="integer",
    responseBytes="integer",
    createdAt="string",
    expiresAt="string",
)
BODY = shapes.named("LoggedBody", text="string", encoding="string", bytes="integer", truncated="boolean")
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
    managed("GET", "/logs", list_all, "List retained requests", tag=TAG, query=LogsQuery,
            answer=shapes.shape(logs=[LOG], next="string?")),
    managed("GET", ONE, find, "Show a retained request with its payload", tag=TAG,
            answer=shapes.shape(log=LOG, request=BODY, response=BODY, upstream=[EXCHANGE])),
    managed("DELETE", ONE, delete, "Delete a retained payload", tag=TAG, answer=shapes.DONE),
)  # fmt: skip
