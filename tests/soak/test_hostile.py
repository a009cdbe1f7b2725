"""Many callers without a key who want to freeze or fill the gateway, beside normal traffic that must not notice."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import GatewayProcess
from support.spending import BODIES, write_mint

CROWD = Path(__file__).with_name("crowd.py")
TOKEN = "scrape-me"
CALLERS = 4
PATH = "/v1/chat/completions"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with FakeUpstream() as mint:
        environment = write_mint(tmp_path / "catalogue", mint.url)
        environment |= {"GATEWAY_METRICS_TOKEN": TOKEN, "GATEWAY_BOOTSTRAP_CREDITS_USD": "100000"}
        made = GatewayProcess(tmp_path / "data", 1, **environment)
        try:
            yield made.start()
        finally:
            made.stop()


def figures(gateway: GatewayProcess) -> dict[str, float]:
    asked = urllib.request.Request(f"{gateway.address}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {
        line.split()[0].removeprefix("llmgateway_"): float(line.split()[1])
        for line in lines
        if "{" not in line and line[0] != "#"
    }


def traffic(gateway: GatewayProcess, seconds: float) -> tuple[set[int], list[float]]:
    """Statuses and sorted durations of what normal callers asked."""
    until = time.monotonic() + seconds
    body = {"model": "mint/coin"} | BODIES[PATH]("hello")

    def call() -> list[tuple[int, float]]:
        told = []
        while time.monotonic() < until:
            began = time.monotonic()
            status, _ = gateway.post(PATH, body)
            told.append((status, time.monotonic() - began))
            gevent.sleep(0.02)
        return told

    callers = [gevent.spawn(call) for _ in range(CALLERS)]
    told = [one for caller in callers for one in caller.get()]
    return {status for status, _ in told}, sorted(took for _, took in told)


def p99(durations: list[float]) -> float:
    return durations[len(durations) * 99 // 100]


@pytest.mark.parametrize(("count", "seconds"), [(100, 5), pytest.param(1000, 40, marks=pytest.mark.soak)])
def test_hostile_callers_disturb_nobody(gateway: GatewayProcess, count: int, seconds: float) -> None:
    traffic(gateway, 2)  # warm
    statuses, alone = traffic(gateway, seconds)
    before = figures(gateway)
    crowd = subprocess.Popen([sys.executable, CROWD, str(gateway.port), str(count), str(seconds + 10)])
    try:
        gevent.sleep(4)
        during, beside = traffic(gateway, seconds)
        after = figures(gateway)
    finally:
        crowd.terminate()
        crowd.wait(20)
    # What else the machine does comes and goes: the slower of before and after is what is usual here and now.
    again = traffic(gateway, seconds / 2)[1] if count >= 1000 else alone
    usual, disturbed = max(p99(alone), p99(again)), p99(beside)
    grown = after["resident_bytes"] - before["resident_bytes"]
    print(f"{len(beside)} beside {count}: p99 {usual * 1e3:.0f} -> {disturbed * 1e3:.0f} ms, {grown / 1e6:.0f} MB more")
    assert statuses == during == {200}
    # By the watchdog's own figures: CPU time of one turn of the loop, memory, connections.
    assert after["loop_busy_seconds"] < 0.5
    assert grown < 40e6 + count * 100e3 and after["connections"] > count / 2
    if count >= 1000:
        assert disturbed < 3 * max(usual, 0.02)
