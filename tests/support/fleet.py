"""An installation as an operator runs it: nodes behind nginx, PostgreSQL and Redis, and callers that never stop."""

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
from support.proxy import Nginx

HELLO = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 50}
WAIT_S = 40.0
LONGEST = 200


@dataclass
class LoadResult:
    """What became of requests: (when, what was told) with "" for a whole answer."""

    told: list[tuple[float, str]] = field(default_factory=list)

    def between(self, start: float, end: float) -> "LoadResult":
        return LoadResult([one for one in self.told if start <= one[0] < end])

    @property
    def good(self) -> int:
        return sum(not text for _, text in self.told)

    @property
    def share(self) -> str:
        return f"{100 * self.good / len(self.told):.1f} % of {len(self.told)}" if self.told else "none asked"

    def failures(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for _, text in self.told:
            if text:
                found[text] = found.get(text, 0) + 1
        return found

    def recovered_s(self, since: float) -> float:
        """Seconds from `since` until the last failure after it."""
        return max((when - since for when, text in self.told if text and when >= since), default=0.0)


def ask(address: str, key: str, http: httpx.Client) -> str:
    """One request: "" when it was answered whole, else status and code, or how the connection ended."""
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
    """So many callers ask again and again until the block ends."""
    asked, stop = LoadResult(), []

    def run() -> None:
        with httpx.Client(trust_env=False) as http:
            while not stop:
                began = time.monotonic()
                asked.told.append((began, ask(address, key, http)))
                gevent.sleep(pause_s)

    running = [gevent.spawn(run) for _ in range(count)]
    try:
        yield asked
    finally:
        stop.append(True)
        gevent.joinall(running, timeout=30)


def probe(node: GatewayProcess, path: str = "/readyz") -> tuple[int, str]:
    """Status and body; 0 where nothing answers."""
    with httpx.Client(trust_env=False, timeout=8) as http:
        try:
            answer = http.get(node.address + path)
        except httpx.HTTPError:
            return 0, ""
    return answer.status_code, answer.text


def wait_until(done: Callable[[], Any], seconds: float = WAIT_S) -> float:
    """Seconds until `done` is true; fails when it takes longer."""
    began = time.monotonic()
    while not done():
        assert time.monotonic() - began < seconds, "it did not come to that"
        gevent.sleep(0.05)
    return time.monotonic() - began


def log_line(node: GatewayProcess, pattern: str) -> str:
    """The first line of a node's log that holds the pattern, without time and process, cut off where it is long; ""
    when there is none."""
    for line in node.log().splitlines():
        if re.search(pattern, line):
            told = re.sub(r"^\S+ \S+ (\[\d+\] )?|^\[[^]]*\] \[\d+\] ", "", line).replace("|", "/")
            return told if len(told) <= LONGEST else f"{told[:LONGEST]} …"
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
            with httpx.Client(trust_env=False) as http:
                wait_until(lambda: not ask(self.address, self.key, http))
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
