"""Work that may go on for a while after its caller disconnected.

A greenlet that waits for something that is paid for anyway names it in the attribute `paid_work`, which tells for how
long it is to go on.
"""

from collections.abc import Callable
from typing import Any, Protocol

import gevent

current: Callable[[], Any] = gevent.getcurrent
ATTRIBUTE = "paid_work"


class CallerGone(gevent.GreenletExit):
    """Ends the greenlet of a request whose caller disconnected, once its paid work is complete."""


class PaidWork(Protocol):
    """Work that is paid for whether it is completed or not."""

    def after_disconnect(self) -> float:
        """The seconds for which it goes on without its caller, 0 to end it at once."""
        ...


def dismiss(greenlet: Any, reason: BaseException | None = None, unless: Callable[[], bool] = bool) -> bool:
    """End the work of a greenlet whose caller disconnected, by raising `reason` (GreenletExit) in it. Returns whether
    it goes on instead as paid work; it is ended after the time for that, `unless` it is wanted again."""
    work: PaidWork | None = getattr(greenlet, ATTRIBUTE, None)
    reason = reason or gevent.GreenletExit()
    if work is None:
        seconds = 0.0
    else:
        seconds = work.after_disconnect()
    if not seconds:
        greenlet.kill(reason, block=False)
        return False
    gevent.spawn_later(seconds, _end, greenlet, work, reason, unless)
    return True


def _end(greenlet: Any, work: PaidWork, reason: BaseException, unless: Callable[[], bool]) -> None:
    # Past that work the greenlet ends by itself, and must not be interrupted in its `finally` blocks.
    if getattr(greenlet, ATTRIBUTE, None) is work and not unless():
        greenlet.kill(reason, block=False)
