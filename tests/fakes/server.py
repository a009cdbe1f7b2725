"""The base of upstream fakes: a server on the loopback with scripted answers and faults."""

import contextlib
import json
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import gevent
from gevent.pywsgi import WSGIHandler, WSGIServer

Start = Callable[..., Any]
Application = Callable[[dict[str, Any], Start], Iterable[bytes]]


@dataclass(kw_only=True)
class Progress:
    """The part of an answer that was sent, as a fake records it for a request."""

    sent: int = 0
    whole: bool = False
    hung_up: bool = False


@dataclass
class RecordedCall(Progress):
    """A recorded request and its answer, to which tests compare the gateway's accounts."""

    path: str
    headers: dict[str, str]
    body: Any = None
    status: int = 0
    usage: dict[str, Any] | None = None  # set when the answer starts, because it is billed from then on
    problem: str = ""


class FakeServer:
    """The server, on a free port of the loopback address, from `with` to its end. Each fake answers in `serve`.

    `calls` are the requests as they came, `base` what follows the address in `url`.
    """

    base = ""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self._script: list[Any] = []
        self._away = False
        self._server = make_server(self._answer_call)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.stop(timeout=0.2)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Close the server's port and its connections during the block."""
        self._server.stop(timeout=0.2)
        self._away = True
        try:
            yield
        finally:
            self._away = False
            self._server.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        """The base URL, including the version path."""
        return self.address + self.base

    def script(self, *answers: Any) -> None:
        """Add answers for the next requests, in order, after those that are not yet used."""
        self._script.extend(answers)

    def forget_script(self) -> None:
        """Drop the answers that are not yet used."""
        self._script.clear()

    def next_answer(self, usual: Any) -> Any:
        return self._script.pop(0) if self._script else usual

    def serve(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        raise NotImplementedError

    def _answer_call(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        if self._away:
            environ["fake.socket"].shutdown(socket.SHUT_RDWR)
            return []
        return self.serve(environ, start)


class PromptHandler(WSGIHandler):
    """Sends each part of an answer immediately (TCP_NODELAY), as the product's server does. Otherwise the second part
    waits 40 ms for the delayed acknowledgement of the first."""

    def __init__(self, sock: Any, address: Any, server: Any) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(sock, address, server)

    def log_request(self) -> None:
        """Log nothing."""


class Handler(PromptHandler):
    """Passes on the socket, which scripts can cut, and the raw path."""

    def get_environ(self) -> dict[str, Any]:
        return super().get_environ() | {"fake.socket": self.socket, "fake.target": self.path}


def make_server(application: Application, port: int = 0) -> WSGIServer:
    return WSGIServer(("127.0.0.1", port), application, log=None, error_log=None, handler_class=Handler)


@contextlib.contextmanager
def serving(application: Application, port: int = 0) -> Iterator[str]:
    """Run a server during the block and yield its URL."""
    server = make_server(application, port)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.stop(timeout=0.1)


def headers_of(environ: dict[str, Any]) -> dict[str, str]:
    """Return the request's headers with names in lower case."""
    return {key[5:].replace("_", "-").lower(): text for key, text in environ.items() if key[:5] == "HTTP_"}


def send_json(start: Start, status: int, body: Any, *headers: tuple[str, str]) -> Iterator[bytes]:
    """Send a complete answer; a `body` of bytes is sent unchanged."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    start(
        f"{status} Scripted",
        [("Content-Type", "application/json"), ("Content-Length", str(len(payload))), *headers],
    )
    return iter([payload])


def send(
    environ: dict[str, Any],
    pieces: Iterable[bytes],
    progress: Progress,
    *,
    fragment: int = 0,
    cut: int | None = None,
    gap_s: float | None = None,
) -> Iterator[bytes]:
    """Send the pieces, split into fragments (0: not split), with a gap after each. The connection breaks after `cut`
    bytes."""
    try:
        for part in _split(pieces, fragment):
            if cut is not None and progress.sent + len(part) >= cut:
                yield part[: cut - progress.sent]
                progress.sent = cut
                environ["fake.socket"].shutdown(socket.SHUT_RDWR)
                return
            yield part
            progress.sent += len(part)
            if gap_s is not None:
                gevent.sleep(gap_s)
        progress.whole = True
    finally:
        progress.hung_up = not progress.whole and cut is None


def _split(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    for piece in pieces:
        step = size or max(1, len(piece))
        yield from (piece[at : at + step] for at in range(0, len(piece), step))
