"""The state that all connections of a worker share: its clock tick, and the exceptions that end a request."""

from email.utils import formatdate

from gevent import GreenletExit

from gateway.clock import SECOND_US, Clock


class ClientGone(GreenletExit):
    """Ends the greenlet of a request after its caller disconnected; `except Exception` does not catch it."""


class ServerStopping(GreenletExit):
    """Ends the greenlet of a request that outlasted the worker's grace period."""


class WorkerState:
    """The values that every connection reads without a call: the tick, the Date header line, and whether the worker
    shuts down."""

    __slots__ = ("_clock", "_second", "date", "leaving", "tick")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = -1
        self.tick = 0
        self.leaving = False
        self.date = ""
        self.advance()

    def advance(self) -> None:
        """Advance by one tick and update the date; ticks start at 1."""
        self.tick += 1
        second = self._clock.now_us() // SECOND_US
        if second != self._second:
            self._second = second
            self.date = f"Date: {formatdate(second, usegmt=True)}"
