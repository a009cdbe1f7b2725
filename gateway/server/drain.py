"""Graceful shutdown of a worker: not ready, listeners closed, requests finished, accounts settled last."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import gevent
from msgspec import Struct

from gateway.clock import Clock
from gateway.runtime.loop_turns import TICK_S
from gateway.server.connection import IDLE, CallerConnection, ServerStopping
from gateway.server.connection_timeouts import end, ticks

# Load balancers check readiness about once a second; until then connections are still accepted.
READINESS_NOTICE_S = 1.0
# Reserved before the process is killed, for the `finally` blocks of cancelled requests and then for `close`.
CLEANUP_TIME_S = 2.0
CLOSE_TIMEOUT_S = 1.0
SPARE_TIME_S = 0.25
CHECK_INTERVAL_S = 0.05
# A caller connects before it sends; closing a connection without a request this early would reset that request.
FIRST_REQUEST_TIMEOUT_S = 2.0


class DrainPlan(Struct, frozen=True):
    """The deadlines of a shutdown, on the monotonic clock."""

    stop_accepting_at: float
    cut_at: float
    close_at: float
    leave_at: float


def make_plan(began_at: float, grace_s: float) -> DrainPlan:
    """Return the deadlines of a shutdown from `began_at` until SIGKILL `grace_s` later."""
    settle = min(CLEANUP_TIME_S, grace_s / 2)
    return DrainPlan(
        stop_accepting_at=began_at + min(READINESS_NOTICE_S, grace_s / 10),
        cut_at=began_at + grace_s - settle,
        close_at=began_at + grace_s - settle * CLOSE_TIMEOUT_S / CLEANUP_TIME_S,
        leave_at=began_at + grace_s - settle * SPARE_TIME_S / CLEANUP_TIME_S,
    )


class Drain(Struct):
    """The graceful shutdown of one worker.

    `log` is gunicorn's logger. `busy` returns whether a connection is open, `hurried` whether the operator signalled
    twice.
    """

    log: Any
    clock: Clock
    plan: DrainPlan
    connections: Collection[CallerConnection]
    beat: Callable[[], None]
    busy: Callable[[], bool]
    hurried: Callable[[], bool]

    def run(self, announce: Callable[[], None], stop_accepting: Callable[[], None], close: Callable[[], None]) -> None:
        """Announce (readiness off), wait, `stop_accepting`, let requests finish, cancel the rest, `close`."""
        self._call(announce, "telling the application that the worker shuts down")
        self._wait(partial(self._is_past, self.plan.stop_accepting_at))
        self._call(stop_accepting, "closing the listeners")
        self._wait(self._is_finished)
        if self.hurried():
            # From the second signal the arbiter kills in two seconds, whatever the grace period was.
            self.plan = make_plan(self.clock.monotonic() - CLEANUP_TIME_S, 2 * CLEANUP_TIME_S)
        if self.busy():
            self._cut()
            self._wait(self._is_idle, until=self.plan.close_at)
        self._close(close)

    def _wait(self, done: Callable[[], bool], until: float | None = None) -> None:
        next_beat = 0.0
        while not done() and (until is None or self.clock.monotonic() < until):
            now = self.clock.monotonic()
            if now >= next_beat:
                self.beat()
                next_beat = now + TICK_S
            gevent.sleep(CHECK_INTERVAL_S)

    def _is_past(self, moment: float) -> bool:
        return self.hurried() or self.clock.monotonic() >= moment

    def _is_finished(self) -> bool:
        return self._finish_idle() or self._is_past(self.plan.cut_at)

    def _is_idle(self) -> bool:
        return not self.busy()

    def _finish_idle(self) -> bool:
        """Close idle connections; returns whether no connection is left."""
        for connection in tuple(self.connections):
            if connection.phase == IDLE and not connection.expired and not _is_new(connection):
                connection.expire()
        return self._is_idle()

    def _cut(self) -> None:
        left = [connection for connection in tuple(self.connections) if not connection.killed]
        self.log.warning("grace period over: cancelling %d open requests", len(left))
        for connection in left:
            end(connection, ServerStopping())

    def _close(self, close: Callable[[], None]) -> None:
        closing = gevent.spawn(self._call, close, "closing the application")
        # At least a moment, even when the previous steps took too long.
        closing.join(max(SPARE_TIME_S, self.plan.leave_at - self.clock.monotonic()))
        if not closing.dead:
            self.log.error("closing the application took too long; the worker exits without it")

    def _call(self, work: Callable[[], None], what: str) -> None:
        try:
            work()
        except Exception:
            self.log.exception("%s failed", what)


def _is_new(connection: CallerConnection) -> bool:
    """Return whether the first request of the connection may still be on its way."""
    return connection.head is None and connection.state.tick - connection.since <= ticks(FIRST_REQUEST_TIMEOUT_S)
