import tomllib

import pytest

from gateway.catalogue.catalogue import CurrentCatalogue
from gateway.catalogue.entries import Mapping
from gateway.catalogue.lifecycle import state_on
from gateway.catalogue.loader import load
from gateway.configuration.settings import CONFIG

AUTO_MODELS = tomllib.loads((CONFIG / "default.toml").read_text())["catalogue"]["auto_models"]
CATALOGUE = load()
DOCUMENTED = [
    "openai",
    "anthropic",
    "google-ai-studio",
    "google-vertex",
    "vertex-anthropic",
    "vertex-openai",
    "aws-bedrock",
    "aws-mantle",
    "azure",
    "azure-ai-foundry",
    "azure-anthropic",
    "glacier",
    "iceberg",
    "quartz",
    "granite",
    "xai",
    "mistral",
    "alibaba",
    "bytedance",
    "zai",
    "deepseek",
    "moonshot",
    "minimax",
    "tencent",
    "perplexity",
    "novita",
    "deepinfra",
    "meta",
    "meta-contributor",
    "sakana",
    "xiaomi",
    "fireworks",
    "runware",
    "runpod",
    "groq",
    "cerebras",
    "together-ai",
    "nebius",
    "inference.net",
    "embercloud",
    "baidu",
    "ranoai",
    "consensusprotocol",
    "scx-ai",
    "scx-ai-gp",
    "nanogpt",
    "canopywave",
    "gonka24",
    "atria",
    "elevenlabs",
    "reve",
    "atlascloud",
    "typesafe",
    "custom",
    "llmgateway",
    "sandbox",
    "ollama",
    "llama-cpp",
    "vllm",
    "lm-studio",
]


@pytest.mark.parametrize("ident", DOCUMENTED)
def test_every_documented_provider_has_an_entry(ident):
    assert CATALOGUE.provider(ident) is not None


def test_hundreds_of_active_models_have_a_price():
    active = [m for m in CATALOGUE.models.values() if state_on(m, "2026-12-01") == "active"]
    assert sum(any(mapping.priced for mapping in model.mappings) for model in active) >= 250


@pytest.mark.parametrize(
    "provider",
    [
        "deepinfra",
        "novita",
        "together-ai",
        "groq",
        "fireworks",
        "nebius",
        "nanogpt",
        "aws-bedrock",
        "azure",
        "google-vertex",
    ],
)
def test_aggregators_and_clouds_serve_priced_models(provider):
    served = [m for model in CATALOGUE.models.values() for m in model.mappings if m.provider == provider]
    assert sum(mapping.priced for mapping in served) >= 10


@pytest.mark.parametrize("ident", [*AUTO_MODELS, "sandbox-echo"])
def test_the_models_of_the_automatic_choice_exist(ident):
    assert CATALOGUE.models[ident].mappings


def test_one_model_joins_its_providers_whatever_they_call_it():
    providers = {m.provider for m in CATALOGUE.mappings_of("claude-sonnet-4-5", "chat")}
    assert {"anthropic", "aws-bedrock", "vertex-anthropic", "azure-anthropic"} <= providers


def test_a_dated_name_is_an_alias_of_the_model_that_it_means():
    assert CATALOGUE.find("claude-sonnet-4-5-20250929").id == "claude-sonnet-4-5"
    assert CATALOGUE.find("no-such-model") is None


def test_mappings_are_found_by_operation():
    assert CATALOGUE.mappings_of("text-embedding-3-small", "embeddings")
    assert CATALOGUE.mappings_of("text-embedding-3-small", "chat") == ()


def test_sandbox_models_stand_for_themselves_only():
    for model in CATALOGUE.models.values():
        providers = {m.provider for m in model.mappings}
        assert "sandbox" not in providers or (providers == {"sandbox"} and model.id.startswith("sandbox-"))


def test_a_typing_error_gets_near_names():
    assert "claude-sonnet-4-5" in CATALOGUE.suggest("claude-sonet-4-5")
    assert "gpt-4o-mini" in CATALOGUE.suggest("openai/gpt4o-mini")
    assert CATALOGUE.suggest("qqqqqq") == []
    assert CATALOGUE.suggest("") == []
    assert len(CATALOGUE.suggest("x" * 100_000 + "gpt")) <= 3


@pytest.mark.parametrize(
    ("day", "state"),
    [
        ("2026-01-31", "active"),
        ("2026-02-01", "deprecated"),
        ("2026-02-28", "deprecated"),
        ("2026-03-01", "deactivated"),
    ],
)
def test_the_state_follows_the_dates(day, state):
    mapping = Mapping("p", "m", "m", deprecated="2026-02-01", deactivated="2026-03-01")
    assert state_on(mapping, day) == state


def test_a_swap_discards_derived_values():
    holder = CurrentCatalogue(CATALOGUE)
    assert holder.remember("a", lambda: 1) == holder.remember("a", lambda: 2) == 1
    holder.swap(load(sandbox=False))
    assert holder.remember("a", lambda: 3) == 3
    assert holder.current().find("sandbox-echo") is None


def test_only_the_last_used_derived_things_are_kept():
    holder = CurrentCatalogue(CATALOGUE, remembered=2)
    for key in ("a", "b", "a", "c"):
        holder.remember(key, lambda key=key: key * 2)
    assert holder.remember("a", lambda: "new") == "aa"
    assert holder.remember("b", lambda: "new") == "new"


@pytest.mark.parametrize(("ident", "provider"), [("gpt-4o", "openai"), ("gemini-2.5-pro", "google-ai-studio")])
def test_the_vendors_own_provider_comes_first(ident, provider):
    assert CATALOGUE.models[ident].mappings[0].provider == provider


def test_the_model_of_decisions_has_the_aliases_of_its_vendor():
    models = {CATALOGUE.find(name).id for name in ("jev", "jev-latest", "jev-preview")}
    assert models == {"jev-1.14.0"}
