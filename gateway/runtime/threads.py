"""Native threads for work that would block the event loop (SQLite commits, reports, large bodies), and greenlets.

Some greenlets run work that outlives the greenlet that started it.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

import gevent
from gevent.hub import Waiter
from gevent.lock import BoundedSemaphore
from gevent.monkey import get_original
from gevent.threadpool import ThreadPool

from gateway.errors import GatewayError
from gateway.runtime.fair_threads import FairThreads, outcome_of, result_of

P = ParamSpec("P")
T = TypeVar("T")


# The event loop gets the interpreter lock back from a computing thread after this time. Each of its waits may cost it
# once, and a commit acquires the lock some twenty times. With 1 ms instead, a request took 16 ms instead of 8 during a
# flood of uploads; with 0.05 ms it took no less, because that is the resolution of the system's timers.
SWITCH_INTERVAL_S = 0.0002
READ_OR_WRITE = 3  # gevent's event mask for a socket that is readable or writable
COMPUTING = 2
COMPUTING_EACH = 1  # threads that compute at the same time, and those of one owner


class Threads:
    """A small pool of native threads; `run` suspends the calling greenlet until the work is done."""

    def __init__(self, size: int = 4) -> None:
        self._pool = ThreadPool(size)

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work` in a native thread, wait for its result, and raise its exception here."""
        result: T = result_of(self._pool.apply(outcome_of, (partial(work, *args, **kwargs),)))
        return result

    def finish(self, work: Callable[[], T], after: Callable[[], object]) -> T:
        """Do the same as `run` for work that must not raise.

        `after` is called when the work is done or could not be started, also if the caller is killed while it waits.
        """
        try:
            result = self._pool.spawn(work)
        except BaseException:
            after()
            raise

        def call_after(_: object) -> None:
            after()

        result.rawlink(call_after)
        value: T = result.get()
        return value

    def close(self) -> None:
        self._pool.kill()


class OwnThread:
    """One native thread for the work of one owner, one piece at a time; the calling greenlet is suspended meanwhile.

    It is used where every request waits: a pool's thread takes three times the steps, and those of a lone request
    cause cache misses.
    """

    def __init__(self) -> None:
        self._process = 0  # a forked child has none of its parent's threads
        self._wake: Any = None
        self._done: Any = None  # the watcher of the event loop
        self._work: Callable[[], object] | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        self._after: Callable[[], object] = int
        self._waiter: Any = None  # set while work is in progress
        self._closing = False

    def finish(self, work: Callable[[], T], after: Callable[[], object]) -> T:
        """Return the result of `work`, or raise its exception. The previous work must have ended.

        `after` is called when the work has ended or could not be started, also if the caller is killed while it waits.
        """
        try:
            if self._process != os.getpid():
                self._start()
            self._work = work
            self._after = after
            self._waiter = Waiter()
            self._done.start(self._end)
            self._wake.release()
            # On a single core the thread reaches its first wait for the disk now, instead of when this one waits.
            os.sched_yield()
        except BaseException:
            after()
            raise
        result: T = self._waiter.get()
        return result

    def close(self) -> None:
        """End the thread, after the work in progress."""
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
        """Run the thread's loop."""
        while True:
            wake.acquire()
            work = self._work
            if work is None:
                return
            try:
                self._result = work()
            except BaseException as error:
                self._error = error
            tell()

    def _end(self) -> None:
        """Complete the work. Called in the hub."""
        self._done.stop()
        result = self._result
        error = self._error
        waiter = self._waiter
        after = self._after
        self._result = self._error = self._work = self._waiter = None
        if self._closing:
            self._stop()
        try:
            after()
        finally:
            if error is None:
                waiter.switch(result)
            else:
                waiter.throw(error)


def compute(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work`, pure computation that may take more than 20 ms, in a native thread and wait for its result.

    Its exception is raised here. The work must neither block nor touch anything of the event loop. Owners of work
    (`work_for`) take turns.
    """

    if getattr(_here, "computing", False):
        return work(*args, **kwargs)

    def attempt() -> T:
        _here.computing = True
        return work(*args, **kwargs)

    hub = gevent.get_hub()
    pool = _computing.get(id(hub))
    if pool is None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        pool = _computing[id(hub)] = FairThreads(COMPUTING, each=COMPUTING_EACH, hub=hub)
    return pool.run(work_owner(), attempt)


def work_for(owner: str) -> None:
    """Attribute the computations of this greenlet, and of greenlets that it starts, to `owner`: an organization or a
    user.

    Only large work needs an owner; work without one shares a single turn.
    """
    gevent.getcurrent().work_owner = owner


def work_owner() -> str:
    """Return the owner of this greenlet's computations; "" for none."""
    return getattr(gevent.getcurrent(), "work_owner", "")


class SharedResource(Protocol):
    """Something that several greenlets hold, such as the bytes of a request (byte_budget.HeldBytes)."""

    def share(self) -> None: ...
    def release(self) -> None: ...
    def grow(self, size: int) -> None: ...
    def free(self) -> None: ...


def hold_more(size: int) -> None:
    """Count `size` more bytes for what this greenlet holds, if it holds anything. Overloaded if there is no room."""
    held: SharedResource | None = getattr(gevent.getcurrent(), "held", None)
    if held is not None:
        held.grow(size)


def release_held() -> None:
    """Count no byte any more of what this greenlet holds, because it needs none of them; more may be counted later."""
    held: SharedResource | None = getattr(gevent.getcurrent(), "held", None)
    if held is not None:
        held.free()


def hold(held: SharedResource | None) -> None:
    """Let the greenlets that this one starts hold `held` too, each until it ends: they work with the same request, and
    some of them outlive this one. None: no longer."""
    gevent.getcurrent().held = held


@contextmanager
def holding(held: SharedResource) -> Iterator[None]:
    """Hold `held` instead of what this greenlet holds."""
    current = gevent.getcurrent()
    before: SharedResource | None = getattr(current, "held", None)
    current.held = held
    try:
        yield
    finally:
        current.held = before


def _start(work: Callable[..., object], args: tuple[object, ...]) -> gevent.Greenlet:
    """Start a greenlet that computes for the owner of the current one, and holds what that one holds."""
    current = gevent.getcurrent()
    greenlet = gevent.Greenlet(work, *args)
    if owner := getattr(current, "work_owner", ""):
        greenlet.work_owner = owner
    held: SharedResource | None = getattr(current, "held", None)
    if held is not None:
        held.share()
        greenlet.held = held
        greenlet.rawlink(_release)
    greenlet.start()
    return greenlet


def _release(greenlet: gevent.Greenlet) -> None:
    held = greenlet.held
    greenlet.held = None
    held.release()


def compute_if(large: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Use `compute` for `large` data, else call `work` directly: a thread costs more than small work."""
    if large:
        return compute(work, *args, **kwargs)
    return work(*args, **kwargs)


_computing: dict[int, FairThreads] = {}
_here = get_original("_thread", "_local")()  # of the native thread, not of the greenlet that runs in it


def spawn(work: Callable[..., object], *args: object) -> gevent.Greenlet:
    """Start a background greenlet of this process (sweepers, pollers, writers)."""
    return _start(work, args)


def later(seconds: float, work: Callable[..., object], *args: object) -> gevent.Greenlet:
    """Start a greenlet for `work` after a delay."""
    return gevent.spawn_later(seconds, work, *args)


def pause(seconds: float) -> None:
    """Sleep cooperatively."""
    gevent.sleep(seconds)


def give_way() -> None:
    """Yield to other greenlets; a no-op in a thread of `compute`, because threads are scheduled by the system."""
    if not getattr(_here, "computing", False):
        gevent.sleep(0)


def follow(steps: Generator[int, int, T], descriptor: int, most_s: float | None) -> T:
    """Run `steps` of a protocol on a non-blocking socket and return their result.

    The steps yield 1 to wait until the socket is readable, 2 until it is writable, 3 for either. Raise TimeoutError if
    the total time exceeds `most_s`.
    """
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
            wanted = steps.send(READ_OR_WRITE)
    except StopIteration as end:
        result: T = end.value
        return result
    except gevent.Timeout as expired:
        if expired is not expiry:
            raise
        raise TimeoutError from None
    finally:
        expiry.close()


class IdleWait:
    """Waits until no other greenlet of this process is ready to run. One greenlet uses it, any number of times.

    Its watchers are kept: gevent's own `idle` with a timeout creates five objects for each wait.
    """

    def __init__(self, most_s: float) -> None:
        loop = gevent.get_hub().loop
        # `again` restarts the timer with the full interval. With stop and start it would continue with the remaining
        # time, and all waits together would be limited to `most_s`.
        self._idle = loop.idle()
        self._late = loop.timer(most_s, most_s)

    def wait(self) -> None:
        """Wait until no other greenlet and no socket is ready, at most `most_s` seconds."""
        waiter = Waiter()
        try:
            self._idle.start(waiter.switch, None)
            self._late.again(waiter.switch, None)
            waiter.get()
        finally:
            self._idle.stop()
            self._late.stop()


def report_uncaught(report: Callable[[object, tuple[Any, Any, Any]], object]) -> None:
    """Call `report(where, exception info)` for uncaught exceptions of greenlets, instead of printing them."""

    def print_exception(context: object, kind: Any, error: Any, trace: Any) -> None:
        report(context or "the event loop", (kind, error, trace))

    gevent.get_hub().print_exception = print_exception


class Slots:
    """A limited number of slots.

    A slot can be released from anywhere, including callbacks of the event loop, which must not wait: a semaphore of
    the threading module takes a lock.
    """

    def __init__(self, size: int) -> None:
        self._free = BoundedSemaphore(size)

    def take(self, timeout_s: float | None) -> bool:
        """Wait for a free slot; return False if none was free in time (None: no timeout)."""
        return self._free.acquire(blocking=False) or bool(self._free.acquire(timeout=timeout_s))

    def give(self) -> None:
        self._free.release()


def _outcome_of(work: Callable[..., T], *args: object) -> T | GatewayError:
    """Return the result of the work, or the error that it raises: the event loop logs every exception that ends a
    greenlet with its traceback, although the greenlet that waits for it handles this one."""
    try:
        return work(*args)
    except GatewayError as error:
        return error


class Job(Generic[T]):
    """Work in a separate greenlet: it continues if the greenlet that waits for it is killed."""

    def __init__(self, work: Callable[..., T], *args: object) -> None:
        self._greenlet = _start(_outcome_of, (work, *args))

    def result(self, timeout_s: float | None = None) -> T:
        """Return the result, or raise the work's exception; raise TimeoutError after `timeout_s`."""
        try:
            outcome: T | GatewayError = self._greenlet.get(timeout=timeout_s)
        except gevent.Timeout:
            raise TimeoutError from None
        if isinstance(outcome, GatewayError):
            raise outcome
        return outcome

    @property
    def is_over(self) -> bool:
        """Return whether the work ended, successfully or not."""
        return bool(self._greenlet.ready())

    def outcome(self) -> T | None:
        """Return the result if it is available; None while the work runs, and after a failure."""
        if self._greenlet.successful() and not isinstance(self._greenlet.value, GatewayError):
            result: T = self._greenlet.value
            return result
        return None

    def stop(self) -> None:
        self._greenlet.kill(block=False)


# Free memory of the C library's heap, returned to the system.

_libc = ctypes.CDLL(None)


def return_free_memory() -> None:
    """Return free pages between used ones. Without this call, glibc returns only those at the end of its heap.

    It takes 0.6 ms for 2.5 MB of a heap of 25 MB, and more in a large heap: in a native thread. Other C libraries do
    not have this call (malloc_trim(3)).
    """
    if hasattr(_libc, "malloc_trim"):
        compute(_libc.malloc_trim, 0)
