"""Turns of a Responses WebSocket: each is a separate request to the same handler as POST /v1/responses."""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Protocol

import orjson
from msgspec import Raw, Struct
from msgspec.json import Decoder

from gateway.dialects import openai
from gateway.errors import GatewayError, Internal, InvalidRequest
from gateway.surfaces.bodies.validation_errors import decode_json
from gateway.surfaces.responses.response_creation import SocketTurn, create
from gateway.surfaces.responses.socket_memory import SocketMemory, TurnMemory
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.http import Inbound, Operation
from gateway.surfaces.web.http_responses import retry_headers
from gateway.surfaces.web.operation_guard import guard
from gateway.worker.services import Services

# Messages of a Responses WebSocket: what callers send, and the events that they receive.
#
# Format: openai/types/responses of the OpenAI SDK (responses_client_event.py, responses_server_event.py): one JSON
# object a message. The events are those of a streamed response, with the `stream_id` of their turn.

CREATE_EVENT = "response.create"
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


def read_frame(text: bytes) -> ClientFrame:
    """Return a caller's message. InvalidRequest for anything but a known event."""
    frame: ClientFrame = decode_json(FRAME, text)
    if frame.type not in (CREATE_EVENT, STEER, ACKNOWLEDGEMENT):
        raise InvalidRequest(f"'type' must be {CREATE_EVENT}; send one JSON object for each response.", param="type")
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


PATH = "/v1/responses"
TURN_PATH = f"{PATH} (response)"  # of turns in logs and metrics
# Headers of the handshake that do not apply to its turns. An idempotency key or a request id would be the same for all.
OF_THE_HANDSHAKE = frozenset(
    ("upgrade", "connection", "content-length", "content-encoding", "idempotency-key", "x-request-id")
)
SOCKET_HEADERS = "sec-websocket-"


class EventSender(Protocol):
    """The sending side of a caller's socket. SocketClosed when the caller disconnected."""

    def send(self, text: str) -> None: ...


class SocketTurns:
    """Runs the turns of one socket with the headers of its handshake and its credential."""

    def __init__(self, services: Services, handshake: Inbound, token: str, memory: SocketMemory) -> None:
        self._services = services
        self._handshake = handshake
        self._headers = headers_of_turns(handshake.headers, token)
        self._memory = memory

    def run(self, socket: EventSender, frame: ClientFrame, body: bytes) -> None:
        """Serve one turn and send its events. SocketClosed when the caller disconnected."""
        services = self._services
        memory = TurnMemory(self._memory, frame.stream, services.engine.responses)
        turn = SocketTurn(memory, frame.generate is not False)
        operation = Operation(
            "GET", TURN_PATH, partial(create, turn=turn), errors=http_responses_module.OPENAI, paid=True, upgrades=True
        )
        outbound = guard(services, operation)(self._arrival(body))
        frames = outbound.body
        if isinstance(frames, bytes):
            socket.send(write_refusal(frames, outbound.status, outbound.headers, frame.stream))
            return
        events = TurnEvents(frame.stream)
        try:
            for piece in frames:
                for text in events.read(piece):
                    socket.send(text)
            if rest := events.close():
                socket.send(rest)
        finally:
            close = getattr(frames, "close", None)
            if close is not None:
                close()

    def _arrival(self, body: bytes) -> Inbound:
        handshake = self._handshake
        return Inbound("POST", PATH, dict(self._headers), body, peer=handshake.peer, base_url=handshake.base_url)


def headers_of_turns(headers: Mapping[str, str], token: str) -> dict[str, str]:
    """Return the headers of each turn: those of the handshake that are about the caller."""
    kept = {
        name: value
        for name, value in headers.items()
        if name not in OF_THE_HANDSHAKE and not name.startswith(SOCKET_HEADERS)
    }
    return kept | {"authorization": f"Bearer {token}", "content-type": "application/json"}
