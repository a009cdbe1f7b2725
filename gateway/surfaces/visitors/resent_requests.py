"""Logged requests that are sent again: the retained body, without what belonged to the old model and to its caller, or
the reason why it cannot be sent."""

from typing import Any

import orjson

from gateway.engine.request_reading import RequestPort, ResentRequest
from gateway.errors import InvalidRequest
from gateway.metering.log.records import LoggedRequest
from gateway.metering.payload_table import SENT_CUT
from gateway.runtime.threads import compute_if
from gateway.worker.services import Services

LARGE = 1 << 16
MAX_SENT_BYTES = 4_000_000
CHAT = "chat"
# Members that belong to the old model, to its providers or to the way in which it was answered; those of a chat mean
# something else in other operations.
OF_OLD_MODEL = ("stream", "stream_options", "models", "provider", "providers", "route", "fallbacks")
# Members that name a person or a session: limits and sums count the request that is sent again as the visitor's own.
OF_CALLER = ("user", "safety_identifier", "metadata")
LEFT_OUT = frozenset((*OF_OLD_MODEL, *OF_CALLER))
LEFT_OUT_OF_CHATS = LEFT_OUT | {"background", "store"}
NOT_KEPT = "The payload of this request was not retained, or was deleted, so it cannot be sent again."
NOT_WHOLE = "Only the beginning of this request was stored, so it cannot be sent again."
TOO_LARGE = f"This request is larger than {MAX_SENT_BYTES // 1_000_000} MB, so it cannot be sent again here."
OTHER_KIND = "Requests of this kind cannot be sent again: {}."
FILES_GONE = "The files that were uploaded with this request are not stored, so it cannot be sent again."
NO_BODY = "The stored body of this request is no JSON object, so it cannot be sent again."


def port_of(services: Services) -> RequestPort:
    """Return what reads requests again."""
    port = services.engine.requests
    assert port is not None
    return port


def can_resend(services: Services, request: LoggedRequest) -> bool:
    """Return whether requests of this kind can be sent again; without a payload, their price elsewhere can be seen."""
    return not request.path or port_of(services).can_resend(request.path)


def read_sent(services: Services, request: LoggedRequest) -> dict[str, Any]:
    """Return the retained body of a request. InvalidRequest with the reason if it is not there as a whole."""
    info = request.payload
    if info is None:
        raise InvalidRequest(NOT_KEPT)
    if info.flags & SENT_CUT:
        raise InvalidRequest(NOT_WHOLE)
    if info.sent_bytes > MAX_SENT_BYTES:
        raise InvalidRequest(TOO_LARGE)
    sent = services.engine.retention.read(info).sent
    try:
        body = compute_if(len(sent) > LARGE, orjson.loads, sent)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        raise InvalidRequest(NO_BODY)
    if body.keys() == {"fields", "files"} and isinstance(body["files"], list):
        raise InvalidRequest(FILES_GONE)
    return body


def prepare(services: Services, request: LoggedRequest, model: str) -> ResentRequest:
    """Return a request as it is sent to a model, without streaming. InvalidRequest with the reason if it cannot."""
    port = port_of(services)
    if request.payload is None:
        raise InvalidRequest(NOT_KEPT)
    if not port.can_resend(request.path):
        raise InvalidRequest(OTHER_KIND.format(request.path or request.operation))
    body = read_sent(services, request)
    left_out = LEFT_OUT_OF_CHATS if request.operation == CHAT else LEFT_OUT
    kept = {name: value for name, value in body.items() if name not in left_out}
    return port.retarget(request.path, kept, model)
