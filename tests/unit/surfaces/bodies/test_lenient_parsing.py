"""Bodies in another spelling than the documented one."""

from typing import Any

import orjson
import pytest
from msgspec import Struct, ValidationError
from msgspec.json import Decoder

from gateway.surfaces.bodies.lenient_parsing import (
    correct_numbers,
    correct_spelling,
    decode_again,
    read_choice,
    tool_type_of,
)


def test_whole_numbers_are_corrected_outside_of_schemas_and_content() -> None:
    schema = {"schema": {"type": "number", "minimum": 1.0}}
    kept = {
        "response_format": {"type": "json_schema", "json_schema": schema},
        "text": {"format": {"type": "json_schema", **schema}},
        "output_config": {"format": {"type": "json_schema", **schema}},
        "messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{"x": 2.0}]}]}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
        "temperature": 0.5,
    }
    expected = orjson.dumps({**kept, "max_tokens": 100, "reasoning": {"max_tokens": 50}})
    wire = {**kept, "max_tokens": 100.0, "reasoning": {"max_tokens": 50.0}}
    correct_numbers(wire)
    assert orjson.dumps(wire) == expected


def test_each_mode_of_a_tool_choice_is_understood_in_any_case_and_wrapped() -> None:
    modes = {"auto": "auto", "none": "none", "required": "required", "any": "required"}
    for given, mode in modes.items():
        for spelling in (given, given.upper(), {"type": given}, {"type": given.title()}):
            assert read_choice(spelling, lambda kind, choice: choice) == mode, spelling
    assert read_choice("fast", lambda kind, choice: choice) == "fast"


def test_the_first_of_several_models_is_the_model_only_where_a_body_may_have_several() -> None:
    class One(Struct):
        model: str

    class Several(Struct):
        model: str
        models: list[str]

    body = b'{"models": ["a", "b"]}'
    assert decode_again(Decoder(Several), body, ValidationError()).model == "a"
    with pytest.raises(ValidationError, match="`model`"):
        decode_again(Decoder(One), body, ValidationError())


@pytest.mark.parametrize("kind", ["function", "custom"])
def test_a_tool_without_a_type_has_that_of_its_member(kind: str) -> None:
    assert tool_type_of({kind: {"name": "look"}}) == kind
    assert read_choice({"type": kind, "name": "look"}, lambda kind, choice: [kind]) == [kind]


# Bodies of chat completions in another spelling than the documented one.

IMAGE = {"url": "https://example.com/cat.png"}


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"type": "input_text", "text": "Hello"}, {"type": "text", "text": "Hello"}),
        ({"type": "output_text", "text": "Hello"}, {"type": "text", "text": "Hello"}),
        ({"type": "input_image", "image_url": IMAGE["url"]}, {"type": "image_url", "image_url": IMAGE}),
        ({"type": "image", "image_url": IMAGE}, {"type": "image_url", "image_url": IMAGE}),
    ],
)
def test_content_parts_of_other_formats_are_understood(given: dict[str, Any], part: dict[str, Any]) -> None:
    wire: dict[str, Any] = {"messages": [{"role": "user", "content": [given]}]}
    correct_spelling(wire)
    assert wire["messages"] == [{"role": "user", "content": [part]}]


def test_words_are_understood_in_any_case() -> None:
    wire: dict[str, Any] = {"tool_choice": "Required", "reasoning_effort": "HIGH"}
    correct_spelling(wire)
    assert wire == {"tool_choice": "required", "reasoning_effort": "high"}


def test_calls_and_results_without_ids_find_each_other() -> None:
    def call(name: str) -> dict[str, Any]:
        return {"id": "", "type": "function", "function": {"name": name, "arguments": "{}"}}

    wire: dict[str, Any] = {
        "messages": [
            {"role": "user", "content": "Weather and time?"},
            {"role": "assistant", "content": None, "tool_calls": [call("weather"), call("clock"), call("weather")]},
            {"role": "tool", "tool_call_id": "", "name": "clock", "content": "Noon."},
            {"role": "tool", "tool_call_id": None, "content": "Rain."},
            {"role": "tool", "content": "Snow."},
            {"role": "assistant", "content": None, "tool_calls": [call("clock")]},
            {"role": "tool", "tool_call_id": "", "content": "One."},
        ]
    }
    correct_spelling(wire)
    messages = wire["messages"]
    weather, clock, second, later = (call["id"] for turn in messages for call in turn.get("tool_calls", ()))
    assert len({weather, clock, second, later}) == 4
    assert [turn["tool_call_id"] for turn in messages if turn["role"] == "tool"] == [clock, weather, second, later]


@pytest.mark.parametrize("calls", [5, [5], [{"type": ["x"], "function": 5}], [{"id": {}, "custom": "x"}], {"id": ""}])
def test_calls_of_a_wrong_shape_are_left_to_the_schema(calls: Any) -> None:
    turns = [{"role": "assistant", "tool_calls": calls}, {"role": "tool", "content": "x"}]
    correct_spelling({"messages": turns})
