"""One socket with its HTTP parser, and the keep-alive pool of one origin."""

from collections import deque
from typing import Any

import httptools
from gevent import get_hub, getcurrent
from gevent.lock import BoundedSemaphore
from gevent.monkey import get_original
from gevent.socket import IPPROTO_TCP, TCP_NODELAY, socket
from gevent.ssl import SSLWantReadError, SSLWantWriteError

from gateway.clock import Clock
from gateway.errors import UpstreamFailed, UpstreamUnreachable

RECEIVE_BYTES = 65536
NOISE_LIMIT = 65536  # bytes in a row that bring neither a head nor a body: heads, trailers, chunk extensions
POLLIN = READ = 1
# A socket that was readable and still gives nothing: a false alarm, or records of TLS's own.
WANTING = (BlockingIOError, SSLWantReadError, SSLWantWriteError)

# The real poll: a question about one descriptor that never waits needs no event loop.
original_poll = get_original("select", "poll")


def read_fields(fields: tuple[tuple[bytes, bytes], ...]) -> dict[str, str]:
    """Header fields by lower-case name, repeated ones joined (RFC 9110, section 5.2)."""
    if not fields:
        return {}
    # All at once, since an answer may have thirty.
    names, values = zip(*fields, strict=True)
    keys = b"\n".join(names).decode("latin-1").lower().split("\n")
    texts = b"\n".join(values).decode("latin-1").split("\n")
    headers = dict(zip(keys, texts, strict=False))
    return headers if len(headers) == len(texts) == len(fields) else _join_repeated(fields)


def _join_repeated(fields: tuple[tuple[bytes, bytes], ...]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in fields:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


class Connection:
    """A socket to an upstream, and the state of the answer that it carries.

    The parser (httptools over llhttp) calls the `on_…` methods. `status` is 0 until a final head is there, whose
    `fields` are as they came; `done` says that the answer is whole, `keep` then that another request may follow it,
    `lost` that the peer closed, `pieces` holds body bytes not yet taken, `fresh` that this is its first request.
    """

    __slots__ = (
        "_bodiless", "_hub", "_incoming", "_noise", "_parser", "_poll", "_readable", "_sock", "done", "fields", "fresh",
        "host", "keep", "lost", "on_body", "pieces", "pool", "status",
    )  # fmt: skip

    def __init__(self, sock: socket, host: str, pool: "Pool") -> None:
        sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        sock.settimeout(0.0)  # the waiting is done here: once, and with one timer
        self._sock = sock
        self._hub = get_hub()
        self._readable = self._hub.loop.io(sock.fileno(), READ)
        self._poll = original_poll()
        self._poll.register(sock.fileno(), POLLIN)
        self.host = host
        self.pool = pool
        self.status = self._noise = 0
        self.fields: tuple[tuple[bytes, bytes], ...] = ()
        self._incoming: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append  # called for each chunk of a stream, so without a frame of ours
        self._bodiless = self.done = self.keep = self.lost = False
        self.fresh = True
        self._parser: Any = httptools.HttpResponseParser(self)

    def is_quiet(self) -> bool:
        """Whether an idle socket is still good: data or an end waiting in it means that it is not."""
        return not self._poll.poll(0)

    @property
    def untouched(self) -> bool:
        """Whether not one byte of an answer came."""
        return not self.status and not self._noise

    def send(self, message: bytes, bodiless: bool, seconds: float) -> bool:
        """Forget the last answer and send a request, whose answer may be `bodiless` by its method.

        False when not one byte of it left; TimeoutError after `seconds`. A peer that stops reading halfway may have
        answered already, so that is left for the reading side to tell.
        """
        self.status = 0
        self.done = False
        self._bodiless = bodiless
        self._incoming.clear()
        self.pieces.clear()
        try:
            sent = self._sock.send(message)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        if sent < len(message):
            self._send_rest(memoryview(message)[sent:], seconds)
        return True

    def receive(self, seconds: float) -> None:
        """Wait for what one receive brings; an end sets `lost`, or `done` when it is the frame of the answer.

        TimeoutError when nothing came in `seconds`, UpstreamFailed for what is not HTTP/1.x. Other greenlets always
        get their turn, so that a fast stream cannot starve its neighbours.
        """
        # A receive before the wait would nearly always be in vain, and gevent's own wait makes a Timeout for each.
        timer = self._hub.loop.timer(seconds)
        timer.start(getcurrent().throw, TimeoutError, update=True)
        try:
            self._hub.wait(self._readable)
            data = self._sock.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise
        except WANTING:
            data = self._receive_slowly()
        except OSError:
            self.lost = True
            return
        finally:
            timer.close()
        self._take_in(data)

    def glance(self) -> None:
        """Take in what is there already, without waiting."""
        try:
            self._take_in(self._sock.recv(RECEIVE_BYTES))
        except (OSError, UpstreamFailed):
            return

    def take(self) -> bytes:
        """Body bytes in hand, joined."""
        data = b"".join(self.pieces)
        self.pieces.clear()
        return data

    def close(self) -> None:
        self._parser = None  # it holds us: without this only the collector would free both
        self.keep = False
        self._hub.cancel_wait(self._readable, ConnectionAbortedError(), True)
        self._sock.close()

    def _send_rest(self, rest: memoryview, seconds: float) -> None:
        self._sock.settimeout(seconds)
        try:
            self._sock.sendall(rest)
        except TimeoutError:
            raise
        except OSError:
            return
        self._sock.settimeout(0.0)

    def _receive_slowly(self) -> bytes:
        """A receive with gevent's own waiting, which knows what TLS may want; the timer around it still runs."""
        self._sock.settimeout(None)
        try:
            return self._sock.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise
        except OSError:
            return b""
        finally:
            self._sock.settimeout(0.0)

    def _take_in(self, data: bytes) -> None:
        if not data:
            self.keep = False
            self.done = self._ends_by_close()
            self.lost = not self.done
            return
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
        """Whether the end of the connection is the end of the answer (RFC 9112, section 6.3)."""
        if not self.status:
            return False
        headers = read_fields(self.fields)
        coding = headers.get("transfer-encoding", "").lower()
        return not coding.endswith("chunked") and (bool(coding) or "content-length" not in headers)

    def on_message_begin(self) -> None:
        if self.done:
            # Bytes after a whole answer: whose they are cannot be known. What the parser adds is seen by nobody.
            self.keep = False
            self.pieces = self.pieces.copy()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._incoming.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.done:
            return
        if status < 200:
            self._incoming.clear()
            return
        self.status = status
        self.fields = tuple(self._incoming)
        self._noise = -RECEIVE_BYTES  # the receive that brought the head does not count
        if self._bodiless:
            self.done = True
            self.keep = False
            self.pieces = []

    def on_message_complete(self) -> None:
        if self.status and not self.done:
            self.done = True
            self.keep = self._parser.should_keep_alive()


class Pool:
    """Connections to one origin: at most `size` at once, the last used given out first, old ones dropped.

    Who has a connection holds one of the places, and gives both back with `take_back` or `drop`, once.
    """

    def __init__(self, size: int, idle_size: int, idle_s: float, clock: Clock) -> None:
        self._size = size
        self._idle_size = idle_size
        self._idle_s = idle_s
        self._clock = clock
        self._slots = BoundedSemaphore(size)
        self._idle: deque[tuple[float, Connection]] = deque()

    @property
    def unused(self) -> bool:
        return not self._idle and self._slots.counter == self._size

    def enter(self, seconds: float, host: str) -> None:
        """Take one of the places. UpstreamUnreachable (with retry_after) when none came free within `seconds`."""
        if not self._slots.acquire(False) and not self._slots.acquire(timeout=seconds):
            raise UpstreamUnreachable(f"All {self._size} connections to {host} are in use.", retry_after=1)

    def leave(self) -> None:
        self._slots.release()

    def pop(self, now: float) -> Connection | None:
        """The freshest idle connection that is still good; bad ones are closed on the way."""
        idle = self._idle
        while idle:
            since, connection = idle.pop()
            if now - since < self._idle_s and connection.is_quiet():
                return connection
            connection.close()
        return None

    def take_back(self, connection: Connection) -> None:
        """End a loan: a connection whose answer is whole is kept, any other closed."""
        if not connection.done or not connection.keep:
            self.drop(connection)
            return
        connection.fresh = False
        idle = self._idle
        idle.append((self._clock.monotonic(), connection))
        if len(idle) > self._idle_size:
            idle.popleft()[1].close()
        self._slots.release()

    def drop(self, connection: Connection | None) -> None:
        """End a loan without keeping its connection, or one that has none yet."""
        if connection is not None:
            connection.close()
        self._slots.release()

    def trim(self, now: float) -> None:
        """Close what has been idle for too long."""
        while self._idle and now - self._idle[0][0] >= self._idle_s:
            self._idle.popleft()[1].close()

    def clear(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()
