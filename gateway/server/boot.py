"""The start of a worker: its boot, and the application that it serves, which may take the place of one that waits."""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import gevent
from gevent.server import StreamServer
from gunicorn.workers.ggevent import GeventWorker

from gateway.server import siblings
from gateway.server.bodies import Bodies
from gateway.server.heads import Heads
from gateway.server.watchdog import Gauges

# Before a worker that could not boot ends, so that another arbiter than ours does not start them in a whirl.
BOOT_REST_S = 1.0


class RestingServer(StreamServer):
    """One that begins to accept again only when it is told to, and not whenever a connection of its pool ends."""

    resting = False

    def start_accepting(self) -> None:
        if not self.resting:
            super().start_accepting()


class BootingWorker(GeventWorker, ABC):
    """A worker whose boot, when it fails, ends this worker alone: the status that gunicorn has for it ends all."""

    _servers: Sequence[RestingServer] = ()
    _accepts = True

    _bodies: Bodies

    def init_process(self) -> None:
        """Boot and serve."""
        try:
            super().init_process()
        except Exception:
            self.log.exception("The worker could not %s", "go on" if self.booted else "boot")
            gevent.sleep(BOOT_REST_S)
            sys.exit(1)

    def _take_application(self) -> None:
        """Serve `wsgi` from now on."""
        self._bodies.limit_to(self.wsgi)
        self._owner_of = getattr(self.wsgi, "owner_of", None)
        self._lane: Any = getattr(self.wsgi, "express", None)
        self._heads = Heads(self._lane.find if self._lane is not None else lambda environ: None)
        self._on_refusal: Any = getattr(self.wsgi, "refused", None)
        watch = getattr(self.wsgi, "watch", None)
        if watch is not None:
            watch(self._gauges)
        follow = getattr(self.wsgi, "follow", None)
        self._waiting = follow is not None
        if follow is not None:
            follow(self._replace_application)
        else:
            # The byte by which the master knows that this worker is ready.
            os.ftruncate(self.tmp.fileno(), 1)

    def _replace_application(self, application: Any) -> None:
        """What the application that waits calls with the one that it waited for."""
        if not self.alive:
            application.close()
            return
        self.wsgi = application
        self._take_application()
        self.cfg.post_worker_init(self)

    def _share(self) -> None:
        """Take no connections while this worker waits and another one is ready: what waits in the kernel is theirs."""
        accepts = not self._waiting or not siblings.ready.read()
        if accepts != self._accepts:
            self._accepts = accepts
            for server in self._servers:
                server.resting = not accepts
                if accepts:
                    server.start_accepting()
                else:
                    server.stop_accepting()

    @abstractmethod
    def _gauges(self) -> Gauges:
        """What the server itself tells on `/metrics`."""
