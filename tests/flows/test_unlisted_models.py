"""Models that the catalogue does not list: passed on at a provisional price, and billed again once they are listed."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from fakes.embedding_services import FakeEmbeddingServices
from fakes.openai import FakeOpenAI
from support.gateways import LocalGateway, local_gateway
from support.media import providers_at
from support.shared import Share, usage_of

from gateway.accounts.organizations import set_policy
from gateway.billing.reconciliation import doctor
from gateway.billing.rerating import post, rerate
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping, Model, Prices, TokenRates
from gateway.catalogue.unlisted_entries import PROVISIONAL, find_nearest
from gateway.configuration.settings import Settings

NEW = "gpt-99-preview"
MESSAGES = [{"role": "user", "content": "Hello"}]
RATE = 7_000_000_000  # nano-dollars per million tokens


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "sqlite":
        return {}
    return {
        "DATABASE_URL": request.getfixturevalue("postgresql_url"),
        "GATEWAY_API_KEY_HASH_SECRET": "a hash secret of the tests",
        "GATEWAY_ENCRYPTION_KEY": "an encryption key of the tests",
    }


@pytest.fixture
def unlimited(
    settings: Callable[..., Settings], upstream_environment: dict[str, str], store: dict[str, str]
) -> Iterator[LocalGateway]:
    environment = {"GATEWAY_BOOTSTRAP_CREDITS_USD": "unlimited", **upstream_environment, **store}
    with local_gateway(settings, **environment) as running:
        yield running


def call(gateway: LocalGateway, path: str, **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {gateway.key}", "x-goog-api-key": gateway.key}
    return httpx.post(f"{gateway.address}{path}", headers=headers, json=body, timeout=60)


def chat(gateway: LocalGateway, model: str) -> httpx.Response:
    return call(gateway, "/v1/chat/completions", model=model, messages=MESSAGES)


def learn(gateway: LocalGateway, *mappings: Mapping) -> Catalogue:
    """Let the catalogue list the new model, as a reload does."""
    holder = gateway.services.routing.catalogue
    known = holder.current()
    models = [*known.models.values(), Model(NEW, mappings=mappings)]
    holder.swap(Catalogue(models, known.providers.values(), known.aliases, f"{known.version} and {NEW}"))
    return holder.current()


def test_a_new_model_is_called_billed_provisionally_and_priced_again(
    unlimited: LocalGateway, upstream: FakeOpenAI
) -> None:
    answer = chat(unlimited, f"openai/{NEW}")
    assert answer.status_code == 200, answer.text
    assert upstream.calls[0].body["model"] == NEW and answer.json()["model"] == f"openai/{NEW}"
    assert answer.headers["x-llmgateway-price-version"] == PROVISIONAL
    assert answer.json()["metadata"]["routing"][0]["provisionalPriceOf"].startswith("openai/gpt-")
    services = unlimited.services
    services.billing.settlements.maintain()
    row = usage_of(unlimited)[-1]
    assert (row.served, row.price_version) == (NEW, PROVISIONAL) and row.cost_nusd > 0
    database = services.store.database
    window = (0, services.clock.now_us() + 1)
    before = rerate(database, services.routing.catalogue.current(), *window)
    assert (before.left, before.adjustments()) == ({"not in the catalogue": 1}, {})
    prices = (Prices(TokenRates(prompt=RATE, completion=RATE)),)
    catalogue = learn(unlimited, Mapping("openai", NEW, NEW, prices=prices, price_version="p2"))
    report = rerate(database, catalogue, *window)
    organization = services.accounts.authentication.caller(unlimited.key).organization_id
    difference = (row.input + row.output) * RATE // 1_000_000 - row.cost_nusd
    assert report.adjustments() == {organization: difference}
    assert post(services.billing.ledger, report, "release day") == {organization: -difference}
    assert post(services.billing.ledger, report, "release day") == {} and doctor(database) == []
    assert chat(unlimited, f"openai/{NEW}").headers["x-llmgateway-price-version"] == "p2"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"max_tokens": 50, "messages": MESSAGES}),
        ("/v1/responses", {"input": "Hello"}),
        ("/v1/completions", {"prompt": "Hello"}),
        ("/v1/chat/completions", {"messages": MESSAGES, "stream": True}),
    ],
)
def test_every_chat_surface_passes_it_on(
    unlimited_once: LocalGateway, upstream: FakeOpenAI, path: str, body: Any
) -> None:
    answer = call(unlimited_once, path, model=f"openai/{NEW}", **body)
    assert answer.status_code == 200 and upstream.calls[-1].body["model"] == NEW, answer.text


CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}


@pytest.mark.parametrize("method", ["generateContent", "streamGenerateContent?alt=sse"])
def test_the_surface_of_gemini_passes_it_on(unlimited_once: LocalGateway, upstream: FakeOpenAI, method: str) -> None:
    answer = call(unlimited_once, f"/v1beta/models/openai/{NEW}:{method}", **CONTENTS)
    assert answer.status_code == 200 and upstream.calls[-1].body["model"] == NEW, answer.text
    assert "Hello" in answer.text and usage_of(unlimited_once)[-1].price_version == PROVISIONAL


def test_gemini_counts_tokens_of_a_new_model(unlimited_once: LocalGateway) -> None:
    answer = call(unlimited_once, f"/v1beta/models/openai/{NEW}:countTokens", **CONTENTS)
    assert answer.status_code == 200 and answer.json()["totalTokens"] > 0, answer.text


@pytest.mark.parametrize("version", [1, 3, 4])
@pytest.mark.parametrize("streaming", ["true", "false"])
def test_the_surface_of_the_ai_sdk_passes_it_on(
    unlimited_once: LocalGateway, upstream: FakeOpenAI, version: int, streaming: str
) -> None:
    headers = {
        "Authorization": f"Bearer {unlimited_once.key}",
        "ai-language-model-id": f"openai/{NEW}",
        "ai-language-model-streaming": streaming,
    }
    body = {"prompt": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]}
    answer = httpx.post(
        f"{unlimited_once.address}/v{version}/ai/language-model", headers=headers, json=body, timeout=60
    )
    assert answer.status_code == 200 and upstream.calls[-1].body["model"] == NEW, answer.text
    assert usage_of(unlimited_once)[-1].price_version == PROVISIONAL


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"model": "openai/text-embedding-99", "input": ["Hello", "World"]}),
        ("/v1beta/models/openai/text-embedding-99:embedContent", {"content": {"parts": [{"text": "Hello"}]}}),
        (
            "/v1beta/models/openai/text-embedding-99:batchEmbedContents",
            {"requests": [{"content": {"parts": [{"text": "Hello"}]}}, {"content": {"parts": [{"text": "World"}]}}]},
        ),
    ],
)
def test_embeddings_are_passed_on_at_the_price_of_the_nearest_model_of_embeddings(
    settings: Callable[..., Settings], share: Share, path: str, body: dict[str, Any]
) -> None:
    services = share.fake(FakeEmbeddingServices)
    environment = providers_at(services, {"OPENAI": "/v1"}) | {"GATEWAY_BOOTSTRAP_CREDITS_USD": "unlimited"}
    with local_gateway(settings, **environment) as gateway:
        answer = call(gateway, path, **body)
        assert answer.status_code == 200, answer.text
        assert services.calls[-1].body["model"] == "text-embedding-99"
        row = usage_of(gateway)[-1]
        assert (row.served, row.operation, row.price_version) == ("text-embedding-99", "embeddings", PROVISIONAL)
        near = find_nearest(gateway.services.routing.catalogue.current(), "openai", "text-embedding-99")
        assert near is not None and near.model.startswith("text-embedding-")
        assert row.cost_nusd == row.input * near.prices[-1].base.prompt // 1_000_000 > 0


@pytest.fixture
def unlimited_once(settings: Callable[..., Settings], upstream_environment: dict[str, str]) -> Iterator[LocalGateway]:
    with local_gateway(settings, GATEWAY_BOOTSTRAP_CREDITS_USD="unlimited", **upstream_environment) as running:
        yield running


def test_a_fine_tuned_model_has_the_price_of_fine_tuned_models(
    unlimited_once: LocalGateway, upstream: FakeOpenAI
) -> None:
    name = "ft:gpt-4o-mini-2024-07-18:acme::a1"
    answer = chat(unlimited_once, f"openai/{name}")
    assert answer.status_code == 200 and upstream.calls[0].body["model"] == name
    services = unlimited_once.services
    services.billing.settlements.maintain()
    row = usage_of(unlimited_once)[-1]
    assert row.cost_nusd == row.input * 300 + row.output * 1200 and row.price_version != PROVISIONAL
    report = rerate(services.store.database, services.routing.catalogue.current(), 0, services.clock.now_us() + 1)
    assert (report.left, report.adjustments()) == ({}, {})


def test_credits_pay_for_a_new_model_only_where_the_policy_allows_it(
    gateway: LocalGateway, upstream: FakeOpenAI
) -> None:
    services = gateway.services
    stores = (services.store.database, services.store.control)
    organization = services.accounts.authentication.caller(gateway.key).organization_id
    error = chat(gateway, f"openai/{NEW}").json()["error"]
    assert error["code"] == "model_not_found" and not upstream.calls
    assert "passed on to openai if the organization pays with its own provider key" in error["message"]
    set_policy(*stores, organization, {"allowUnlistedModels": ["openai"]}, actor="test")
    assert chat(gateway, f"openai/{NEW}").status_code == 200
    set_policy(*stores, organization, {"allowUnlistedModels": ["*"], "blockUnlistedModels": ["openai"]}, actor="test")
    assert chat(gateway, f"openai/{NEW}").json()["error"]["code"] == "model_not_found"
    set_policy(*stores, organization, {"allowUnlistedModels": ["*"], "blockedModels": ["gpt-4o"]}, actor="test")
    assert chat(gateway, f"openai/{NEW}").json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("name", ["ft:gpt-4o-mini-2024-07-18:acme::a1", "tunedModels/a1", "FT:gpt-4o-mini:acme::a1"])
def test_the_policy_opens_no_models_of_the_platforms_account(
    gateway: LocalGateway, upstream: FakeOpenAI, name: str
) -> None:
    services = gateway.services
    organization = services.accounts.authentication.caller(gateway.key).organization_id
    stores = (services.store.database, services.store.control)
    set_policy(*stores, organization, {"allowUnlistedModels": ["*"]}, actor="test")
    assert chat(gateway, f"openai/{name}").json()["error"]["code"] == "model_not_found" and not upstream.calls


@pytest.mark.parametrize("name", ["../files", "a/../../v1/files", "a//b"])
def test_a_name_that_leads_elsewhere_in_a_path_is_not_passed_on(
    unlimited_once: LocalGateway, upstream: FakeOpenAI, name: str
) -> None:
    assert chat(unlimited_once, f"openai/{name}").json()["error"]["code"] == "model_not_found" and not upstream.calls


def test_a_known_model_of_another_provider_and_the_sandbox_are_not_passed_on(unlimited_once: LocalGateway) -> None:
    assert chat(unlimited_once, "openai/claude-haiku-4-5").json()["error"]["code"] == "model_not_served"
    error = chat(unlimited_once, "sandbox/none").json()["error"]
    assert error["code"] == "model_not_found" and "passed on" not in error["message"]
    assert chat(unlimited_once, f"anthropic/{NEW}").json()["error"]["code"] == "model_not_found"  # without a key
