"""A complete answer of the sandbox, before faults are applied."""

from dataclasses import dataclass
from typing import Any

import orjson

from gateway.errors import GatewayError, InvalidRequest

# The sandbox's error responses, in the chat completions format.

# status -> (type, code, message); other statuses use those of 400 or 500.
ERRORS_BY_STATUS: dict[int, tuple[str, str | None, str]] = {
    400: ("invalid_request_error", None, "The sandbox refuses this request, as the directive requested."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided: the sandbox refuses this key."),
    402: ("insufficient_quota", "insufficient_quota", "The sandbox account has no funds left."),
    403: ("invalid_request_error", "permission_denied", "The sandbox project has no access to this model."),
    404: (
        "invalid_request_error",
        "model_not_found",
        "The sandbox model does not exist, or access is denied.",
    ),
    408: ("server_error", "request_timeout", "The sandbox gave up waiting for the request."),
    413: ("invalid_request_error", "request_too_large", "The request is larger than the sandbox accepts."),
    422: ("invalid_request_error", None, "The sandbox cannot process this request."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for the sandbox model. Try again later."),
    500: ("server_error", None, "The sandbox had an error while processing the request."),
    502: ("server_error", "bad_gateway", "The sandbox received an invalid response from its upstream."),
    503: ("server_error", "service_unavailable", "The sandbox model is overloaded. Try again later."),
    504: ("server_error", "timeout", "The sandbox model did not answer in time."),
    529: ("overloaded_error", "overloaded", "The sandbox is overloaded. Try again later."),
}
CODES = {
    "context_length_exceeded": "This sandbox model's maximum context length is exceeded. Shorten the messages.",
    "content_filter": "The sandbox's content policy refuses this prompt.",
    "content_policy_violation": "The sandbox's content policy refuses this prompt.",
    "insufficient_quota": "You exceeded the sandbox account's quota. Check its plan and billing.",
}


def refuse(message: str, param: str = "", code: str = "", status: int = 400) -> InvalidRequest:
    """Return the exception for a failed check; the server converts it to a response with `write_refusal`."""
    return InvalidRequest(message, param=param, code=code, status=status)


def write_refusal(error: GatewayError) -> bytes:
    """Return the response body for a failed check."""
    kind = ERRORS_BY_STATUS[401][0] if error.status < 500 else ERRORS_BY_STATUS[500][0]
    return orjson.dumps(_envelope(error.message, kind, error.param or None, error.code or None))


def write_fault(status: int, code: str = "") -> bytes:
    """Return the response body of a simulated failure; `code` replaces the default code of the status."""
    kind, usual, message = ERRORS_BY_STATUS.get(status) or ERRORS_BY_STATUS[400 if status < 500 else 500]
    return orjson.dumps(_envelope(CODES.get(code, message), kind, None, code or usual))


def event_fault() -> dict[str, Any]:
    """Return the error object that a broken stream contains instead of a chunk."""
    return _envelope("The sandbox had an error while it was answering.", "server_error", None, "server_error")


def _envelope(message: str, kind: str, param: str | None, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Response:
    """A plain answer has a `body`, a stream has `frames`: each is a server-sent event, without the [DONE] mark, which
    the script adds. `media` is the content type of an answer that is neither JSON nor events; its `frames` are pieces
    of the file. `pieces` is the number of chunks that a streamed answer would have, which determines the delay. `bare`
    is the body with an empty list of answers.
    """

    body: bytes = b""
    frames: tuple[bytes, ...] = ()
    streamed: bool = False
    pieces: int = 1
    bare: bytes = b"{}"
    media: str = ""


def write_event(wire: dict[str, Any]) -> bytes:
    """Return a frame of a stream of events that have a `type`."""
    return b"data: " + orjson.dumps(wire) + b"\n\n"
