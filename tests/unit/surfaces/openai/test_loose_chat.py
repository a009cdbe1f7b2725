"""Bodies in other spellings are read by their meaning."""

from typing import Any

import orjson
import pytest

from gateway.errors import InvalidRequest
from gateway.surfaces.openai import chat_reader
from gateway.surfaces.openai import chat_schema as schema

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
SPEC = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"n": {"maximum": 2.0}}}}
TOOL = {"type": "function", "function": SPEC}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


def talk(body: dict[str, Any]) -> Any:
    """Return the request that the model gets, without the model's name."""
    raw = orjson.dumps(body)
    request = chat_reader.read_chat(schema.decode(raw), raw)
    native = orjson.loads(schema_dumps(request.native.body)) if request.native else None
    return request.conversation(), request.requirements, native


def schema_dumps(value: Any) -> bytes:
    from msgspec.json import encode

    return encode(value)


def said(*parts: Any, role: str = "user") -> dict[str, Any]:
    return HELLO | {"messages": [{"role": role, "content": list(parts)}]}


@pytest.mark.parametrize(
    ("loose", "exact"),
    [
        ({"max_tokens": 100.0}, {"max_tokens": 100}),
        ({"n": 1.0, "max_completion_tokens": 5e1}, {"n": 1, "max_completion_tokens": 50}),
        ({"reasoning": {"max_tokens": 2048.0}}, {"reasoning": {"max_tokens": 2048}}),
        ({"reasoning_effort": "HIGH"}, {"reasoning_effort": "high"}),
        ({"tools": [TOOL], "tool_choice": {"type": "auto"}}, {"tools": [TOOL], "tool_choice": "auto"}),
        ({"tools": [TOOL], "tool_choice": {"type": "none"}}, {"tools": [TOOL], "tool_choice": "none"}),
        ({"tools": [TOOL], "tool_choice": "AUTO"}, {"tools": [TOOL], "tool_choice": "auto"}),
        ({"tools": [TOOL], "tool_choice": "any"}, {"tools": [TOOL], "tool_choice": "required"}),
        ({"tools": [TOOL], "tool_choice": {"type": "any"}}, {"tools": [TOOL], "tool_choice": "required"}),
        (
            {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "f"}},
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}},
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        ({"tools": [{"type": "function", **SPEC}]}, {"tools": [TOOL]}),
        ({"tools": [SPEC]}, {"tools": [TOOL]}),
        ({"tools": [{"function": SPEC}]}, {"tools": [TOOL]}),
        (
            {"tools": [{"name": "f", "description": "d", "input_schema": SPEC["parameters"]}]},
            {"tools": [TOOL]},
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": None}}]},
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
        ),
        ({"functions": [SPEC]}, {"tools": [TOOL]}),
        ({"functions": [SPEC], "function_call": "auto"}, {"tools": [TOOL], "tool_choice": "auto"}),
        (
            {"functions": [SPEC], "function_call": {"name": "f"}},
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        ({"functions": []}, {}),
        ({"functions": None, "function_call": None}, {}),
    ],
)
def test_a_loose_field_means_its_exact_form(loose: dict[str, Any], exact: dict[str, Any]) -> None:
    assert talk(HELLO | loose) == talk(HELLO | exact)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": "https://example.com/a.png"},
        {"type": "input_image", "image_url": "https://example.com/a.png"},
        {"image_url": {"url": "https://example.com/a.png"}},
    ],
)
def test_an_image_may_be_its_address_alone(part: dict[str, Any]) -> None:
    assert talk(said({"type": "text", "text": "look"}, part)) == talk(said({"type": "text", "text": "look"}, PICTURE))


def test_texts_may_be_named_as_in_responses_or_stand_alone() -> None:
    exact = said({"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "text", "text": "c"})
    assert talk(said({"type": "input_text", "text": "a"}, "b", {"text": "c"})) == talk(exact)


def test_service_tiers_may_be_named_as_by_anthropic_google_or_groq() -> None:
    words = {"standard_only": "default", "standard": "default", "on_demand": "default", "performance": "priority"}
    for asked, meant in words.items():
        assert talk(HELLO | {"service_tier": asked})[2] == talk(HELLO | {"service_tier": meant})[2], asked
        decoded = schema.decode(orjson.dumps(HELLO | {"service_tier": asked}))
        assert decoded.service_tier == meant  # type: ignore[attr-defined]  # added by with_parameters


def test_roles_are_read_in_any_case() -> None:
    assert talk(HELLO | {"messages": [{"role": "User", "content": "hello"}]}) == talk(HELLO)


@pytest.mark.parametrize(
    "call",
    [
        {"id": "c", "function": {"name": "f", "arguments": "{}"}},
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": {}}},
        {"id": "c", "type": None, "function": {"name": "f", "arguments": "{}"}},
    ],
)
def test_a_tool_call_needs_no_type(call: dict[str, Any]) -> None:
    def turns(one: dict[str, Any]) -> dict[str, Any]:
        told = {"role": "tool", "tool_call_id": "c", "content": "5"}
        return HELLO | {"messages": [*HELLO["messages"], {"role": "assistant", "tool_calls": [one]}, told]}

    assert talk(turns(call)) == talk(turns(CALL))


def test_function_messages_answer_the_call_before_them() -> None:
    older = [
        *HELLO["messages"],
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"n":1}'}},
        {"role": "function", "name": "f", "content": "5"},
        {"role": "function", "name": "g", "content": "6"},
    ]
    conversation, _, native = talk(HELLO | {"messages": older, "functions": [SPEC]})
    calls = [part for message in conversation.messages if message.role == "assistant" for part in message.parts]
    results = [message.parts[0] for message in conversation.messages if message.role == "tool"]
    assert [(call.name, call.arguments) for call in calls] == [("f", '{"n":1}'), ("g", "{}")]
    assert [call.id for call in calls] == [result.call_id for result in results] and len(set(map(str, results))) == 2
    assert [message["role"] for message in native["messages"]] == ["user", "assistant", "tool", "assistant", "tool"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": -3.0}, "max_tokens"),
        ({"tools": [{"type": "function"}]}, "tools.0.function.name"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": 5}]}]}, "messages.0.content.0"),
    ],
)
def test_meaningless_values_are_still_rejected_with_their_path(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        schema.decode(orjson.dumps(HELLO | fields))
    assert caught.value.param.startswith(param) and caught.value.status == 400


def test_numbers_of_a_schema_stay_as_they_were_written() -> None:
    _, _, native = talk(HELLO | {"tools": [TOOL], "max_tokens": 7.0})
    assert b'"maximum":2.0' in schema_dumps(native["tools"])


def test_a_body_nested_too_deeply_to_correct_keeps_its_first_error():
    deep = "[" * 300 + "]" * 300
    with pytest.raises(InvalidRequest) as refused:
        schema.decode(b'{"model":"m","messages":[{"role":"user","content":"x"}],"tools":%s}' % deep.encode())
    assert refused.value.param.startswith("tools")
