"""A connection to an upstream: a socket with its HTTP parser, which resumes the TLS session of its origin."""

import math
from collections.abc import Callable
from itertools import repeat
from typing import Any, Protocol

import httptools
from gevent import get_hub, getcurrent
from gevent import socket as sockets
from gevent.monkey import get_original
from gevent.socket import IPPROTO_TCP, TCP_NODELAY, socket
from gevent.ssl import SSLContext, SSLSocket, SSLWantReadError, SSLWantWriteError

from gateway.errors import UpstreamFailed
from gateway.runtime.loop_turns import bulk_turn
from gateway.runtime.send_batch import QueuedSends

# The TLS session of an origin: new connections resume it, which saves the certificates and their check.

# Certificates are checked again after this time.
VERIFICATION_LIFETIME_S = 3600.0


class TlsSession:
    """The session of the last full handshake with one origin. `now` returns monotonic seconds."""

    __slots__ = ("_now", "_session", "_verified_at")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._session: Any = None
        self._verified_at = 0.0

    def secure(self, sock: Any, tls: SSLContext, host: str) -> SSLSocket:
        """Return the socket after a handshake with `host`, always with the same `tls` and host. OSError."""
        if self._now() >= self._verified_at + VERIFICATION_LIFETIME_S:
            self._session = None
        return tls.wrap_socket(sock, server_hostname=host, session=self._session)

    def keep(self, sock: SSLSocket) -> None:
        """Keep the session of a connection that received a response: TLS 1.3 sends tickets after the handshake.

        That of a resumed one is not kept: copying it costs a tenth of the handshake.
        """
        if not sock.session_reused:
            self._verified_at = self._now()
            self._session = sock.session


# The header fields of a response, parsed from its head only when they are needed.

HEAD_END = b"\r\n\r\n"
WHITESPACE = " \t"


def read_fields(received: bytes) -> dict[str, str]:
    """Return the fields of the head at the start of `received`, by lower-case name, repeated ones joined (RFC 9110,
    section 5.2).

    The parser has accepted the head and refuses lone line ends, folded lines and blanks before a colon (RFC 9112,
    section 5), so each line is a field.
    """
    lines = received[: received.find(HEAD_END)].decode("latin-1").split("\r\n")[1:]
    if not lines:
        return {}
    # All lines at once, since a response may have thirty fields.
    names, _, texts = zip(*map(str.partition, lines, repeat(":")), strict=True)
    keys = "\n".join(names).lower().split("\n")
    values = list(map(str.strip, texts, repeat(WHITESPACE)))
    headers = dict(zip(keys, values, strict=True))
    if len(headers) == len(keys):
        return headers
    return _join_repeated(keys, values)


def _join_repeated(keys: list[str], values: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for key, text in zip(keys, values, strict=True):
        if key in headers:
            headers[key] = f"{headers[key]}, {text}"
        else:
            headers[key] = text
    return headers


RECEIVE_BYTES = 65536
# After a full receive: each receive waits for a turn of the event loop, which is long under load.
FURTHER_BYTES = 262_144
# After a receive with chunks of a few bytes: each costs a call of the parser, so that 20 such streams with full
# receives would keep the event loop busy for a tenth of a second.
SMALL_BYTES = 8_192
MIN_CHUNK_BYTES = 64  # on average
NOISE_LIMIT = 65536  # consecutive bytes without a complete head or body: heads, trailers, chunk extensions
POLLIN = READ = 1
NO_DEADLINE = math.inf
MIN_TIMEOUT_S = 0.001
QUICKACK = getattr(sockets, "TCP_QUICKACK", 0)  # Linux
TIMED_OUT = object()
# A readable socket without data: a false alarm, or a TLS record without content.
WOULD_BLOCK = (BlockingIOError, SSLWantReadError, SSLWantWriteError)

# The original poll: a query of one descriptor that never waits needs no event loop.
original_poll = get_original("select", "poll")


class Lender(Protocol):
    """The pool that a connection is borrowed from (client.py)."""

    def take_back(self, connection: "UpstreamConnection") -> None: ...
    def drop(self, connection: "UpstreamConnection | None") -> None: ...


class UpstreamConnection:
    """A socket to an upstream, and the state of the response on it.

    The parser (httptools over llhttp) calls the `on_…` methods. `status` is 0 until the final head has arrived, with
    which `received` then begins. `done`: the response is complete; `keep`: another request may follow it; `lost`: the
    peer closed; `pieces`: body bytes not yet taken; `further`: bytes that arrived after the receive with the head, with
    the framing of chunks. `poll(0)` of an idle connection reports waiting data or an end,
    which make it unusable; while it is `watched`, the event loop has noticed neither. `since` is when its pool received
    it back (0.0 during its first request), `idle_s` for how long it is usable from then on. `now` returns monotonic
    seconds.
    """

    __slots__ = (
        "_alarm",
        "_bodiless",
        "_loop",
        "_maximum",
        "_noise",
        "_now",
        "_parser",
        "_queued",
        "_readable",
        "_receive",
        "_rings_at",
        "_send_s",
        "_sock",
        "_switch",
        "_until",
        "_waiting",
        "done",
        "further",
        "host",
        "idle_s",
        "keep",
        "lost",
        "on_body",
        "pieces",
        "poll",
        "pool",
        "received",
        "send_now",
        "since",
        "status",
        "watched",
    )  # fmt: skip

    def __init__(self, sock: socket, host: str, pool: Lender, now: Callable[[], float]) -> None:
        sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        sock.settimeout(0.0)  # waiting is implemented here, without a timer per receive
        self._sock = sock
        # Without TLS the C functions are called directly.
        secure = isinstance(sock, SSLSocket)
        direct = sock if secure else sock._sock
        self._receive = direct.recv
        self.send_now = direct.send
        self._queued = QueuedSends(self, batched=not secure)
        self._send_s = 0.0
        hub = get_hub()
        self._loop = hub.loop
        self._switch = hub.switch
        self._now = now
        self._readable = self._loop.io(sock.fileno(), READ)
        self.watched = False
        self._waiting: Any = None
        self._alarm: Any = None
        self._rings_at = NO_DEADLINE
        self._until = 0.0
        poll = original_poll()
        poll.register(sock.fileno(), POLLIN)
        self.poll = poll.poll
        self.host = host
        self.pool = pool
        self.since = self.idle_s = 0.0
        self.status = self._noise = self.further = 0
        self.received = b""
        self._maximum = RECEIVE_BYTES
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append  # called for each chunk, so a bound C method instead of a frame of ours
        self._bodiless = self.done = self.keep = self.lost = False
        self._parser: Any = httptools.HttpResponseParser(self)

    @property
    def has_no_bytes(self) -> bool:
        """Whether no byte of a response has arrived."""
        return not self.status and not self._noise

    def send(self, message: bytes, bodiless: bool, seconds: float) -> bool:
        """Reset the connection and send a request; `bodiless`: its method means a response without a body.

        False when no byte was sent; TimeoutError after `seconds`. A peer that stops reading halfway may have responded,
        so the reading side reports that error. If other greenlets are ready, a short request is sent together with
        theirs, and the reading side reports every error of it.
        """
        self.status = 0
        self.done = False
        self._bodiless = bodiless
        self.received = b""
        self._maximum = RECEIVE_BYTES
        self.pieces.clear()
        self._send_s = seconds
        if self._queued.take(message):
            return True
        try:
            sent = self.send_now(message)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        if sent < len(message):
            self._send_all(memoryview(message)[sent:])
        return True

    def send_more(self, piece: bytes | memoryview, seconds: float) -> bool:
        """Send a piece of the body after its head; TimeoutError after `seconds`. False when the peer has stopped
        reading."""
        self._queued.finish()
        self._send_s = seconds
        try:
            sent = self.send_now(piece)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        return sent == len(piece) or self._send_all(memoryview(piece)[sent:])

    def receive(self, until: float) -> bool:
        """Wait for one receive; an end sets `lost`, or `done` when it delimits the response.

        False when nothing arrived before `until` (monotonic), UpstreamFailed for data that is not HTTP/1.x. Other
        greenlets always run meanwhile, so that a fast stream cannot starve them.
        """
        # A receive before the wait would nearly always fail.
        if until < self._rings_at:
            self._set_alarm(until)
        self._until = until
        if not self.watched:
            self.watched = True
            self._readable.start(self._wake)
        self._waiting = getcurrent()
        try:
            while (result := self._switch()) is not self:  # a switch from elsewhere is not meant for this wait
                if result is TIMED_OUT:
                    return False
        except BaseException:
            self._waiting = None
            raise
        try:
            data: bytes | None = self._receive(self._maximum)
        except WOULD_BLOCK:
            data = self._receive_slowly()
        except OSError:
            self.lost = True
            return True
        if data is None:
            return False
        full = len(data) == self._maximum
        self._take_in(data)
        if full:
            self._adapt(len(data))
        return True

    def send_rest(self, rest: memoryview) -> None:
        """Send the rest of a message, waiting for the peer. OSError, TimeoutError."""
        self._sock.settimeout(self._send_s)
        self._sock.sendall(rest)
        self._sock.settimeout(0.0)

    def fail(self) -> None:
        """Let the reading side find the connection lost."""
        self._receive = _refuse
        if self._waiting is not None:
            self._loop.run_callback(self._wake)

    def acknowledge(self) -> None:
        """Acknowledge received data at once.

        A peer without TCP_NODELAY that sends a head alone sends the body after the acknowledgement, which the kernel
        delays by 40 ms.
        """
        if not QUICKACK:
            return
        try:
            self._sock.setsockopt(IPPROTO_TCP, QUICKACK, 1)
        except OSError:
            pass  # the next receive reports what is wrong with the connection

    def parse_arrived(self) -> None:
        """Parse data that has already arrived, without waiting."""
        try:
            self._take_in(self._receive(RECEIVE_BYTES))
        except (OSError, UpstreamFailed):
            return

    def take(self) -> bytes:
        """Return the received body bytes, joined."""
        data = b"".join(self.pieces)
        self.pieces.clear()
        return data

    def keep_session(self, tls_session: TlsSession) -> None:
        """Let the next connections of the pool resume the TLS session of this one, which received a response."""
        if isinstance(self._sock, SSLSocket):
            tls_session.keep(self._sock)

    def close(self) -> None:
        """Close the connection; a greenlet that waits for its response finds it lost."""
        self._parser = None  # breaks a reference cycle, which only the garbage collector would free
        self.keep = False
        self._receive = self.send_now = _refuse
        self._queued.close()
        self._readable.close()
        self.watched = False
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None
            self._rings_at = NO_DEADLINE
        if self._waiting is not None:
            self._loop.run_callback(self._wake)
        self._sock.close()

    def _wake(self) -> None:
        """Resume the waiting greenlet, since data can be received. Called in the hub."""
        waiting = self._waiting
        self._waiting = None
        if waiting is not None:
            waiting.switch(self)
        elif self.watched:
            # No greenlet reads: the pending data would call this again at once, endlessly.
            self.watched = False
            self._readable.stop()

    def _set_alarm(self, at: float) -> None:
        """Start the one timer that serves all waits; later requests postpone it without a restart."""
        if self._alarm is not None:
            self._alarm.close()
        self._alarm = self._loop.timer(max(at - self._now(), 0.0))
        self._alarm.start(self._on_alarm, update=True)
        self._rings_at = at

    def _on_alarm(self) -> None:
        """Handle the alarm, which may have been set for an earlier wait. Called in the hub."""
        self._rings_at = NO_DEADLINE
        if self._waiting is None:
            return
        if self._now() < self._until:
            self._set_alarm(self._until)
            return
        waiting = self._waiting
        self._waiting = None
        # Data that arrived while this process could not run was in time.
        waiting.switch(self if self.poll(0) else TIMED_OUT)

    def _send_all(self, rest: memoryview) -> bool:
        """Send the rest; returns whether the peer took all of it. TimeoutError."""
        try:
            self.send_rest(rest)
        except TimeoutError:
            raise
        except OSError:
            return False
        return True

    def _receive_slowly(self) -> bytes | None:
        """Receive with gevent's waiting, which handles what TLS needs; None after the timeout."""
        self._sock.settimeout(max(self._until - self._now(), MIN_TIMEOUT_S))
        try:
            received: bytes = self._sock.recv(RECEIVE_BYTES)
            return received
        except OSError as error:
            # The operating system's timeout of a connection has a number; gevent's has none.
            if isinstance(error, TimeoutError) and error.errno is None:
                return None
            return b""
        finally:
            self._sock.settimeout(0.0)

    def _adapt(self, size: int) -> None:
        """Choose the size of the next receive after a full one, and wait for a turn where chunks are tiny."""
        if len(self.pieces) * MIN_CHUNK_BYTES > size:
            self._maximum = SMALL_BYTES
            bulk_turn()
        else:
            self._maximum = FURTHER_BYTES

    def _take_in(self, data: bytes) -> None:
        if not data:
            self.keep = False
            self.done = self._ends_by_close()
            self.lost = not self.done
            return
        if self.status:
            self.further += len(data)
        # The parser ignores empty lines before a head.
        elif self.received:
            self.received = self.received + data
        else:
            self.received = data.lstrip(b"\r\n")
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.keep = False
            if not self.done:
                raise UpstreamFailed(f"{self.host} did not answer in valid HTTP.") from None
        if self.pieces or self.done:
            self._noise = 0
            return
        self._noise += len(data)
        if self._noise > NOISE_LIMIT:
            raise UpstreamFailed(f"{self.host} answered with headers larger than {NOISE_LIMIT} bytes.")

    def _ends_by_close(self) -> bool:
        """Return whether the end of the connection is the end of the response (RFC 9112, section 6.3)."""
        if not self.status:
            return False
        headers = read_fields(self.received)
        coding = headers.get("transfer-encoding", "").lower()
        return not coding.endswith("chunked") and (bool(coding) or "content-length" not in headers)

    def on_message_begin(self) -> None:
        if self.done:
            # Bytes after a complete response belong to no known request. The parser fills a list that nothing reads.
            self.keep = False
            self.pieces = self.pieces.copy()

    def on_headers_complete(self) -> None:
        if self.done:
            return
        status = self._parser.get_status_code()
        if status < 200:
            # An interim response has no body (RFC 9112, section 6.3), so the next head follows.
            self.received = self.received.partition(HEAD_END)[2].lstrip(b"\r\n")
            return
        self.status = status
        self.further = 0
        self._noise = -RECEIVE_BYTES  # the receive that contained the head does not count
        if self._bodiless:
            self.done = True
            self.keep = False
            self.pieces = []

    def on_message_complete(self) -> None:
        if self.status and not self.done:
            self.done = True
            self.keep = self._parser.should_keep_alive()


def _refuse(_: object) -> Any:
    """Stand in for the socket's functions after the connection was closed."""
    raise ConnectionAbortedError
