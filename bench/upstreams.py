"""Servers that replace providers where the mock in C is too limited.

The module with the answers runs again in a separate process: `python -m THE.MODULE --serve PORT`.
"""

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson

from bench.processes import RIG_CORE, refuse_taken, running, wait_for_port
from bench.targets import ROOT

HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


@contextlib.contextmanager
def serving(module: str, port: int, folder: Path) -> Iterator[int]:
    """Run the upstream of `module` on `port`; yield the next port, which is free for a gateway. Raises BenchError."""
    for taken in (port, port + 1):
        refuse_taken(taken)
    command = [sys.executable, "-m", module, "--serve", str(port)]
    with running("upstream", command, RIG_CORE, folder, {"PYTHONPATH": str(ROOT)}) as upstream:
        wait_for_port(upstream, port)
        yield port + 1


def serve(port: int, answer: Callable[[socket.socket], object]) -> None:
    """Serve each connection by `answer` in a separate thread, without end."""
    listener = socket.create_server(("127.0.0.1", port), backlog=512)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def size_of(head: bytes) -> int:
    """Return the length of the body that follows a head."""
    lines = head.lower().split(b"\r\n")
    return next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)


def write_reply(start_line: bytes, answers: dict[bytes, dict]) -> bytes:
    """Return the answer to a request: the entry of `answers` with the end of its path as key, else 404."""
    path = start_line.split(b" ", 2)[1].partition(b"?")[0]
    body = next((orjson.dumps(known) for end, known in answers.items() if path.endswith(end)), b"")
    return HEAD % (b"200 OK" if body else b"404 Not Found", len(body)) + body
