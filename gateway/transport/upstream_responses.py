"""Responses of upstreams: requests that wait for their response, and responses with a complete head."""

import sys
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, overload

from msgspec import Struct

from gateway.errors import StreamTruncated, UpstreamFailed, UpstreamTimeout, UpstreamUnreachable
from gateway.runtime.threads import compute_if, give_way
from gateway.transport.answer_room import FREE, AnswerRoom, HeldAnswer, KeptBytes
from gateway.transport.connections import HEAD_END, UpstreamConnection, read_fields

# Content codings of upstreams that compress although the request did not allow it.

CONTENT_CODINGS = frozenset({"gzip", "x-gzip", "deflate"})  # RFC 9110, section 8.4.1
ANY_ZLIB = zlib.MAX_WBITS | 32  # gzip or zlib, detected by the first bytes
ITEM_LIMIT = 4 * 1024 * 1024  # limit for the unpacked bytes of one receive: some 10 ms of work


KEPT_BYTES = 4_096  # of the first receive, which a stream may hold


class Unpacker:
    """Unpacks a body piece by piece. `ended`: the end of the compressed data was read; further bytes are ignored."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._inflater = zlib.decompressobj(ANY_ZLIB)
        self._begun = False
        self.ended = False

    def unpack(self, data: bytes, last: bool) -> bytes:
        """Return the plain bytes of `data`. UpstreamFailed when damaged or too large, StreamTruncated if cut short."""
        self._begun = self._begun or bool(data)
        try:
            plain = self._inflater.decompress(data, ITEM_LIMIT)
        except zlib.error:
            raise UpstreamFailed(f"{self._host} answered with a damaged compressed body.") from None
        if self._inflater.unconsumed_tail:
            raise UpstreamFailed(
                f"{self._host} answered with a body that unpacks too large.", code="response_too_large"
            )
        self.ended = self._inflater.eof
        if last and self._begun and not self.ended:
            raise StreamTruncated(f"{self._host} sent an incomplete compressed body.")
        return plain


def find_unpacker(headers: dict[str, str], host: str) -> Unpacker | None:
    """Return an unpacker for a body with these headers, None for a plain body; the headers then describe the plain
    body.

    UpstreamFailed for an unknown coding.
    """
    coding = headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        return None
    if coding not in CONTENT_CODINGS:
        raise UpstreamFailed(f"{host} answered in the content coding {coding[:40]!r}, which was not requested.")
    del headers["content-encoding"]
    headers.pop("content-length", None)
    return Unpacker(host)


MB = 1024 * 1024
BODY_LIMIT = 64 * MB
PIECE_BYTES = 1 << 16  # bytes of a stream that its reader gets in one item
LONG_BYTES = 1 << 20  # a response of this size is joined in a thread
# Readers of streams keep texts, items and incomplete events until the end, without the frame around each token. Every
# fourth byte of a stream beyond STREAM_FREE therefore counts as memory, in steps.
STREAM_FREE = 1 << 18
STREAM_STEP = 1 << 16
FIRST_CHECK_S = 6.0  # how often a stream without any data is looked at
STREAM_SHARE = 4
STREAM_LIMIT = 256 * MB  # of a whole stream; those of the longest answers of models have some 40 MB


class Answer(NamedTuple):
    """A complete response."""

    status: int
    headers: dict[str, str]
    body: bytes


class TimeLimits(Struct, frozen=True):
    """Time limits in seconds: in total, until the head, between two bytes, and until a heartbeat. `now` returns
    monotonic seconds. Large responses are read within `room`."""

    now: Callable[[], float]
    total_s: float
    first_s: float
    silence_s: float
    heartbeat_s: float
    room: AnswerRoom | None = None


class Pending(Struct, eq=False):
    """A request that was sent. Call `wait()` for its response, or `close()`.

    The head must arrive by `_until` and everything by `_end` (monotonic). `_resend` sends the request again, where that
    is safe.
    """

    _connection: UpstreamConnection | None
    _time_limits: TimeLimits
    _until: float
    _end: float
    _resend: Callable[[], UpstreamConnection] | None

    @overload
    def wait(self, seconds: None = None) -> "Reply": ...
    @overload
    def wait(self, seconds: float) -> "Reply | None": ...
    def wait(self, seconds: float | None = None) -> "Reply | None":
        """Return the reply once its head has arrived, or None after `seconds`; then call it again.

        Raises UpstreamTimeout, UpstreamUnreachable, UpstreamFailed, after which the request is closed.
        """
        connection = self._connection
        until = self._until
        if connection is None:
            raise UpstreamUnreachable("The request was closed before its response arrived.")
        if seconds is not None:
            until = min(until, self._time_limits.now() + seconds)
        try:
            while not connection.status:
                if not connection.receive(until):
                    self._refuse_late(connection.host)
                    if seconds is not None:
                        return None
                elif connection.lost:
                    connection = self._recover(connection)
        except BaseException:
            self.close()
            raise
        self._connection = None
        received = connection.received
        reply = Reply(connection.status, connection, self._time_limits, self._end, received)
        # One search instead of parsing: a response may have thirty fields, and hardly any is ever read.
        if b"content-encoding" in received[: received.find(HEAD_END)].lower():
            reply.unpack()
        return reply

    def close(self) -> None:
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection.pool.drop(connection)

    def _refuse_late(self, host: str) -> None:
        now = self._time_limits.now()
        if now >= self._end:
            raise too_late(host)
        if now >= self._until:
            raise UpstreamTimeout(f"{host} did not begin to answer in time.")

    def _recover(self, connection: UpstreamConnection) -> UpstreamConnection:
        if not connection.since or self._resend is None or not connection.has_no_bytes:
            raise UpstreamUnreachable(f"{connection.host} closed the connection before it answered.")
        self.close()
        self._connection = self._resend()
        return self._connection


class Reply(Struct, eq=False):
    """An upstream's response with a complete head; the Reply of providers/protocol.py. A large body that was read
    whole, and a part of a long stream, count as memory until `close`."""

    status: int
    _connection: UpstreamConnection
    _time_limits: TimeLimits
    _end: float
    _received: bytes  # starts with the head
    _headers: dict[str, str] | None = None
    _unpacker: Unpacker | None = None
    _silent_s: float = 0.0
    _open: bool = True
    _whole: bool = False
    _held: HeldAnswer | None = None
    _kept: KeptBytes | None = None
    _streamed: int = 0
    _uncounted: int = sys.maxsize  # bytes of a stream that count when there are more

    def unpack(self) -> None:
        """Unpack the body if its head names a coding. For an unknown coding the reply is closed: UpstreamFailed."""
        try:
            self._unpacker = find_unpacker(self.headers, self._connection.host)
        except UpstreamFailed:
            self.close()
            raise

    @property
    def headers(self) -> dict[str, str]:
        """Values by lower-case name; they describe the unpacked body."""
        if self._headers is None:
            self._headers = read_fields(self._received)
        return self._headers

    def read_all(self, limit: int = BODY_LIMIT) -> bytes:
        """Return the whole body of at most `limit` bytes (else UpstreamFailed, code response_too_large)."""
        connection = self._connection
        if connection.done and self._open and self._unpacker is None:
            self._open = False
            self._whole = True
            data = connection.take()
            connection.pool.take_back(connection)
            if len(data) > limit:
                self._refuse_size(limit)
            return data
        parts = []
        size = 0
        try:
            for data in self._read(self._time_limits.silence_s):
                parts.append(data)
                size += len(data)
                if size > FREE:
                    self._hold(size if self._held is None else len(data))
                if size > limit:
                    self._refuse_size(limit)
        except BaseException:
            self.close()
            raise
        self._give_back()
        return compute_if(size >= LONG_BYTES, _join, parts)

    def chunks(self) -> Iterator[bytes]:
        """Yield body bytes, one item per receive, and b"" after each silent heartbeat interval.

        Raises UpstreamTimeout (silence, deadline), StreamTruncated (closed before its end), and Overloaded for a long
        stream without room.
        """
        self._uncounted = STREAM_FREE
        if len(self._received) > KEPT_BYTES:  # else a long head would be held twice
            self._headers = self.headers
            self._received = b""
        try:
            if self._unpacker is None:
                yield from self._read(self._time_limits.heartbeat_s)
                return
            for data in self._read(self._time_limits.heartbeat_s):
                yield data[:PIECE_BYTES]
                for at in range(PIECE_BYTES, len(data), PIECE_BYTES):
                    give_way()  # a compressed piece expands to the work of many receives
                    yield data[at : at + PIECE_BYTES]
        finally:
            self.close()

    def close(self) -> None:
        """End the response. If it was not read to its end its connection is closed, so that the upstream stops.

        Readers of event streams stop at their protocol's end: when only the end mark of the body is left, it is read
        here, so that the connection can be used again.
        """
        if self._held is not None:
            self._held.release()
        if self._kept is not None:
            self._kept.release()
        if self._open:
            self._give_back()

    def _hold(self, size: int) -> None:
        """Count `size` more bytes of the response, waiting until there is room."""
        room = self._time_limits.room
        if room is None:
            return
        if self._held is None:
            self._held = room.hold()
        self._held.grow(size)

    def _count(self) -> None:
        """Count the bytes of a stream since the last step. Overloaded if there is no room; UpstreamFailed
        (response_too_large)."""
        if self._streamed > STREAM_LIMIT:
            self._refuse_size(STREAM_LIMIT)
        size = self._streamed - self._uncounted + STREAM_STEP
        self._uncounted = self._streamed + STREAM_STEP
        room = self._time_limits.room
        if room is not None:
            self._kept = self._kept or KeptBytes(room.budget)
            self._kept.grow(size // STREAM_SHARE)

    def _give_back(self) -> None:
        """Return the connection to its pool."""
        if not self._open:
            return
        self._open = False
        connection = self._connection
        if not connection.done:
            connection.parse_arrived()
        connection.pool.take_back(connection)

    def _refuse_size(self, limit: int) -> None:
        host = self._connection.host
        raise UpstreamFailed(f"{host} answered with more than {limit} bytes.", code="response_too_large")

    def _read(self, heartbeat_s: float) -> Iterator[bytes]:
        received = True  # the head may have come with body bytes
        while not self._whole:
            if not self._open:
                # A connection that was returned may carry another response.
                raise StreamTruncated("The answer was closed before its end.")
            if received:
                received = False  # `_take` empties the connection, so more needs a receive
                data = self._take()
                if data:
                    self._streamed += len(data)
                    if self._streamed > self._uncounted:
                        self._count()
                    yield data
                elif not self._whole:
                    self._connection.acknowledge()
            else:
                received = self._receive(heartbeat_s if self._streamed else min(heartbeat_s, FIRST_CHECK_S))
                if not received:
                    yield b""

    def _take(self) -> bytes:
        """Return received body bytes; at the end the connection is returned to its pool."""
        data = self._connection.take()
        last = self._connection.done
        if self._unpacker is not None:
            data = self._unpacker.unpack(data, last)
            last = last or self._unpacker.ended
        if last:
            self._whole = True
            self._give_back()
        return data

    def _receive(self, heartbeat_s: float) -> bool:
        """Return whether data arrived within the heartbeat interval. Only time spent waiting counts as silence."""
        connection = self._connection
        time_limits = self._time_limits
        now = time_limits.now()
        seconds = heartbeat_s
        if now + seconds > self._end or self._silent_s + seconds > time_limits.silence_s:
            seconds = min(seconds, self._left(now))
        if not connection.receive(now + seconds):
            self._silent_s += seconds
            return False
        if connection.further > STREAM_LIMIT:
            self._refuse_size(STREAM_LIMIT)  # nearly all of it frames tiny chunks
        if connection.lost:
            raise StreamTruncated(f"{connection.host} closed the connection before its answer was complete.")
        if self._silent_s:
            self._silent_s = 0.0
        return True

    def _left(self, now: float) -> float:
        """Return the seconds that may pass until the next bytes."""
        host = self._connection.host
        silence_s = self._time_limits.silence_s
        if now >= self._end:
            raise too_late(host)
        if self._silent_s >= silence_s:
            raise UpstreamTimeout(f"{host} fell silent for {silence_s:g} seconds.")
        return min(self._end - now, silence_s - self._silent_s)


def _join(parts: list[bytes]) -> bytes:
    """Join a whole response. The interpreter lets other threads run while it joins a long one; the parts are freed here
    so that this thread does it."""
    whole = b"".join(parts)
    parts.clear()
    return whole


def too_late(host: str) -> UpstreamTimeout:
    """Return the error for a response that is incomplete at the deadline."""
    return UpstreamTimeout(f"{host} did not finish its answer in time.")
