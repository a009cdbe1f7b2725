"""Sessions of agents: recorded with each request, bounded by a budget, and the same under many parallel sub-agents."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import LocalGateway
from support.shared import Share, usage_of
from support.spending import at_once, until, write_mint

from gateway.accounts.agent_budgets import set_agent_budgets
from gateway.billing.reconciliation import doctor
from gateway.money import NANO

CALL = {"model": "mint/coin", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}
ANTHROPIC = "/v1/messages"
CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
UUID = "57a121ec-f78c-48c3-a745-e3036a3ecc33"


@pytest.fixture
def mint(share: Share) -> FakeUpstream:
    return share.fake(FakeUpstream)


@pytest.fixture
def gateway(share: Share, mint: FakeUpstream) -> Iterator[LocalGateway]:
    """A gateway that sells `coin` for 0.03 USD a call; the books must agree when a test is done."""
    running = share.gateway(lambda folder: write_mint(folder / "catalogue", mint.url))
    yield running
    running.services.store.journal.flush(60)
    running.services.billing.settlements.reap()
    running.services.billing.spending.maintain(idle_s=-1.0, keep_s=-1.0)
    assert doctor(running.services.store.database) == []


def send(gateway: LocalGateway, path: str = CHAT, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    all_headers = {"Authorization": f"Bearer {gateway.key}", **(headers or {})}
    with httpx.Client(timeout=60) as http:
        return http.post(gateway.address + path, headers=all_headers, json=CALL | body)


def budgets(gateway: LocalGateway, scope: str, **changes: int | None) -> None:
    caller = gateway.services.accounts.authentication.caller(gateway.key)
    subject = caller.key_id if scope == "key" else caller.project_id
    store = gateway.services.store
    set_agent_budgets(
        store.database, store.control, subject, caller.organization_id, changes, action=f"{scope}.x", actor="operator"
    )


def spent(gateway: LocalGateway) -> int:
    return sum(row.cost_nusd for row in usage_of(gateway))


@pytest.mark.parametrize(
    ("path", "headers", "body"),
    [
        (CHAT, {"X-Session-Id": UUID}, {}),
        (CHAT, {"X-LLMGateway-Session": UUID}, {}),
        (CHAT, {}, {"metadata": {"session_id": UUID}}),
        (ANTHROPIC, {"X-Claude-Code-Session-Id": UUID}, {}),
        (ANTHROPIC, {}, {"metadata": {"user_id": f"user_{'a' * 64}_account__session_{UUID}"}}),
        (ANTHROPIC, {}, {"metadata": {"user_id": f'{{"device_id":"d","session_id":"{UUID}"}}'}}),
        (RESPONSES, {"User-Agent": "codex_cli_rs/0.72.0"}, {"input": "Hello", "prompt_cache_key": UUID}),
        (RESPONSES, {"session-id": UUID}, {"input": "Hello"}),
    ],
)
def test_usage_rows_have_the_session_that_a_client_names(gateway, path, headers, body):
    assert send(gateway, path, headers, **body).status_code == 200
    assert [row.session for row in usage_of(gateway)] == [UUID]


def test_a_request_without_a_session_has_a_row_without_one(gateway):
    assert send(gateway).status_code == 200
    assert send(gateway, user="customer-7").status_code == 200
    assert [(row.session, row.tags) for row in usage_of(gateway)] == [(None, None), (None, '{"user":"customer-7"}')]


def test_fifty_parallel_calls_share_a_session_budget_of_half_a_dollar(gateway, mint):
    budgets(gateway, "key", session_nusd=NANO // 2)
    headers = {"X-Claude-Code-Session-Id": UUID}
    answers = at_once(50, lambda number: send(gateway, headers=headers))
    codes = {answer.json()["error"]["code"] for answer in answers if answer.status_code != 200}
    assert codes <= {"session_budget_reached", "budget_in_use"}
    assert until(lambda: send(gateway, headers=headers).status_code == 402)
    assert spent(gateway) == 16 * NANO * 3 // 100 == len(mint.calls) * NANO * 3 // 100
    assert send(gateway, headers={"X-Claude-Code-Session-Id": "another"}).status_code == 200
    assert send(gateway).status_code == 200


@pytest.mark.parametrize("path", [CHAT, ANTHROPIC, RESPONSES])
def test_the_refusal_tells_the_user_of_an_agent_what_to_do(gateway, path):
    budgets(gateway, "project", session_nusd=NANO // 100)
    refused = send(gateway, path, {"X-Session-Id": UUID}, **({"input": "Hello"} if path == RESPONSES else {}))
    assert refused.status_code == 402
    message = refused.json()["error"]["message"]
    assert "session of this agent" in message and "0.01 USD" in message and "start a new session" in message


def test_a_fork_bomb_of_sub_agents_ends_at_the_budget_of_its_run(gateway, mint):
    """Each agent starts two more, each with a new session, until it is refused."""
    budgets(gateway, "project", run_nusd=NANO // 2, session_nusd=NANO // 10)

    def agent(number: int) -> None:
        answer = send(gateway, headers={"X-Session-Id": f"agent-{number}", "X-LLMGateway-Run": "bomb"})
        if answer.status_code != 402 and number < 1000:
            at_once(2, lambda child: agent(2 * number + child))

    agent(1)
    assert until(lambda: send(gateway, headers={"X-LLMGateway-Run": "bomb"}).status_code == 402)
    assert spent(gateway) == 16 * NANO * 3 // 100 == len(mint.calls) * NANO * 3 // 100


def test_the_lowest_of_key_project_and_header_is_the_budget(gateway):
    budgets(gateway, "project", session_nusd=NANO)
    budgets(gateway, "key", session_nusd=NANO * 7 // 100)
    low = {"X-Session-Id": "low", "X-LLMGateway-Session-Budget": "0.05"}
    assert [send(gateway, headers=low).status_code for _ in range(2)] == [200, 402]
    high = {"X-Session-Id": "high", "X-LLMGateway-Session-Budget": "0.50"}
    assert [send(gateway, headers=high).status_code for _ in range(3)] == [200, 200, 402]
    budgets(gateway, "key", session_nusd=None)
    assert [send(gateway, headers=high).status_code for _ in range(2)] == [200, 200]
    row = usage_of(gateway)[-1]
    assert row.session == "high" and row.tags is None


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"X-LLMGateway-Session-Budget": "0.5"}, "session_required"),
        ({"X-LLMGateway-Run-Budget": "0.5"}, "session_required"),
        ({"X-LLMGateway-Session-Budget": "much", "X-Session-Id": "a"}, ""),
        ({"X-LLMGateway-Session-Budget": "-1", "X-Session-Id": "a"}, ""),
    ],
)
def test_a_budget_without_a_session_or_an_amount_is_refused(gateway, mint, headers, code):
    refused = send(gateway, headers=headers)
    assert refused.status_code == 400 and code in (refused.json()["error"]["code"] or "")
    assert not mint.calls
