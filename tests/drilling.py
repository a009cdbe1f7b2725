"""Servers that fail in one way each, and the measuring of requests through a gateway while they do."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import gevent
import httpx
from fakes.server import serving
from gateways import LocalGateway, free_port
from gevent.server import StreamServer

BODY = {"model": "twin", "messages": [{"role": "user", "content": "Hello"}]}
Fault = Callable[[], contextlib.AbstractContextManager[str]]


@dataclass
class Row:
    name: str
    way: str
    asked: int
    good: int
    added_ms: float
    worst_ms: float


@dataclass
class Report:
    rows: list[Row] = field(default_factory=list)

    def __str__(self) -> str:
        head = f"\n{'fault of one of two providers':<34}{'answer':<10}{'success':>9}{'added':>10}{'worst':>10}"
        lines = [
            f"{row.name:<34}{row.way:<10}{100 * row.good / row.asked:>8.1f}%"
            f"{row.added_ms:>7.0f} ms{row.worst_ms:>7.0f} ms"
            for row in self.rows
        ]
        return "\n".join([head, *lines])


@dataclass
class Tally:
    """What became of the requests: seconds of each good one, and what the bad ones were told."""

    good: list[float] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)

    @property
    def median_s(self) -> float:
        return sorted(self.good)[len(self.good) // 2]


def ask(gateway: LocalGateway, stream: bool, http: httpx.Client) -> str:
    """One request: "" when it was answered whole, else what was wrong."""
    headers = {"Authorization": f"Bearer {gateway.key}"}
    answer = http.post(f"{gateway.url}/chat/completions", json={**BODY, "stream": stream}, headers=headers)
    if answer.status_code != 200:
        return f"{answer.status_code} {answer.text[:200]}"
    if not stream:
        return "" if answer.json()["choices"][0]["message"]["content"] == "Hello." else "another text"
    return judge(answer.text)


def judge(text: str) -> str:
    """A stream is whole when it says all of the answer and then that it is done; broken when it says so."""
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    said = "".join(
        (choice["delta"].get("content") or "")
        for line in lines
        if line.startswith("{")
        for choice in json.loads(line).get("choices", ())
    )
    if lines and lines[-1] == "[DONE]":
        return "" if said == "Hello." else f"passed for whole: {said!r}"
    return "an error event" if "event: error" in text else "ended without a word"


def drill(gateway: LocalGateway, stream: bool, requests: int = 24, together: int = 4) -> Tally:
    """So many requests, a few at a time."""
    tally = Tally()

    def run(http: httpx.Client) -> None:
        for _ in range(requests // together):
            began = time.monotonic()
            problem = ask(gateway, stream, http)
            if problem:
                tally.bad.append(problem)
            else:
                tally.good.append(time.monotonic() - began)

    with open_client() as http:
        gevent.joinall([gevent.spawn(run, http) for _ in range(together)], raise_error=True)
    return tally


def open_client() -> httpx.Client:
    return httpx.Client(trust_env=False, timeout=20)


# Faults: each gives the base address of a provider that has it.


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
    """A server that speaks by hand: `send(socket)` after the request came."""

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
    """A byte of its headers now and then, and never an answer."""

    def send(socket) -> None:
        for byte in HEAD * 40:
            socket.sendall(bytes([byte]))
            gevent.sleep(0.1)

    return raw(send)


@contextlib.contextmanager
def refused() -> Iterator[str]:
    yield f"http://127.0.0.1:{free_port()}/v1"


@contextlib.contextmanager
def answering(port: int) -> Iterator[list[str]]:
    """A provider that answers on that port; the paths that it was asked."""
    paths: list[str] = []
    message = {"role": "assistant", "content": "Hello."}
    body = {
        "id": "x", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }  # fmt: skip

    def answer(environ: dict, start: Callable) -> list[bytes]:
        paths.append(environ["PATH_INFO"])
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(body).encode()]

    with serving(answer, port):
        yield paths


@contextlib.contextmanager
def unknown_name() -> Iterator[str]:
    yield "http://no-such-host.invalid/v1"
