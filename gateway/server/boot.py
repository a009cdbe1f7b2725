"""The start of a worker: booting, and replacing the placeholder application by the real one."""

import mmap
import os
import signal
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import MutableMapping, Sequence
from typing import Any

import gevent
from gevent.server import StreamServer
from gunicorn.workers.ggevent import GeventWorker

from gateway.server.request_bodies import RequestBodies
from gateway.server.request_heads import HeadCache
from gateway.server.watchdog import Gauges

# The number of ready workers, counted by the master and shared with all workers in memory.

WORKER_COUNT = struct.Struct("<I")


class ReadyCount:
    """The shared counter, written only by the master; stays 0 under another arbiter."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, WORKER_COUNT.size)

    def write(self, count: int) -> None:
        WORKER_COUNT.pack_into(self._memory, 0, count)

    def read(self) -> int:
        (count,) = WORKER_COUNT.unpack_from(self._memory)
        return int(count)


ready_count = ReadyCount()


# A worker that could not boot waits this long before it exits, so that an arbiter other than ours does not restart it
# in a tight loop.
RESTART_DELAY_S = 1.0


def no_handler(environ: MutableMapping[str, Any]) -> None:
    """Stand in for the express lane of an application without one."""


class PausableServer(StreamServer):
    """A listener that can be paused; gevent's own starts accepting again whenever a connection of its pool ends."""

    paused = False

    def start_accepting(self) -> None:
        if not self.paused:
            super().start_accepting()


def stop_accepting(servers: list[PausableServer]) -> None:
    """Accept the connections in the kernel's queue, then close: closing a queue resets its connections."""
    for server in servers:
        server.stop_accepting()
        while (accepted := server.do_read()) is not None:
            server.do_handle(*accepted)
        server.close()


class BootingWorker(GeventWorker, ABC):
    """A worker that ends alone when its boot fails; gunicorn's own exit status would end all workers."""

    _servers: Sequence[PausableServer] = ()
    _accepts = True

    _bodies: RequestBodies

    def init_process(self) -> None:
        """Boot and serve."""
        try:
            super().init_process()
        except Exception:
            problem = "continue" if self.booted else "boot"
            self.log.exception("The worker could not %s", problem)
            gevent.sleep(RESTART_DELAY_S)
            sys.exit(1)

    def init_signals(self) -> None:
        """Install the worker's handlers and deliver signals that came since the fork, which the master blocked."""
        super().init_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT))

    def _take_application(self) -> None:
        """Serve `self.wsgi` from now on."""
        self._bodies.limit_to(self.wsgi)
        self._owner_of = getattr(self.wsgi, "owner_of", None)
        self._lane: Any = getattr(self.wsgi, "express", None)
        self._heads = HeadCache(self._lane.find if self._lane is not None else no_handler)
        self._on_refusal: Any = getattr(self.wsgi, "refused", None)
        watch = getattr(self.wsgi, "watch", None)
        if watch is not None:
            watch(self._gauges)
        follow = getattr(self.wsgi, "follow", None)
        self._waiting = follow is not None
        if follow is not None:
            follow(self._replace_application)
        else:
            # This byte signals to the master that the worker is ready.
            os.ftruncate(self.tmp.fileno(), 1)

    def _replace_application(self, application: Any) -> None:
        """Serve `application` instead of the placeholder from now on."""
        if not self.alive:
            application.close()
            return
        self.wsgi = application
        self._take_application()
        self.cfg.post_worker_init(self)

    def _share(self) -> None:
        """Stop accepting connections while this worker is not ready and another worker is, which then accepts them."""
        accepts = not self._waiting or not ready_count.read()
        if accepts != self._accepts:
            self._accepts = accepts
            for server in self._servers:
                server.paused = not accepts
                if accepts:
                    server.start_accepting()
                else:
                    server.stop_accepting()

    @abstractmethod
    def _gauges(self) -> Gauges:
        """Return the server's own gauges for `/metrics`."""
