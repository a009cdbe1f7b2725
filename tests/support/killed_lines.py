"""Batches of many lines on nodes whose workers are killed, and the watch over the workers meanwhile."""

import os
import random
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import gevent
import httpx
from support.gateways import GatewayProcess
from support.spending import pay, until

BUSY_S = 0.5  # in which the busiest worker is found
PROBE_EVERY_S = 0.05
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


def private_mb(pid: int) -> float:
    """Return the memory that a process has for itself; 0 for one that has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0.0
    return (int(pages[1]) - int(pages[2])) * PAGE_KB / 1024


class Watch:
    """Kills workers, measures the memory of those that live, and sends small requests beside the batch."""

    def __init__(self, nodes: list[GatewayProcess], kill_every_s: float) -> None:
        self._nodes = nodes
        self._kill_every_s = kill_every_s
        self._chance = random.Random(5)
        self.stopping = False
        self.kills = 0
        self.growth_mb = 0.0
        self.waits_s: list[float] = []
        self._least: dict[int, float] = {}

    def kill(self) -> None:
        """Kill a worker by chance, and in every other round the one that works most, which has the batch."""
        while not self.stopping:
            gevent.sleep(self._kill_every_s - BUSY_S)
            before = self._processor_times()
            gevent.sleep(BUSY_S)
            used = {pid: now - before.get(pid, now) for pid, now in self._processor_times().items()}
            if used and not self.stopping:
                busiest = max(used, key=lambda pid: used[pid])
                os.kill(self._chance.choice([busiest, self._chance.choice(list(used))]), signal.SIGKILL)
                self.kills += 1

    def _processor_times(self) -> dict[int, int]:
        times = {}
        for pid in (pid for node in self._nodes for pid in node.workers()):
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                times[pid] = int(fields[11]) + int(fields[12])
        return times

    def measure(self) -> None:
        """The memory of a worker grows from that after its first seconds, in which it imports its modules."""
        since: dict[int, float] = {}
        while not self.stopping:
            for pid in (pid for node in self._nodes for pid in node.workers()):
                born = since.setdefault(pid, time.monotonic())
                used = private_mb(pid)
                if time.monotonic() - born > 2 and used:
                    least = self._least.setdefault(pid, used)
                    self.growth_mb = max(self.growth_mb, used - least)
            gevent.sleep(0.5)

    def probe(self, seconds: float = 1e9) -> list[float]:
        """Return how long small requests waited, sorted; those of killed workers have no answer."""
        waits: list[float] = []
        end = time.monotonic() + seconds
        for node in self._round():
            if self.stopping or time.monotonic() > end:
                break
            began = time.monotonic()
            if pay(node, words="small").status == 200:
                waits.append(time.monotonic() - began)
            gevent.sleep(PROBE_EVERY_S)
        return sorted(waits)

    def _round(self) -> Any:
        while True:
            yield from self._nodes


def p99_ms(waits: list[float]) -> float:
    return waits[int(len(waits) * 0.99)] * 1000


def run_batch(
    nodes: list[GatewayProcess], watch: Watch, data: bytes, patience_s: float, metadata: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], float]:
    """Run a batch to its end; return it, and the seconds that it took."""
    file = httpx_of(nodes[0], "POST", "/files", files={"file": ("l.jsonl", data)}, data={"purpose": "batch"}).json()
    wire = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    began = time.monotonic()
    batch = httpx_of(nodes[0], "POST", "/batches", json={**wire, "metadata": metadata}).json()["id"]
    helpers = [gevent.spawn(watch.kill), gevent.spawn(watch.measure)]
    probing = gevent.spawn(watch.probe)
    shown: dict[str, Any] = {}

    def ended() -> bool:
        gevent.sleep(1)
        shown.update(httpx_of(nodes[-1], "GET", f"/batches/{batch}").json())
        return shown["status"] in ("completed", "failed", "expired")

    in_time = until(ended, patience_s)
    seconds = time.monotonic() - began
    watch.stopping = True
    assert in_time, shown
    gevent.killall(helpers)  # one may wait long for the next kill
    watch.waits_s = probing.get()
    sizes = [int(node.environment["WEB_CONCURRENCY"]) for node in nodes]
    assert until(lambda: [len(node.workers()) for node in nodes] == sizes)
    return shown, seconds


def httpx_of(node: GatewayProcess, method: str, path: str, **given: Any) -> httpx.Response:
    """Return the answer to a request, which is sent again while workers are killed or the database starts."""
    for left in reversed(range(120)):
        try:
            with httpx.Client(timeout=120, headers={"Authorization": f"Bearer {node.key}"}) as http:
                answer = http.request(method, f"{node.address}/v1{path}", **given)
            if answer.status_code < 500:
                answer.raise_for_status()
                return answer
        except httpx.TransportError:
            if not left:
                raise
        gevent.sleep(0.5)
    raise AssertionError(answer.text)
