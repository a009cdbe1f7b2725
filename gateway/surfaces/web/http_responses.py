"""Responses and errors of every surface: headers that all responses carry, and the format of errors."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import Any

import orjson

from gateway.clock import SECOND_US
from gateway.dialects import openai
from gateway.errors import GatewayError, Internal, InvalidRequest
from gateway.neutral.events import Batch
from gateway.neutral.request import Result
from gateway.runtime import early_answers
from gateway.runtime.threads import compute_if
from gateway.surfaces.web import policy as policy_module
from gateway.surfaces.web.answer_structs import Answer, describe_answer
from gateway.surfaces.web.caps import is_deeper
from gateway.surfaces.web.http import VARY_BY_KEY, Deprecated, ErrorFormat, Inbound, Outbound, Surface

log = logging.getLogger("gateway")

OUR_FAULT = "An internal error occurred; the operator's log has the cause."
# JSON is read to 1,024 levels and written to 254; some provider formats add levels around the caller's content.
MAX_DEPTH = 200
TOO_DEEP = f"The body has objects and lists nested deeper than {MAX_DEPTH} levels, which is the limit."
JSON = ("Content-Type", "application/json")
PRIVATE = [("Cache-Control", "no-store, no-transform"), ("Vary", VARY_BY_KEY)]
PRIVATE_JSON = (JSON, *PRIVATE)
SSE = [("Content-Type", "text/event-stream; charset=utf-8"), ("X-Accel-Buffering", "no")]

# The gateway's own error format, also used for paths below no surface's prefix.
OPENAI = ErrorFormat(
    "openai",
    openai.error_body,
    describe_answer(openai.ErrorBody),
)
STATUS_LINES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus} | {
    499: "499 Client Closed Request",
    529: "529 Overloaded",
}


def write_status(status: int) -> str:
    """Return the status with its phrase, as WSGI requires it."""
    return STATUS_LINES.get(status) or f"{status} Unknown"


def json_reply(
    body: bytes | Mapping[str, Any] | list[Any] | Answer,
    request_id: str = "",
    status: int = 200,
    headers: list[Any] | None = None,
) -> Outbound:
    """A private JSON answer; `headers` are added to the common ones."""
    if type(body) is bytes:
        payload = body
    elif isinstance(body, Answer):
        payload = body.encode()
    else:
        payload = orjson.dumps(body)
    named = (("x-request-id", request_id),) if request_id else ()
    return Outbound(status, [*PRIVATE_JSON, *named, *(headers or ())], payload)


def begin_early(request_id: str) -> None:
    """Let a JSON answer that takes long begin with blanks (`server.early_blank_s`)."""
    early_answers.begin([*PRIVATE_JSON, ("x-request-id", request_id)])


def result_reply(
    result: Result,
    write: Callable[..., bytes | dict[str, Any] | list[Any] | Answer],
    *args: Any,
    request_id: str = "",
    headers: list[Any] | None = None,
) -> Outbound:
    """Return the JSON response that `write(result, *args)` produces; a large result is written in a thread."""

    def make() -> Outbound:
        return json_reply(write(result, *args), request_id, headers=headers)

    return compute_if(result.large, make)


def stream_reply(frames: Iterator[bytes], request_id: str = "", headers: list[Any] | None = None) -> Outbound:
    """A server-sent event stream that proxies must not buffer."""
    return Outbound(200, [*SSE, *PRIVATE, *_identity(request_id), *(headers or ())], frames)


def write_frames(
    batches: Iterable[Batch], write: Callable[[Batch], bytes], fail: Callable[[GatewayError], bytes]
) -> Iterator[bytes]:
    """Return the output of `write` for each batch, one item a batch (none where it is empty), or of `fail` for an
    error. An unexpected error is logged and also passed to `fail`. The batches are always closed, also when the stream
    is closed before it was read."""
    frames = _write_frames(batches, write, fail)
    next(frames)
    return frames


def _write_frames(
    batches: Iterable[Batch], write: Callable[[Batch], bytes], fail: Callable[[GatewayError], bytes]
) -> Iterator[bytes]:
    try:
        yield b""  # taken now: from here on, closing this generator also closes the batches
        for batch in batches:
            sent = write(batch)
            if sent:
                yield sent
    except GatewayError as error:
        yield fail(error)
    except Exception as error:
        log.error("a streamed response failed", exc_info=error)
        yield fail(Internal(OUR_FAULT))
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()


def write_event(body: Mapping[str, Any] | Answer, name: str = "") -> bytes:
    """Return a server-sent event; `name` is for clients that select events by name."""
    head = b"event: %b\n" % name.encode() if name else b""
    written = body.encode() if isinstance(body, Answer) else orjson.dumps(body)
    return b"%bdata: %b\n\n" % (head, written)


def retry_headers(error: GatewayError) -> list[tuple[str, str]]:
    """Return the headers with the time to wait: in whole seconds, and in milliseconds, which SDKs of OpenAI and
    Anthropic read first."""
    if error.retry_after is None:
        return []
    seconds = str(max(1, math.ceil(error.retry_after)))
    return [("Retry-After", seconds), ("retry-after-ms", str(math.ceil(error.retry_after * 1000)))]


def error_reply(error: GatewayError, errors: ErrorFormat, request_id: str = "") -> Outbound:
    """Return `error` in the caller's format, with Retry-After when it is known."""
    headers = [*error.headers, *retry_headers(error)]
    if errors.id_header:
        headers.append((errors.id_header, request_id))
    outbound = json_reply(errors.body(error, request_id), request_id, error.status, headers)
    if errors.media != JSON[1]:
        outbound.headers[0] = ("Content-Type", errors.media)
    return outbound


def errors_at(surfaces: Iterable[Surface], path: str) -> ErrorFormat:
    """Return the format of errors at `path` that reach no operation: that of the surface with the longest prefix."""
    nearest = max(surfaces, key=lambda surface: surface.depth(path))
    if nearest.depth(path):
        return nearest.errors
    return OPENAI


def crash_reply(inbound: Inbound, error: BaseException, errors: ErrorFormat, request_id: str = "") -> Outbound:
    """Return the response to an unexpected exception. The log has the cause; the caller learns only that the gateway
    failed."""
    return error_reply(crashed(inbound, error, request_id), errors, request_id)


def crashed(inbound: Inbound, error: BaseException, request_id: str = "") -> GatewayError:
    """Log an unexpected exception and return the caller's error. A body that is nested too deep to be written again is
    the caller's fault, wherever it was detected: depth is not measured in advance."""
    if isinstance(error, TypeError | RecursionError) and is_deeper(inbound.body, MAX_DEPTH):
        return InvalidRequest(TOO_DEEP, code="request_too_complex")
    log.error("%s %s failed: request %s", inbound.method, inbound.path, request_id, exc_info=error)
    return Internal(OUR_FAULT)


def deprecation_headers(deprecated: Deprecated) -> list[tuple[str, str]]:
    """Return `Deprecation` (RFC 9745), `Sunset` (RFC 8594) once a removal date is set, and a `Link` to the replacement,
    else to the policy."""
    headers = [("Deprecation", f"@{int(_midnight(deprecated.since).timestamp())}")]
    if deprecated.sunset:
        headers.append(("Sunset", format_datetime(_midnight(deprecated.sunset), usegmt=True)))
    headers.append(("Link", f'<{deprecated.link or policy_module.ADDRESS}>; rel="deprecation"; type="text/html"'))
    return headers


def is_over(deprecated: Deprecated, at_us: int) -> bool:
    """Return whether the removal date has come."""
    return bool(deprecated.sunset) and at_us >= int(_midnight(deprecated.sunset).timestamp()) * SECOND_US


def _midnight(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=UTC)


def _identity(request_id: str) -> list[tuple[str, str]]:
    if request_id:
        return [("x-request-id", request_id)]
    return []
