"""Optional and required features on every surface and protocol, requested from models with almost no features.

An optional feature is left out or lowered: the answer arrives and names it, and the vendor never sees it. A required
feature is refused: the error names it and its field in the caller's dialect, and the vendor receives no request.
"""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from contract import views
from contract.cases import PDF, PNG, WAV
from contract.contract_gateway import ContractGateway
from contract.vendors import VENDORS, Say

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
STRICT = {"name": "a", "schema": SCHEMA, "strict": True}
SOUND = {"data": WAV, "format": "wav"}
CHAT_TOOL = {"type": "function", "function": {"name": "clock", "parameters": SCHEMA}}
MESSAGES_TOOL = {"name": "clock", "input_schema": SCHEMA}
RESPONSES_TOOL = {"type": "function", "name": "clock", "parameters": SCHEMA}
MARK = {"type": "ephemeral"}
HELLO: dict[str, Json] = {
    "chat": {"messages": [{"role": "user", "content": "Hello"}]},
    "messages": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 500},
    "responses": {"input": "Hello"},
}
REASONING = ('"reasoning', '"thinking', "includeThoughts", "additionalModelRequestFields")
LARGE = "word " * 20_000


@dataclass(frozen=True)
class Wish:
    """`fields` join the body; a warning names `field`; none of `words` reaches the vendor. `carried`: vendors that have
    a form for it whatever the model."""

    fields: Json
    field: str
    words: tuple[str, ...]
    carried: tuple[str, ...] = ()


@dataclass(frozen=True)
class Need:
    """`fields` join the body; the refusal names `param` and `word`."""

    fields: Json
    param: str
    word: str
    model: str = "bare"
    code: str = "model_not_supported"


def user(part: Json) -> Json:
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "See:"}, part]}]}


def item(part: Json) -> Json:
    return {"input": [{"role": "user", "content": [{"type": "input_text", "text": "See:"}, part]}]}


MARKED = user({"type": "text", "text": "Long.", "cache_control": MARK})
WITH_MARKS = ("anthropic", "bedrock")
WISHES: dict[str, dict[str, Wish]] = {
    "chat": {
        "max_tokens": Wish({"max_tokens": 7777}, "max_tokens", ("7777",)),
        "max_completion_tokens": Wish({"max_completion_tokens": 7777}, "max_tokens", ("7777",)),
        "more than the context": Wish({"max_tokens": 10**9}, "max_tokens", (str(10**9),)),
        "reasoning_effort": Wish({"reasoning_effort": "high"}, "reasoning_effort", REASONING),
        "reasoning": Wish({"reasoning": {"max_tokens": 2000}}, "reasoning", REASONING),
        "verbosity": Wish({"verbosity": "low"}, "verbosity", ("verbosity",)),
        "service_tier": Wish({"service_tier": "flex"}, "service_tier", ("flex", "ervice_tier", "serviceTier")),
        "parallel_tool_calls": Wish(
            {"tools": [CHAT_TOOL], "parallel_tool_calls": False}, "parallel_tool_calls", ("arallel",)
        ),
        "frequency_penalty": Wish({"frequency_penalty": 0.5}, "frequency_penalty", ("enalty",)),
        "presence_penalty": Wish({"presence_penalty": 0.5}, "presence_penalty", ("enalty",)),
        "cache marks": Wish(MARKED, "cache_control", ("cache",), WITH_MARKS),
    },
    "messages": {
        "max_tokens": Wish({"max_tokens": 7777}, "max_tokens", ("7777",)),
        "thinking": Wish({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking", REASONING),
        "adaptive thinking": Wish({"thinking": {"type": "adaptive"}}, "thinking", REASONING),
        "effort": Wish({"output_config": {"effort": "high"}}, "output_config.effort", (*REASONING, "effort")),
        "one call at a time": Wish(
            {"tools": [MESSAGES_TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            "tool_choice.disable_parallel_tool_use",
            ("arallel",),
        ),
        "search beside a function": Wish(
            {"tools": [MESSAGES_TOOL, {"type": "web_search_20250305", "name": "web_search"}]}, "tools", ("search",)
        ),
        "search alone": Wish({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools", ("search",)),
        "hosted tool": Wish(
            {"tools": [MESSAGES_TOOL, {"type": "code_execution_20250825", "name": "code_execution"}]},
            "tools",
            ("code_execution",),
            ("anthropic",),
        ),
        "cache marks": Wish(MARKED, "cache_control", ("cache",), WITH_MARKS),
    },
    "responses": {
        "max_output_tokens": Wish({"max_output_tokens": 7777}, "max_output_tokens", ("7777",)),
        "reasoning.effort": Wish({"reasoning": {"effort": "high"}}, "reasoning.effort", REASONING),
        "text.verbosity": Wish({"text": {"verbosity": "low"}}, "text.verbosity", ("verbosity",)),
        "service_tier": Wish({"service_tier": "flex"}, "service_tier", ("flex", "ervice_tier", "serviceTier")),
        "parallel_tool_calls": Wish(
            {"tools": [RESPONSES_TOOL], "parallel_tool_calls": False}, "parallel_tool_calls", ("arallel",)
        ),
        "search beside a function": Wish({"tools": [RESPONSES_TOOL, {"type": "web_search"}]}, "tools", ("search",)),
        "search alone": Wish({"tools": [{"type": "web_search"}]}, "tools", ("search",)),
        "hosted tool": Wish(
            {"tools": [RESPONSES_TOOL, {"type": "code_interpreter", "container": {"type": "auto"}}]},
            "tools",
            ("code_interpreter",),
            ("responses", "both"),
        ),
    },
}
NEEDS: dict[str, dict[str, Need]] = {
    "chat": {
        "image": Need(
            user({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}), "messages", "vision"
        ),
        "sound": Need(user({"type": "input_audio", "input_audio": SOUND}), "messages", "audio"),
        "document": Need(
            user({"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}}),
            "messages",
            "documents",
        ),
        "functions": Need({"tools": [CHAT_TOOL]}, "tools", "tools"),
        "any tool": Need({"tools": [CHAT_TOOL], "tool_choice": "required"}, "tool_choice", "tool choice", "plain"),
        "one tool": Need(
            {"tools": [CHAT_TOOL], "tool_choice": {"type": "function", "function": {"name": "clock"}}},
            "tool_choice",
            "tool choice",
            "plain",
        ),
        "schema": Need(
            {"response_format": {"type": "json_schema", "json_schema": STRICT}},
            "response_format",
            "json schema",
        ),
        "search": Need({"web_search": True}, "tools", "web search"),
        "size": Need({"messages": [{"role": "user", "content": LARGE}]}, "messages", "context", "bare",
                     "context_length_exceeded"),
    },
    "messages": {
        "image": Need(
            user({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}),
            "messages",
            "vision",
        ),
        "document": Need(
            user({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}}),
            "messages",
            "documents",
        ),
        "functions": Need({"tools": [MESSAGES_TOOL]}, "tools", "tools"),
        "any tool": Need(
            {"tools": [MESSAGES_TOOL], "tool_choice": {"type": "any"}}, "tool_choice", "tool choice", "plain"
        ),
        "forced search": Need(
            {
                "tools": [{"type": "web_search_20250305", "name": "web_search"}],
                "tool_choice": {"type": "tool", "name": "web_search"},
            },
            "",
            "web search",
        ),
        "schema": Need(
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            "output_config.format",
            "json schema",
        ),
        "size": Need({"messages": [{"role": "user", "content": LARGE}]}, "messages", "context", "bare",
                     "context_length_exceeded"),
    },
    "responses": {
        "image": Need(
            item({"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}), "input", "vision"
        ),
        "document": Need(
            item({"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}),
            "input",
            "documents",
        ),
        "functions": Need({"tools": [RESPONSES_TOOL]}, "tools", "tools"),
        "any tool": Need({"tools": [RESPONSES_TOOL], "tool_choice": "required"}, "tool_choice", "tool choice", "plain"),
        "forced search": Need(
            {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "", "web search"
        ),
        "schema": Need(
            {"text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True}}},
            "text.format",
            "json schema",
        ),
        "size": Need({"input": LARGE}, "input", "context", "bare", "context_length_exceeded"),
    },
}  # fmt: skip


def send(stage: ContractGateway, surface: str, vendor: str, fields: Json, model: str, **more: Any) -> tuple[int, Json]:
    stage.script(vendor, Say("Good day to you."))
    body = HELLO[surface] | fields | {"model": f"fake-{vendor}/{vendor}-{model}"} | more
    status, raw = stage.send(surface, body)
    return status, views.fold(surface, raw)


def warnings_of(surface: str, reply: Json) -> list[str]:
    return reply["llmgateway" if surface == "responses" else "metadata"].get("warnings", [])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize(("surface", "name"), [(surface, name) for surface in WISHES for name in WISHES[surface]])
def test_an_option_that_the_model_lacks_is_named_and_never_sent(
    stage: ContractGateway, surface: str, name: str, vendor: str, stream: bool
) -> None:
    wish = WISHES[surface][name]
    if vendor in wish.carried:
        pytest.skip("this vendor has a form for it")
    status, reply = send(stage, surface, vendor, wish.fields, "plain", stream=stream)
    assert status == 200, reply
    warnings = [text for text in warnings_of(surface, reply) if text.split()[0].rstrip(":") == wish.field]
    assert warnings, (wish.field, warnings_of(surface, reply))
    assert warnings[0] in stage.headers["x-llmgateway-warnings"]
    (call,) = stage.calls_of(vendor)
    assert not call.problem
    assert [text for text in wish.words if text in json.dumps(call.body)] == []


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize(("surface", "name"), [(surface, name) for surface in NEEDS for name in NEEDS[surface]])
def test_a_need_that_the_model_lacks_is_refused_in_the_callers_words(
    stage: ContractGateway, surface: str, name: str, vendor: str
) -> None:
    need = NEEDS[surface][name]
    status, reply = send(stage, surface, vendor, need.fields, need.model)
    assert status == 400, reply
    error = reply["error"]
    assert need.word in error["message"] and error["code"] == need.code
    if need.param:
        assert error["param"] == need.param and f"`{need.param}`" in error["message"]
    assert stage.calls_of(vendor) == []


@pytest.mark.parametrize("surface", HELLO)
def test_options_without_effect_bring_no_warning_and_are_not_sent(stage: ContractGateway, surface: str) -> None:
    fields: Json = {"n": 1, "seed": 1, "logprobs": True, "logit_bias": {}} if surface == "chat" else {}
    status, reply = send(stage, surface, "openai", fields, "plain")
    assert status == 200 and warnings_of(surface, reply) == []
    assert "x-llmgateway-warnings" not in stage.headers
    (call,) = stage.calls_of("openai")
    assert not {"n", "seed", "logprobs", "logit_bias"} & set(call.body)


SEARCH_AND_FUNCTION = {
    "messages": {"tools": [{"type": "web_search_20250305", "name": "web_search"}, MESSAGES_TOOL]},
    "responses": {"tools": [{"type": "web_search"}, RESPONSES_TOOL]},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("surface", SEARCH_AND_FUNCTION)
def test_a_search_that_is_offered_beside_functions_never_refuses_a_request(
    stage: ContractGateway, surface: str, vendor: str, stream: bool
) -> None:
    """Coding agents offer both; a model that has each may not take them together."""
    status, reply = send(stage, surface, vendor, SEARCH_AND_FUNCTION[surface], "able", stream=stream)
    assert status == 200, reply
    (call,) = stage.calls_of(vendor)
    assert not call.problem and "clock" in json.dumps(call.body)
    warned = any("web_search was left out" in text for text in warnings_of(surface, reply))
    assert warned is not ("search" in json.dumps(call.body).lower())
