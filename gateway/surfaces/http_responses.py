"""Responses and errors of every surface: headers that all responses carry, and the format of errors."""

import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import orjson

from gateway.clock import SECOND_US
from gateway.dialects import openai
from gateway.errors import GatewayError, Internal, InvalidRequest
from gateway.neutral.events import Batch
from gateway.neutral.request import Result
from gateway.runtime.threads import compute_if
from gateway.surfaces import policy
from gateway.surfaces.caps import is_deeper
from gateway.surfaces.http import Deprecated, ErrorFormat, Inbound, Outbound

log = logging.getLogger("gateway")

OUR_FAULT = "An internal error occurred; the operator's log has the cause."
# JSON is read to 1,024 levels and written to 254, of which formats of providers put some around what a caller sends.
DEEPEST = 200
TOO_DEEP = f"The body has objects and lists nested deeper than {DEEPEST} levels, which is the limit."
JSON = ("Content-Type", "application/json")
PRIVATE = [("Cache-Control", "no-store, no-transform"), ("Vary", "Authorization, x-api-key")]
PRIVATE_JSON = (JSON, *PRIVATE)
SSE = [("Content-Type", "text/event-stream; charset=utf-8"), ("X-Accel-Buffering", "no")]

# The service's own format, which is also that of errors below no surface's prefix.
MEMBERS = dict.fromkeys(("message", "type", "param", "code"), {"type": "string"})
OPENAI = ErrorFormat(
    "openai",
    openai.error_body,
    {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "object", "required": list(MEMBERS), "properties": MEMBERS}},
    },
)


def json_reply(
    body: bytes | dict | list, request_id: str = "", status: int = 200, headers: list | None = None
) -> Outbound:
    """A private JSON answer; `headers` are added to the common ones."""
    payload = body if type(body) is bytes else orjson.dumps(body)
    named = (("x-request-id", request_id),) if request_id else ()
    return Outbound(status, [*PRIVATE_JSON, *named, *(headers or ())], payload)


def result_reply(
    result: Result,
    write: Callable[..., bytes | dict | list],
    *args: Any,
    request_id: str = "",
    headers: list | None = None,
) -> Outbound:
    """The JSON answer that `write(result, *args)` makes; that of a large result is made in a thread."""

    def make() -> Outbound:
        return json_reply(write(result, *args), request_id, headers=headers)

    return compute_if(result.large, make)


def stream_reply(frames: Iterator[bytes], request_id: str = "", headers: list | None = None) -> Outbound:
    """A server-sent event stream that proxies must not buffer."""
    return Outbound(200, [*SSE, *PRIVATE, *_identity(request_id), *(headers or ())], frames)


def write_frames(
    batches: Iterable[Batch], write: Callable[[Batch], bytes], fail: Callable[[GatewayError], bytes]
) -> Iterator[bytes]:
    """What `write` makes of each batch, one item a batch (none where it makes nothing), or `fail` of an error; of an
    unexpected one too, which is logged. The batches are closed whatever ends it, also before anything was read."""
    frames = _write_frames(batches, write, fail)
    next(frames)
    return frames


def _write_frames(
    batches: Iterable[Batch], write: Callable[[Batch], bytes], fail: Callable[[GatewayError], bytes]
) -> Iterator[bytes]:
    try:
        yield b""  # taken at once: from here on what closes this runs its end
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


def write_event(body: dict[str, Any], name: str = "") -> bytes:
    """A server-sent event; `name` where its clients go by it."""
    if name:
        head = b"event: %b\n" % name.encode()
    else:
        head = b""
    return b"%bdata: %b\n\n" % (head, orjson.dumps(body))


def error_reply(error: GatewayError, errors: ErrorFormat, request_id: str = "") -> Outbound:
    """`error` in the caller's format, with Retry-After when it is known."""
    headers = list(error.headers)
    if error.retry_after is not None:
        headers.append(("Retry-After", str(max(1, round(error.retry_after)))))
    if errors.id_header:
        headers.append((errors.id_header, request_id))
    return json_reply(errors.body(error, request_id), request_id, error.status, headers)


def crash_reply(inbound: Inbound, error: BaseException, errors: ErrorFormat, request_id: str = "") -> Outbound:
    """An unexpected exception: the log has it, the caller learns only that it was our fault."""
    return error_reply(crashed(inbound, error, request_id), errors, request_id)


def crashed(inbound: Inbound, error: BaseException, request_id: str = "") -> GatewayError:
    """What the caller is called with an unexpected exception, which is logged. A body that is nested too deep to be
    written again is their fault, wherever that was found: none is measured that does no harm."""
    if isinstance(error, TypeError | RecursionError) and is_deeper(inbound.body, DEEPEST):
        return InvalidRequest(TOO_DEEP, code="request_too_complex")
    log.error("%s %s failed: request %s", inbound.method, inbound.path, request_id, exc_info=error)
    return Internal(OUR_FAULT)


def deprecation_headers(deprecated: Deprecated) -> list[tuple[str, str]]:
    """`Deprecation` (RFC 9745), `Sunset` (RFC 8594) once an end is set, and the `Link` that says what to do: to what
    to use instead, else to the policy."""
    headers = [("Deprecation", f"@{int(_midnight(deprecated.since).timestamp())}")]
    if deprecated.sunset:
        headers.append(("Sunset", format_datetime(_midnight(deprecated.sunset), usegmt=True)))
    headers.append(("Link", f'<{deprecated.link or policy.ADDRESS}>; rel="deprecation"; type="text/html"'))
    return headers


def is_over(deprecated: Deprecated, at_us: int) -> bool:
    """Whether the day of its end has come."""
    return bool(deprecated.sunset) and at_us >= int(_midnight(deprecated.sunset).timestamp()) * SECOND_US


def _midnight(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=UTC)


def _identity(request_id: str) -> list[tuple[str, str]]:
    if request_id:
        return [("x-request-id", request_id)]
    return []
