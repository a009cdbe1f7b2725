"""Turns of a Responses WebSocket: each is a separate request to the same handler as POST /v1/responses."""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from gateway.surfaces import http_responses
from gateway.surfaces.http import Inbound, Operation
from gateway.surfaces.operation_guard import guard
from gateway.surfaces.responses.response_creation import SocketTurn, create
from gateway.surfaces.responses.socket_frames import ClientFrame, TurnEvents, write_refusal
from gateway.surfaces.responses.socket_memory import SocketMemory, TurnMemory
from gateway.worker.services import Services

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
            "GET", TURN_PATH, partial(create, turn=turn), errors=http_responses.OPENAI, paid=True, upgrades=True
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
