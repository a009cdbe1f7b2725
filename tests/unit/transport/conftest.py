"""A fake upstream on loopback that answers with exact bytes, in pieces of any size."""

from collections.abc import Callable, Iterator

import gevent
import pytest
from gevent import socket
from gevent.event import Event
from gevent.server import StreamServer

from gateway.configuration.settings import Security, Timeouts
from gateway.transport import Transport

END = b"\r\n\r\n"


class Upstream:
    """Serves `script`, one entry a request: bytes are sent, numbers slept, events awaited, None closes the connection.

    `split` cuts what is sent into pieces of so many bytes. `requests` holds each request's bytes, `connections`
    how many were accepted, `hung_up` how many ended while the script was still sending.
    """

    def __init__(self, **server_options: object) -> None:
        self.script: list[list] = []
        self.split = 0
        self.requests: list[bytes] = []
        self.connections = self.hung_up = 0
        self._server = StreamServer(("127.0.0.1", 0), self._serve, **server_options)
        self._server.start()
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/v1/chat"

    def answer(self, *steps: bytes | float | Event | None) -> None:
        self.script.append(list(steps))

    def stop(self) -> None:
        self._server.stop(timeout=0.1)

    def _serve(self, sock: socket.socket, _address: object) -> None:
        self.connections += 1
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while self._take_request(sock):
                if not self._play(sock, self.script.pop(0)):
                    return
        except OSError:
            self.hung_up += 1
        finally:
            sock.close()

    def _take_request(self, sock: socket.socket) -> bool:
        data = b""
        while END not in data:
            piece = sock.recv(65536)
            if not piece:
                return False
            data += piece
        head, _, body = data.partition(END)
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                while len(body) < int(line.split(b":")[1]):
                    body += sock.recv(65536)
        self.requests.append(head + END + body)
        return True

    def _play(self, sock: socket.socket, steps: list) -> bool:
        for step in steps:
            if step is None:
                return False
            if isinstance(step, float):
                gevent.sleep(step)
                continue
            if isinstance(step, Event):
                step.wait()
                continue
            size = self.split or len(step) or 1
            for at in range(0, len(step), size):
                sock.sendall(step[at : at + size])
                gevent.sleep(0)
        return True


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.stop()


@pytest.fixture
def start_upstream() -> Iterator[Callable[..., Upstream]]:
    servers: list[Upstream] = []

    def start(**options: object) -> Upstream:
        servers.append(Upstream(**options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def make_transport() -> Iterator[Callable[..., Transport]]:
    made: list[Transport] = []

    def make(private: bool = True, options: dict | None = None, **limits: float) -> Transport:
        values = {"plain_s": 5, "stream_s": 5, "request_s": 5, "connect_s": 1, "silence_s": 2, "heartbeat_s": 1}
        timeouts = Timeouts(**{**values, **limits})
        made.append(Transport(timeouts, Security(private, (), (), private), **(options or {})))
        return made[-1]

    yield make
    for transport in made:
        transport.close()
