from pathlib import Path

import orjson
import pytest

from gateway.errors import InvalidRequest
from gateway.surfaces.openai import chat_schema as schema

SAMPLES = Path(__file__).parents[3] / "samples" / "openai"
HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def refusal_of(body: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        schema.decode(body)
    return caught.value


def refusal_with(**fields) -> InvalidRequest:
    return refusal_of(orjson.dumps(HELLO | fields))


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b'{"model":"\xff"}', b'{"user":"' + b"[" * 9])
def test_a_body_that_is_not_json_is_rejected(body):
    error = refusal_of(body)
    assert (error.status, error.code, error.param) == (400, "invalid_json", "")


def test_depth_without_end_is_refused_and_does_not_crash():
    deep = b'{"model":"m","messages":[{"role":"assistant","reasoning_details":[{"a":' + b"[" * 100_000
    assert refusal_of(deep).status == 400


def test_body_that_is_no_object_is_refused():
    assert refusal_of(b"[1]").message == "The body must be a JSON object."


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 3}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages.0.content"),
        ({"messages": [{"role": "boss", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.tool_call_id"),
        ({"messages": [{"role": "user", "content": [{"type": "input_file"}]}]}, "messages.0.content.0.type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 2.1}, "temperature"),
        ({"stream": "yes"}, "stream"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort"),
        ({"reasoning": {"max_tokens": 0}}, "reasoning.max_tokens"),
        ({"service_tier": "gold"}, "service_tier"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}, "tools.0.function.parameters"),
        ({"tools": [{"type": 5}]}, "tools.0.type"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
    ],
)
def test_wrong_value_is_named_by_its_dotted_path(fields, param):
    error = refusal_with(**fields)
    assert (error.status, error.code, error.param) == (400, "invalid_parameters", param)
    assert param in error.message


def test_wrong_word_is_answered_with_the_right_ones():
    assert "not one of none, minimal, low, medium, high, xhigh or max" in refusal_with(reasoning_effort="big").message


def test_a_missing_field_is_named_in_the_error():
    assert refusal_of(b'{"messages":[]}').param in ("model", "messages")
    assert "add it" in refusal_of(b'{"messages":[{"role":"user","content":"x"}]}').message


def test_two_efforts_contradict_each_other():
    error = refusal_with(reasoning_effort="low", reasoning={"effort": "high"})
    assert (error.code, error.param) == ("invalid_request", "reasoning_effort")


def test_many_answers_with_tools_cannot_be_streamed():
    tools = [{"type": "function", "function": {"name": "f"}}]
    error = refusal_with(n=2, stream=True, tools=tools)
    assert error.code == "unsupported_parameter_combination"
    schema.decode(orjson.dumps(HELLO | {"n": 2, "tools": tools}))


@pytest.mark.parametrize(
    "name", ["stop", "seed", "logprobs", "top_logprobs", "logit_bias", "stream_options", "frobnicate"]
)
@pytest.mark.parametrize("value", [None, 1, "x", [1], {"a": [{}]}])
def test_ignored_parameter_may_be_anything(name, value):
    assert schema.decode(orjson.dumps(HELLO | {name: value})) == schema.decode(orjson.dumps(HELLO))


@pytest.mark.parametrize("name", [name for name in schema.ChatBody.__struct_fields__ if name not in HELLO])
def test_null_means_absent(name):
    assert schema.decode(orjson.dumps(HELLO | {name: None})) == schema.decode(orjson.dumps(HELLO))


def test_null_content_differs_from_absent_content():
    messages = [{"role": "assistant", "content": None}, {"role": "assistant"}]
    first, second = schema.decode(orjson.dumps(HELLO | {"messages": messages})).messages
    assert first.content is None
    assert second.content is schema.UNSET


@pytest.mark.parametrize("role", ["system", "developer", "user", "tool"])
def test_a_message_needs_its_content(role):
    message = {"role": role} | ({"tool_call_id": "c1"} if role == "tool" else {})
    for given, reason in ((message, "missing"), (message | {"content": None}, "expected string or array, got null")):
        with pytest.raises(InvalidRequest, match=reason) as caught:
            schema.decode(orjson.dumps(HELLO | {"messages": [given]}))
        assert caught.value.param == "messages.0.content"


def test_full_request_is_understood():
    body = schema.decode((SAMPLES / "tools_request.json").read_bytes())
    assert [type(message).__name__ for message in body.messages][-2:] == ["ToolMessage", "ToolMessage"]
    assert body.messages[2].tool_calls[1].function.arguments == '{"city":"Oslo"}'
