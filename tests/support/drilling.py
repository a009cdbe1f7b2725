"""Servers that each fail in one way, and measurements of requests through a gateway meanwhile."""

import contextlib
import itertools
import json
import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import gevent
import httpx
from fakes.server import serving
from gevent.server import StreamServer
from support.gateways import free_port

BODY = {"model": "twin", "messages": [{"role": "user", "content": "Hello"}]}
Fault = Callable[[], contextlib.AbstractContextManager[str]]


@dataclass
class Row:
    """A row of results. `direct` is the number of successful calls to the provider itself, None without a
    comparison."""

    name: str
    way: str
    requests: int
    good: int
    added_ms: float
    worst_ms: float
    direct: int | None = None


@dataclass
class Report:
    rows: list[Row] = field(default_factory=list)

    def __str__(self) -> str:
        head = f"\n{'fault':<54}{'answer':<10}{'success':>9}{'direct':>9}{'added':>10}{'worst':>10}"
        return "\n".join([head, *(self._line(row) for row in self.rows)])

    def _line(self, row: Row) -> str:
        direct = "-" if row.direct is None else f"{100 * row.direct / row.requests:.1f}%"
        added = "-" if math.isnan(row.added_ms) else f"{row.added_ms:.0f} ms"
        return (
            f"{row.name:<54}{row.way:<10}{100 * row.good / row.requests:>8.1f}%{direct:>9}"
            f"{added:>10}{row.worst_ms:>7.0f} ms"
        )


@dataclass
class Tally:
    """Results of requests: the seconds of each successful request, and the errors of the others."""

    good: list[float] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)

    @property
    def median_s(self) -> float:
        return sorted(self.good)[len(self.good) // 2]


class DrilledGateway(Protocol):
    """A gateway, or a provider itself."""

    url: str
    key: str


class Direct(NamedTuple):
    """A provider that is called without a gateway."""

    url: str
    key: str = "any"


def send_chat(gateway: DrilledGateway, stream: bool, http: httpx.Client, **more: Any) -> str:
    """Send a request. Return "" for a complete answer, otherwise the error. `more` are further members of the body."""
    headers = {"Authorization": f"Bearer {gateway.key}"}
    try:
        answer = http.post(f"{gateway.url}/chat/completions", json={**BODY, "stream": stream, **more}, headers=headers)
    except httpx.HTTPError as error:
        return repr(error)
    if answer.status_code != 200:
        return f"{answer.status_code} {answer.text[:200]}"
    if not answer.headers["content-type"].startswith(("application/json", "text/event-stream")):
        return f"no answer: {answer.text[:200]}"
    if not stream:
        return "" if answer.json()["choices"][0]["message"]["content"] == "Hello." else "another text"
    return judge(answer.text)


def judge(text: str) -> str:
    """Return "" for a stream with the complete answer and the end mark, otherwise the error."""
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    said = "".join(
        (choice["delta"].get("content") or "")
        for data in lines
        if data.startswith("{")
        for choice in json.loads(data).get("choices", ())
    )
    if lines and lines[-1] == "[DONE]":
        return "" if said == "Hello." else f"passed for whole: {said!r}"
    return "an error event" if "event: error" in text else "ended without a word"


def drill(
    gateway: DrilledGateway, stream: bool, requests: int = 24, together: int = 4, timeout_s: float = 20, **more: Any
) -> Tally:
    """Send a number of requests, `together` at a time; `more` as in `ask`."""
    tally = Tally()

    def run(http: httpx.Client) -> None:
        for _ in range(requests // together):
            began = time.monotonic()
            problem = send_chat(gateway, stream, http, **more)
            if problem:
                tally.bad.append(problem)
            else:
                tally.good.append(time.monotonic() - began)

    with open_client(timeout_s) as http:
        gevent.joinall([gevent.spawn(run, http) for _ in range(together)], raise_error=True)
    return tally


def open_client(timeout_s: float = 20) -> httpx.Client:
    return httpx.Client(timeout=timeout_s)


# Faults: each yields the base URL of a provider with the fault.


def web(answer: Callable[[dict, Callable], Iterator[bytes]]) -> Fault:
    @contextlib.contextmanager
    def run() -> Iterator[str]:
        with serving(answer) as address:
            yield f"{address}/v1"

    return run


def status(code: int) -> Fault:
    def answer(environ: dict, start: Callable) -> list[bytes]:
        start(f"{code} Scripted", [("Content-Type", "application/json")])
        return [b'{"error": {"message": "scripted", "type": "server_error"}}']

    return web(answer)


def wrong_type() -> Fault:
    def answer(environ: dict, start: Callable) -> list[bytes]:
        start("200 OK", [("Content-Type", "text/html")])
        return [b"<html><body>Sign in to the network</body></html>"]

    return web(answer)


def raw(send: Callable) -> Fault:
    """Run a server that calls `send(socket)` for each request."""

    @contextlib.contextmanager
    def run() -> Iterator[str]:
        def handle(socket, address: tuple) -> None:
            with contextlib.suppress(OSError):
                socket.recv(65536)
                send(socket)

        server = StreamServer(("127.0.0.1", 0), handle)
        server.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.stop(timeout=0.1)

    return run


CHUNK = (
    b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":%s}]}\n\n'
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def framed(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def cut_before() -> Fault:
    return raw(lambda socket: socket.sendall(HEAD + framed(CHUNK % b'{"role":"assistant"}')))


def cut_after() -> Fault:
    return raw(lambda socket: socket.sendall(HEAD + framed(CHUNK % b'{"content":"Hel"}')))


def reset() -> Fault:
    return raw(lambda socket: None)


def silence() -> Fault:
    return raw(lambda socket: gevent.sleep(30))


def trickle() -> Fault:
    """Run a server that sends its headers byte by byte and never completes them."""

    def send(socket) -> None:
        for byte in HEAD * 40:
            socket.sendall(bytes([byte]))
            gevent.sleep(0.1)

    return raw(send)


# Providers that fail some requests: every connection serves one request.


def refusal(status: int, *headers: str) -> Callable:
    """Return a function that sends an error status."""
    body = b'{"error": {"message": "scripted", "type": "scripted", "code": null, "param": null}}'
    lines = [f"HTTP/1.1 {status} Scripted", "Content-Type: application/json", "Connection: close", *headers]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode()
    return lambda socket: socket.sendall(head + body)


def send_garbage(socket) -> None:
    socket.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>"
    )


def send_cut(socket) -> None:
    socket.sendall(HEAD + framed(CHUNK % b'{"role":"assistant"}'))


def hang(socket) -> None:
    gevent.sleep(30)


def close(socket) -> None:
    """Send nothing and close the connection."""


MESSAGE = {"role": "assistant", "content": "Hello."}
WHOLE = {
    "id": "x", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}  # fmt: skip


def send_answer(socket, body: bytes) -> None:
    """Send a valid answer, complete or streamed as requested."""
    if b'"stream":true' in body.replace(b" ", b""):
        chunks = CHUNK % b'{"role":"assistant","content":"Hello."}' + CHUNK % b"{}"
        end = chunks.replace(b'"delta":{}', b'"delta":{},"finish_reason":"stop"') + b"data: [DONE]\n\n"
        socket.sendall(HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + framed(end) + b"0\r\n\r\n")
        return
    answer = json.dumps(WHOLE).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    socket.sendall(head % len(answer) + answer)


def read_request(socket) -> bytes:
    """Receive a request and return its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += socket.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    size = int(re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)[1])
    while len(body) < size:
        body += socket.recv(65536)
    return body


def failing(send: Callable, when: Callable[[int, bytes], bool], port: int = 0) -> Fault:
    """Run a provider that calls `send` if `when(number, body)` is true for a request, and answers other requests."""

    @contextlib.contextmanager
    def run() -> Iterator[str]:
        numbers = itertools.count(1)

        def handle(socket, address: tuple) -> None:
            with contextlib.suppress(OSError):
                body = read_request(socket)
                if when(next(numbers), body):
                    send(socket)
                else:
                    send_answer(socket, body)

        server = StreamServer(("127.0.0.1", port), handle)
        server.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.stop(timeout=0.1)

    return run


@contextlib.contextmanager
def refused() -> Iterator[str]:
    yield f"http://127.0.0.1:{free_port()}/v1"


@contextlib.contextmanager
def answering(port: int) -> Iterator[list[str]]:
    """Run a provider on that port and yield the list of requested paths."""
    paths: list[str] = []

    def answer(environ: dict, start: Callable) -> list[bytes]:
        paths.append(environ["PATH_INFO"])
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(WHOLE).encode()]

    with serving(answer, port):
        yield paths


@contextlib.contextmanager
def unknown_name() -> Iterator[str]:
    yield "http://no-such-host.invalid/v1"
