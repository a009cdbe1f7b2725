"""The ticks of a process: moments at which its recurring work wakes up together.

An idle process spends most of its CPU on waking up, with cold caches, so loops that need no exact interval share ticks.
"""

import os
import time

TICK_S = 0.25
# Steps that distribute the ticks of several processes, which would otherwise all commit at the same moments.
PHASES = 64


def until_tick(every_s: float = TICK_S) -> float:
    """Return the seconds until the next tick that is a multiple of `every_s`, at least half of `every_s`.

    `every_s` is a multiple of TICK_S. Timers may end a millisecond early: the lower bound skips that tick.
    """
    phase = os.getpid() % PHASES / PHASES * TICK_S
    wait_s = every_s - (time.monotonic() - phase) % every_s
    if wait_s < every_s / 2:
        return wait_s + every_s
    return wait_s
