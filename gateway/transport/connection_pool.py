"""The keep-alive pool of one origin."""

import re
from collections import deque
from collections.abc import Callable

from gevent.lock import BoundedSemaphore

from gateway.errors import UpstreamUnreachable
from gateway.transport.connections import HEAD_END, NO_DEADLINE, UpstreamConnection
from gateway.transport.tls_sessions import TlsSession

KEEP_ALIVE_TIMEOUT = re.compile(rb"\r\nkeep-alive:[^\r\n]*?timeout=(\d{1,6})", re.IGNORECASE)
CLOSING_S = 1.0
# Connections that were idle for less are reused without a poll, because the event loop reports their end. During a
# longer pause the loop may have been stopped. Without the poll a plain request takes 0.97 of the CPU, and a
# lone one 0.95 of the added time.
WATCHED_S = 1.0


class ConnectionPool:
    """Connections to one origin: at most `size` at once; the last used is lent first, and old ones are closed.

    A borrower holds one slot with a connection and returns both once, with `take_back` or `drop`. A wait for a free
    slot lasts at most `wait_s`. `now` returns monotonic seconds.
    """

    def __init__(
        self, host: str, size: int, wait_s: float, idle_size: int, idle_s: float, now: Callable[[], float]
    ) -> None:
        self._host = host
        self._size = size
        self._wait_s = wait_s
        self._idle_size = idle_size
        self._idle_s = idle_s
        self._now = now
        self._slots = BoundedSemaphore(size)
        self._idle: deque[UpstreamConnection] = deque()
        self.tls_session = TlsSession(now)

    @property
    def unused(self) -> bool:
        return not self._idle and self._slots.counter == self._size

    def borrow(self, now: float, seconds: float, fresh: bool) -> UpstreamConnection | None:
        """Take a slot and the most recently used idle connection that is usable, or None without one or if `fresh`.

        Unusable connections are closed. UpstreamUnreachable (with retry_after) when no slot became free in `seconds`.
        """
        if not self._slots.acquire(False) and not self._slots.acquire(timeout=min(seconds, self._wait_s)):
            raise UpstreamUnreachable(f"All {self._size} connections to {self._host} are in use.", retry_after=1)
        idle = self._idle
        while idle and not fresh:
            connection = idle.pop()
            idle_s = now - connection.since
            if idle_s < connection.idle_s and ((connection.watched and idle_s < WATCHED_S) or not connection.poll(0)):
                return connection
            connection.close()
        return None

    def take_back(self, connection: UpstreamConnection) -> None:
        """Return a connection; it is kept if its response is complete, else closed."""
        if not connection.since:
            connection.keep_session(self.tls_session)
        if not connection.done or not connection.keep:
            self.drop(connection)
            return
        if not connection.since:
            connection.idle_s = min(self._idle_s, announced_idle_s(connection.received))
        connection.since = self._now()
        idle = self._idle
        idle.append(connection)
        if len(idle) > self._idle_size:
            idle.popleft().close()
        self._slots.release()

    def drop(self, connection: UpstreamConnection | None) -> None:
        """Return a slot and close its connection, if it has one."""
        if connection is not None:
            connection.close()
        self._slots.release()

    def trim(self, now: float) -> None:
        """Close connections that have been idle for too long."""
        while self._idle and now - self._idle[0].since >= self._idle_s:
            self._idle.popleft().close()

    def clear(self) -> None:
        while self._idle:
            self._idle.pop().close()


def announced_idle_s(received: bytes) -> float:
    """Return how long a server says that it keeps an idle connection (RFC 2068, 19.7.1.1), less a margin.

    A request that is sent while the server closes is lost, and a paid request must not be sent again.
    """
    match = KEEP_ALIVE_TIMEOUT.search(received, 0, received.find(HEAD_END))
    if match is not None:
        return max(0.0, int(match[1]) - CLOSING_S)
    return NO_DEADLINE
