import orjson
import pytest

from gateway.errors import InvalidRequest
from gateway.surfaces.anthropic import schema

HELLO = [{"role": "user", "content": "hello"}]


def decode(**fields) -> schema.MessagesBody:
    return schema.decode(orjson.dumps({"model": "m", "max_tokens": 9, "messages": HELLO} | fields))


def refused(**fields) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        decode(**fields)
    return caught.value


def user(*blocks: dict) -> list[dict]:
    return [{"role": "user", "content": list(blocks)}]


def test_settings_of_other_formats_are_accepted_and_ignored():
    body = decode(n=2, seed=1, frequency_penalty=0.5, logprobs=True, max_completion_tokens=5, user="u", speed="fast")
    assert body.max_tokens == 9


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": user({"type": "image_url", "image_url": {"url": "x"}})}, "messages.0.content.0.type"),
        ({"messages": user({"type": "input_audio", "input_audio": {}})}, "messages.0.content.0.type"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools.0"),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": []}]}, "messages.0.tool_calls"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_a_body_of_the_other_format_is_shown_the_way(fields: dict, param: str):
    error = refused(**fields)
    assert error.status == 400 and error.param == param
    assert "/v1/chat/completions" in error.message


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"max_tokens": 0}, "max_tokens", ">= 1"),
        ({"temperature": 1.5}, "temperature", "<= 1"),
        ({"messages": []}, "messages", "length"),
        ({"messages": [{"role": "bot", "content": "x"}]}, "messages.0.role", "not one of user, assistant"),
        ({"messages": user({"type": "input_text", "text": "x"})}, "messages.0.content.0.type", "input_text"),
        ({"messages": user({"text": "x"})}, "messages.0.content.0.type", "missing"),
        ({"messages": [{"role": "assistant", "content": None}]}, "messages.0.content", "null"),
        ({"thinking": {"type": "enabled", "budget_tokens": 100}}, "thinking.budget_tokens", "1024"),
        ({"thinking": {"type": "maybe"}}, "thinking.type", "enabled, adaptive, disabled or between_tools"),
        ({"tools": [{"name": "f"}]}, "tools.0.input_schema", "missing"),
        ({"tools": [{"name": "", "input_schema": {}}]}, "tools.0.name", "name"),
        ({"tools": [{"name": "f", "input_schema": []}]}, "tools.0.input_schema", "object"),
        ({"tools": [{"name": "f", "input_schema": {}, "cache_control": {"ttl": "2h"}}]}, "tools.0.cache_control", "5m"),
        ({"tool_choice": {"type": "required"}}, "tool_choice.type", "auto, any, tool or none"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort", "low"),
    ],
)
def test_a_wrong_value_is_named_with_its_path(fields: dict, param: str, words: str):
    error = refused(**fields)
    assert error.param == param and words in error.message


def test_the_input_of_a_call_is_an_object():
    call = {"type": "tool_use", "id": "t", "name": "f", "input": [1]}
    assert refused(messages=[{"role": "assistant", "content": [call]}]).param == "messages.0.content.0.input"


def test_a_missing_limit_is_named_in_the_error():
    with pytest.raises(InvalidRequest) as caught:
        schema.decode(orjson.dumps({"model": "m", "messages": HELLO}))
    assert caught.value.param == "max_tokens"


@pytest.mark.parametrize(
    ("body", "code"), [(b"{", "invalid_json"), (b"[]", "invalid_parameters"), (b"\xff", "invalid_json")]
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes, code: str):
    with pytest.raises(InvalidRequest) as caught:
        schema.decode(body)
    assert caught.value.code == code


def test_counting_needs_no_limit():
    assert schema.decode_count(orjson.dumps({"model": "m", "messages": HELLO})).model == "m"
