"""A discount through the whole gateway: in what is billed, in every dialect's answer, in activity and in the books."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import LocalGateway, local_gateway
from support.spending import BODIES, STREAMED, TOKEN_NUSD, say_in_headers, write_mint

from gateway.accounts import members
from gateway.billing.reconciliation import doctor
from gateway.billing.rerating import rerate
from gateway.callers.discount_book import ALL_SCOPES, DiscountInfo
from gateway.configuration.settings import Settings
from gateway.money import NANO

LISTED = 100 * TOKEN_NUSD


@pytest.fixture
def gateway(settings: Callable[..., Settings], tmp_path: Path) -> Iterator[LocalGateway]:
    with (
        FakeUpstream() as mint,
        local_gateway(settings, **write_mint(tmp_path / "catalogue", mint.url)) as running,
    ):
        yield running
        running.services.store.journal.flush(60)
        assert doctor(running.services.store.database) == []


def set_discount(gateway: LocalGateway, ppm: int, provider: str = ALL_SCOPES, model: str = ALL_SCOPES) -> DiscountInfo:
    services = gateway.services
    discount = DiscountInfo(ALL_SCOPES, provider, model, ppm)
    return services.management.discounts.put(discount, services.routing.catalogue.current(), actor="operator")


def post(gateway: LocalGateway, path: str, **more: Any) -> httpx.Response:
    with httpx.Client(timeout=20) as http:
        body = {"model": "mint/coin"} | BODIES[path]("Hello") | more
        headers = {"Authorization": f"Bearer {gateway.key}", **say_in_headers(path, body)}
        return http.post(gateway.address + path, json=body, headers=headers)


def metadata_of(answer: httpx.Response) -> dict[str, Any]:
    """The metadata of an answer, whole or streamed, in whichever dialect."""
    if answer.headers["content-type"] == "application/stream+json":
        return _metadata_in(json.loads(answer.text.splitlines()[-1])["response"])
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return _metadata_in(answer.json())
    for line in reversed(answer.text.splitlines()):
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            found = _metadata_in(event) or _metadata_in(event.get("response", {}))
            if found:
                return found
    raise AssertionError(answer.text)


def _metadata_in(body: dict[str, Any]) -> dict[str, Any]:
    return body.get("metadata") or body.get("llmgateway") or body.get("providerMetadata", {}).get("llmgateway", {})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", STREAMED)
def test_every_dialect_reports_the_fraction(gateway: LocalGateway, path: str, stream: bool) -> None:
    assert "discount" not in metadata_of(post(gateway, path, stream=stream))
    set_discount(gateway, 200_000, "mint", "coin")
    assert metadata_of(post(gateway, path, stream=stream))["discount"] == 0.2


def test_the_cost_that_is_reported_and_billed_is_the_reduced_one(gateway: LocalGateway) -> None:
    set_discount(gateway, 200_000)
    answer = post(gateway, "/v1/chat/completions")
    assert answer.json()["usage"]["cost"] == LISTED * 0.8 / NANO
    assert answer.headers["x-llmgateway-cost"] == "0.024"
    caller = gateway.services.accounts.authentication.caller(gateway.key)
    assert gateway.services.billing.ledger.balance(caller.organization_id).spent_nusd == LISTED * 4 // 5
    assert gateway.services.billing.budgets.status(caller.key_id).usage_nusd == LISTED * 4 // 5


def test_activity_shows_what_discounts_saved(gateway: LocalGateway) -> None:
    post(gateway, "/v1/chat/completions")
    discount = set_discount(gateway, 250_000)
    post(gateway, "/v1/chat/completions")
    gateway.services.management.discounts.remove(discount.id, actor="operator")
    gateway.services.store.journal.flush(60)
    gateway.services.billing.rollups.catch_up()
    owner = members.list_members(gateway.services.store.database)[0]
    token = gateway.services.management.sessions.open(owner.user_id).token
    for group, breakdown in (("model", "modelBreakdown"), ("apiKey", "apiKeyBreakdown"), ("user", "userBreakdown")):
        with httpx.Client(timeout=20, headers={"Authorization": f"Bearer {token}"}) as http:
            (day,) = http.get(f"{gateway.address}/activity?groupBy={group}").json()["activity"]
        assert (day["cost"], day["discountSavings"]) == (1.75 * LISTED / NANO, 0.25 * LISTED / NANO)
        assert [one["discountSavings"] for one in day[breakdown]] == [0.25 * LISTED / NANO]


def test_usage_is_priced_alike_again(gateway: LocalGateway) -> None:
    set_discount(gateway, 333_333)
    post(gateway, "/v1/chat/completions")
    services = gateway.services
    services.store.journal.flush(60)
    report = rerate(services.store.database, services.routing.catalogue.current(), 0, services.clock.now_us() + 1)
    assert report.adjustments() == {} and [line.rows for line in report.lines.values()] == [1]
