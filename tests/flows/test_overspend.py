"""No key spends more than its limit, however many ask at once, over workers and over nodes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.upstream import FakeUpstream
from support.gateways import GatewayProcess
from support.spending import SECRETS, TOKEN_NUSD, at_once, pay, query, reserved_nusd, settled_nusd, until, write_mint

pytestmark = pytest.mark.extended

CALL_NUSD = 100 * TOKEN_NUSD
AT_ONCE = 500
IN_USE = (429, "budget_in_use")
PLACES = {"sqlite": (4,), "postgresql": (4,), "two nodes": (2, 2)}


@pytest.fixture
def mint() -> Iterator[FakeUpstream]:
    with FakeUpstream() as fake:
        yield fake


@pytest.fixture(params=PLACES)
def nodes(request: pytest.FixtureRequest, tmp_path: Path, mint: FakeUpstream) -> Iterator[list[GatewayProcess]]:
    """Gateways on one store: SQLite with four workers, PostgreSQL with four, PostgreSQL with two nodes of two."""
    environment = write_mint(tmp_path / "catalogue", mint.url)
    if request.param != "sqlite":
        environment |= SECRETS | {"DATABASE_URL": request.getfixturevalue("postgresql_url")}
    started: list[GatewayProcess] = []
    for number, workers in enumerate(PLACES[request.param]):
        if started:
            environment["GATEWAY_BOOTSTRAP_API_KEY"] = started[0].key
        started.append(GatewayProcess(tmp_path / f"node{number}", workers, **environment).start())
    yield started
    for node in started:
        node.discard()


def make_key(gateway: GatewayProcess, limit: str) -> str:
    """The token of a new key with a total limit."""
    output = gateway.manage("keys", "create", "--description", "limited")
    gateway.manage("limits", "set", re.search(r"key_[0-9a-f]{32}", output)[0], "--total", limit)
    return re.search(r"llmgtwy_[\w-]{40}", output)[0]


def test_five_hundred_at_once_spend_no_more_than_the_limit(nodes: list[GatewayProcess], mint: FakeUpstream) -> None:
    key = make_key(nodes[0], "1.00")
    payments = at_once(AT_ONCE, lambda number: pay(nodes[number % len(nodes)], f"c{number}", "wait:0.2", key))
    accepted = [one for one in payments if one.status == 200]
    assert 1 <= len(accepted) <= 33
    assert {(one.status, one.code) for one in payments} <= {(200, ""), IN_USE, (402, "key_limit_reached")}
    assert len(mint.calls) == len(accepted)  # a refusal is free: the upstream never heard of it
    for number in range(34):
        payment = pay(nodes[number % len(nodes)], f"s{number}", key=key)
        if payment.status == 402:
            assert payment.code == "key_limit_reached"
            break
        accepted.append(payment)
    assert len(accepted) == len(mint.calls) == 33
    assert settled_nusd(nodes[0]) == 33 * CALL_NUSD
    assert until(lambda: reserved_nusd(nodes[0]) == 0)
    assert query(nodes[0], "SELECT count(*) FROM lease WHERE granted_nusd > spent_nusd") == [(0,)]
    assert "The books agree." in nodes[0].manage("doctor")


@pytest.mark.parametrize("nodes", ["two nodes"], indirect=True)
def test_long_answers_of_a_model_without_a_known_limit_do_not_pass_a_limit_together(
    nodes: list[GatewayProcess], mint: FakeUpstream
) -> None:
    key = make_key(nodes[0], "10.00")
    payments = at_once(
        40, lambda number: pay(nodes[number % 2], "", "wait:0.2 tokens:20000", key, model="mint/epic", max_tokens=None)
    )
    accepted = [one for one in payments if one.status == 200]
    assert 1 <= len(accepted) == len(mint.calls) <= 2  # 6 USD each
    assert {(one.status, one.code) for one in payments} <= {(200, ""), IN_USE, (402, "key_limit_reached")}
    assert next(call.cap for call in mint.calls) == 0
    assert settled_nusd(nodes[0]) == sum(call.tokens for call in mint.calls) * TOKEN_NUSD


@pytest.mark.parametrize("nodes", ["two nodes"], indirect=True)
def test_members_of_a_team_together_spend_no_more_than_its_limit(
    nodes: list[GatewayProcess], mint: FakeUpstream
) -> None:
    keys = [make_member_key(nodes[0], f"member{number}@example.com") for number in range(3)]
    organization = first_id(nodes[0].manage("organizations", "list"))
    team = nodes[0].manage("teams", "create", organization, "Research").strip()
    for member, _ in keys:
        nodes[0].manage("teams", "add", team, member)
    nodes[0].manage("limits", "set", team, "--total", "1.00")
    payments = at_once(300, lambda number: pay(nodes[number % 2], f"t{number}", "wait:0.2", keys[number % 3][1]))
    accepted = sum(one.status == 200 for one in payments)
    assert 1 <= accepted <= 33 and len(mint.calls) == accepted
    assert {(one.status, one.code) for one in payments} <= {(200, ""), IN_USE, (402, "team_limit_reached")}
    while pay(nodes[accepted % 2], key=keys[accepted % 3][1]).status == 200:
        accepted += 1
    assert accepted == 33 and settled_nusd(nodes[0]) == 33 * CALL_NUSD
    assert until(lambda: reserved_nusd(nodes[0]) == 0)
    assert "The books agree." in nodes[0].manage("doctor")


def make_member_key(gateway: GatewayProcess, email: str) -> tuple[str, str]:
    """The id of a new member, and the token of a key of theirs."""
    organization = first_id(gateway.manage("organizations", "list"))
    member = gateway.manage("members", "add", organization, email).strip()
    output = gateway.manage("keys", "create", "--description", "shared", "--member", member)
    return member, re.search(r"llmgtwy_[\w-]{40}", output)[0]


def first_id(listed: str) -> str:
    return listed.splitlines()[1].split()[0]
