"""Fifty keys under a storm of callers: at every instant what is settled and reserved is within each limit."""

import os
import random
import signal
import threading
import time
from collections import Counter

import gevent
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import GatewayProcess, Start
from support.spending import at_once, make_keys, pay, query, reserved_nusd, settled_nusd, until

from gateway.money import NANO

pytestmark = pytest.mark.extended

KEYS, CALLERS = 50, 60
BEAT_S = 0.05
OVER = "SELECT id, settled_nusd, leased_nusd, limit_nusd FROM budget WHERE settled_nusd + leased_nusd > limit_nusd"


class Reader:
    """Looks at the budgets twenty times a second from outside, as long as the storm lasts."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.looks, self.violations = 0, []
        self._gateway, self._stopping = gateway, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(BEAT_S):
            self.violations += query(self._gateway, OVER)
            self.looks += 1

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def storm(nodes: list[GatewayProcess], keys: list[str], seconds: float) -> list[tuple[int, str]]:
    """Return statuses and codes of callers that send requests as fast as they can, each under a random key."""
    end = time.monotonic() + seconds

    def caller(number: int) -> list[tuple[int, str]]:
        chance, payments = random.Random(number), []
        while time.monotonic() < end:
            prompt = f"wait:{chance.choice((0, 0, 0.02, 0.2))}"
            payment = pay(
                nodes[number % len(nodes)], "", prompt, chance.choice(keys), max_tokens=chance.randint(1, 120)
            )
            payments.append((payment.status, payment.code))
        return payments

    return [one for payments in at_once(CALLERS, caller, seconds + 90) for one in payments]


@pytest.mark.parametrize("seconds", [2, pytest.param(120, marks=pytest.mark.soak)])
def test_no_budget_is_overdrawn_at_any_instant_of_a_storm(start: Start, mint: FakeUpstream, seconds: float) -> None:
    nodes = [start(workers=2, GATEWAY_BOOTSTRAP_CREDITS_USD="100000")]
    if "DATABASE_URL" in nodes[0].environment:
        nodes.append(start(workers=2))
    chance = random.Random(1)
    limits = [round(seconds * chance.uniform(0.005, 0.15) * NANO) for _ in range(KEYS)]
    keys = make_keys(nodes[0], limits)
    reader = Reader(nodes[0])
    try:
        payments = storm(nodes, keys, seconds)
    finally:
        reader.stop()
    good = [one for one in payments if one == (200, "")]
    print(f"{len(payments)} requests, {len(good)} accepted, {reader.looks} looks at the budgets")
    assert set(payments) <= {(200, ""), (402, "key_limit_reached"), (429, "budget_in_use")}
    assert reader.violations == [] and reader.looks > 5 * seconds
    assert len(mint.calls) == len(good) == query(nodes[0], "SELECT count(*) FROM usage")[0][0]
    assert settled_nusd(nodes[0]) == sum(call.tokens for call in mint.calls) * 300_000 <= sum(limits)
    assert until(lambda: reserved_nusd(nodes[0]) == 0)
    assert "The books agree." in nodes[0].manage("doctor")


def trouble(nodes: list[GatewayProcess], seconds: float) -> None:
    """Workers by chance are killed, or stopped for longer than their leases last."""
    chance, end = random.Random(3), time.monotonic() + seconds
    while time.monotonic() < end:
        gevent.sleep(chance.uniform(0.3, 1.0))
        workers = chance.choice(nodes).workers()
        if len(workers) < 2:
            continue
        pid = chance.choice(workers)
        try:
            if chance.random() < 0.5:
                os.kill(pid, signal.SIGKILL)
                continue
            os.kill(pid, signal.SIGSTOP)
            gevent.sleep(2.0)
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.soak)])
def test_killed_and_paused_workers_overdraw_nothing(start: Start, mint: FakeUpstream, seconds: float) -> None:
    nodes = [start(workers=2, GATEWAY_BOOTSTRAP_CREDITS_USD="100000")]
    if "DATABASE_URL" in nodes[0].environment:
        nodes.append(start(workers=2))
    limits = [round(seconds * 0.05 * NANO)] * 10
    keys = make_keys(nodes[0], limits)
    reader = Reader(nodes[0])
    disturbing = gevent.spawn(trouble, nodes, seconds)
    try:
        payments = storm(nodes, keys, seconds)
        disturbing.join()
    finally:
        reader.stop()
    print(f"{Counter(payments)}, {reader.looks} looks at the budgets")
    assert {status for status, _ in payments} <= {200, 402, 429, 503, 0}
    assert reader.violations == [] and reader.looks > 5 * seconds
    assert until(lambda: reserved_nusd(nodes[0]) == 0)
    assert query(nodes[0], "SELECT count(*) FROM usage")[0][0] >= len(mint.calls)
    assert settled_nusd(nodes[0]) <= sum(limits)
    assert "The books agree." in nodes[0].manage("doctor")
