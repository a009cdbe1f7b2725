"""The beat of a worker: one sweep over all connections instead of a timer for each."""

from collections.abc import Callable, Iterable
from email.utils import format_datetime
from typing import TYPE_CHECKING

from gevent import GreenletExit

from gateway.clock import Clock

if TYPE_CHECKING:
    from gateway.server.connection import Connection

TICK_S = 0.25
READ_S = 30.0
SEND_S = 60.0


class ClientGone(GreenletExit):
    """Ends the greenlet of a request whose caller hung up; `finally` blocks run, `except Exception` does not see it."""


class ServerStopping(GreenletExit):
    """Ends the greenlet of a request that outlasted the worker's grace."""


class Pulse:
    """What every connection of a worker reads without a call: the tick, the Date line, whether it is leaving."""

    __slots__ = ("tick", "date", "leaving", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.tick = 0
        self.leaving = False
        self.date = ""
        self.advance()

    def advance(self) -> None:
        """One tick on; ticks start at 1."""
        self.tick += 1
        self.date = f"Date: {format_datetime(self._clock.now(), usegmt=True)}\r\n"


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

    def sweep(self, connections: Iterable["Connection"]) -> None:
        """One beat. Takes no time of a request younger than a tick."""
        self._pulse.advance()
        for connection in tuple(connections):
            if not connection.killed:
                self._checks[connection.phase](connection)

    def _expire_after(self, limit: int) -> Callable[["Connection"], None]:
        def check(connection: "Connection") -> None:
            if not connection.expired and self._pulse.tick - connection.since > limit:
                connection.expire()

        return check

    def _check_answering(self, connection: "Connection") -> None:
        stuck = connection.sending and self._pulse.tick - connection.sending > self._send_ticks
        # An expired connection whose request came at that very moment looks closed, but its caller is there.
        older = connection.peekable and not connection.expired and self._pulse.tick > connection.since
        if stuck or (older and connection.is_gone()):
            end(connection, ClientGone())


def end(connection: "Connection", reason: GreenletExit) -> None:
    """Raise `reason` in the greenlet of `connection`; once only, for a second would cut its `finally` blocks."""
    connection.killed = True
    connection.greenlet.kill(reason, block=False)


def ticks(seconds: float) -> int:
    """Seconds as whole ticks, at least one."""
    return max(1, round(seconds / TICK_S))
