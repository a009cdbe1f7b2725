"""Messages of a Responses WebSocket: what callers send, and the events that they receive.

Format: openai/types/responses of the OpenAI SDK (responses_client_event.py, responses_server_event.py): one JSON object
a message. The events are those of a streamed response, with the `stream_id` of their turn.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from msgspec import Raw, Struct
from msgspec.json import Decoder

from gateway.dialects import openai
from gateway.errors import GatewayError, Internal, InvalidRequest
from gateway.surfaces.http_responses import retry_headers
from gateway.surfaces.json_bodies import decode_json

CREATE = "response.create"
STEER = "response.steer"
ACKNOWLEDGEMENT = "response.processed"  # Codex sends it after it has read a response
STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")
TERMINAL = frozenset((b"response.completed", b"response.failed", b"response.incomplete"))
EVENT = b"event: "
DATA = b"\ndata: "
# Headers of a refused turn that are passed on in its error event.
RELAYED_HEADERS = ("x-", "ratelimit", "retry-after")
NO_STEERING = "Responses cannot be steered; send the input in the next response.create."
NO_END = "The response ended early; send it again."


class ClientFrame(Struct):
    """A caller's message, as far as it does not belong to the request."""

    type: str = ""
    stream_id: str | None = None
    generate: bool | None = None
    previous_response_id: str | None = None
    input: Raw = Raw(b"null")  # it belongs to the request, and may be large

    @property
    def stream(self) -> str:
        """Return the stream of the turn, "" for the unnamed one."""
        return self.stream_id or ""


FRAME = Decoder(ClientFrame)


def read(text: bytes) -> ClientFrame:
    """Return a caller's message. InvalidRequest for anything but a known event."""
    frame: ClientFrame = decode_json(FRAME, text)
    if frame.type not in (CREATE, STEER, ACKNOWLEDGEMENT):
        raise InvalidRequest(f"'type' must be {CREATE}; send one JSON object for each response.", param="type")
    if frame.stream_id is not None and not STREAM_ID.fullmatch(frame.stream_id):
        raise InvalidRequest(
            "'stream_id' has 1 to 256 letters, digits, underscores, hyphens and periods.", param="stream_id"
        )
    return frame


def write_error(error: GatewayError, stream: str = "") -> str:
    """Return an error event."""
    body = openai.error_body(error)["error"]
    headers = {name.lower(): value for name, value in retry_headers(error)}
    return _write_error(body, error.status, headers, stream)


def write_refusal(body: bytes, status: int, headers: list[tuple[str, str]], stream: str) -> str:
    """Return the error event of a turn that was refused or failed before its first event, from its HTTP response."""
    passed_on = {name.lower(): value for name, value in headers if name.lower().startswith(RELAYED_HEADERS)}
    return _write_error(orjson.loads(body)["error"], status, passed_on, stream)


def write_steer_failure(frame: ClientFrame) -> str:
    """Return the event that rejects steering, with the input as the caller sent it."""
    error = {"type": "invalid_request_error", "code": "steering_not_supported", "message": NO_STEERING}
    steer = {"previous_response_id": frame.previous_response_id or "", "input": orjson.Fragment(bytes(frame.input))}
    event = {"type": "response.steer.failed", "sequence_number": 0, "error": error, "steer": steer}
    return orjson.dumps(event).decode()


class TurnEvents:
    """Converts the server-sent events of one turn to messages, of which exactly one is terminal: events that
    follow it are dropped, because the next turn would read them."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        # A stream id consists of characters that JSON does not escape.
        self._suffix = b',"stream_id":"%b"}' % stream.encode() if stream else b"}"
        self._ended = False

    def read(self, frames: bytes) -> Iterator[str]:
        """Yield the messages of some frames; comments, which keep a connection alive, are dropped."""
        for frame in frames.split(b"\n\n"):
            head, _, data = frame.partition(DATA)
            name = head.removeprefix(EVENT)
            if data and not self._ended:
                self._ended = name in TERMINAL
                yield (data[:-1] + self._suffix).decode()

    def close(self) -> str:
        """Return the error event of a stream without a terminal event; "" when there was one."""
        if self._ended:
            return ""
        return write_error(Internal(NO_END), self._stream)


def _write_error(body: Mapping[str, Any], status: int, headers: dict[str, str], stream: str) -> str:
    details = {**body, "param": body.get("param") or None, "headers": headers}
    event: dict[str, Any] = {"type": "error", "status": status, "error": details}
    if stream:
        event["stream_id"] = stream
    return orjson.dumps(event).decode()
