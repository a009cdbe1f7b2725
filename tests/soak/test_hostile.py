"""Many callers without a key who want to freeze or fill the gateway, beside normal traffic that must not notice."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import GatewayProcess
from support.spending import BODIES, until, write_mint

pytestmark = pytest.mark.extended

CROWD = Path(__file__).with_name("crowd.py")
TOKEN = "scrape-me"
CALLERS = 4
CROWD_S, GONE_S = 60, 60  # at most
PATH = "/v1/chat/completions"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with FakeUpstream() as mint:
        environment = write_mint(tmp_path / "catalogue", mint.url)
        environment |= {"GATEWAY_METRICS_TOKEN": TOKEN, "GATEWAY_BOOTSTRAP_CREDITS_USD": "100000"}
        process = GatewayProcess(tmp_path / "data", 1, **environment)
        try:
            yield process.start()
        finally:
            process.stop()


def figures(gateway: GatewayProcess) -> dict[str, float]:
    request = urllib.request.Request(f"{gateway.address}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {
        line.split()[0].removeprefix("llmgateway_"): float(line.split()[1])
        for line in lines
        if "{" not in line and line[0] != "#"
    }


def traffic(gateway: GatewayProcess, seconds: float) -> tuple[set[int], list[float]]:
    """Return the statuses and durations of normal callers' requests."""
    end = time.monotonic() + seconds
    body = {"model": "mint/coin"} | BODIES[PATH]("hello")

    def call() -> list[tuple[int, float]]:
        results = []
        while time.monotonic() < end:
            began = time.monotonic()
            status, _ = gateway.post(PATH, body)
            results.append((status, time.monotonic() - began))
            gevent.sleep(0.02)
        return results

    callers = [gevent.spawn(call) for _ in range(CALLERS)]
    results = [one for caller in callers for one in caller.get()]
    return {status for status, _ in results}, [took for _, took in results]


def p99(durations: list[float]) -> float:
    return sorted(durations)[len(durations) * 99 // 100]


@contextmanager
def crowd(gateway: GatewayProcess, count: int) -> Iterator[None]:
    """Run `count` hostile callers, most of which are connected at the beginning; the gateway has closed their
    connections at the end."""
    started = subprocess.Popen([sys.executable, CROWD, str(gateway.port), str(count), str(CROWD_S)])
    try:
        assert until(lambda: figures(gateway)["connections"] > count / 2)
        yield
    finally:
        started.terminate()
        started.wait(20)
    with gevent.Timeout(GONE_S):
        while figures(gateway)["connections"] > 2 * CALLERS:
            gevent.sleep(0.5)


@pytest.mark.parametrize(
    ("count", "rounds", "seconds"), [(100, 1, 2), pytest.param(1000, 4, 10, marks=pytest.mark.soak)]
)
def test_hostile_callers_do_not_disturb_others(
    gateway: GatewayProcess, count: int, rounds: int, seconds: float
) -> None:
    """The machine's other load varies. The usual durations are therefore measured before each visit of the crowd, for
    twice as long: both sides of the comparison see the same machine. A small crowd is not compared."""
    compared = count >= 1000
    if compared:
        traffic(gateway, 2)  # warm
    statuses: set[int] = set()
    alone: list[float] = []
    beside: list[float] = []
    first, samples = figures(gateway), []
    for _ in range(rounds):
        new_statuses, took = traffic(gateway, 2 * seconds if compared else 0.5)
        statuses |= new_statuses
        alone += took
        with crowd(gateway, count):
            new_statuses, took = traffic(gateway, seconds)
            samples.append(figures(gateway))
        statuses |= new_statuses
        beside += took
    usual, disturbed = p99(alone), p99(beside)
    grown = max(one["resident_bytes"] for one in samples) - first["resident_bytes"]
    print(f"{len(beside)} beside {count}: p99 {usual * 1e3:.0f} -> {disturbed * 1e3:.0f} ms, {grown / 1e6:.0f} MB more")
    assert statuses == {200}
    # By the watchdog's own figures: CPU time of one turn of the loop, memory.
    assert max(one["loop_busy_seconds"] for one in samples) < 0.5
    assert grown < 40e6 + count * 100e3
    if compared:
        assert disturbed <= 3 * usual
