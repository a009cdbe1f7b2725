import pytest

from gateway.catalogue.entries import Mapping, Provider
from gateway.catalogue.loader import load
from gateway.surfaces.openai.model_entries import ALL_LEVELS, shown_efforts

CATALOGUE = load(sandbox=False)
# Share of reasoning mappings without any level: hosts that publish none.
MAX_UNKNOWN = 0.45


@pytest.mark.parametrize(
    ("key", "levels"),
    [
        ("anthropic/claude-sonnet-4-5", ALL_LEVELS),
        ("google-ai-studio/gemini-2.5-flash", ALL_LEVELS),
        ("google-ai-studio/gemini-2.5-pro", ALL_LEVELS[1:]),
        ("google-ai-studio/gemini-3-pro-preview", ("low", "high")),
        ("alibaba/qwen3-32b", ("none", "high")),
        ("mistral/magistral-small", ("low", "medium", "high")),
        ("deepseek/deepseek-v4-pro", ("none", "low", "high", "max")),
        ("moonshot/kimi-k3", ("low", "high", "max")),
    ],
)
def test_effort_levels_follow_from_the_provider_field_for_reasoning(key, levels):
    provider, _, model = key.partition("/")
    (mapping,) = [mapping for mapping in CATALOGUE.models[model].mappings if mapping.key == key]
    assert shown_efforts(mapping, CATALOGUE.providers[provider]) == levels


@pytest.mark.parametrize(
    ("quirk", "levels"),
    [
        ("no_reasoning_effort", ()),
        ("effort_alone", ("low", "high", "max")),
        ("thinking_and_effort", ("none", "low", "high", "max")),
        ("thinking_switch", ("none", "high")),
        ("enable_thinking", ("none", "high")),
        ("adaptive_thinking", ("none", "high")),
        ("template_thinking", ("none", "high")),
        ("none_or_high_effort", ("none", "high")),
        ("none_or_default_effort", ("none", "high")),
        ("basic_reasoning_effort", ("low", "medium", "high")),
    ],
)
def test_levels_are_those_that_have_different_effects_at_the_provider(quirk, levels):
    provider = Provider("acme", "Acme", "openai", quirks=(quirk,))
    assert shown_efforts(Mapping("acme", "m", "gpt-oss-999b", reasoning=True), provider) == levels


@pytest.mark.parametrize(
    ("protocol", "model", "levels"),
    [
        ("google", "gemini-2.5-pro-preview", ALL_LEVELS[1:]),
        ("google", "gemini-2.5-flash", ALL_LEVELS),
        ("google", "gemini-3-pro-preview", ("low", "high")),
        ("google", "gemini-3.9-pro", ("low", "medium", "high")),
        ("google", "gemini-3.9-flash", ("minimal", "low", "medium", "high")),
        ("google", "gemma-4-27b-it", ("minimal", "high")),
        ("anthropic", "claude-sonnet-4-5", ALL_LEVELS),
        ("bedrock", "eu.anthropic.claude-sonnet-4-5-v1:0", ALL_LEVELS),
        ("bedrock", "openai.gpt-oss-120b-1:0", ("low", "medium", "high")),
        ("bedrock", "moonshotai.kimi-k2.5", ("low", "medium", "high")),
        ("bedrock", "deepseek.v3.2", ()),
        ("openai", "gpt-oss-20b", ("low", "medium", "high")),
        ("openai", "claude-sonnet-4-5", ()),
    ],
)
def test_levels_follow_from_the_format_and_the_model(protocol, model, levels):
    mapping = Mapping("acme", "m", model, reasoning=True)
    assert shown_efforts(mapping, Provider("acme", "Acme", protocol)) == levels


def test_stated_levels_win_and_models_that_do_not_reason_have_none():
    for model in CATALOGUE.models.values():
        for mapping in model.mappings:
            efforts = shown_efforts(mapping, CATALOGUE.providers[mapping.provider])
            assert efforts == mapping.reasoning_efforts or not mapping.reasoning_efforts
            assert mapping.reasoning or not efforts, mapping.key


def test_most_mappings_that_reason_show_levels():
    rows = [mapping for model in CATALOGUE.models.values() for mapping in model.mappings if mapping.reasoning]
    unknown = [row.key for row in rows if not shown_efforts(row, CATALOGUE.providers[row.provider])]
    assert len(unknown) / len(rows) < MAX_UNKNOWN
