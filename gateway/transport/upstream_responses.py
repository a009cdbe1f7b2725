"""What comes back: an answer that is on its way, and one whose head is there."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, overload

from msgspec import Struct

from gateway.errors import StreamTruncated, UpstreamFailed, UpstreamTimeout, UpstreamUnreachable
from gateway.runtime.threads import compute_if, give_way
from gateway.transport.answer_room import FREE, AnswerRoom, HeldAnswer
from gateway.transport.connections import UpstreamConnection
from gateway.transport.content_codings import Unpacker, find_unpacker
from gateway.transport.header_fields import END, read_fields

MB = 1024 * 1024
BODY_LIMIT = 64 * MB
PIECE = 1 << 16  # bytes of a stream that its reader gets at once
LONG_BYTES = 1 << 20  # an answer of this size is joined in a thread


class Answer(NamedTuple):
    """A complete answer."""

    status: int
    headers: dict[str, str]
    body: bytes


class Patience(Struct, frozen=True):
    """How long to wait, in seconds: for everything, for the head, between two bytes, and until a heartbeat; `now`
    gives monotonic seconds. Large answers are read within `room`."""

    now: Callable[[], float]
    total_s: float
    first_s: float
    silence_s: float
    heartbeat_s: float
    room: AnswerRoom | None = None


class Pending(Struct, eq=False):
    """A request that was sent. `wait()` for its answer, or `close()` it.

    Its head must be there at `_until`, all of it at `_end` (monotonic); `_resend` sends it again, if that does no harm.
    """

    _connection: UpstreamConnection | None
    _patience: Patience
    _until: float
    _end: float
    _resend: Callable[[], UpstreamConnection] | None

    @overload
    def wait(self, seconds: None = None) -> "Reply": ...
    @overload
    def wait(self, seconds: float) -> "Reply | None": ...
    def wait(self, seconds: float | None = None) -> "Reply | None":
        """The reply once its head is there, or None when `seconds` passed first; then call again.

        Raises UpstreamTimeout, UpstreamUnreachable, UpstreamFailed; the request is closed then.
        """
        connection = self._connection
        until = self._until
        if connection is None:
            raise UpstreamUnreachable("The request was closed before its answer came.")
        if seconds is not None:
            until = min(until, self._patience.now() + seconds)
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
        reply = Reply(connection.status, connection, self._patience, self._end, received)
        # Asked of all names at once: an answer may have thirty fields, and hardly any is ever looked at.
        if b"content-encoding" in received[: received.find(END)].lower():
            reply.unpack()
        return reply

    def close(self) -> None:
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection.pool.drop(connection)

    def _refuse_late(self, host: str) -> None:
        now = self._patience.now()
        if now >= self._end:
            raise too_late(host)
        if now >= self._until:
            raise UpstreamTimeout(f"{host} did not begin to answer in time.")

    def _recover(self, connection: UpstreamConnection) -> UpstreamConnection:
        if not connection.since or self._resend is None or not connection.untouched:
            raise UpstreamUnreachable(f"{connection.host} closed the connection before it answered.")
        self.close()
        self._connection = self._resend()
        return self._connection


class Reply(Struct, eq=False):
    """An upstream's answer whose head is there: the Reply of providers/protocol.py. A large one that was read whole is
    counted in memory until `close`."""

    status: int
    _connection: UpstreamConnection
    _patience: Patience
    _end: float
    _received: bytes  # begins with the head
    _headers: dict[str, str] | None = None
    _unpacker: Unpacker | None = None
    _silent_s: float = 0.0
    _open: bool = True
    _whole: bool = False
    _held: HeldAnswer | None = None

    def unpack(self) -> None:
        """Unpack the body if its head says that it is packed. UpstreamFailed for an unknown way, and closed then."""
        try:
            self._unpacker = find_unpacker(self.headers, self._connection.host)
        except UpstreamFailed:
            self.close()
            raise

    @property
    def headers(self) -> dict[str, str]:
        """Values by lower-case name; they describe the plain body."""
        if self._headers is None:
            self._headers = read_fields(self._received)
        return self._headers

    def read_all(self, limit: int = BODY_LIMIT) -> bytes:
        """The whole body, at most `limit` bytes (else UpstreamFailed, code response_too_large)."""
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
            for data in self._read(self._patience.silence_s):
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
        """Body bytes, one item a receive; b"" for each heartbeat time in which nothing came.

        Raises UpstreamTimeout (silence, deadline) and StreamTruncated (lost before its end).
        """
        try:
            if self._unpacker is None:
                yield from self._read(self._patience.heartbeat_s)
                return
            for data in self._read(self._patience.heartbeat_s):
                yield data[:PIECE]
                for at in range(PIECE, len(data), PIECE):
                    give_way()  # what was packed brings the work of many receives at once
                    yield data[at : at + PIECE]
        finally:
            self.close()

    def close(self) -> None:
        """End the answer; one not read to its end takes its connection along, so the upstream stops working.

        Readers of event streams stop at their protocol's own end: when nothing but the body's end mark was left,
        it is taken here, so that the connection serves again.
        """
        if self._held is not None:
            self._held.release()
        if self._open:
            self._give_back()

    def _hold(self, size: int) -> None:
        """Count so many more bytes of the answer; waits until there is room."""
        room = self._patience.room
        if room is None:
            return
        if self._held is None:
            self._held = room.hold()
        self._held.grow(size)

    def _give_back(self) -> None:
        """End the loan of the connection."""
        if not self._open:
            return
        self._open = False
        connection = self._connection
        if not connection.done:
            connection.glance()
        connection.pool.take_back(connection)

    def _refuse_size(self, limit: int) -> None:
        host = self._connection.host
        raise UpstreamFailed(f"{host} answered with more than {limit} bytes.", code="response_too_large")

    def _read(self, heartbeat_s: float) -> Iterator[bytes]:
        came = True  # maybe: with the head
        while not self._whole:
            if not self._open:
                # A connection that was given back speaks of somebody else's answer.
                raise StreamTruncated("The answer was closed before its end.")
            if came:
                data, came = self._take(), False  # all of it: more comes by a receive alone
                if data:
                    yield data
            else:
                came = self._receive(heartbeat_s)
                if not came:
                    yield b""

    def _take(self) -> bytes:
        """Body bytes in hand; ends the loan of the connection with the last of them."""
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
        """Whether something came; False after the heartbeat time. Only time spent waiting counts as silence."""
        connection = self._connection
        patience = self._patience
        now = patience.now()
        seconds = heartbeat_s
        if now + seconds > self._end or self._silent_s + seconds > patience.silence_s:
            seconds = min(seconds, self._left(now))
        if not connection.receive(now + seconds):
            self._silent_s += seconds
            return False
        if connection.lost:
            raise StreamTruncated(f"{connection.host} closed the connection before its answer was complete.")
        if self._silent_s:
            self._silent_s = 0.0
        return True

    def _left(self, now: float) -> float:
        """The seconds that may still pass until the next bytes."""
        host = self._connection.host
        silence_s = self._patience.silence_s
        if now >= self._end:
            raise too_late(host)
        if self._silent_s >= silence_s:
            raise UpstreamTimeout(f"{host} fell silent for {silence_s:g} seconds.")
        return min(self._end - now, silence_s - self._silent_s)


def _join(parts: list[bytes]) -> bytes:
    """The whole answer. The interpreter lets other threads run while it joins a long one; its parts are freed here, in
    the same thread."""
    whole = b"".join(parts)
    parts.clear()
    return whole


def too_late(host: str) -> UpstreamTimeout:
    """For an answer that is not whole at the deadline."""
    return UpstreamTimeout(f"{host} did not finish its answer in time.")
