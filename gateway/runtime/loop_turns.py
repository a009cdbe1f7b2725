"""Turns on the event loop: work that many callers may start at once is done a little at a time, so that model calls in
between do not wait for all of it. Ticks, at which the recurring work of a process wakes up together."""

import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gevent
from gevent.event import Event

from gateway.runtime.threads import work_owner

# Work in small steps: a background job asks before each further step whether to continue.

ShouldContinue = Callable[[], bool]


def always() -> bool:
    """Return True: the default of `should_continue` arguments, for jobs that run to their end."""
    return True


# The ticks of a process: moments at which its recurring work wakes up together.
#
# An idle process spends most of its CPU on waking up, with cold caches, so loops that need no exact interval share
# ticks. In a process that rests, because it has no callers, they wake up less often.

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


# For pieces of large bodies (256 KB or less: about 0.3 ms each from the caller to the disk, or from there to an
# upstream).
TURNS_PER_SLICE = 2
BULK_SLICE_S = 0.001
# The longest wait of the first in the queue for a turn of low priority.
MAX_WAIT_S = 0.005


def bulk_turn() -> None:
    """Wait for a turn to move one piece of a large body.

    The number of turns at a time is limited so that small requests do not wait behind other callers' uploads. The
    owners of computations (runtime/threads.py) take turns, so that many pieces of one do not delay those of others.
    """
    hub = gevent.get_hub()
    turns = _bulk.get(id(hub))
    if turns is None:
        turns = _bulk[id(hub)] = _MomentTurns(hub.loop)
    turns.take()


def low_priority_turn() -> None:
    """Wait for a turn to do some milliseconds of work that is not a model call: a report, a page, a part of an export.

    A turn is granted whenever nothing else is ready in the event loop, and after 5 ms at the latest; owners take turns
    as in `bulk_turn`. Otherwise a model call, which needs several rounds of the loop, would wait in each for all such
    work.
    """
    hub = gevent.get_hub()
    turns = _low_priority.get(id(hub))
    if turns is None:
        turns = _low_priority[id(hub)] = _IdleTurns(hub.loop)
    turns.take()


@contextmanager
def low_priority() -> Iterator[None]:
    """Do the work of the context at low priority, from a first turn on, with more turns at its `continuation_turn`s."""
    low_priority_turn()
    greenlet = gevent.getcurrent()
    greenlet.low_priority = True
    try:
        yield
    finally:
        greenlet.low_priority = False


def continuation_turn() -> None:
    """Wait for another turn if this greenlet works at low priority; used between two steps that do not wait."""
    if getattr(gevent.getcurrent(), "low_priority", False):
        low_priority_turn()


class _Turns(ABC):
    """Grants up to `size` turns in each period; a subclass starts and stops the watcher that begins the periods.

    `_waiting` are the turns of each owner in order of arrival; the order of the owners is that of their next turns.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._left = size
        self._counting = False
        self._waiting: dict[str, deque[Event]] = {}

    def take(self) -> None:
        if not self._counting:
            self._counting = True
            self._start()
        if self._left:
            self._left -= 1
            return
        turn = Event()
        owner = work_owner()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            turn.wait()
        except BaseException:
            if turn.is_set():
                self._left += 1  # it was granted a turn that it no longer needs
            else:
                self._withdraw(owner, turn)
            raise

    def _begin(self) -> None:
        """Begin a new period. Called in the hub."""
        self._left = self._size
        while self._left and self._waiting:
            self._left -= 1
            self._grant_next()
        if self._left == self._size:
            self._counting = False
            self._stop()

    def _grant_next(self) -> None:
        """Grant the first turn of the first owner, who is then the last one."""
        owner = next(iter(self._waiting))
        turns = self._waiting.pop(owner)
        turns.popleft().set()
        if turns:
            self._waiting[owner] = turns

    def _withdraw(self, owner: str, turn: Event) -> None:
        turns = self._waiting[owner]
        turns.remove(turn)
        if not turns:
            del self._waiting[owner]

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def _stop(self) -> None: ...


class _MomentTurns(_Turns):
    """Grants TURNS_PER_SLICE turns in each BULK_SLICE_S."""

    def __init__(self, loop: Any) -> None:
        super().__init__(TURNS_PER_SLICE)
        self._timer = loop.timer(BULK_SLICE_S, BULK_SLICE_S)

    def _start(self) -> None:
        self._timer.again(self._begin)

    def _stop(self) -> None:
        self._timer.stop()


class _IdleTurns(_Turns):
    """Grants one turn whenever nothing else is ready, or MAX_WAIT_S after the previous one."""

    def __init__(self, loop: Any) -> None:
        super().__init__(1)
        self._idle = loop.idle()
        self._late = loop.timer(MAX_WAIT_S, MAX_WAIT_S)

    def _start(self) -> None:
        self._idle.start(self._begin)
        self._late.again(self._begin)

    def _begin(self) -> None:
        self._late.again(self._begin)
        super()._begin()

    def _stop(self) -> None:
        self._idle.stop()
        self._late.stop()


_bulk: dict[int, _MomentTurns] = {}
_low_priority: dict[int, _IdleTurns] = {}
