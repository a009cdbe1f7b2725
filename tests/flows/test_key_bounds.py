"""The spending bound of own provider keys through the whole gateway: a key that is used up is passed over."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import LocalGateway
from support.shared import Share
from support.spending import TOKEN_NUSD, pay, write_mint

from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provider_keys import ProviderKeyChange, ProviderKeyDraft
from gateway.billing.reconciliation import doctor
from gateway.callers.stored_keys import ProviderKeyInfo

CALL_NUSD = 100 * TOKEN_NUSD
ROOM = 1000  # for the rounding of a bound
CODE = "provider_key_limit_reached"


@pytest.fixture
def mint(share: Share) -> FakeUpstream:
    return share.fake(FakeUpstream)


@pytest.fixture
def gateway(share: Share, mint: FakeUpstream) -> Iterator[LocalGateway]:
    running = share.gateway(lambda folder: write_mint(folder / "catalogue", mint.url))
    set_mode(running, "api-keys")
    yield running
    running.services.store.journal.flush(60)
    assert doctor(running.services.store.database) == []


def change_project(gateway: LocalGateway, change: ProjectChange) -> None:
    services = gateway.services
    project = services.accounts.authentication.caller(gateway.key).project_id
    update_project(services.store.database, services.store.control, project, change, actor="operator")


def set_mode(gateway: LocalGateway, mode: str) -> None:
    change_project(gateway, ProjectChange(mode=mode))


def add_key(gateway: LocalGateway, max_nusd: int | None, label: str = "") -> ProviderKeyInfo:
    organization = gateway.services.accounts.authentication.caller(gateway.key).organization_id
    draft = ProviderKeyDraft("mint", f"own-{label}", label, max_spend_nusd=max_nusd)
    return gateway.services.management.provider_keys.add(organization, draft, actor="operator")


def send(gateway: LocalGateway, method: str, path: str, body: Any = None) -> httpx.Response:
    with httpx.Client(timeout=20, headers={"Authorization": f"Bearer {gateway.key}"}) as http:
        return http.request(method, f"{gateway.url}{path}", json=body)


def explained(gateway: LocalGateway) -> httpx.Response:
    body = {"model": "mint/coin", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100}
    return send(gateway, "POST", "/route/explain", body)


def sources(payment: Any) -> list[str]:
    return [step.get("providerKeyLabel", "platform") for step in payment.body["metadata"]["routing"]]


def test_a_used_up_key_is_refused_when_nothing_else_is_left(gateway: LocalGateway, mint: FakeUpstream) -> None:
    key = add_key(gateway, CALL_NUSD * 2 + CALL_NUSD // 2)
    payments = [pay(gateway, f"k{number}") for number in range(4)]
    assert [(one.status, one.code) for one in payments] == [(200, ""), (200, ""), (402, CODE), (402, CODE)]
    assert len(mint.calls) == 2 and explained(gateway).json()["error"]["code"] == CODE
    assert gateway.services.billing.budgets.status(key.id).usage_nusd == 2 * CALL_NUSD
    assert pay(gateway, "less", max_tokens=49).status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_the_next_key_serves_in_the_place_of_one_that_is_used_up(
    gateway: LocalGateway, mint: FakeUpstream, stream
) -> None:
    add_key(gateway, 0, "empty")
    add_key(gateway, CALL_NUSD * 3 + ROOM, "full")
    assert [pay(gateway, f"n{number}", stream=stream).status for number in range(4)] == [200, 200, 200, 402]
    assert len(mint.calls) == 3


def test_the_platforms_key_serves_where_the_project_allows_it(gateway: LocalGateway) -> None:
    add_key(gateway, CALL_NUSD + ROOM, "own")
    set_mode(gateway, "hybrid")
    assert [sources(pay(gateway, f"h{number}")) for number in range(3)] == [["own"], ["platform"], ["platform"]]
    organization = gateway.services.accounts.authentication.caller(gateway.key).organization_id
    assert gateway.services.billing.ledger.balance(organization).spent_nusd == 2 * CALL_NUSD


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("credits_nusd", "answered", "spent_nusd"), [(0, 1, 0), (CALL_NUSD + ROOM, 2, CALL_NUSD)])
def test_credits_pay_where_the_own_key_cannot_serve_and_only_there(
    gateway: LocalGateway, mint: FakeUpstream, stream: bool, credits_nusd: int, answered: int, spent_nusd: int
) -> None:
    organization, _, gateway.key = gateway.settle("mixed", credits_nusd)
    set_mode(gateway, "hybrid")
    add_key(gateway, CALL_NUSD + ROOM, "own")
    statuses = [pay(gateway, f"m{number}", stream=stream).status for number in range(3)]
    assert statuses == [200] * answered + [402] * (3 - answered) and len(mint.calls) == answered
    gateway.services.store.journal.flush(60)
    assert gateway.services.billing.ledger.balance(organization).spent_nusd == spent_nusd


def test_little_credits_do_not_shorten_the_answers_of_an_own_key(gateway: LocalGateway, mint: FakeUpstream) -> None:
    *_, gateway.key = gateway.settle("poor", 3 * CALL_NUSD)
    set_mode(gateway, "hybrid")
    add_key(gateway, None, "own")
    assert sources(pay(gateway, "long", "tokens:2000", max_tokens=2000)) == ["own"]
    pay(gateway, "open", "tokens:2000", max_tokens=None)
    assert [(call.cap, call.tokens) for call in mint.calls] == [(2000, 2000), (0, 2000)]


def test_a_video_of_an_own_key_needs_no_credits(gateway: LocalGateway) -> None:
    *_, gateway.key = gateway.settle("poor", 0)
    set_mode(gateway, "hybrid")
    body = {"model": "mint/reel", "prompt": "waves"}
    assert send(gateway, "POST", "/videos", body).json()["error"]["code"] == "insufficient_credits"
    add_key(gateway, None, "own")
    assert send(gateway, "POST", "/videos", body).json()["status"] == "queued"


def test_explanations_name_the_key_that_was_passed_over(gateway: LocalGateway) -> None:
    empty, full = add_key(gateway, 0, "empty"), add_key(gateway, None, "full")
    (left_out,) = explained(gateway).json()["excluded"]
    assert left_out["stage"] == "budget" and left_out["reason"].startswith(f"{empty.id}: ")
    log_ids = [pay(gateway, f"e{number}").body["metadata"]["log_id"] for number in range(2)]
    gateway.services.store.journal.flush(60)
    kept = [send(gateway, "GET", f"/route/explain/{log_id}").json() for log_id in log_ids]
    # The keys take turns: one of the two requests met the empty one first.
    assert sorted(len(one["excluded"]) for one in kept) == [0, 1]
    assert all(full.id not in one["reason"] for record in kept for one in record["excluded"])


def test_a_kept_decision_names_own_keys_but_no_key_of_the_platform(gateway: LocalGateway) -> None:
    *_, gateway.key = gateway.settle("empty", 0)
    set_mode(gateway, "hybrid")
    own = add_key(gateway, 0)
    body = {"model": "mint/coin", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100}
    refused = send(gateway, "POST", "/chat/completions", body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (402, "insufficient_credits")
    gateway.services.store.journal.flush(60)
    kept = send(gateway, "GET", f"/route/explain/{refused.headers['x-request-id']}").json()
    first, second = [one["reason"] for one in kept["excluded"]]
    assert first.startswith(f"{own.id}: ") and second == refused.json()["error"]["message"]


def test_a_bound_that_is_raised_or_removed_is_in_force_at_once(gateway: LocalGateway) -> None:
    key = add_key(gateway, 0)
    assert pay(gateway, "none").code == CODE
    keys = gateway.services.management.provider_keys
    for maximum in (CALL_NUSD + ROOM, None):
        keys.update(key.organization_id, key.id, ProviderKeyChange(bounded=True, max_spend_nusd=maximum), actor="test")
        assert pay(gateway, "some").status == 200
    assert gateway.services.billing.budgets.status(key.id).usage_nusd == CALL_NUSD


@pytest.mark.parametrize("stream", [False, True])
def test_the_bound_counts_in_a_project_that_keeps_payloads(gateway: LocalGateway, stream: bool) -> None:
    change_project(gateway, ProjectChange(retention="retain"))
    key = add_key(gateway, CALL_NUSD + ROOM)
    assert [pay(gateway, f"r{number}", stream=stream).status for number in range(2)] == [200, 402]
    assert gateway.services.billing.budgets.status(key.id).usage_nusd == CALL_NUSD


def test_a_stream_that_outgrows_its_keys_bound_ends_with_a_typed_error(
    gateway: LocalGateway, mint: FakeUpstream
) -> None:
    add_key(gateway, CALL_NUSD + CALL_NUSD // 2)
    payment = pay(gateway, "endless", "greedy:4000 gap:0.001", stream=True)
    assert payment.status == 200 and b"budget_exhausted_mid_stream" in payment.body and b"[DONE]" not in payment.body


def test_credits_that_cover_a_call_but_not_its_storage_do_not_suffice(
    gateway: LocalGateway, mint: FakeUpstream
) -> None:
    *_, gateway.key = gateway.settle("retaining", CALL_NUSD + ROOM)
    change_project(gateway, ProjectChange(mode="hybrid", retention="retain"))
    add_key(gateway, 0)
    payment = pay(gateway, "stored")
    assert (payment.status, payment.code) == (402, "insufficient_credits") and mint.calls == []
