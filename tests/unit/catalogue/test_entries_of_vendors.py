import re
from datetime import UTC, datetime

import pytest

from gateway.catalogue import loader
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping
from gateway.catalogue.prices import cost_of
from gateway.clock import from_datetime
from gateway.neutral.usage import Usage


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return loader.load()


def mappings(catalogue: Catalogue, model: str, provider: str) -> list[Mapping]:
    found = catalogue.find(model)
    assert found is not None
    return [mapping for mapping in found.mappings if mapping.provider == provider]


@pytest.mark.parametrize("provider", ["anthropic", "vertex-anthropic", "aws-bedrock"])
def test_a_model_that_thinks_adaptively_only_has_effort_levels(catalogue: Catalogue, provider: str) -> None:
    for mapping in mappings(catalogue, "claude-opus-4-7", provider):
        assert {"low", "high", "max"} <= set(mapping.reasoning_efforts) and "thinking" not in mapping.extra


@pytest.mark.parametrize(
    ("moment", "times"), [("2026-11-20T02:00", 2), ("2026-11-22T02:00", 1), ("2026-10-01T02:00", 1)]
)
@pytest.mark.parametrize("model", ["deepseek-v4-pro", "deepseek-v4.1-flash"])
def test_deepseek_costs_twice_as_much_in_the_hours_of_work_of_working_days(
    catalogue: Catalogue, model: str, moment: str, times: int
) -> None:
    (mapping,) = mappings(catalogue, model, "deepseek")
    usage = Usage(input=1_000_000, output=1_000_000, cache_read=1_000_000)
    night = "2026-11-22T20:00"
    at, then = (from_datetime(datetime.fromisoformat(text).replace(tzinfo=UTC)) for text in (moment, night))
    assert cost_of(usage, mapping, at).total == times * cost_of(usage, mapping, then).total


@pytest.mark.parametrize(
    ("models", "provider", "quirk"),
    [
        ("grok-", "", "no_stop"),
        ("gpt-(5[.][4-9]|[6-9])", "", "no_sampling"),
        ("kimi-k2[.]", "moonshot", "no_sampling"),
        ("kimi-k3", "moonshot", "effort_alone"),
        ("qwen3-[0-9]+b", "alibaba", "thinking_needs_stream"),
        ("qwen3", "groq", "parsed_reasoning"),
    ],
)
def test_every_reasoning_model_of_a_family_has_its_quirk(
    catalogue: Catalogue, models: str, provider: str, quirk: str
) -> None:
    family = [model for model in catalogue.models.values() if re.match(models, model.id)]
    reasoning = [mapping for model in family for mapping in model.mappings if mapping.reasoning]
    quirks = [mapping.quirks for mapping in reasoning if mapping.provider.startswith(provider)]
    assert quirks and all(quirk in names for names in quirks)


def test_hosts_of_google_take_a_workload_identity(catalogue: Catalogue) -> None:
    hosts = [provider for provider in catalogue.providers.values() if "googleapis.com" in provider.address]
    assert hosts and all(provider.identity == "google" for provider in hosts)


def test_hosts_of_anthropics_api_get_its_version(catalogue: Catalogue) -> None:
    providers = [provider for provider in catalogue.providers.values() if provider.protocol == "anthropic"]
    hosts = [provider for provider in providers if "vertex_raw_predict" not in provider.quirks]
    assert hosts and all("anthropic-version" in provider.headers for provider in hosts)


def test_an_operator_can_switch_the_responses_api_of_each_provider_that_has_it(catalogue: Catalogue) -> None:
    mappings = [mapping for model in catalogue.models.values() for mapping in model.mappings]
    providers = {mapping.provider for mapping in mappings if mapping.responses_api}
    assert all("use_responses_api" in catalogue.provider(provider).settings for provider in providers)


@pytest.mark.parametrize("provider", ["anthropic", "vertex-anthropic", "azure-anthropic"])
def test_a_model_that_thinks_both_ways_says_so(catalogue: Catalogue, provider: str) -> None:
    (mapping,) = mappings(catalogue, "claude-opus-4-6", provider)
    assert mapping.extra["thinking"] == "both" and "max" in mapping.reasoning_efforts


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "gemini-3.6-flash"])
@pytest.mark.parametrize("provider", ["google-ai-studio", "google-vertex"])
def test_signed_models_keep_their_session_and_give_eight_choices(
    catalogue: Catalogue, provider: str, model: str
) -> None:
    (mapping,) = mappings(catalogue, model, provider)
    assert (mapping.supports_n, mapping.max_n, mapping.extra["keep_session"]) == (True, 8, True)


def test_a_long_prompt_is_billed_at_its_own_tier_at_alibaba(catalogue: Catalogue) -> None:
    (mapping,) = mappings(catalogue, "qwen3-coder-flash", "alibaba")
    costs = [cost_of(Usage(input=tokens), mapping, 0).total for tokens in (32_000, 100_000, 200_000, 300_000)]
    assert costs == [9_600_000, 50_000_000, 160_000_000, 480_000_000]


def test_a_connection_is_closed_where_that_ends_the_bill(catalogue: Catalogue) -> None:
    # OpenRouter's guide, "Stream cancellation", supported providers.
    documented = "openai azure azure-anthropic anthropic fireworks novita deepinfra together-ai cohere xai deepseek"
    providers = catalogue.providers.values()
    engines = {"llama-cpp", "lm-studio", "ollama", "vllm", "sandbox"}  # of the operator, without a bill
    assert {*documented.split(), *engines} <= {provider.id for provider in providers if provider.cancellation}
    assert engines <= {provider.id for provider in providers if provider.plain_cancellation}
    assert engines | {"custom"} <= {provider.id for provider in providers if not provider.key_required}


def test_clouds_are_signed_in_to_by_their_own_identities(catalogue: Catalogue) -> None:
    identities = {"aws-bedrock": "aws", "azure": "entra", "google-": "google", "vertex-": "google"}
    for start, identity in identities.items():
        clouds = [provider for name, provider in catalogue.providers.items() if name.startswith(start)]
        assert clouds and {provider.identity for provider in clouds} == {identity}
    # The headers of keys that are no bearer tokens.
    headers = {
        "api-key": {"azure", "azure-ai-foundry"},
        "x-api-key": {"anthropic", "azure-anthropic"},
        "google-oauth": {"vertex-anthropic", "vertex-openai"},
    }
    for auth, providers in headers.items():
        assert {catalogue.providers[name].auth for name in providers} == {auth}


def test_tools_that_a_provider_runs_have_a_price(catalogue: Catalogue) -> None:
    """Those of the Responses API, of each provider that has a price for some."""
    priced = [one for one in catalogue.providers.values() if one.tool_prices and one.protocol == "openai"]
    assert priced and all({"file_search", "code_session"} <= set(provider.tool_prices) for provider in priced)
    openai = catalogue.provider("openai")
    azure = catalogue.provider("azure")
    assert azure.tool_prices == openai.tool_prices | {"web_search_preview": azure.search_price}


@pytest.mark.parametrize(
    ("provider", "tier", "multiplier"),
    [
        ("openai", "flex", "0.5"),
        ("openai", "priority", "2.5"),
        ("fireworks", "priority", "1.25"),
        ("google-ai-studio", "priority", "1.8"),
        ("google-vertex", "priority", "1.8"),
    ],
)
def test_a_tier_has_the_usual_multiplier_of_its_provider(
    catalogue: Catalogue, provider: str, tier: str, multiplier: str
) -> None:
    assert catalogue.provider(provider).service_tiers[tier] == multiplier


@pytest.mark.parametrize("tool", ["function", "web_search", "x_search", "code_interpreter", "file_search", "mcp"])
def test_tools_of_xais_responses_api_are_sent_there(catalogue: Catalogue, tool: str) -> None:
    assert tool in catalogue.provider("xai").responses_tools
