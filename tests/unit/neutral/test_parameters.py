import pytest

from gateway.neutral.parameters import (
    CAPABILITIES,
    PARAMETERS,
    ROWS,
    Sampling,
    capabilities_of,
    fields_of,
    lost_by,
    names_in,
    relayed_fields,
    removed_by_quirks,
    words_in,
)

PENALTIES = {"frequency_penalty", "presence_penalty"}
FIXED = {"temperature", "top_p", *PENALTIES}
# The published fields of each dialect: those of callers by their names in chat completions where these differ, and the
# parameters of providers. The rows may have more.
CALLERS = {
    "aisdk": {
        "messages": "prompt",
        "max_tokens": "maxOutputTokens",
        "top_p": "topP",
        "frequency_penalty": "frequencyPenalty",
        "presence_penalty": "presencePenalty",
        "response_format": "responseFormat",
        "tool_choice": "toolChoice",
    },
    "anthropic": {
        "response_format": "output_config.format",
        "reasoning": "thinking",
        "reasoning_effort": "output_config.effort",
        "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
        "stop": "stop_sequences",
    },
    "completions": {"messages": "prompt"},
    "embeddings": {"messages": "input"},
    "rerank": {"messages": "documents"},
    "responses": {
        "messages": "input",
        "response_format": "text.format",
        "max_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning.effort",
        "verbosity": "text.verbosity",
    },
}
SAME_NAMES = {
    "openai": {"max_tokens", *FIXED, "n", "parallel_tool_calls", "verbosity", "effort", "service_tier"},
    "completions": {"max_tokens", *FIXED, "n", "stop"},
    "responses": {"temperature", "top_p", "parallel_tool_calls", "service_tier"},
    "anthropic": {"max_tokens", "temperature", "top_p", "top_k"},
    "aisdk": {"temperature"},
}
PROVIDERS = {
    "openai": {"max_completion_tokens", *FIXED, "top_k", "n", "stop", "parallel_tool_calls", "verbosity"},
    "responses": {"max_output_tokens", "temperature", "top_p", "parallel_tool_calls", "text.verbosity"},
    "anthropic": {"max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "output_config.effort"}
    | {"tool_choice.disable_parallel_tool_use"},
    "google": {"maxOutputTokens", "temperature", "topP", "topK", "frequencyPenalty", "presencePenalty"}
    | {"candidateCount", "stopSequences"},
    "bedrock": {"maxTokens", "temperature", "topP", "topK", "stopSequences", "outputConfig.effort"},
    "cohere": {"max_tokens", "temperature", "p", "k", *PENALTIES, "stop_sequences"},
}
QUIRKS = {
    "no_sampling": FIXED,
    "drop_penalties": PENALTIES,
    "no_stop": {"stop"},
    "no_parallel_tool_calls": {"parallel_tool_calls"},
    "no_verbosity": {"verbosity"},
}


def test_every_field_of_sampling_has_a_row_with_its_default():
    assert tuple(PARAMETERS) == Sampling.__struct_fields__
    assert Sampling(**{name: row.default for name, row in PARAMETERS.items()}) == Sampling()


@pytest.mark.parametrize("row", PARAMETERS.values(), ids=lambda row: row.name)
def test_a_parameter_is_given_unless_it_is_absent_or_has_its_default(row):
    assert not row.is_given(None) and not row.is_given(row.default)
    assert row.is_given("x" if row.words else 0.5)


def test_parameters_need_their_capabilities_when_they_are_given():
    assert capabilities_of(Sampling(temperature=0.0, n=2, stop=("x",))) == frozenset()
    assert capabilities_of(Sampling(verbosity="low")) == {"verbosity"}
    assert capabilities_of(Sampling(parallel_tool_calls=False)) == {"parallel tools"}
    assert capabilities_of(Sampling(frequency_penalty=0.0, presence_penalty=0.0)) == frozenset()
    for name in PENALTIES:
        assert capabilities_of(Sampling(**{name: -1.0})) == {"penalties"}
    assert {capability.name for capability in CAPABILITIES} == {"verbosity", "parallel tools", "penalties"}


def test_a_dialect_loses_the_capabilities_whose_parameters_it_has_no_field_for():
    assert lost_by("anthropic") == lost_by("responses") == lost_by("bedrock") == {"penalties"}
    assert lost_by("openai") == lost_by("google") == lost_by("cohere") == frozenset()


@pytest.mark.parametrize("dialect", CALLERS)
def test_fields_have_the_names_that_callers_of_a_dialect_use(dialect):
    assert CALLERS[dialect].items() <= names_in(dialect).items()


@pytest.mark.parametrize("dialect", SAME_NAMES)
def test_callers_of_a_dialect_use_these_names_of_chat_completions(dialect):
    assert SAME_NAMES[dialect] <= {row.field for row in ROWS if row.callers.get(dialect) == row.field}


@pytest.mark.parametrize("dialect", PROVIDERS)
def test_providers_of_a_dialect_have_these_fields(dialect):
    assert PROVIDERS[dialect] <= fields_of(dialect).keys()


@pytest.mark.parametrize("name", QUIRKS)
def test_a_quirk_removes_these_fields(name):
    assert QUIRKS[name] <= set(removed_by_quirks("openai")[name])
    responses = {"verbosity": "text.verbosity"}
    carried = PROVIDERS["responses"] | {"service_tier"}
    removed = {responses.get(field, field) for field in QUIRKS[name]} & carried
    assert removed <= set(removed_by_quirks("responses")[name])


def test_these_parameters_are_left_out_where_a_mapping_does_not_list_them():
    assert {*FIXED, "top_k", "stop"} <= {row.name for row in PARAMETERS.values() if row.listed}


def test_fields_with_words_have_all_of_them():
    chat, responses = words_in("openai"), words_in("responses")
    assert chat["verbosity"] == chat["effort"] == responses["text.verbosity"] == ("low", "medium", "high")
    assert chat["reasoning_effort"] == responses["reasoning.effort"]
    assert chat["reasoning_effort"] == ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    assert {"auto", "default", "flex", "scale", "priority"} < set(chat["service_tier"])


def test_fields_of_the_same_name_are_relayed():
    assert {"max_output_tokens", "temperature", "top_p", "parallel_tool_calls"} <= set(relayed_fields("responses"))
    assert {"max_tokens", "temperature", "top_p", "top_k", "stop_sequences"} <= set(relayed_fields("anthropic"))
    assert not {"max_tokens", "effort", "top_k"} & set(relayed_fields("openai"))
