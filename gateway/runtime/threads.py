"""Native threads for the few things that would block the event loop (SQLite commits, reports, large bodies), and work
that outlives the greenlet that started it."""

import os
import sys
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, ParamSpec, TypeVar

import gevent
from gevent.event import Event
from gevent.hub import Waiter
from gevent.lock import BoundedSemaphore
from gevent.monkey import get_original
from gevent.threadpool import ThreadPool

from gateway.runtime.fair_threads import FairThreads

P = ParamSpec("P")
T = TypeVar("T")


# The event loop gets the interpreter back from a computing thread after so long; each of its waits may cost it once.
SWITCH_S = 0.001
EITHER = 3  # what a socket is told that may be read or written, in the event loop's numbers
COMPUTING, COMPUTING_EACH = 2, 1  # threads that compute at the same time, and those of one owner
# Of what is large (256 KB or less a piece: some 0.3 ms from the caller to the disk, or from there to an upstream).
PIECES_A_MOMENT = 2
MOMENT_S = 0.001


class Threads:
    """A small pool of native threads; `run` parks the calling greenlet until the work is done."""

    def __init__(self, size: int = 4) -> None:
        self._pool = ThreadPool(size)

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work` in a native thread and wait for its result; its exception is raised here."""
        return self._pool.apply(work, args, kwargs)

    def finish(self, work: Callable[[], T], after: Callable[[], object]) -> T:
        """Like `run`, for work that must not raise; `after` is called when it is done, or was never begun, also when
        the caller is killed while waiting."""
        try:
            result = self._pool.spawn(work)
        except BaseException:
            after()
            raise
        result.rawlink(lambda _: after())
        return result.get()

    def close(self) -> None:
        self._pool.kill()


class OwnThread:
    """One native thread for the work of one owner, a piece at a time; the asking greenlet is parked meanwhile.

    For what every request waits for: a pool's thread takes three times the steps, and those of a lone request wait for
    memory.
    """

    def __init__(self) -> None:
        self._process = 0  # a child of a fork has none of its parent's threads
        self._wake: Any = None
        self._done: Any = None  # what the event loop watches
        self._work: Callable[[], object] | None = None
        self._result: Any = None
        self._after: Callable[[], object] = int
        self._waiter: Any = None  # there while something is under way
        self._closing = False

    def finish(self, work: Callable[[], T], after: Callable[[], object]) -> T:
        """As `Threads.finish`. Who asks sees to it that the work before has ended."""
        try:
            if self._process != os.getpid():
                self._start()
            self._work = work
            self._after = after
            self._waiter = Waiter()
            self._done.start(self._end)
            self._wake.release()
        except BaseException:
            after()
            raise
        return self._waiter.get()

    def close(self) -> None:
        """End the thread, after the work that is under way."""
        self._closing = True
        if self._process == os.getpid() and self._waiter is None:
            self._stop()

    def _stop(self) -> None:
        self._process = 0
        self._work = None
        self._wake.release()
        self._done.close()

    def _start(self) -> None:
        self._wake = get_original("_thread", "allocate_lock")()
        self._wake.acquire()
        self._done = gevent.get_hub().loop.async_()
        get_original("_thread", "start_new_thread")(self._run, (self._wake, self._done.send))
        self._process = os.getpid()

    def _run(self, wake: Any, tell: Callable[[], object]) -> None:
        """The thread."""
        while True:
            wake.acquire()
            work = self._work
            if work is None:
                return
            self._result = work()
            tell()

    def _end(self) -> None:
        """Called in the hub: the work is done."""
        self._done.stop()
        result = self._result
        waiter = self._waiter
        after = self._after
        self._result = self._work = self._waiter = None
        if self._closing:
            self._stop()
        try:
            after()
        finally:
            waiter.switch(result)


def compute(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work`, pure computing that may take more than 20 ms, in a native thread and wait for its result; its
    exception is raised here. It must neither wait nor touch anything of the event loop. Owners of work (`work_for`)
    take turns."""

    if getattr(_here, "computing", False):
        return work(*args, **kwargs)

    def attempt() -> T:
        _here.computing = True
        return work(*args, **kwargs)

    hub = gevent.get_hub()
    pool = _computing.get(id(hub))
    if pool is None:
        sys.setswitchinterval(SWITCH_S)
        pool = _computing[id(hub)] = FairThreads(COMPUTING, each=COMPUTING_EACH, hub=hub)
    return pool.run(work_owner(), attempt)


def work_for(owner: str) -> None:
    """Attribute the computing of this greenlet, and of greenlets that it starts, to `owner`: an organization or a user.
    Only large work needs it; work without an owner shares one turn."""
    gevent.getcurrent().work_owner = owner


def work_owner() -> str:
    """The owner of the computing of this greenlet; "" for none."""
    return getattr(gevent.getcurrent(), "work_owner", "")


def _start(work: Callable[..., object], args: tuple[object, ...]) -> gevent.Greenlet:
    """Start a greenlet that computes for the owner of this one."""
    made = gevent.Greenlet(work, *args)
    if owner := work_owner():
        made.work_owner = owner
    made.start()
    return made


def compute_if(large: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As `compute` where what is worked on is `large`, else called here: a thread costs more than small work."""
    if large:
        return compute(work, *args, **kwargs)
    return work(*args, **kwargs)


_computing: dict[int, FairThreads] = {}
_here = get_original("_thread", "_local")()  # of a native thread, whatever greenlet runs in it


def spawn(work: Callable[..., object], *args: object) -> gevent.Greenlet:
    """Start a background greenlet of this process (sweepers, pollers, writers)."""
    return _start(work, args)


def later(seconds: float, work: Callable[..., object], *args: object) -> gevent.Greenlet:
    """Start a greenlet for `work` after a while."""
    return gevent.spawn_later(seconds, work, *args)


def pause(seconds: float) -> None:
    """Sleep cooperatively."""
    gevent.sleep(seconds)


def give_way() -> None:
    """Let other greenlets have their turn; in a thread of `compute` nothing, for threads take turns by themselves."""
    if not getattr(_here, "computing", False):
        gevent.sleep(0)


def follow(steps: Generator[int, int, T], descriptor: int, most_s: float | None) -> T:
    """The result of `steps` about a socket that does not block: they yield 1 where they want to read, 2 to write, 3
    for either, and go on when that is possible. TimeoutError when all of it takes longer than `most_s`."""
    hub = gevent.get_hub()
    expiry = gevent.Timeout(most_s)
    expiry.start()
    try:
        wanted = next(steps)
        while True:
            watcher = hub.loop.io(descriptor, int(wanted))
            try:
                hub.wait(watcher)
            finally:
                watcher.close()
            wanted = steps.send(EITHER)
    except StopIteration as end:
        return end.value
    except gevent.Timeout as expired:
        if expired is not expiry:
            raise
        raise TimeoutError from None
    finally:
        expiry.close()


class IdleWait:
    """Waits until no other greenlet of this process is ready to run. One greenlet uses it, any number of times.

    Its watchers are kept: gevent's own `idle` with a timeout makes five objects for each wait.
    """

    def __init__(self, most_s: float) -> None:
        loop = gevent.get_hub().loop
        # `again` begins with the whole interval. A timer that is stopped and started goes on with what was left of its
        # time, and all waits together would have `most_s`.
        self._idle = loop.idle()
        self._late = loop.timer(most_s, most_s)

    def wait(self) -> None:
        """Return once no other greenlet and no socket is ready, after `most_s` seconds at the latest."""
        waiter = Waiter()
        try:
            self._idle.start(waiter.switch, None)
            self._late.again(waiter.switch, None)
            waiter.get()
        finally:
            self._idle.stop()
            self._late.stop()


def report_uncaught(report: Callable[[object, tuple[Any, Any, Any]], object]) -> None:
    """Call `report(where, exception info)` for an exception that no greenlet caught, instead of printing it."""

    def print_exception(context: object, kind: Any, error: Any, trace: Any) -> None:
        report(context or "the event loop", (kind, error, trace))

    gevent.get_hub().print_exception = print_exception


def bulk_turn() -> None:
    """Wait for a turn to move a piece of something large. So few have one in each moment that what is small does not
    wait behind the uploads of others; who waits first goes first."""
    hub = gevent.get_hub()
    turns = _turns.get(id(hub))
    if turns is None:
        turns = _turns[id(hub)] = _Turns(hub.loop)
    turns.take()


class _Turns:
    """PIECES_A_MOMENT pieces in each MOMENT_S."""

    def __init__(self, loop: Any) -> None:
        self._timer = loop.timer(MOMENT_S, MOMENT_S)
        self._left = PIECES_A_MOMENT
        self._counting = False
        self._waiting: deque[Event] = deque()

    def take(self) -> None:
        if not self._counting:
            self._counting = True
            self._timer.again(self._begin)
        if self._left:
            self._left -= 1
            return
        mine = Event()
        self._waiting.append(mine)
        try:
            mine.wait()
        except BaseException:
            if mine.is_set():
                self._left += 1  # it was given a turn that it has no more use for
            else:
                self._waiting.remove(mine)
            raise

    def _begin(self) -> None:
        """A new moment. Called in the hub."""
        idle = self._left == PIECES_A_MOMENT
        self._left = PIECES_A_MOMENT
        while self._left and self._waiting:
            self._left -= 1
            self._waiting.popleft().set()
        if idle:
            self._counting = False
            self._timer.stop()


_turns: dict[int, _Turns] = {}


class Slots:
    """So many may be taken at once. One can be given back from anywhere, the event loop's own callbacks included, which
    must not wait: a semaphore of the threading module locks to do so."""

    def __init__(self, size: int) -> None:
        self._free = BoundedSemaphore(size)

    def take(self, timeout_s: float | None) -> bool:
        """Wait for a free one; False when none came in time (None: without an end)."""
        return bool(self._free.acquire(timeout=timeout_s))

    def give(self) -> None:
        self._free.release()


class Job(Generic[T]):
    """Work in a greenlet of its own: when the one who waits for it is killed, the work goes on."""

    def __init__(self, work: Callable[..., T], *args: object) -> None:
        self._greenlet = _start(work, args)

    def result(self, timeout_s: float | None = None) -> T:
        """The result, or the work's exception; TimeoutError when it takes longer than `timeout_s`."""
        try:
            return self._greenlet.get(timeout=timeout_s)
        except gevent.Timeout:
            raise TimeoutError from None

    @property
    def is_over(self) -> bool:
        """Whether it ended, well or not."""
        return bool(self._greenlet.ready())

    def outcome(self) -> T | None:
        """The result if it is there; None while the work goes on, and of work that failed."""
        if self._greenlet.successful():
            return self._greenlet.value
        return None

    def stop(self) -> None:
        self._greenlet.kill(block=False)
