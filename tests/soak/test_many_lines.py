"""A batch of many lines on two nodes while workers are killed: every line has one result and is paid once, workers stay
small, and small requests beside it are answered. `make batch-kills LINES=50000` runs fifty thousand; the default is
4,000."""

import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import gevent
import httpx
import pytest
from support.gateways import GatewayProcess, Start
from support.marked_calls import MarkedCalls
from support.spending import TOKEN_NUSD, pay, query, reserved_nusd, until

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not shutil.which("cc"), reason="the provider is written in C"),
]

LINES = int(os.environ.get("LINES", "4000"))
KILL_EVERY_S = float(os.environ.get("KILL_EVERY_S", "10"))
NODES = WORKERS = 2
TOKENS = 100  # of each answer
BUSY_S = 0.5  # in which the busiest worker is found
PATIENCE_S = 600 + LINES / 10
PROBE_EVERY_S = 0.05
MEMORY_GROWTH_MB = 40
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.fixture
def mint(tmp_path: Path) -> MarkedCalls:
    return MarkedCalls(tmp_path)


def line(number: int) -> bytes:
    body = {
        "model": "mint/coin",
        "max_tokens": TOKENS,
        "messages": [{"role": "user", "content": f"mark:m{number}"}],
    }
    return json.dumps({"custom_id": f"m{number}", "url": "/v1/chat/completions", "body": body}).encode()


def private_mb(pid: int) -> float:
    """Return the memory that a process has for itself; 0 for one that has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0.0
    return (int(pages[1]) - int(pages[2])) * PAGE_KB / 1024


class Watch:
    """Kills workers, measures the memory of those that live, and sends small requests beside the batch."""

    def __init__(self, nodes: list[GatewayProcess]) -> None:
        self._nodes = nodes
        self._chance = random.Random(5)
        self.stopping = False
        self.kills = 0
        self.growth_mb = 0.0
        self.waits_s: list[float] = []
        self._least: dict[int, float] = {}

    def kill(self) -> None:
        """Kill a worker by chance, and in every other round the one that works most, which has the batch."""
        while not self.stopping:
            gevent.sleep(KILL_EVERY_S - BUSY_S)
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


@pytest.mark.parametrize("start", ["postgresql"], indirect=True)
def test_every_line_of_a_batch_is_paid_once_although_workers_are_killed(
    start: Start, mint: MarkedCalls, redis_url: str, tmp_path: Path
) -> None:
    more = {"REDIS_URL": redis_url, "GATEWAY_FILES_FOLDER": str(tmp_path / "files")}
    nodes = [start(workers=WORKERS, GATEWAY_BOOTSTRAP_CREDITS_USD="1000000", **more) for _ in range(NODES)]
    with mint.provide(LINES, TOKENS) as calls:
        watch = Watch(nodes)
        alone = watch.probe(10)
        batch, seconds = run_batch(nodes, watch)
    output = httpx_of(nodes[0], "GET", f"/files/{batch['output_file_id']}/content")
    results = [json.loads(one) for one in output.text.splitlines()]
    rows = query(nodes[0], "SELECT request, cost_nusd, finish FROM usage WHERE tags LIKE '%batch%'")
    beside = watch.waits_s
    again = sum(calls) - LINES
    print(
        f"{LINES} lines in {seconds:.0f} s, {watch.kills} kills, {len(rows)} rows, {sum(calls)} calls ({again} again); "
        f"memory +{watch.growth_mb:.0f} MB; p99 of {len(beside)} small requests {p99_ms(beside):.0f} ms, "
        f"alone {p99_ms(alone):.0f} ms"
    )
    assert batch["request_counts"] == {"total": LINES, "completed": LINES, "failed": 0}
    assert [one["custom_id"] for one in results] == [f"m{number}" for number in range(LINES)]
    assert min(calls) >= 1 and max(Counter(calls)) <= 2 + watch.kills
    assert len(rows) == LINES and {cost for _, cost, _ in rows} == {TOKENS * TOKEN_NUSD}
    assert {bytes(request).hex() for request, _, _ in rows} == {one["response"]["request_id"] for one in results}
    assert until(lambda: reserved_nusd(nodes[0]) == 0, 300), query(nodes[0], "SELECT * FROM lease")
    assert "The books agree." in nodes[0].manage("doctor", timeout=1800)
    assert watch.growth_mb <= MEMORY_GROWTH_MB


def run_batch(nodes: list[GatewayProcess], watch: Watch) -> tuple[dict[str, Any], float]:
    """Run a batch to its end; return it, and the seconds that it took."""
    data = b"\n".join(map(line, range(LINES)))
    file = httpx_of(nodes[0], "POST", "/files", files={"file": ("l.jsonl", data)}, data={"purpose": "batch"}).json()
    wire = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    began = time.monotonic()
    batch = httpx_of(nodes[0], "POST", "/batches", json=wire).json()["id"]
    helpers = [gevent.spawn(watch.kill), gevent.spawn(watch.measure)]
    probing = gevent.spawn(watch.probe)
    shown: dict[str, Any] = {}

    def ended() -> bool:
        gevent.sleep(1)
        shown.update(httpx_of(nodes[1], "GET", f"/batches/{batch}").json())
        return shown["status"] == "completed"

    assert until(ended, PATIENCE_S), shown
    seconds = time.monotonic() - began
    watch.stopping = True
    gevent.joinall(helpers)
    watch.waits_s = probing.get()
    assert until(lambda: all(len(node.workers()) == WORKERS for node in nodes))
    return shown, seconds


def httpx_of(node: GatewayProcess, method: str, path: str, **given: Any) -> httpx.Response:
    """Return the answer to a request, which is sent again while workers are killed."""
    for left in reversed(range(20)):
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
