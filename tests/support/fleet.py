"""An installation like an operator's: nodes behind nginx, PostgreSQL and Redis, and callers with a constant load."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
import httpx
from support.gateways import GatewayProcess
from support.postgres import Databases
from support.prepared import SECRETS
from support.proxy import Nginx

HELLO = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 50}
WAIT_S = 40.0
MAX_LENGTH = 200


@contextmanager
def open_nodes(
    databases: Databases, folder: Path, count: int, workers: int, **environment: str
) -> Iterator[list[GatewayProcess]]:
    """Yield running nodes with a PostgreSQL database and an owner in common."""
    url = databases.take()
    environment = {**SECRETS, "DATABASE_URL": url, **environment}
    nodes: list[GatewayProcess] = []
    try:
        for number in range(count):
            nodes.append(GatewayProcess(folder / f"node{number}", workers, **environment).start())
            environment["GATEWAY_BOOTSTRAP_API_KEY"] = nodes[0].key
        yield nodes
    finally:
        for node in nodes:
            with suppress(Exception):
                node.discard()
        databases.give(url)


@dataclass
class LoadResult:
    """Results of requests as (time, error), with "" for a complete answer."""

    results: list[tuple[float, str]] = field(default_factory=list)

    def between(self, start: float, end: float) -> "LoadResult":
        return LoadResult([result for result in self.results if start <= result[0] < end])

    @property
    def good(self) -> int:
        return sum(not text for _, text in self.results)

    @property
    def share(self) -> str:
        return f"{100 * self.good / len(self.results):.1f} % of {len(self.results)}" if self.results else "none asked"

    def failures(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for _, text in self.results:
            if text:
                found[text] = found.get(text, 0) + 1
        return found

    def recovered_s(self, since: float) -> float:
        """Return the seconds from `since` to the last failure after it."""
        return max((when - since for when, text in self.results if text and when >= since), default=0.0)


def send_chat(address: str, key: str, http: httpx.Client) -> str:
    """Send a request. Return "" for a complete answer, otherwise status and code, or the error of the connection."""
    try:
        answer = http.post(
            f"{address}/v1/chat/completions", json=HELLO, headers={"Authorization": f"Bearer {key}"}, timeout=20
        )
    except httpx.HTTPError as error:
        return type(error).__name__
    if answer.status_code == 200:
        return ""
    with suppress(ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.json()['error']['code']}"
    return str(answer.status_code)


@contextmanager
def callers(address: str, key: str, count: int = 4, pause_s: float = 0.05) -> Iterator[LoadResult]:
    """Run `count` callers that send requests until the block ends."""
    load, stop = LoadResult(), []

    def run() -> None:
        with httpx.Client(timeout=60) as http:
            while not stop:
                began = time.monotonic()
                load.results.append((began, send_chat(address, key, http)))
                gevent.sleep(pause_s)

    running = [gevent.spawn(run) for _ in range(count)]
    try:
        yield load
    finally:
        stop.append(True)
        gevent.joinall(running, timeout=30)


def probe(node: GatewayProcess, path: str = "/readyz") -> tuple[int, str]:
    """Return status and body; status 0 without a response."""
    with httpx.Client(timeout=8) as http:
        try:
            answer = http.get(node.address + path)
        except httpx.HTTPError:
            return 0, ""
    return answer.status_code, answer.text


def wait_until(done: Callable[[], Any], seconds: float = WAIT_S) -> float:
    """Return the seconds until `done` is true. Fails after `seconds`."""
    began = time.monotonic()
    while not done():
        assert time.monotonic() - began < seconds, "it did not come to that"
        gevent.sleep(0.05)
    return time.monotonic() - began


def log_line(node: GatewayProcess, pattern: str) -> str:
    """Return the first line of a node's log that contains the pattern, without time and process and truncated; "" when
    no line does."""
    for line in node.log().splitlines():
        if re.search(pattern, line):
            text = re.sub(r"^\S+ \S+ (\[\d+\] )?|^\[[^]]*\] \[\d+\] ", "", line).replace("|", "/")
            return text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]} …"
    return ""


class Fleet:
    """Nodes of one installation behind nginx; `key` is its API key."""

    def __init__(self, folder: Path, nodes: int, workers: int, **environment: str) -> None:
        self.nodes: list[GatewayProcess] = []
        self.nginx: Nginx | None = None
        try:
            for number in range(nodes):
                node = GatewayProcess(folder / f"node{number}", workers, **environment)
                self.nodes.append(node.start())
                environment["GATEWAY_BOOTSTRAP_API_KEY"] = self.key = node.key
            self.nginx = Nginx(folder, [node.port for node in self.nodes], secure=False)
            wait_until(lambda: all(probe(node)[0] == 200 for node in self.nodes))
            with httpx.Client(timeout=60) as http:
                wait_until(lambda: not send_chat(self.address, self.key, http))
        except BaseException:
            self.stop()
            raise

    @property
    def address(self) -> str:
        assert self.nginx is not None
        return self.nginx.address

    def wait_for_workers(self, count: int) -> None:
        wait_until(lambda: all(len(node.workers()) == count for node in self.nodes))

    def stop(self) -> None:
        if self.nginx is not None:
            self.nginx.stop()
        for node in self.nodes:
            node.stop()
