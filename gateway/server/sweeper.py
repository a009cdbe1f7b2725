"""The beat of a worker: one sweep over all connections instead of a timer for each."""

from collections.abc import Callable, Iterable

from gevent import GreenletExit

from gateway.server.connection import Connection
from gateway.server.pulse import TICK_S, ClientGone, Pulse

READ_S = 30.0
SEND_S = 60.0


class Sweeper:
    """Ends what nobody waits for: callers that hung up or stopped reading, idle and half-sent requests."""

    def __init__(self, pulse: Pulse, keepalive_s: float, read_s: float = READ_S, send_s: float = SEND_S) -> None:
        self._pulse = pulse
        self._send_ticks = ticks(send_s)
        # By Connection.phase: IDLE, READING, ANSWERING.
        self._checks: tuple[Callable[..., None], ...] = (
            self._expire_after(ticks(keepalive_s)),
            self._expire_after(ticks(read_s)),
            self._check_answering,
        )

    def sweep(self, connections: Iterable[Connection]) -> None:
        """One beat. Takes no time of a request younger than a tick."""
        self._pulse.advance()
        for connection in tuple(connections):
            if not connection.killed:
                self._checks[connection.phase](connection)

    def _expire_after(self, limit: int) -> Callable[[Connection], None]:
        def check(connection: Connection) -> None:
            if not connection.expired and self._pulse.tick - connection.since > limit:
                connection.expire()

        return check

    def _check_answering(self, connection: Connection) -> None:
        stuck = connection.sending and self._pulse.tick - connection.sending > self._send_ticks
        # An expired connection whose request came at that very moment looks closed, but its caller is there.
        older = connection.peekable and not connection.expired and self._pulse.tick > connection.since
        if stuck or (older and connection.is_gone()):
            end(connection, ClientGone())


def end(connection: Connection, reason: GreenletExit) -> None:
    """Raise `reason` in the greenlet of `connection`; once only, for a second would cut its `finally` blocks."""
    connection.killed = True
    connection.greenlet.kill(reason, block=False)


def ticks(seconds: float) -> int:
    """Seconds as whole ticks, at least one."""
    return max(1, round(seconds / TICK_S))
