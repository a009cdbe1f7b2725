"""Money through the whole gateway: every paid route is admitted, limits of every kind hold, the books agree."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gevent
import httpx
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import LocalGateway, local_gateway
from support.limits import set_rate_limit
from support.limits_page import documented_operation
from support.shared import Share, usage_of
from support.spending import (
    BODIES,
    FORMS,
    GEMINI,
    JOBS,
    STREAMED,
    TOKEN_NUSD,
    TOOLS,
    PaymentResult,
    at_once,
    pay,
    sent_to,
    until,
    write_mint,
)

from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provider_keys import ProviderKeyDraft
from gateway.billing.reconciliation import doctor
from gateway.configuration.settings import Settings
from gateway.limits.budgets import Limits
from gateway.limits.periods import read_period
from gateway.limits.rate_rules import RateLimits
from gateway.metering.models import OVERRUN
from gateway.money import NANO
from gateway.surfaces import surface_table

CALL_NUSD = 100 * TOKEN_NUSD
MESSAGES = [{"role": "user", "content": "Hello"}]
# A session is no request that could be sent: tests/flows/test_realtime.py has its money.
PAID = [operation for operation in surface_table.operations() if operation.paid and not operation.upgrades]


@pytest.fixture
def mint(share: Share) -> FakeUpstream:
    return share.fake(FakeUpstream)


@pytest.fixture(params=["true", "false"], ids=["express", "flask"])
def lane(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def gateway(share: Share, mint: FakeUpstream) -> Iterator[LocalGateway]:
    """A gateway that sells `coin`; the books must agree when a test is done."""
    running = share.gateway(lambda folder: write_mint(folder / "catalogue", mint.url))
    yield running
    rest(running)
    assert doctor(running.services.store.database) == []
    assert reserved(running) == 0


@pytest.fixture
def own_gateway(settings: Callable[..., Settings], tmp_path: Path, mint: FakeUpstream) -> Iterator[LocalGateway]:
    """The same of the test's own, for limits that bind everybody."""
    with local_gateway(settings, **write_mint(tmp_path / "catalogue", mint.url)) as running:
        yield running
        rest(running)
        assert reserved(running) == 0


def rest(gateway: LocalGateway) -> None:
    gateway.services.store.journal.flush(60)
    gateway.services.billing.settlements.reap()
    gateway.services.billing.spending.maintain(idle_s=-1.0, keep_s=-1.0)


def caller(gateway: LocalGateway) -> Any:
    return gateway.services.accounts.authentication.caller(gateway.key)


def limit(gateway: LocalGateway, usd: float, scope: str = "key", **more: Any) -> None:
    own = caller(gateway)
    limits = Limits(total_nusd=round(usd * NANO), **more)
    gateway.services.billing.budgets.set_limits(scope, own.key_id if scope == "key" else own.member_id, limits)


def set_credits(gateway: LocalGateway, usd: float) -> None:
    ledger = gateway.services.billing.ledger
    organization = caller(gateway).organization_id
    change = round(usd * NANO) - ledger.balance(organization).balance_nusd
    ledger.post(organization, "adjustment", change, f"{organization} to {usd}")


def end_job(gateway: LocalGateway, ident: str) -> None:
    """A job holds its budgets until it ends."""
    with httpx.Client(timeout=20, headers={"Authorization": f"Bearer {gateway.key}"}) as http:
        assert http.delete(f"{gateway.url}/videos/{ident}").status_code == 200


def reserved(gateway: LocalGateway) -> int:
    """Return the sum of all reservations, in nano-dollars."""
    database = gateway.services.store.database
    return database.read(lambda: database.execute("SELECT COALESCE(SUM(leased_nusd), 0) FROM budget").fetchone()[0])


def spent(gateway: LocalGateway) -> int:
    return sum(row.cost_nusd for row in usage_of(gateway))


def send(gateway: LocalGateway, operation: Any, more: Mapping[str, str] = MappingProxyType({})) -> httpx.Response:
    model = "mint/leaf" if operation.path.lower().endswith(("embedcontent", "embedcontents")) else "mint/coin"
    path = re.sub(r"<(?:path:)?\w+>", model, operation.path)
    assert path in {*BODIES, *FORMS, *JOBS, *GEMINI}, (
        f"{path} costs money: add a good body for it to tests/support/spending.py"
    )
    with httpx.Client(timeout=20) as http:
        headers = {"Authorization": f"Bearer {gateway.key}", "ai-language-model-id": "mint/coin", **more}
        return http.post(gateway.address + path, headers=headers, **sent_to(path, "Hello"))


def refusal(answer: httpx.Response, path: str) -> tuple[int, str]:
    """Return status and code of an error; for a tool, those in its result."""
    if path.rpartition(":")[0].endswith("model>"):
        return answer.status_code, answer.json()["error"]["details"][0]["metadata"]["code"]
    if path != TOOLS:
        body = answer.json()
        return answer.status_code, body.get("error", body)["code"]  # in one dialect the body is the error
    assert answer.status_code == 200 and answer.json()["result"]["isError"]
    status, code = answer.json()["result"]["content"][0]["text"].split(":")[0].split()
    return int(status), code


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_the_limits_cut_short_says_so(gateway, mint: FakeUpstream, stream: bool) -> None:
    limit(gateway, 2000 * TOKEN_NUSD / NANO)
    body = {"model": "mint/coin", "messages": MESSAGES, "stream": stream}
    with httpx.Client(timeout=20) as http:
        headers = {"Authorization": f"Bearer {gateway.key}"}
        answer = http.post(f"{gateway.url}/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    cap = mint.calls[-1].cap
    warning = f"max_tokens was set to {cap}: the remaining credits and spending limits do not cover more."
    assert cap and answer.headers["x-llmgateway-warnings"] == warning and warning in answer.text


# Every paid route.


@pytest.mark.parametrize("operation", PAID, ids=lambda operation: operation.path)
def test_a_paid_route_refuses_an_exhausted_key(share: Share, mint: FakeUpstream, lane: str, operation) -> None:
    lanes = {"GATEWAY_SERVER_EXPRESS_LANE": lane}
    gateway = share.gateway(lambda folder: write_mint(folder / "catalogue", mint.url) | lanes, name=lane)
    limit(gateway, 0)
    refused = send(gateway, operation)
    assert refusal(refused, operation.path) == (402, "key_limit_reached")
    assert mint.calls == [] and spent(gateway) == 0
    limit(gateway, 1000)
    good = send(gateway, operation)
    assert good.status_code == 200 and '"isError":true' not in good.text
    if operation.path not in JOBS:
        assert usage_of(gateway)[-1].operation == documented_operation(operation.path)


@pytest.mark.parametrize("operation", PAID, ids=lambda operation: operation.path)
def test_a_paid_route_refuses_an_organization_without_credits(gateway, mint: FakeUpstream, operation) -> None:
    set_credits(gateway, 0)
    refused = send(gateway, operation)
    assert refusal(refused, operation.path) == (402, "insufficient_credits")
    assert mint.calls == []


@pytest.mark.parametrize("operation", PAID, ids=lambda operation: operation.path)
def test_a_repeated_paid_request_under_its_key_is_answered_again_and_billed_once(
    gateway: LocalGateway, mint: FakeUpstream, operation
) -> None:
    first, again = (send(gateway, operation, {"Idempotency-Key": "once"}) for _ in range(2))
    assert (first.status_code, again.status_code, again.headers["idempotent-replayed"]) == (200, 200, "true")
    assert again.content == first.content and again.headers["content-type"] == first.headers["content-type"]
    assert (len(mint.calls), len(usage_of(gateway))) == (1, 0 if operation.path in JOBS else 1)
    if operation.path in JOBS:
        end_job(gateway, first.json()["id"])


def test_every_operation_that_generates_is_marked_as_paid() -> None:
    free = {"count_tokens", "input_tokens", "input_items", "cancel", "batches"}  # the lines of a batch are paid
    paid_paths = re.compile(
        r"/v1/(chat|messages|responses|embeddings|images|audio|videos|rerank|ocr|moderations)|.*(Content|Contents)$"
    )
    unpaid = [
        o.path for o in surface_table.operations() if o.method == "POST" and paid_paths.match(o.path) and not o.paid
    ]
    assert [path for path in unpaid if path.rsplit("/", 1)[-1] not in free] == []


# Limits of every kind.


def test_a_members_limit_counts_over_all_of_their_keys(gateway: LocalGateway, mint: FakeUpstream) -> None:
    limit(gateway, 0.10, "member")
    payments = [pay(gateway, f"m{number}") for number in range(4)]
    assert [one.status for one in payments] == [200, 200, 200, 402]
    assert payments[-1].code == "member_limit_reached" and len(mint.calls) == 3


def test_a_period_limit_shows_when_it_resets(gateway: LocalGateway, mint: FakeUpstream) -> None:
    limit(gateway, 100, period_nusd=round(0.05 * NANO), period=read_period("1d"))
    assert [pay(gateway, f"p{number}").status for number in range(2)] == [200, 402]
    refused = pay(gateway, "p2")
    assert refused.code == "key_period_limit_reached" and "resets at" in refused.body["error"]["message"]


def test_credits_run_out_exactly(gateway: LocalGateway, mint: FakeUpstream) -> None:
    set_credits(gateway, 0.10)
    payments = at_once(20, lambda number: pay(gateway, f"o{number}", "wait:0.1"))
    payments += [pay(gateway, f"o{number}") for number in range(20, 24)]
    assert [one.status for one in payments].count(200) == 3 == len(mint.calls)
    assert {one.code for one in payments if one.status != 200} <= {"insufficient_credits", "budget_in_use"}
    assert until(lambda: pay(gateway).code == "insufficient_credits") and len(mint.calls) == 3
    assert gateway.services.billing.ledger.balance(caller(gateway).organization_id).balance_nusd == NANO // 100


def test_a_limit_that_requests_in_progress_occupy_is_a_429_in_every_dialect(gateway, mint: FakeUpstream) -> None:
    limit(gateway, 0.04)
    running = gevent.spawn(pay, gateway, "running", "wait:3")
    assert until(lambda: mint.marks() == ["running"])
    with httpx.Client(timeout=20) as http:
        for path in (*STREAMED, TOOLS):
            headers = {"Authorization": f"Bearer {gateway.key}", "ai-language-model-id": "mint/coin"}
            refused = http.post(gateway.address + path, headers=headers, **sent_to(path, "Hello"))
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "2"), (path, refused.text)
            assert "requests in progress" in refused.text
    assert running.get().status == 200 and until(lambda: pay(gateway).status == 402)


def test_own_provider_keys_cost_no_credits_but_count_for_limits(gateway: LocalGateway, mint: FakeUpstream) -> None:
    services, own = gateway.services, caller(gateway)
    stored = services.accounts.provider_keys
    stored.add(own.organization_id, ProviderKeyDraft("mint", "own-key"), actor="operator")
    change = ProjectChange(mode="api-keys")
    update_project(services.store.database, services.store.control, own.project_id, change, actor="operator")
    set_credits(gateway, 0)
    limit(gateway, 0.05)
    assert [pay(gateway, f"b{number}").status for number in range(2)] == [200, 402]
    assert services.billing.ledger.balance(own.organization_id).spent_nusd == 0
    assert services.billing.budgets.status(own.key_id).usage_nusd == CALL_NUSD


# Bounds and what passes them.


def test_near_the_limit_the_output_cap_is_sent_upstream(gateway: LocalGateway, mint: FakeUpstream) -> None:
    limit(gateway, 0.30)
    payment = pay(gateway, "capped", max_tokens=None)
    assert payment.status == 200
    assert mint.calls[0].cap == 499  # half of what 0.30 USD buy, less what rounding may cost
    assert spent(gateway) == 499 * TOKEN_NUSD


def test_with_too_little_left_for_any_answer_nothing_is_sent(gateway: LocalGateway, mint: FakeUpstream) -> None:
    limit(gateway, 0.07)
    assert pay(gateway, "small", max_tokens=None).status == 402  # 256 tokens cost more
    assert mint.calls == []


def test_an_upstream_that_ignores_the_limit_is_settled_in_full_and_marked(
    gateway: LocalGateway, mint: FakeUpstream
) -> None:
    limit(gateway, 0.04)
    assert pay(gateway, "greedy", "greedy:250").status == 200
    assert [(row.cost_nusd, row.flags) for row in usage_of(gateway)] == [(250 * TOKEN_NUSD, OVERRUN)]
    assert pay(gateway, "next").status == 402


def test_a_stream_that_outgrows_its_budget_ends_with_a_typed_error(gateway: LocalGateway, mint: FakeUpstream) -> None:
    limit(gateway, 0.05)
    payment = pay(gateway, "endless", "greedy:4000 gap:0.001", stream=True)
    assert payment.status == 200 and b"budget_exhausted_mid_stream" in payment.body and b"[DONE]" not in payment.body
    assert not mint.calls[0].usage_sent
    (row,) = usage_of(gateway)
    # The provider bills what it wrote until then: as far as it was reserved, so does the gateway.
    assert (row.finish, row.cost_nusd) == ("error", 164 * TOKEN_NUSD)


def test_a_stream_that_outgrows_its_reservation_goes_on_while_there_is_money(
    gateway: LocalGateway, mint: FakeUpstream
) -> None:
    payment = pay(gateway, "long", "greedy:1000", stream=True, stream_options={"include_usage": True})
    assert payment.body.endswith(b"data: [DONE]\n\n")
    assert spent(gateway) == 1000 * TOKEN_NUSD


# Reports of limits.


def set_rate(gateway: LocalGateway, scope: str, target: str, kind: str, value: int) -> None:
    services = gateway.services
    set_rate_limit(RateLimits(services.store.database, services.store.control), scope, target, kind, value)


def test_answers_show_where_the_caller_stands_with_its_rates(own_gateway: LocalGateway) -> None:
    set_rate(own_gateway, "key", "*", "requests", 2)
    first, second, third = (answer(own_gateway) for _ in range(3))
    assert [one.status_code for one in (first, second, third)] == [200, 200, 429]
    assert first.headers["ratelimit-policy"] == '"requests";q=2;w=60'
    assert first.headers["x-ratelimit-limit-requests"] == "2" and first.headers["ratelimit-remaining"] == "1"
    assert second.headers["ratelimit-remaining"] == third.headers["x-ratelimit-remaining"] == "0"
    assert int(third.headers["retry-after"]) <= 60 and third.json()["error"]["code"] == "rate_limit_exceeded"


def test_streams_show_it_too_and_without_limits_nothing_is_reported(own_gateway: LocalGateway) -> None:
    assert not [name for name in answer(own_gateway).headers if "ratelimit" in name]
    set_rate(own_gateway, "model", "mint/coin", "tokens", 9000)
    response = answer(own_gateway, stream=True)
    assert response.headers["x-ratelimit-limit-tokens"] == "9000"


def test_a_limit_of_a_model_counts_it_with_its_provider_in_front_too(own_gateway: LocalGateway) -> None:
    set_rate(own_gateway, "model", "coin", "requests", 2)
    statuses = [pay(own_gateway, model=model).status for model in ("mint/coin", "coin", "mint/coin")]
    assert statuses == [200, 200, 429]


def test_messages_show_it_in_their_own_words_beside(own_gateway: LocalGateway) -> None:
    set_rate(own_gateway, "key", "*", "requests", 5)
    operation = next(one for one in PAID if one.path == "/v1/messages")
    headers = send(own_gateway, operation).headers
    assert headers["anthropic-ratelimit-requests-limit"] == "5" == headers["ratelimit-limit"]
    assert headers["anthropic-ratelimit-requests-remaining"] == "4"
    assert headers["anthropic-ratelimit-requests-reset"].endswith("Z")


def test_refused_messages_show_it_in_their_own_words_too(own_gateway: LocalGateway) -> None:
    set_rate(own_gateway, "key", "*", "requests", 1)
    operation = next(one for one in PAID if one.path == "/v1/messages")
    send(own_gateway, operation)
    refused = send(own_gateway, operation)
    assert refused.status_code == 429 and refused.headers["retry-after"]
    assert refused.headers["anthropic-ratelimit-requests-limit"] == "1"
    assert refused.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert refused.headers["anthropic-ratelimit-requests-reset"].endswith("Z")


def test_slots_come_back_whatever_becomes_of_a_request(own_gateway: LocalGateway, mint: FakeUpstream) -> None:
    set_rate(own_gateway, "key", "*", "concurrency", 3)
    payments: list[PaymentResult] = at_once(6, lambda number: pay(own_gateway, f"s{number}", "wait:0.3"))
    assert sorted(one.status for one in payments) == [200] * 3 + [429] * 3
    gevent.sleep(0.1)
    assert own_gateway.services.billing.settlements.rates.running() == 0
    assert pay(own_gateway, "again").status == 200


def answer(gateway: LocalGateway, **more: Any) -> httpx.Response:
    body = {"model": "mint/coin", "messages": MESSAGES, "max_tokens": 10} | more
    with httpx.Client(timeout=20) as http:
        headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": "application/json"}
        return http.post(f"{gateway.url}/chat/completions", content=json.dumps(body), headers=headers)
