"""How much memory do requests take that wait for a silent provider, and how much do the budgets say?

    make memory

prints for each kind of body how much the worker's resident memory grew, at the end and at most, and what the budget of
large bodies counted.
"""

import json
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.drill_servers import run_server
from support.gateways import GatewayProcess, free_port
from support.large_chats import KINDS

pytestmark = pytest.mark.soak

TOKEN = "scrape-me"
MODEL = "gpt-4.1"
BODIES_MB = 256
MEGABYTE = 1 << 20
CALLERS = 120
TIMES = 1.5  # what the budgets say, which the worker's memory may take
USUAL_TIMES = 1.5  # the memory of usual requests, which the budgets may count
STILL_S = 2.0
PATIENCE_S = 90.0
READ_S = 0.05


def resident(process: int) -> int:
    """Return the resident bytes of a process."""
    lines = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", lines)
    assert found
    return int(found[1]) << 10


@dataclass
class Watch:
    """The resident memory of a process, read all the time."""

    process: int
    before: int = 0
    most: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Watch":
        self.before = self.most = resident(self.process)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *given: object) -> None:
        self._ended.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._ended.wait(READ_S):
            with suppress(OSError):
                self.most = max(self.most, resident(self.process))


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with run_server("silent", free_port()) as address:
        yield address


@pytest.fixture
def gateway(tmp_path: Path, upstream: str) -> Iterator[GatewayProcess]:
    environment = {
        "GATEWAY_METRICS_TOKEN": TOKEN,
        "GATEWAY_BOOTSTRAP_CREDITS_USD": "100000",
        "GATEWAY_SERVER_BODIES_MB": str(BODIES_MB),
        "GATEWAY_SERVER_ORGANIZATION_BODIES_MB": str(BODIES_MB),
        "GATEWAY_TIMEOUTS_SILENCE_S": "600",
        "GATEWAY_TIMEOUTS_REQUEST_S": "600",
        "LLM_OPENAI_BASE_URL": f"{upstream}/v1",
        "LLM_OPENAI_API_KEY": "sk-upstream",
    }
    running = GatewayProcess(tmp_path / "data", 1, **environment)
    running.start()
    yield running
    running.discard()


def counted(gateway: GatewayProcess) -> int:
    """Return what the worker's budget of large bodies counts."""
    request = urllib.request.Request(f"{gateway.address}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        found = re.search(r"^llmgateway_bodies_bytes(?:{[^}]*})? (\S+)", answer.read().decode(), re.MULTILINE)
    assert found
    return int(float(found[1]))


def send(gateway: GatewayProcess, path: str, content: bytes) -> socket.socket:
    """Send a request and return its connection without reading an answer."""
    caller = socket.create_connection(("127.0.0.1", gateway.port), timeout=60)
    head = f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    head += f"Authorization: Bearer {gateway.key}\r\n\r\n"
    with suppress(OSError):  # refused before it was read
        caller.sendall(head.encode() + content)
    return caller


def when_still(read: Callable[[], int]) -> int:
    """Return a figure that has not changed for STILL_S."""
    until = time.monotonic() + PATIENCE_S
    value, since = read(), time.monotonic()
    while time.monotonic() - since < STILL_S:
        assert time.monotonic() < until, "the figure does not come to rest"
        time.sleep(0.2)
        now = read()
        if now != value:
            value, since = now, time.monotonic()
    return value


@pytest.mark.parametrize("kind", KINDS)
def test_waiting_requests_take_the_memory_that_the_budget_counts(gateway: GatewayProcess, kind: str) -> None:
    path, make, usual = KINDS[kind]
    body = make()
    content = json.dumps(body if "{model}" in path else {"model": MODEL, **body}).encode()
    path = path.replace("{model}", MODEL)
    small = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}).encode()
    callers = [send(gateway, "/v1/chat/completions", small)]  # all modules are imported
    time.sleep(1)
    with Watch(gateway.workers()[0]) as memory:
        callers.extend(send(gateway, path, content) for _ in range(CALLERS))
        held = when_still(lambda: counted(gateway))
        grown = resident(memory.process) - memory.before
    for caller in callers:
        caller.close()
    most = memory.most - memory.before
    print(
        f"\n{kind:<20} body {len(content) / MEGABYTE:5.2f} MB   counted {held / MEGABYTE:6.1f} MB   "
        f"memory {grown / MEGABYTE:6.1f} MB ({grown / max(1, held):4.2f} times), at most {most / MEGABYTE:6.1f} MB"
    )
    assert held > BODIES_MB * MEGABYTE / 8, "too few requests waited"
    assert grown <= TIMES * held
    assert most <= TIMES * BODIES_MB * MEGABYTE
    assert not usual or held <= USUAL_TIMES * grown
