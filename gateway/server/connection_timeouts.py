"""Timeouts of connections: one sweep over all of them four times a second, instead of a timer per connection."""

from collections.abc import Callable, Collection, Iterable
from operator import attrgetter

from gevent import GreenletExit

from gateway.runtime.disconnects import dismiss
from gateway.runtime.loop_turns import TICK_S
from gateway.server.connection import ANSWERING, CallerConnection, ClientGone, WorkerState

HEAD_TIMEOUT_S = 30.0
BODY_TIMEOUT_S = 600.0
MIN_BYTES_PER_SECOND = 4096
STALL_TIMEOUT_S = 60.0
ANSWER_RATE = 1024


class TimeoutSweeper:
    """Ends connections of callers that disconnected, stopped reading, are idle or send too slowly.

    A request has `head_s` to arrive. Its body must keep up `min_rate` bytes a second on average, at most `body_s`.
    A response is cut off when the caller reads nothing for `stall_s`, or, after waits of that total, less than
    `answer_rate` bytes a second.
    """

    def __init__(
        self,
        state: WorkerState,
        keepalive_s: float,
        head_s: float = HEAD_TIMEOUT_S,
        stall_s: float = STALL_TIMEOUT_S,
        body_s: float = BODY_TIMEOUT_S,
        min_rate: float = MIN_BYTES_PER_SECOND,
        answer_rate: float = ANSWER_RATE,
    ) -> None:
        self._state = state
        self._stall_ticks = ticks(stall_s)
        self._answer_bytes = max(1, answer_rate * TICK_S)
        self._head_ticks = ticks(head_s)
        self._body_ticks = ticks(max(head_s, body_s))
        self._tick_bytes = max(1, min_rate * TICK_S)
        # Indexed by CallerConnection.phase: IDLE, READING, ANSWERING, LEFT.
        self._checks: tuple[Callable[..., None], ...] = (
            self._check_idle,
            self._check_reading,
            self._check_answering,
            self._check_left,
        )
        self._idle_ticks = ticks(keepalive_s)

    def sweep(self, connections: Iterable[CallerConnection]) -> None:
        """Check all connections once. A request younger than a tick is left alone."""
        self._state.advance()
        for connection in tuple(connections):
            if not connection.killed:
                self._checks[connection.phase](connection)

    def close_idle(self, connections: Collection[CallerConnection], room: int) -> None:
        """Close connections beyond `room` that have no request in progress: first the longest idle, then those that
        have been sending a request the longest."""
        waiting = [connection for connection in connections if connection.phase < ANSWERING]
        ending = [connection for connection in waiting if connection.expired]
        waiting = [connection for connection in waiting if not connection.expired]
        waiting.sort(key=attrgetter("phase", "since"))
        for connection in waiting[: max(0, len(connections) - len(ending) - room)]:
            connection.expire()

    def _check_idle(self, connection: CallerConnection) -> None:
        if not connection.expired and self._state.tick - connection.since > self._idle_ticks:
            connection.expire()

    def _check_reading(self, connection: CallerConnection) -> None:
        took = self._state.tick - connection.since
        if took <= self._head_ticks or connection.expired:
            return
        if took > min(self._head_ticks + connection.received / self._tick_bytes, self._body_ticks):
            connection.expire()

    def _check_answering(self, connection: CallerConnection) -> None:
        progress = connection.progress
        tick = self._state.tick
        stuck = progress is not None and progress.is_too_slow(tick, self._stall_ticks, self._answer_bytes)
        # An expired connection that received a request at that moment looks closed although its caller is connected.
        older = connection.peekable and not connection.expired and self._state.tick > connection.since
        if stuck:
            end(connection, ClientGone())
        elif older and connection.is_gone():
            _leave(connection)

    def _check_left(self, connection: CallerConnection) -> None:
        """Do nothing: the caller disconnected, and the request's greenlet ends when its usage is known."""


def end(connection: CallerConnection, reason: GreenletExit) -> None:
    """Raise `reason` in the greenlet of `connection`, once: a second time would interrupt its `finally` blocks."""
    connection.killed = True
    connection.greenlet.kill(reason, block=False)


def _leave(connection: CallerConnection) -> None:
    """End the request of a disconnected caller, or let it continue while its usage is awaited."""
    if dismiss(connection.greenlet, ClientGone()):
        connection.leave()
    else:
        connection.killed = True


def ticks(seconds: float) -> int:
    """Return seconds as whole ticks, at least one."""
    return max(1, round(seconds / TICK_S))
