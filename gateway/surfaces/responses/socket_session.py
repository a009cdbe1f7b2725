"""A WebSocket at GET /v1/responses: reads the caller's messages and runs their turns, those of one stream in order and
those of several streams at once."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from gateway.clock import Clock
from gateway.engine.realtime.session import CallerSocket
from gateway.engine.realtime.watched_session import WatchedLink, WatchedSession
from gateway.errors import GatewayError, Gone, Internal, InvalidRequest, RateLimited
from gateway.runtime.byte_budget import ByteBudget, HeldBytes
from gateway.runtime.disconnects import CallerGone, dismiss
from gateway.runtime.threads import compute_if, hold, later, spawn
from gateway.surfaces import caps
from gateway.surfaces.http_responses import OUR_FAULT
from gateway.surfaces.responses import socket_frames
from gateway.surfaces.responses.socket_frames import ClientFrame
from gateway.surfaces.responses.socket_memory import SocketMemory
from gateway.surfaces.responses.socket_turns import EventSender
from gateway.transport.handshakes import FAULT, GOING_AWAY, POLICY, SocketClosed

log = logging.getLogger("gateway")

CLOSE_TIMEOUT_S = 2.0  # how long a caller may take to answer a close frame
SETTLE_TIMEOUT_S = 1.0  # how long turns that are ended may take to settle
# As of the original API: openai.com, guide "WebSocket mode", read in November 2026.
MAX_RUNNING = 16
MAX_STREAMS = 32
MAX_WAITING = 32
RESTARTING = "The server is restarting; connect again."


class SocketWatch(Struct, frozen=True):
    """The conditions under which a socket stays open.

    `check` raises when its credential is no longer valid; `leaving` returns whether the worker shuts down; `longest_s`
    is the longest duration; `running` are the sockets of the worker.
    """

    check: Callable[[], object]
    leaving: Callable[[], bool]
    longest_s: float
    running: set[object]
    clock: Clock


@dataclass(slots=True)
class _Stream:
    """The waiting turns of one stream, and the greenlet of the current one."""

    waiting: deque[tuple[ClientFrame, bytes, HeldBytes]] = field(default_factory=deque)
    running: Any = None


class SocketSession(WatchedSession):
    """An open socket. `run` serves it until either side ends it. `serve` runs one turn and sends its events."""

    def __init__(
        self,
        serve: Callable[[EventSender, ClientFrame, bytes], None],
        memory: SocketMemory,
        watch: SocketWatch,
    ) -> None:
        self._serve = serve
        self._memory = memory
        self._budget: ByteBudget = memory.budget
        self._watch = watch
        self._streams: dict[str, _Stream] = {}
        self._ended = False  # further messages of the caller are ignored
        self._began = watch.clock.monotonic()
        self._socket: CallerSocket  # set by `run`

    def run(self, socket: CallerSocket) -> None:
        """Serve until the end. When this returns, each turn is settled, or is read on for its usage."""
        self._watch.running.add(self)
        self._socket = socket
        ticker = spawn(self._watch_links, self._watch.clock, self._began, [socket])
        try:
            while self._receive(socket):
                pass
            socket.linger()
        except SocketClosed:
            pass
        finally:
            self._watch.running.discard(self)
            self._ended = True
            ticker.kill(block=False)
            socket.close(GOING_AWAY)  # unless a close frame was already sent
            socket.abort()
            self._end_turns()
            self._memory.close()

    # Messages.

    def _receive(self, socket: CallerSocket) -> bool:
        """Take the next message; returns whether the connection continues. No variable of `run` holds the message while
        the connection waits for another one: it may have megabytes, and nothing counts them any more."""
        text = socket.receive()
        if text is not None and not self._ended:
            self._take(socket, text.encode())
        return text is not None

    def _take(self, socket: CallerSocket, text: bytes) -> None:
        """Queue the turn of a message, or answer it."""
        stream = ""
        try:
            frame = compute_if(len(text) >= caps.LARGE, socket_frames.read, text)
            stream = frame.stream
            if frame.type == socket_frames.CREATE:
                self._add(socket, frame, text)
            elif frame.type == socket_frames.STEER:
                socket.send(socket_frames.write_steer_failure(frame))
        except GatewayError as error:
            socket.send(socket_frames.write_error(error, stream))

    def _add(self, socket: CallerSocket, frame: ClientFrame, text: bytes) -> None:
        name = frame.stream
        if name not in self._streams and len(self._streams.keys() | {""}) > MAX_STREAMS and name:
            text_of_limit = f"A connection has at most {MAX_STREAMS} streams; use one of them, or open another."
            raise InvalidRequest(text_of_limit, param="stream_id", code="websocket_stream_limit_reached")
        if sum(len(stream.waiting) for stream in self._streams.values()) >= MAX_WAITING:
            text_of_limit = f"At most {MAX_WAITING} responses may wait on a connection; wait for one to end."
            raise RateLimited(text_of_limit, code="websocket_queue_full", retry_after=1.0)
        held = HeldBytes(self._budget, self._memory.owner)
        held.grow(len(text))
        self._streams.setdefault(name, _Stream()).waiting.append((frame, text, held))
        self._start(socket)

    def _start(self, socket: CallerSocket) -> None:
        """Start the next turns, unless the socket ends."""
        if self._ended or self._watch.leaving() or self._is_over():
            return
        for stream in self._streams.values():
            if stream.waiting and stream.running is None and self._busy() < MAX_RUNNING:
                stream.running = spawn(self._run_turn, socket, stream)

    def _busy(self) -> int:
        return sum(stream.running is not None for stream in self._streams.values())

    def _run_turn(self, socket: CallerSocket, stream: _Stream) -> None:
        frame, text, held = stream.waiting.popleft()
        hold(held)
        try:
            self._serve(socket, frame, text)
        except SocketClosed:
            socket.abort()  # the connection's own greenlet notices it too
        except Exception:
            log.exception("a turn of a WebSocket failed")
            self._end(socket, Internal(OUR_FAULT))
        finally:
            hold(None)
            held.release()
            stream.running = None
            self._start(socket)

    # Timeouts.

    def _check(self, now: float) -> None:
        watch = self._watch
        if self._busy():
            return  # a turn is finished in any case
        if watch.leaving():
            self._end(self._socket, None, RESTARTING)
            return
        if self._is_over():
            text = f"A connection lasts at most {watch.longest_s:g} seconds: open another one."
            raise Gone(text, code="websocket_connection_limit_reached", status=400)
        watch.check()

    def _fail(self, error: GatewayError) -> None:
        self._end(self._socket, error)

    def _end_silent(self, link: WatchedLink) -> None:
        self._end(self._socket, None, "Nothing was received.")

    def _is_over(self) -> bool:
        """Return whether the connection has lasted as long as it may."""
        longest_s = self._watch.longest_s
        return 0 < longest_s <= self._watch.clock.monotonic() - self._began

    # The end.

    def _end(self, socket: CallerSocket, error: GatewayError | None, reason: str = "") -> None:
        """Send the reason why the connection ends; only the first call has an effect."""
        if self._ended:
            return
        self._ended = True
        code = GOING_AWAY
        if error is not None:
            code = FAULT if error.status >= 500 else POLICY
            reason = error.code
            try:
                socket.send(socket_frames.write_error(error))
            except SocketClosed:
                pass
        socket.close(code, reason)
        later(CLOSE_TIMEOUT_S, socket.abort)  # give the caller a moment to read the last messages and answer

    def _end_turns(self) -> None:
        """End all turns as after a disconnect: those that must be paid are read on for their usage."""
        ending = []
        for stream in self._streams.values():
            for _, _, held in stream.waiting:
                held.release()
            stream.waiting.clear()
            if stream.running is not None and not dismiss(stream.running, CallerGone()):
                ending.append(stream.running)
        for greenlet in ending:
            greenlet.join(SETTLE_TIMEOUT_S)
