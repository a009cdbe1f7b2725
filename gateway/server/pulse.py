"""What all connections of a worker share: its beat, and the ways in which it ends a request."""

from email.utils import format_datetime

from gevent import GreenletExit

from gateway.clock import Clock

TICK_S = 0.25


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
        self.date = f"Date: {format_datetime(self._clock.now(), usegmt=True)}"
