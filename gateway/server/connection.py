"""A caller's connection: buffered reading, sending without timers, the state for timeouts, and the state that all
connections of a worker share."""

import fcntl
import socket
import struct
import termios
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from email.utils import formatdate
from typing import Any

import gevent
from gevent import GreenletExit

from gateway.clock import SECOND_US, Clock
from gateway.errors import InvalidRequest
from gateway.runtime.loop_turns import bulk_turn
from gateway.runtime.send_batch import QueuedSends
from gateway.runtime.threads import compute_if
from gateway.server.http1 import MAX_DIGITS, malformed, timeout_error
from gateway.surfaces.web.wsgi import FREE_BODY

# The state that all connections of a worker share: its clock tick, and the exceptions that end a request.


class ClientGone(GreenletExit):
    """Ends the greenlet of a request after its caller disconnected; `except Exception` does not catch it."""


class ServerStopping(GreenletExit):
    """Ends the greenlet of a request that outlasted the worker's grace period."""


class WorkerState:
    """The values that every connection reads without a call: the tick, the Date header line, and whether the worker
    shuts down."""

    __slots__ = ("_clock", "_second", "date", "leaving", "tick")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = -1
        self.tick = 0
        self.leaving = False
        self.date = ""
        self.advance()

    def advance(self) -> None:
        """Advance by one tick and update the date; ticks start at 1."""
        self.tick += 1
        second = self._clock.now_us() // SECOND_US
        if second != self._second:
            self._second = second
            self.date = f"Date: {formatdate(second, usegmt=True)}"


# Measures how fast a caller reads a response, from the bytes that its system acknowledged.

INTEGER = struct.Struct("i")


class SendProgress:
    """The waits for one caller to read more of one response, in ticks. `moved` is the tick of the last progress."""

    __slots__ = ("_given", "_seen", "_since", "_socket", "_taken", "_waited", "moved")

    def __init__(self, sock: int) -> None:
        self._socket = sock  # file descriptor
        self.moved = self._since = self._waited = 0
        self._taken = self._given = self._seen = 0

    def begin(self, tick: int) -> None:
        """Begin a wait: the kernel's buffer is full of data that the caller has not acknowledged."""
        self.moved = self._since = tick
        self._given = queued(self._socket)
        self._seen = 0

    def give(self, size: int) -> None:
        """Count `size` more bytes that were passed to the kernel."""
        self._given += size

    def end(self, tick: int) -> None:
        """End a wait: the kernel has accepted everything."""
        self._look(tick)
        self._taken += self._seen
        self._waited += tick - self._since
        self._since = self._seen = 0

    def is_too_slow(self, tick: int, patience: int, rate: float) -> bool:
        """Return whether the caller read nothing for `patience` ticks, or less than `rate` bytes per tick over the
        total wait beyond that patience."""
        if not self._since:
            return False
        self._look(tick)
        if tick - self.moved > patience:
            return True
        waited = self._waited + tick - self._since
        return waited > patience + (self._taken + self._seen) / rate

    def _look(self, tick: int) -> None:
        taken = self._given - queued(self._socket)
        if taken > self._seen:
            self._seen = taken
            self.moved = tick


def queued(sock: int) -> int:
    """Return the bytes that the kernel holds until the peer acknowledges them; 0 where this is not reported."""
    try:
        return int(INTEGER.unpack(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(INTEGER.size)))[0])
    except OSError:
        return 0


IDLE, READING, ANSWERING, LEFT = range(4)
READ = 1  # the event loop's flag for readable sockets
RECEIVE_BYTES = 65_536
BODY_RECEIVE_BYTES = 262_144
HEAD_BYTES = 65_536
# A TLS socket with data waiting never yields, so after this many receives other greenlets get a turn.
RECEIVES_PER_TURN = 16
KEPT_BYTES = 4_096  # bytes of a received head or body that may stay in the buffer
LONG_BYTES = 1 << 20  # a body of this size is joined in a thread
SLICE_BYTES = 1 << 18  # the most bytes passed to the kernel at once
LINGER_TIMEOUT_S = 2.0
LAST_SEND_TIMEOUT_S = 60.0  # for a caller that reads the end of its last response slowly
LINGER_BYTES = 64 * 1024 * 1024


class CallerConnection:
    """A client socket with its read buffer.

    `since` is the tick at which its phase began, and `received` counts the bytes of the current request since then.
    `progress` measures how fast the caller reads the response. `head` is the last request's head, since the next one is
    often the same. `weigh` is called with the bytes held for a request without a known owner, `hold` with the bytes of
    a long response while it is sent; both may refuse them (Overloaded).
    """

    __slots__ = (
        *("socket", "peer", "greenlet", "state", "peekable", "phase", "since", "received", "progress"),
        *("expired", "killed", "head", "_buffer", "_at"),
        *("_queued", "_readable", "_recv", "_switch", "_waiting", "_watched", "send_now"),
        *("_receives", "_weigh", "_held", "_hold_answer"),
    )

    def __init__(
        self,
        sock: Any,
        peer: Any,
        state: WorkerState,
        peekable: bool = True,
        weigh: Callable[[int], object] = int,
        hold: Callable[[int], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.socket = sock
        self.peer = peer
        self.greenlet = gevent.getcurrent()
        self.state = state
        self.peekable = peekable
        self.phase = IDLE
        self.since = state.tick
        self.received = 0
        self.progress: SendProgress | None = None
        self._weigh = weigh
        self._held = 0
        self._hold_answer = hold
        self.expired = False
        self.killed = False
        self.head: Any = None
        self._buffer = b""
        self._at = 0
        self._receives = 0
        # Without TLS the C functions are called directly; a TLS layer may hold bytes that no poll reports.
        if peekable:
            self.send_now = sock._sock.send
            self._recv: Callable[[int], bytes] | None = sock._sock.recv
        else:
            self.send_now = sock.send
            self._recv = None
        self._queued = QueuedSends(self, batched=peekable)
        hub = gevent.get_hub()
        self._switch = hub.switch
        self._readable: Any = hub.loop.io(sock.fileno(), READ) if peekable else None
        self._watched = False
        self._waiting: Any = None

    def wait(self) -> None:
        """Enter the idle phase between two requests."""
        self.since = self.state.tick
        self.phase = IDLE

    def answer(self) -> None:
        """Enter the answering phase: the request is read, and a disconnect of the caller cancels it."""
        self.since = self.state.tick
        self.phase = ANSWERING
        self.progress = None

    def leave(self) -> None:
        """Discard further output: the caller disconnected, and the request continues without it."""
        self.phase = LEFT
        self.fail()

    @property
    def surplus(self) -> bool:
        """Whether received bytes are still unread."""
        return self._at < len(self._buffer)

    def take_repeated(self, before: bytes, after: bytes) -> int:
        """Consume a head of `before`, the digits of a length and `after`, and return the length.

        Returns -1 and consumes nothing when the next head differs or is incomplete, or the caller disconnected.
        """
        buffer = self._buffer
        at = self._at
        if at == len(buffer):
            buffer = self._receive_some(RECEIVE_BYTES)
            at = 0
            self._buffer = buffer
            self._at = 0
        if not buffer.startswith(before, at):
            return -1
        start = at + len(before)
        end = buffer.find(after, start, start + MAX_DIGITS + len(after))
        digits = buffer[start:end]
        if end < 0 or not digits.isdigit():
            return -1
        self._at = end + len(after)
        return int(digits)

    def take_head(self) -> bytes | None:
        """Return the next request head with its blank line, None when the caller disconnected. InvalidRequest: 408,
        431."""
        searched = 0
        if self._at == len(self._buffer) and not self._receive():
            return None
        while True:
            buffer = self._buffer
            if buffer.startswith(b"\r\n", self._at):
                self._skip_blank_lines()
            at = self._at
            end = buffer.find(b"\r\n\r\n", max(at, searched - 3) if searched else at)
            size = (end if end >= 0 else len(buffer)) - at
            if size > HEAD_BYTES:
                raise InvalidRequest("The request head is too large.", code="headers_too_large", status=431)
            if end >= 0:
                self._hold(0)
                self._at = end + 4
                if size > KEPT_BYTES:  # else it would be held until the next request
                    self._buffer = buffer[end + 4 :]
                    self._at = 0
                return buffer[at : end + 4]
            if self.phase == IDLE and self.surplus:
                self._begin_reading()
            searched = len(buffer) - at
            self._hold(searched)
            if not self._receive():
                self._end_head()
                return None

    def take(self, size: int) -> bytes:
        """Return exactly `size` bytes."""
        end = self._at + size
        if end <= len(self._buffer):
            data = self._buffer[self._at : end]
            if size < KEPT_BYTES:
                self._at = end
            else:
                self._buffer = self._buffer[end:]  # else it would be held until the next request
                self._at = 0
            return data
        parts = [self._buffer[self._at :]]
        missing = end - len(self._buffer)
        self._buffer = b""
        self._at = 0
        self._hold(size if size <= FREE_BODY else 0)  # longer bodies are counted elsewhere
        while missing:
            parts.append(self._receive_body(min(missing, BODY_RECEIVE_BYTES)))
            missing -= len(parts[-1])
        self._hold(0)
        # Joining releases the interpreter, so a long body is joined in a thread.
        return compute_if(size >= LONG_BYTES, b"".join, parts)

    def take_some(self) -> bytes:
        """Return the unread bytes, or those of the next receive; b"" when the caller disconnected."""
        unread = self._buffer[self._at :]
        self._buffer = b""
        self._at = 0
        return unread or self._receive_some(RECEIVE_BYTES)

    def take_to(self, write: Callable[[bytes], object], size: int) -> None:
        """Pass exactly `size` bytes to `write` as they arrive."""
        unread = self._buffer[self._at : self._at + size]
        self._at += len(unread)
        write(unread)
        missing = size - len(unread)
        if missing:
            self._buffer = b""
            self._at = 0
        while missing:
            data = self._receive_body(min(missing, BODY_RECEIVE_BYTES))
            missing -= len(data)
            write(data)

    def take_line(self, limit: int) -> bytes:
        """Return the bytes up to the next line end, at most `limit`."""
        while True:
            end = self._buffer.find(b"\r\n", self._at)
            if end < 0 and len(self._buffer) - self._at <= limit:
                data = self._receive_body(RECEIVE_BYTES)
                self._buffer = self._buffer[self._at :] + data
                self._at = 0
                continue
            if end < 0 or end - self._at > limit:
                raise malformed("A line of the chunked body is too long.")
            line = self._buffer[self._at : end]
            self._at = end + 2
            return line

    def send(self, data: bytes) -> None:
        """Send all of `data`, usually in one call, since most responses fit into the kernel's buffer. ClientGone.

        If other greenlets are ready, short data is sent together with theirs, and the next call raises an error of it.
        """
        if self._queued.take(data):
            return
        try:
            try:
                # Given everything, the kernel would copy what fits into its buffer at once: 4 MB, in some 8 ms.
                sent = self.send_now(memoryview(data)[:SLICE_BYTES])
            except BlockingIOError:
                sent = 0
            if sent < len(data):
                self.send_rest(memoryview(data)[sent:])
        except OSError:
            # Not an application's own OSError, which would be logged as a crash.
            raise ClientGone() from None

    def send_head(self, head: bytes) -> None:
        """Send the head of a body in pieces together with the pieces of the same turn of the loop. ClientGone."""
        self._queued.open()
        self.send(head)

    def send_long(self, head: bytes, body: bytes) -> None:
        """Send a response that is too long to be copied, counted until all of it was sent. ClientGone; Overloaded
        before the first byte."""
        with self._hold_answer(len(body)):
            self.send(head)
            self.send(body)

    def linger(self) -> None:
        """Discard for a moment what the caller still sends: closing at once would reset the connection and destroy the
        response."""
        left = LINGER_BYTES
        with gevent.Timeout(LINGER_TIMEOUT_S, False):
            self.shut(socket.SHUT_WR)
            while left > 0 and (data := self.socket.recv(BODY_RECEIVE_BYTES)):
                left -= len(data)
                gevent.sleep(0)  # a receive of waiting data does not yield to other greenlets

    def close(self) -> None:
        """Close the connection; call it in the greenlet that reads."""
        self._hold(0)
        if self.killed:
            self._queued.flush()  # the error that ends its request; a killed greenlet must not wait
        else:
            self._queued.finish(LAST_SEND_TIMEOUT_S)
        self._queued.close()
        if self._readable is not None:
            self._readable.close()
        self.socket.close()

    def expire(self) -> None:
        """Shut down receiving: the reading greenlet finds the end of input and responds with 408 if necessary.

        An idle connection stays open while a request is arriving, since the rest of it could not be received.
        """
        if self.phase != IDLE or not self._peek():
            self.expired = True
            self.shut(socket.SHUT_RD)

    def fail(self) -> None:
        """Refuse further output: the caller disconnected."""
        self.send_now = _refuse

    def shut(self, how: int) -> None:
        self._queued.flush()
        try:
            # Bypasses the TLS layer's own shutdown, which would drop its state while a reader waits.
            self.socket._sock.shutdown(how)
        except OSError:
            pass

    def is_gone(self) -> bool:
        """Return whether the caller closed its side, at least for sending."""
        return self._peek() == b""

    def _peek(self) -> bytes | None:
        """Return the next received byte without consuming it: None if there is none, b"" at the end."""
        try:
            # gevent's own recv would wait; the socket beneath it is non-blocking.
            received: bytes = self.socket._sock.recv(1, socket.MSG_PEEK)
            return received
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return b""

    def send_rest(self, rest: memoryview) -> None:
        """Send the rest as fast as the caller reads, watched by the timeouts, while other greenlets run."""
        progress = self.progress = self.progress or SendProgress(self.socket.fileno())
        progress.begin(self.state.tick)
        while rest:
            sent = self.socket.send(rest[:SLICE_BYTES])
            progress.give(sent)
            rest = rest[sent:]
            bulk_turn()
        progress.end(self.state.tick)

    def _hold(self, size: int) -> None:
        """Count the bytes of an incomplete request. Overloaded when the worker holds too many of them."""
        if size != self._held:
            self._weigh(size - self._held)
            self._held = size

    def _skip_blank_lines(self) -> None:
        # RFC 9112, 2.2: blank lines before a request line are ignored.
        while self._buffer.startswith(b"\r\n", self._at):
            self._at += 2

    def _receive(self) -> bool:
        data = self._receive_some(RECEIVE_BYTES)
        if not data:
            return False
        if self._at < len(self._buffer):
            self._buffer = self._buffer[self._at :] + data
        else:
            self._buffer = data
        self._at = 0
        return True

    def _receive_body(self, maximum: int) -> bytes:
        if self.phase != READING:
            self._begin_reading()
        data = self._receive_some(maximum)
        if not data:
            if self.expired:
                raise timeout_error()
            raise ConnectionResetError("the caller disconnected in the middle of its request")
        self.received += len(data)
        return data

    def _begin_reading(self) -> None:
        """Start the timeouts of a request that has begun to arrive."""
        self.phase = READING
        self.since = self.state.tick
        self.received = 0

    def _receive_some(self, maximum: int) -> bytes:
        """Return the bytes of one receive, b"" when the caller disconnected. Other greenlets run meanwhile."""
        if self._recv is None:
            return self._receive_sealed(maximum)
        # Waits before receiving, since an immediate receive would almost always fail. One watcher serves all waits.
        if not self._watched:
            self._watched = True
            self._readable.start(self._wake)
        self._waiting = gevent.getcurrent()
        try:
            while self._switch() is not self:
                continue  # a switch from elsewhere is not meant for this wait
        except BaseException:
            self._waiting = None
            raise
        try:
            return self._recv(maximum)
        except BlockingIOError:
            received: bytes = self.socket.recv(maximum)  # a false alarm, so wait in gevent's recv
            return received

    def _wake(self) -> None:
        """Resume the waiting greenlet, since data can be received. Called in the hub."""
        waiting = self._waiting
        self._waiting = None
        if waiting is not None:
            waiting.switch(self)
            return
        # No greenlet reads: the pending data would call this again at once, endlessly.
        self._watched = False
        self._readable.stop()

    def _receive_sealed(self, maximum: int) -> bytes:
        self._receives += 1
        if self._receives >= RECEIVES_PER_TURN:
            self._receives = 0
            gevent.sleep(0)
        received: bytes = self.socket.recv(maximum)
        return received

    def _end_head(self) -> None:
        if self.expired and self.surplus:
            raise timeout_error()


def _refuse(data: bytes) -> int:
    """Stand in for the socket's `send` after the caller disconnected."""
    raise ConnectionAbortedError
