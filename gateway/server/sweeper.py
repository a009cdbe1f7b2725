"""The beat of a worker: one sweep over all connections instead of a timer for each."""

from collections.abc import Callable, Collection, Iterable

from gevent import GreenletExit

from gateway.server.connection import ANSWERING, CallerConnection
from gateway.server.pulse import TICK_S, ClientGone, Pulse

HEAD_S = 30.0
BODY_S = 600.0
LEAST_RATE = 4096
STALL_S = 60.0
ANSWER_RATE = 1024


class Sweeper:
    """Ends what nobody waits for: callers that hung up or stopped reading, idle requests and late ones.

    A request has `head_s` to come, then for as long as its body brings `least_rate` bytes a second over all the time
    since, `body_s` at the most; however it comes, it cannot be made to last. Who takes nothing of an answer for
    `stall_s`, or, once that was waited for, less than `answer_rate` bytes a second, does not get the rest.
    """

    def __init__(
        self,
        pulse: Pulse,
        keepalive_s: float,
        head_s: float = HEAD_S,
        stall_s: float = STALL_S,
        body_s: float = BODY_S,
        least_rate: float = LEAST_RATE,
        answer_rate: float = ANSWER_RATE,
    ) -> None:
        self._pulse = pulse
        self._stall_ticks, self._answer_bytes = ticks(stall_s), max(1, answer_rate * TICK_S)
        self._head_ticks, self._body_ticks = ticks(head_s), ticks(max(head_s, body_s))
        self._tick_bytes = max(1, least_rate * TICK_S)
        # By Connection.phase: IDLE, READING, ANSWERING.
        self._checks: tuple[Callable[..., None], ...] = (
            self._check_idle,
            self._check_reading,
            self._check_answering,
        )
        self._idle_ticks = ticks(keepalive_s)

    def sweep(self, connections: Iterable[CallerConnection]) -> None:
        """One beat. Takes no time of a request younger than a tick."""
        self._pulse.advance()
        for connection in tuple(connections):
            if not connection.killed:
                self._checks[connection.phase](connection)

    def shed(self, connections: Collection[CallerConnection], room: int) -> None:
        """End as many as are more than `room`, of those without a request under way: first who waited the longest
        between two, then who has been sending one for the longest."""
        waiting = [one for one in connections if one.phase != ANSWERING]
        ending = [one for one in waiting if one.expired]
        waiting = sorted((one for one in waiting if not one.expired), key=lambda one: (one.phase, one.since))
        for connection in waiting[: max(0, len(connections) - len(ending) - room)]:
            connection.expire()

    def _check_idle(self, connection: CallerConnection) -> None:
        if not connection.expired and self._pulse.tick - connection.since > self._idle_ticks:
            connection.expire()

    def _check_reading(self, connection: CallerConnection) -> None:
        took = self._pulse.tick - connection.since
        if took <= self._head_ticks or connection.expired:
            return
        if took > min(self._head_ticks + connection.received / self._tick_bytes, self._body_ticks):
            connection.expire()

    def _check_answering(self, connection: CallerConnection) -> None:
        stall, tick = connection.stall, self._pulse.tick
        stuck = stall is not None and stall.is_too_slow(tick, self._stall_ticks, self._answer_bytes)
        # An expired connection whose request came at that very moment looks closed, but its caller is there.
        older = connection.peekable and not connection.expired and self._pulse.tick > connection.since
        if stuck or (older and connection.is_gone()):
            end(connection, ClientGone())


def end(connection: CallerConnection, reason: GreenletExit) -> None:
    """Raise `reason` in the greenlet of `connection`; once only, for a second would cut its `finally` blocks."""
    connection.killed = True
    connection.greenlet.kill(reason, block=False)


def ticks(seconds: float) -> int:
    """Seconds as whole ticks, at least one."""
    return max(1, round(seconds / TICK_S))
