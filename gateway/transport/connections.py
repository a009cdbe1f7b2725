"""One socket with its HTTP parser, the keep-alive pool of one origin, and the loan of a connection."""

from collections import deque
from typing import Any

import httptools
from gevent.lock import BoundedSemaphore
from gevent.monkey import get_original
from gevent.socket import IPPROTO_TCP, TCP_NODELAY, socket

from gateway.clock import Clock
from gateway.errors import UpstreamFailed, UpstreamUnreachable

RECEIVE_BYTES = 65536
NOISE_LIMIT = 65536  # bytes in a row that bring neither a head nor a body: heads, trailers, chunk extensions
POLLIN = 1

# The real poll: a question about one descriptor that never waits needs no event loop.
original_poll = get_original("select", "poll")


class Connection:
    """A socket to an upstream, and the state of the answer that it carries.

    The parser (httptools over llhttp) calls the `on_…` methods. `done` says that the answer is whole, `keep` that
    another request may follow it, `lost` that the peer closed, `pieces` holds body bytes not yet taken.
    """

    __slots__ = (
        "_bodiless", "_noise", "_parser", "_poll", "_received", "_sock", "done", "head_done", "headers", "host",
        "keep", "lost", "pieces", "status", "until_close",
    )  # fmt: skip

    def __init__(self, sock: socket, host: str) -> None:
        sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        self._sock = sock
        self._parser: Any = httptools.HttpResponseParser(self)
        self._poll = original_poll()
        self._poll.register(sock.fileno(), POLLIN)
        self.host = host
        self.begin("")

    def begin(self, method: str) -> None:
        """Forget the last answer; the next belongs to a request of `method` (an answer to HEAD has no body)."""
        self._bodiless = method == "HEAD"
        self._noise = 0
        self._received = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.head_done = self.done = self.keep = self.lost = self.until_close = False

    def is_quiet(self) -> bool:
        """Whether an idle socket is still good: data or an end waiting in it means that it is not."""
        return not self._poll.poll(0)

    @property
    def untouched(self) -> bool:
        """Whether not one byte of an answer came."""
        return not self._received

    def send(self, message: bytes, seconds: float) -> bool:
        """Send a request. False when not one byte of it left; TimeoutError after `seconds`.

        A peer that stops reading halfway may have answered already, so that is left for the reading side to tell.
        """
        sock = self._sock
        sock.settimeout(seconds)
        try:
            sent = sock.send(message)
        except TimeoutError:
            raise
        except OSError:
            return False
        if sent < len(message):
            self._send_rest(memoryview(message)[sent:])
        return True

    def _send_rest(self, rest: memoryview) -> None:
        try:
            self._sock.sendall(rest)
        except TimeoutError:
            raise
        except OSError:
            pass

    def receive(self, seconds: float) -> int:
        """Take what one receive brings and return its size; 0 sets `lost`, or `done` when the end is the frame.

        TimeoutError when nothing came in `seconds`, UpstreamFailed for what is not HTTP/1.x.
        """
        self._sock.settimeout(seconds)
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise
        except OSError:
            data, self.until_close = b"", False
        if data:
            self._received = True
            self._feed(data)
        elif self.head_done and self.until_close:
            self.done = True
        else:
            self.lost = True
        return len(data)

    def take(self) -> bytes:
        """Body bytes in hand, joined."""
        pieces = self.pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.pieces = []
        return data

    def close(self) -> None:
        self._parser = None  # it holds us: without this only the collector would free both
        self.keep = False
        self._sock.close()

    def _feed(self, data: bytes) -> None:
        before = len(self.pieces)
        headed = self.head_done
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.keep = False
            if not self.done:
                raise UpstreamFailed(f"{self.host} did not answer in valid HTTP.") from None
        if len(self.pieces) > before or headed != self.head_done:
            self._noise = 0
            return
        self._noise += len(data)
        if self._noise > NOISE_LIMIT and not self.done:
            raise UpstreamFailed(f"{self.host} answered with headers larger than {NOISE_LIMIT} bytes.")

    def on_message_begin(self) -> None:
        if self.done:
            self.keep = False  # bytes after a whole answer: whose they are cannot be known

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head_done:
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        known = self.headers.get(key)
        self.headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        if self.head_done:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self.headers = {}
            return
        self.status = status
        self.head_done = True
        coding = self.headers.get("transfer-encoding", "").lower()
        self.until_close = not coding.endswith("chunked") and (bool(coding) or "content-length" not in self.headers)
        self.done = self._bodiless

    def on_body(self, data: bytes) -> None:
        if not self.done:
            self.pieces.append(data)

    def on_message_complete(self) -> None:
        if self.head_done and not self.done:
            self.done = True
            self.keep = self._parser.should_keep_alive()


class Pool:
    """Connections to one origin: at most `size` at once, the last used given out first, old ones dropped."""

    def __init__(self, size: int, idle_size: int, idle_s: float) -> None:
        self._size = size
        self._idle_size = idle_size
        self._idle_s = idle_s
        self._slots = BoundedSemaphore(size)
        self._idle: deque[tuple[float, Connection]] = deque()

    @property
    def unused(self) -> bool:
        return not self._idle and self._slots.counter == self._size

    def enter(self, seconds: float, host: str) -> None:
        """Take one of the places. UpstreamUnreachable (with retry_after) when none came free within `seconds`."""
        if not self._slots.acquire(blocking=False) and not self._slots.acquire(timeout=seconds):
            raise UpstreamUnreachable(f"All {self._size} connections to {host} are in use.", retry_after=1)

    def leave(self) -> None:
        self._slots.release()

    def pop(self, now: float) -> Connection | None:
        """The freshest idle connection that is still good; bad ones are closed on the way."""
        while self._idle:
            since, connection = self._idle.pop()
            if now - since < self._idle_s and connection.is_quiet():
                return connection
            connection.close()
        return None

    def push(self, connection: Connection, now: float) -> None:
        """Keep a connection whose answer is whole."""
        self._idle.append((now, connection))
        if len(self._idle) > self._idle_size:
            self._idle.popleft()[1].close()

    def trim(self, now: float) -> None:
        """Close what has been idle for too long."""
        while self._idle and now - self._idle[0][0] >= self._idle_s:
            self._idle.popleft()[1].close()

    def clear(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()


class Lease:
    """A connection lent by its pool; `end()` brings it back or closes it, and may be called again."""

    __slots__ = ("_clock", "_pool", "connection", "fresh")

    def __init__(self, pool: Pool, connection: Connection, clock: Clock, fresh: bool) -> None:
        self._pool: Pool | None = pool
        self._clock = clock
        self.connection = connection
        self.fresh = fresh

    def replace(self, connection: Connection) -> None:
        """Go on with a new connection in the same place of the pool."""
        self.connection.close()
        self.connection = connection
        self.fresh = True

    def end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        connection = self.connection
        if connection.done and connection.keep:
            pool.push(connection, self._clock.monotonic())
        else:
            connection.close()
        pool.leave()
