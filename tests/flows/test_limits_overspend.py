"""Overlapping limits of any subject under 500 requests at once, on two nodes, with a killed worker in between."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.upstream import FakeUpstream
from support.gateways import GatewayProcess
from support.spending import SECRETS, TOKEN_NUSD, at_once, pay, query, reserved_nusd, until, write_mint

pytestmark = pytest.mark.extended

CALL_NUSD = 100 * TOKEN_NUSD
AT_ONCE = 500
ROOM = 1000  # for the rounding of a bound
USERS = 4
# Name → the subjects, the amount in calls and the period. The tightest of all decides: 40 calls of the model.
LIMITS = {
    "all": (("organization",), 60, None),
    "day": (("organization",), 55, "1d"),
    "users": (("each user",), 12, "day"),
    "model": (("model=coin",), 40, "1mo"),
    "pair": (("each user", "provider=mint"), 11, None),
}
REFUSALS = {(429, "budget_in_use"), (402, "spending_limit_reached")}


@pytest.fixture
def mint() -> Iterator[FakeUpstream]:
    with FakeUpstream() as fake:
        yield fake


@pytest.fixture(params=("database", "redis"))
def nodes(request: pytest.FixtureRequest, tmp_path: Path, mint: FakeUpstream) -> Iterator[list[GatewayProcess]]:
    """Two nodes of two workers on PostgreSQL, with and without Redis."""
    environment = write_mint(tmp_path / "catalogue", mint.url) | SECRETS
    environment["DATABASE_URL"] = request.getfixturevalue("postgresql_url")
    if request.param == "redis":
        environment["REDIS_URL"] = request.getfixturevalue("redis_url")
    started: list[GatewayProcess] = []
    for number in range(2):
        if started:
            environment["GATEWAY_BOOTSTRAP_API_KEY"] = started[0].key
        started.append(GatewayProcess(tmp_path / f"node{number}", 2, **environment).start())
    yield started
    for node in started:
        node.discard()


def put_limits(gateway: GatewayProcess) -> None:
    for name, (subjects, calls, period) in LIMITS.items():
        given = [part for subject in subjects for part in ("--subject", subject)]
        given += ["--period", period] if period else []
        usd = f"{(calls * CALL_NUSD + ROOM) / 1e9:.6f}"
        gateway.manage("limits", "put", name, usd, "--reservation", "exact", *given)


def states(gateway: GatewayProcess) -> dict[str, list[dict[str, str]]]:
    """Return the budgets of each limit with what is used and reserved of them."""
    return {name: _members(json.loads(gateway.manage("limits", "get", name, "--json"))) for name in LIMITS}


def _members(limit: dict) -> list[dict[str, str]]:
    return limit["members"] or [limit]


def test_five_hundred_requests_under_five_limits_meet_each_of_them_exactly(nodes, mint):
    put_limits(nodes[0])
    victim = nodes[1].workers()[0]

    def send(number: int):
        if number == AT_ONCE // 2:
            os.kill(victim, signal.SIGKILL)
        return pay(nodes[number % 2], f"c{number}", "wait:0.3", user=f"user{number % USERS}")

    payments = at_once(AT_ONCE, send)
    assert {(one.status, one.code) for one in payments} <= {(200, ""), (0, ""), (503, "unavailable"), *REFUSALS}
    refused = 0
    for number in range(200):
        payment = pay(nodes[number % 2], f"s{number}", user=f"user{number % USERS}")
        refused = refused + 1 if payment.status == 402 else 0
        if refused >= USERS:
            break
        if payment.status == 429:  # what the killed worker held is not returned yet
            until(lambda: reserved_nusd(nodes[0]) == 0, 2.0)
    assert until(lambda: reserved_nusd(nodes[0]) == 0)
    [(used,)] = query(nodes[0], USED)
    [(rows,)] = query(nodes[0], "SELECT COALESCE(SUM(cost_nusd), 0) FROM usage")
    assert used == rows
    for name, (_, calls, _) in LIMITS.items():
        for member in states(nodes[0])[name]:
            assert float(member["usage"]) <= calls * CALL_NUSD / 1e9 + 1e-9
            assert float(member["reserved"]) == 0
    assert 0.98 * 40 * CALL_NUSD <= used <= 40 * CALL_NUSD
    assert "The books agree." in nodes[0].manage("doctor")


USED = (
    "SELECT COALESCE(SUM(b.settled_nusd) + SUM(b.past_nusd), 0) FROM budget b JOIN limits l ON l.id = b.limit_id "
    "WHERE l.name = 'model'"
)
