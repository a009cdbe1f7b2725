"""Native threads for the few things that would block the event loop: SQLite commits, argon2, reports."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import gevent
from gevent.threadpool import ThreadPool

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A small pool of native threads; `run` parks the calling greenlet until the work is done."""

    def __init__(self, size: int = 4) -> None:
        self._pool = ThreadPool(size)

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work` in a native thread and wait for its result; its exception is raised here."""
        return self._pool.apply(work, args, kwargs)

    def close(self) -> None:
        self._pool.kill()


def spawn(work: Callable[..., object], *args: object) -> gevent.Greenlet:
    """Start a background greenlet of this process (sweepers, pollers, writers)."""
    return gevent.spawn(work, *args)


def pause(seconds: float) -> None:
    """Sleep cooperatively."""
    gevent.sleep(seconds)
