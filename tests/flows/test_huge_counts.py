"""A tenant's own provider with its own prices reports counts that no column holds: no row is lost, the books agree."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from fakes.openai import Answer, FakeOpenAI
from support.gateways import LocalGateway, local_gateway
from support.signed_in_owner import PASSWORD, SignedInOwner

from gateway.billing.reconciliation import doctor
from gateway.configuration.settings import Settings


@pytest.fixture(params=["sqlite", "postgresql"])
def gateway(request: pytest.FixtureRequest, settings: Callable[..., Settings]) -> Iterator[LocalGateway]:
    environment = {"GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD, "GATEWAY_ALLOW_PRIVATE_UPSTREAMS": "true"}
    if request.param == "postgresql":
        environment |= {
            "DATABASE_URL": request.getfixturevalue("postgresql_url"),
            "GATEWAY_API_KEY_HASH_SECRET": "a hash secret of the tests",
            "GATEWAY_ENCRYPTION_KEY": "an encryption key of the tests",
        }
    with local_gateway(settings, **environment) as running:
        yield running


def own_provider(desk: SignedInOwner, url: str, price: str) -> Any:
    organization = desk("GET", "/orgs")["organizations"][0]["id"]
    project = desk("GET", f"/orgs/{organization}/projects")["projects"][0]["id"]
    desk("PATCH", f"/projects/{project}", {"mode": "api-keys"})
    models = [{"id": "m-1", "prices": {"prompt": price, "completion": price}}]
    body = {"name": "own", "baseUrl": url, "models": models}
    answer = desk.web.post(f"{desk.address}/orgs/{organization}/custom-providers", json=body, timeout=20)
    if answer.status_code < 300:
        key = {"organizationId": organization, "provider": "custom:own", "token": "sk-own"}
        desk("POST", "/keys/provider", key)
    return answer


def test_counts_beyond_every_column_lose_no_row_and_leave_other_books_intact(gateway: LocalGateway) -> None:
    desk = SignedInOwner(gateway.address)
    with FakeOpenAI() as upstream:
        assert own_provider(desk, upstream.url, "1000").status_code < 300
        body = {"model": "own/m-1", "messages": [{"role": "user", "content": "Hello"}]}
        headers = {"Authorization": f"Bearer {gateway.key}"}
        for tokens in (2**31, 2**40, 2**62, 2**63 - 1):
            for stream in (False, True):
                upstream.script(Answer("Hello.", prompt=tokens, completion=tokens))
                request = {**body, "stream": stream}
                answer = requests.post(f"{gateway.url}/chat/completions", json=request, headers=headers, timeout=20)
                assert answer.status_code == 200, answer.text
    gateway.services.store.journal.flush(60)
    gateway.services.billing.settlements.maintain()
    database = gateway.services.store.database
    assert database.read(lambda: database.execute("SELECT count(*) FROM usage").fetchone()[0]) == 8
    assert doctor(database) == []
    gateway.services.billing.rollups.catch_up()
    days = desk("GET", "/activity?groupBy=model&timeRange=24h")["activity"]
    assert sum(day["requestCount"] for day in days) == 8 and sum(day["cost"] for day in days) == 80_000


def test_a_price_beyond_the_bound_is_refused_where_it_is_set(gateway: LocalGateway) -> None:
    with FakeOpenAI() as upstream:
        answer = own_provider(SignedInOwner(gateway.address), upstream.url, "1e30")
    assert answer.status_code == 400 and "a price above" in answer.text
