"""A proxy in front of a server that can be closed, to simulate a broken network."""

import socket
from contextlib import suppress
from typing import Any

import gevent
from gevent.server import StreamServer
from support.gateways import free_port


class Gate:
    """Forwards 127.0.0.1:`port` to a Unix socket while it is open."""

    def __init__(self, path: str) -> None:
        self.port = free_port()
        self._path = path
        self._server: StreamServer | None = None
        self._ends: set[Any] = set()

    def open(self) -> "Gate":
        if self._server is not None:
            return self
        self._server = StreamServer(("127.0.0.1", self.port), self._serve)
        self._server.start()
        return self

    def shut(self) -> None:
        """Refuse new connections and break the existing ones."""
        if self._server is not None:
            self._server.stop(timeout=0.1)
        self._server = None
        for end in tuple(self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _serve(self, caller: Any, address: Any) -> None:
        behind = socket.socket(socket.AF_UNIX)
        try:
            behind.connect(self._path)
        except OSError:  # the server has closed the connection
            return
        self._ends |= {caller, behind}
        gevent.joinall([gevent.spawn(self._pass, caller, behind), gevent.spawn(self._pass, behind, caller)])
        self._ends -= {caller, behind}
        behind.close()

    def _pass(self, source: Any, target: Any) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
