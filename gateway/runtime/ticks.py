"""The ticks of a process: moments at which its recurring work wakes up together.

An idle process spends most of its CPU on waking up, with cold caches, so loops that need no exact interval share ticks.
In a process that rests, because it has no callers, they wake up less often.
"""

import os
import time

import gevent

TICK_S = 0.25
RESTING_TICK_S = 1.0
# Steps that distribute the ticks of several processes, which would otherwise all commit at the same moments.
PHASES = 64

_resting = False


def rest(resting: bool) -> None:
    """Let the loops of this process wake up less often, or as often as usual again after their current waits."""
    global _resting
    _resting = resting


def until_tick(every_s: float = TICK_S, resting_s: float = RESTING_TICK_S) -> float:
    """Return the seconds until the next tick that is a multiple of `every_s`, at least half of `every_s`.

    In a process that rests it is a multiple of `resting_s`, if that is longer. Both are multiples of TICK_S. Timers may
    end a millisecond early: the lower bound skips that tick.
    """
    if _resting:
        every_s = max(every_s, resting_s)
    # A timer starts at the loop's time, which is that of its last turn: loops that wait for the same tick would wake up
    # one after the other.
    gevent.get_hub().loop.update_now()
    phase = os.getpid() % PHASES / PHASES * TICK_S
    wait_s = every_s - (time.monotonic() - phase) % every_s
    if wait_s < every_s / 2:
        return wait_s + every_s
    return wait_s
