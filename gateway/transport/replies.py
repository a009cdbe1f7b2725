"""What comes back: an answer that is on its way, and one whose head is there."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import gevent

from gateway.clock import Clock
from gateway.errors import StreamTruncated, UpstreamFailed, UpstreamTimeout, UpstreamUnreachable
from gateway.transport.codings import find_unpacker
from gateway.transport.connections import Lease

MB = 1024 * 1024
BODY_LIMIT = 64 * MB
TURN_ITEMS, TURN_BYTES = 32, 65536  # after so much in a row the other greenlets get a turn
SHORTEST_S = 0.001


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes


class Patience(NamedTuple):
    """How long to wait: `end` on the monotonic clock, `silence_s` between two bytes, `first_s` for the head."""

    clock: Clock
    end: float
    first_s: float
    silence_s: float
    heartbeat_s: float

    def left(self, host: str) -> float:
        """Seconds until the end. UpstreamTimeout when it has come."""
        seconds = self.end - self.clock.monotonic()
        if seconds <= 0:
            raise UpstreamTimeout(f"{host} did not finish its answer in time.")
        return max(seconds, SHORTEST_S)


class Pending:
    """A request that was sent. `wait()` for its answer, or `close()` it."""

    def __init__(self, lease: Lease, patience: Patience, resend: Callable[[], Lease] | None) -> None:
        self._lease: Lease | None = lease
        self._patience = patience
        self._resend = resend
        self._silent_at = patience.clock.monotonic() + patience.first_s

    def wait(self, seconds: float | None = None) -> "Reply | None":
        """The reply once its head is there, or None when `seconds` passed first; then call again.

        Raises UpstreamTimeout, UpstreamUnreachable, UpstreamFailed; the request is closed then.
        """
        try:
            return self._wait(seconds)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._lease is not None:
            self._lease.end()
            self._lease = None

    def _wait(self, seconds: float | None) -> "Reply | None":
        clock = self._patience.clock
        until = None if seconds is None else clock.monotonic() + seconds
        lease = self._lease
        if lease is None:
            raise UpstreamUnreachable("The request was closed before its answer came.")
        while not lease.connection.head_done:
            allowed = self._allowed(lease.connection.host)
            if until is not None:
                allowed = min(allowed, until - clock.monotonic())
                if allowed <= 0:
                    return None
            try:
                lease.connection.receive(allowed)
            except TimeoutError:
                continue
            if lease.connection.lost:
                lease = self._recover(lease)
        self._lease = None
        return Reply(lease, self._patience)

    def _allowed(self, host: str) -> float:
        left = self._patience.left(host)
        silence = self._silent_at - self._patience.clock.monotonic()
        if silence <= 0:
            raise UpstreamTimeout(f"{host} did not begin to answer in time.")
        return max(min(left, silence), SHORTEST_S)

    def _recover(self, lease: Lease) -> Lease:
        host = lease.connection.host
        if lease.fresh or self._resend is None or not lease.connection.untouched:
            raise UpstreamUnreachable(f"{host} closed the connection before it answered.")
        lease.end()
        self._lease = None
        self._lease = self._resend()
        return self._lease


class Reply:
    """An upstream's answer whose head is there: the Reply of providers/protocol.py."""

    def __init__(self, lease: Lease, patience: Patience) -> None:
        connection = lease.connection
        self.status = connection.status
        self.headers = connection.headers
        self._lease: Lease | None = lease
        self._connection = connection
        self._patience = patience
        self._turn_items = self._turn_bytes = 0
        self._silent_s = 0.0
        self._whole = False
        try:
            self._unpacker = find_unpacker(self.headers, connection.host)
        except UpstreamFailed:
            self.close()
            raise

    def read_all(self, limit: int = BODY_LIMIT) -> bytes:
        """The whole body, at most `limit` bytes (else UpstreamFailed, code response_too_large)."""
        parts, size = [], 0
        try:
            for data in self._read(self._patience.silence_s):
                parts.append(data)
                size += len(data)
                if size > limit:
                    raise UpstreamFailed(
                        f"{self._connection.host} answered with more than {limit} bytes.", code="response_too_large"
                    )
        finally:
            self.close()
        return b"".join(parts)

    def chunks(self) -> Iterator[bytes]:
        """Body bytes, one item a receive; b"" for each heartbeat time in which nothing came.

        Raises UpstreamTimeout (silence, deadline) and StreamTruncated (lost before its end).
        """
        try:
            yield from self._read(self._patience.heartbeat_s)
        finally:
            self.close()

    def close(self) -> None:
        """End the answer; one not read to its end takes its connection along, so the upstream stops working.

        Readers of event streams stop at their protocol's own end: when nothing but the body's end mark was left,
        it is taken here, so that the connection serves again.
        """
        lease, self._lease = self._lease, None
        if lease is None:
            return
        if not self._connection.done:
            self._glance()
        lease.end()

    def _glance(self) -> None:
        try:
            self._connection.receive(0)
        except (TimeoutError, UpstreamFailed):
            return

    def _read(self, heartbeat_s: float) -> Iterator[bytes]:
        while not self._whole:
            data = self._take()
            if data:
                yield data
            elif not self._whole and not self._receive(heartbeat_s):
                yield b""

    def _take(self) -> bytes:
        """Body bytes in hand; ends the lease with the last of them."""
        if self._lease is None:
            # A connection that was given back speaks of somebody else's answer.
            raise StreamTruncated("The answer was closed before its end.")
        data, last = self._connection.take(), self._connection.done
        if self._unpacker is not None:
            data = self._unpacker.unpack(data, last)
        if last:
            self._whole = True
            self.close()
        return data

    def _receive(self, heartbeat_s: float) -> bool:
        """Whether something came; False after the heartbeat time. Only time spent waiting counts as silence."""
        connection, patience = self._connection, self._patience
        silence = patience.silence_s - self._silent_s
        if silence <= 0:
            raise UpstreamTimeout(f"{connection.host} fell silent for {patience.silence_s:g} seconds.")
        seconds = max(min(patience.left(connection.host), silence, heartbeat_s), SHORTEST_S)
        try:
            size = connection.receive(seconds)
        except TimeoutError:
            self._silent_s += seconds
            return False
        if connection.lost:
            raise StreamTruncated(f"{connection.host} closed the connection before its answer was complete.")
        self._silent_s = 0.0
        self._give_turn(size)
        return True

    def _give_turn(self, size: int) -> None:
        # A receive does not yield while data is ready, so a fast stream would starve its neighbours.
        self._turn_items += 1
        self._turn_bytes += size
        if self._turn_items >= TURN_ITEMS or self._turn_bytes >= TURN_BYTES:
            self._turn_items = self._turn_bytes = 0
            gevent.sleep(0)
