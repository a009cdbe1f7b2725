"""Each provider of the OpenAI format gets requests that fit its entry in the catalogue."""

import orjson
import pytest
from fakes.openai_checks import check_reasoned_calls

from gateway.catalogue import loader
from gateway.catalogue.entries import Mapping
from gateway.errors import ContentNeeded, NotSupported
from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
    FunctionTool,
    Options,
    ReasoningOptions,
    Requirements,
    Sampling,
    ToolChoice,
)
from gateway.neutral.parts import Image, Media, Message, Reasoning, Text, ToolCall, ToolResult
from gateway.providers import quirks
from gateway.providers.openai.chat import OpenAIChat
from gateway.providers.protocol import Credential, Target
from gateway.surfaces.openai import chat_reader, chat_schema

CATALOGUE = loader.load()
TALK = Conversation(
    (Message("developer", (Text("Rule."),), "ops"), Message("user", (Text("hi"),))),
    (FunctionTool("look", strict=True),),
    ToolChoice("required"),
    sampling=Sampling(9, 0.5, 0.9, None, 0.1, 0.2, 1, ("a", "b"), True),
)
# Parameters that the documentation of the provider says it refuses, or does not name at all where it is strict.
REFUSED = {
    "cerebras": ("frequency_penalty", "presence_penalty", "service_tier", "user"),
    "deepseek": ("max_completion_tokens", "user"),
    "groq": ("n", "user"),
    "minimax": ("n", "user"),
    "mistral": ("max_completion_tokens", "stream_options", "user"),
    "perplexity": ("parallel_tool_calls", "n", "service_tier", "user"),
    "xai": ("frequency_penalty", "presence_penalty"),
    "zai": ("stream_options", "frequency_penalty", "presence_penalty", "max_completion_tokens", "user"),
}


def written(provider: str, model: str, effort="", stream=True, budget=None) -> dict:
    mapping = next(mapping for mapping in CATALOGUE.find(model).mappings if mapping.provider == provider)
    talk = Conversation(
        TALK.messages, TALK.tools, TALK.tool_choice, None, ReasoningOptions(effort, budget=budget), TALK.sampling
    )
    needs = Requirements(stream=stream, effort=effort, reasoning=bool(effort), n=1)
    request = ChatRequest("m", needs, lambda: talk, Options(service_tier="auto"), user="u")
    where = Target(CATALOGUE.provider(provider), mapping, Credential("k"), "https://x.example/v1")
    return orjson.loads(OpenAIChat().write(request, where).body)


def model_of(provider: str) -> str:
    """Some chat model there."""
    models = CATALOGUE.models.values()
    return next(
        m.id for m in models for mapping in m.mappings if mapping.provider == provider and "chat" in mapping.operations
    )


@pytest.mark.parametrize("provider", REFUSED)
def test_provider_gets_nothing_that_it_refuses(provider):
    assert not set(REFUSED[provider]) & written(provider, model_of(provider)).keys()


@pytest.mark.parametrize("provider", ["cerebras", "groq", "zai", "mistral", "perplexity"])
def test_names_of_messages_stay_behind_where_they_are_refused(provider):
    assert all("name" not in message for message in written(provider, model_of(provider))["messages"])


@pytest.mark.parametrize(
    ("provider", "model", "effort", "expected"),
    [
        ("deepseek", "deepseek-v4-pro", "low", {"thinking": {"type": "enabled"}, "reasoning_effort": "low"}),
        ("deepseek", "deepseek-v4-pro", "medium", {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
        ("deepseek", "deepseek-v4-pro", "xhigh", {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
        ("deepseek", "deepseek-v4-pro", "none", {"thinking": {"type": "disabled"}}),
        ("zai", "glm-5.2", "minimal", {"thinking": {"type": "enabled"}, "reasoning_effort": "low"}),
        ("moonshot", "kimi-k2.6", "high", {"thinking": {"type": "enabled"}}),
        ("moonshot", "kimi-k3", "high", {"reasoning_effort": "high"}),
        ("moonshot", "kimi-k3", "none", {}),
        ("minimax", "minimax-m3", "low", {"thinking": {"type": "adaptive"}}),
        ("minimax", "minimax-m3", "none", {"thinking": {"type": "disabled"}}),
        ("groq", "qwen3-32b", "high", {"reasoning_effort": "default", "reasoning_format": "parsed"}),
        ("groq", "qwen3-32b", "none", {"reasoning_effort": "none", "reasoning_format": "parsed"}),
        ("groq", "gpt-oss-120b", "low", {"reasoning_effort": "low"}),
        ("mistral", "magistral-medium-latest", "max", {"reasoning_effort": "high"}),
        ("alibaba", "qwen3-32b", "high", {"enable_thinking": True}),
        ("alibaba", "qwen3-32b", "none", {"enable_thinking": False}),
        ("xai", "grok-4.6", "high", {"reasoning_effort": "high"}),
        ("xiaomi", "mimo-v2.5-pro", "high", {"thinking": {"type": "enabled"}}),
    ],
)
def test_reasoning_is_requested_with_the_providers_fields(provider, model, effort, expected):
    names = ("thinking", "reasoning_effort", "reasoning_format", "enable_thinking", "thinking_budget")
    body = written(provider, model, effort)
    assert {name: body[name] for name in names if name in body} == expected


def test_models_that_reason_in_streams_only_do_not_in_whole_answers():
    for model in ("qwen3-8b", "qwen3-14b", "qwen3-32b", "qwen3-235b-a22b"):
        assert written("alibaba", model, "high", budget=900)["thinking_budget"] == 900
        whole = written("alibaba", model, "high", stream=False, budget=900)
        assert whole["enable_thinking"] is False and "thinking_budget" not in whole
    assert "enable_thinking" not in written("alibaba", "qwen3-max", stream=False)


def test_stop_sequences_go_to_providers_that_accept_them():
    assert written("zai", "glm-5.2")["stop"] == ["a"]
    assert "stop" not in written("xai", "grok-4.6")
    assert written("xai", "grok-4.20-0309-non-reasoning")["stop"] == ["a", "b"]


def test_streaming_of_call_arguments_is_requested_where_needed():
    assert written("zai", "glm-5.2")["tool_stream"] is True
    assert "tool_stream" not in written("zai", "glm-5.2", stream=False)


def test_tool_choice_and_strictness_use_the_providers_words():
    zai = written("zai", "glm-5.2")
    assert zai["tool_choice"] == "auto" and "strict" not in zai["tools"][0]["function"]
    mistral = written("mistral", "magistral-medium-latest")
    assert mistral["tool_choice"] == "any" and mistral["tools"][0]["function"]["parameters"]["type"] == "object"


def test_sampling_stays_behind_where_it_is_fixed():
    assert not {"temperature", "top_p"} & written("moonshot", "kimi-k2.6").keys()


@pytest.mark.parametrize(
    ("provider", "effort", "expected"),
    [
        ("vllm", "none", {"chat_template_kwargs": {"enable_thinking": False}}),
        ("llama-cpp", "high", {"chat_template_kwargs": {"enable_thinking": True}}),
        ("bytedance", "high", {"thinking": {"type": "enabled"}}),
    ],
)
def test_the_switch_for_thinking_is_sent_where_any_model_may_have_it(provider, effort, expected):
    body = {"reasoning_effort": effort}
    quirks.adjust(body, ChatRequest("m", Requirements(), lambda: TALK), CATALOGUE.provider(provider).quirks[1:])
    assert expected.items() <= body.items()


def test_groq_gets_no_request_for_json_beside_tools():
    body = {"tools": [{}], "response_format": {"type": "json_object"}, "messages": []}
    with pytest.raises(NotSupported):
        quirks.adjust(body, ChatRequest("m", Requirements(), lambda: TALK), CATALOGUE.provider("groq").quirks)


def test_separate_reasoning_is_requested_where_it_would_be_mixed_with_text():
    assert written("minimax", "minimax-m3")["reasoning_split"] is True


# Providers that accept OpenAI's newest fields.
LIKE_OPENAI = {"openai", "azure", "llmgateway", "meta", "meta-contributor", "typesafe"}
PROVIDERS = [provider.id for provider in CATALOGUE.providers.values() if provider.protocol == "openai"]


def sent_to(provider: str, *messages: Message, **needs: object) -> dict:
    """Return the body of a request for any model of a provider."""
    talk = Conversation(messages, sampling=Sampling(9))
    options = Options(prompt_cache_key="k", extra={"sensitive_word_check": {"status": "DISABLE"}})
    request = ChatRequest("m", Requirements(**needs), lambda: talk, options, user="u")
    where = Target(CATALOGUE.provider(provider), Mapping(provider, "m", "m"), Credential("k"), "https://x.example/v1")
    return orjson.loads(OpenAIChat().write(request, where).body)


def test_only_some_servers_take_the_newest_fields_of_openai():
    for provider in PROVIDERS:
        body = sent_to(provider, Message("developer", (Text("Rule."),)), Message("user", (Text("hi"),)))
        newest = body["messages"][0]["role"] == "developer", "max_completion_tokens" in body, "user" in body
        assert newest == (provider in LIKE_OPENAI,) * 3, provider


def test_fields_of_one_vendor_are_sent_to_it_alone():
    user = Message("user", (Text("hi"),))
    for provider in ("openai", "azure", "zai", "groq"):
        body = sent_to(provider, user)
        assert ("prompt_cache_key" in body) == (provider in ("azure", "meta", "mistral", "openai"))
        assert ("sensitive_word_check" in body) == (provider == "zai")


def test_past_reasoning_goes_back_where_the_next_turn_needs_it():
    past = Message("assistant", (Reasoning("Hm."), ToolCall("c1", "look", "{}")))
    turns = (Message("user", (Text("hi"),)), past, Message("tool", (ToolResult("c1", (Text("It rains."),)),)))
    names = {"reasoning_content", "reasoning_details"}
    replaying = {provider for provider in PROVIDERS if names & sent_to(provider, *turns)["messages"][1].keys()}
    assert {"deepseek", "minimax", "moonshot", "xiaomi", "zai"} <= replaying and "groq" not in replaying
    assert "reasoning_details" in sent_to("minimax", *turns)["messages"][1]


@pytest.mark.parametrize(
    ("provider", "model"), [("deepseek", "deepseek-v4-pro"), ("moonshot", "kimi-k3"), ("xiaomi", "")]
)
@pytest.mark.parametrize("effort", ["", "high", "none"])
def test_calls_of_other_models_have_empty_reasoning_where_the_service_refuses_a_turn_without(provider, model, effort):
    ident = model or model_of(provider)
    mapping = next(mapping for mapping in CATALOGUE.find(ident).mappings if mapping.provider == provider)
    where = Target(CATALOGUE.provider(provider), mapping, Credential("k"), "https://x.example/v1")
    past = Message("assistant", (ToolCall("c1", "look", "{}"),))
    turns = (Message("user", (Text("hi"),)), past, Message("tool", (ToolResult("c1", (Text("It rains."),)),)))
    talk = Conversation(turns, TALK.tools, reasoning=ReasoningOptions(effort))
    needs = Requirements(tools=True, effort=effort, reasoning=bool(effort))
    rebuilt = ChatRequest("m", needs, lambda: talk)
    check_reasoned_calls(orjson.loads(OpenAIChat().write(rebuilt, where).body))
    wire = {"model": "m", "messages": orjson.loads(OpenAIChat().write(rebuilt, where).body)["messages"]}
    for message in wire["messages"]:
        message.pop("reasoning_content", None)
    raw = orjson.dumps(wire | ({"reasoning_effort": effort} if effort else {}))
    request = chat_reader.read_chat(chat_schema.decode(raw), raw)
    assert request.native is not None
    check_reasoned_calls(orjson.loads(OpenAIChat().relay(request.native, request, where).body))


def test_instructions_amid_the_conversation_are_the_users_for_mistral():
    talk = [Message(role, (Text(role),)) for role in ("user", "assistant", "developer")]
    assert sent_to("mistral", *talk)["messages"][-1]["role"] == "user"


def test_servers_that_load_no_urls_get_the_bytes():
    picture = Message("user", (Image(Media(url="https://a.example/b.png")),))
    refusing = set()
    for provider in PROVIDERS:
        try:
            sent_to(provider, picture, media=1)
        except ContentNeeded:
            refusing.add(provider)
    assert {"lm-studio", "moonshot", "ollama"} <= refusing and "openai" not in refusing
