"""Work that may continue for a while after its caller disconnected.

A greenlet that waits for something that must be paid in any case sets the attribute `paid_work`, which decides how
long the work continues.
"""

from collections.abc import Callable
from typing import Any, Protocol

import gevent

current: Callable[[], Any] = gevent.getcurrent
ATTRIBUTE = "paid_work"


class CallerGone(gevent.GreenletExit):
    """Ends the greenlet of a request with a disconnected caller, once its paid work is complete."""


class PaidWork(Protocol):
    """Work that must be paid whether or not it is completed."""

    def after_disconnect(self) -> float:
        """Return the seconds for which it continues without its caller, 0 to end it at once."""
        ...


def dismiss(greenlet: Any, reason: BaseException | None = None, unless: Callable[[], bool] = bool) -> bool:
    """End the work of a greenlet with a disconnected caller by raising `reason` (GreenletExit) in it.

    Return whether it continues as paid work instead; it is ended after the time for that, `unless` the caller
    returned.
    """
    reason = reason or gevent.GreenletExit()
    if _continues(greenlet, reason, unless):
        return True
    gevent.get_hub().loop.run_callback(_end_unpaid, greenlet, reason, unless)
    return False


def _continues(greenlet: Any, reason: BaseException, unless: Callable[[], bool]) -> bool:
    """Return whether the greenlet's work is paid and continues; set its end."""
    work: PaidWork | None = getattr(greenlet, ATTRIBUTE, None)
    seconds = 0.0 if work is None else work.after_disconnect()
    if work is None or not seconds:
        return False
    gevent.spawn_later(seconds, _end, greenlet, work, reason, unless)
    return True


def _end_unpaid(greenlet: Any, reason: BaseException, unless: Callable[[], bool]) -> None:
    """End a greenlet from the event loop, unless it has begun paid work since. `kill` would end that as well, after
    its request was sent."""
    if not greenlet.dead and not unless() and not _continues(greenlet, reason, unless):
        greenlet.throw(reason)


def _end(greenlet: Any, work: PaidWork, reason: BaseException, unless: Callable[[], bool]) -> None:
    # After that work the greenlet ends normally, and must not be interrupted in its `finally` blocks.
    if getattr(greenlet, ATTRIBUTE, None) is work and not unless():
        greenlet.kill(reason, block=False)
