import pytest

from gateway.catalogue.effort_lists import ALL, shown_efforts
from gateway.catalogue.loader import load

CATALOGUE = load(sandbox=False)
# Share of reasoning mappings without any level: hosts that publish none.
MOST_UNKNOWN = 0.45


@pytest.mark.parametrize(
    ("key", "levels"),
    [
        ("anthropic/claude-sonnet-4-5", ALL),
        ("google-ai-studio/gemini-2.5-flash", ALL),
        ("google-ai-studio/gemini-2.5-pro", ALL[1:]),
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


def test_stated_levels_win_and_models_that_do_not_reason_have_none():
    for model in CATALOGUE.models.values():
        for mapping in model.mappings:
            efforts = shown_efforts(mapping, CATALOGUE.providers[mapping.provider])
            assert efforts == mapping.reasoning_efforts or not mapping.reasoning_efforts
            assert mapping.reasoning or not efforts, mapping.key


def test_most_mappings_that_reason_show_levels():
    rows = [mapping for model in CATALOGUE.models.values() for mapping in model.mappings if mapping.reasoning]
    unknown = [row.key for row in rows if not shown_efforts(row, CATALOGUE.providers[row.provider])]
    assert len(unknown) / len(rows) < MOST_UNKNOWN
