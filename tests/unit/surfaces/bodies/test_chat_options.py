"""Options of chat requests from decoded mappings, without a body of chat completions."""

import msgspec
import pytest
from msgspec import Raw

from gateway.errors import InvalidRequest
from gateway.neutral.chat import FunctionTool, ResponseFormat, Sampling, ToolChoice
from gateway.neutral.parts import Message, Text
from gateway.surfaces.bodies import chat_options as chat_options_module
from gateway.surfaces.bodies.chat_option_reader import PromptSize, request_of

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
HELLO = (Message("user", (Text("Hello"),)),)


def conversation(**values):
    return request_of("m", chat_options_module.read_options(values), PromptSize(5), HELLO).conversation()


@pytest.mark.parametrize("packed", [SCHEMA, Raw(msgspec.json.encode(SCHEMA))], ids=["object", "text"])
def test_schemas_are_read_as_objects_and_as_text(packed):
    tool = {"type": "function", "function": {"name": "weather", "parameters": packed}}
    shape = {"type": "json_schema", "json_schema": {"name": "a", "schema": packed}}
    found = conversation(tools=[tool], response_format=shape, tool_choice="required")
    assert found.tools == (FunctionTool("weather", schema=SCHEMA),)
    assert found.response_format == ResponseFormat("json_schema", "a", schema=SCHEMA)
    assert found.tool_choice == ToolChoice("required")
    assert found.messages == HELLO


def test_parameters_are_read_with_their_limits():
    assert conversation(max_tokens=9, verbosity="low", n=2).sampling == Sampling(max_tokens=9, verbosity="low", n=2)
    with pytest.raises(InvalidRequest, match="'temperature'"):
        chat_options_module.read_options({"temperature": 3})


def test_other_spellings_are_corrected():
    found = conversation(max_tokens=9.0, verbosity="LOW", tools=[FUNCTION["function"]], tool_choice={"type": "any"})
    assert found.sampling == Sampling(max_tokens=9, verbosity="low")
    assert (found.tools[0].schema, found.tool_choice) == (SCHEMA, ToolChoice("required"))


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"reasoning_effort": "low", "reasoning": {"effort": "high"}}, "reasoning_effort"),
        ({"n": 2, "stream": True, "tools": [FUNCTION]}, "n"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": 5}}]}, "tools.0.function.parameters"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
            "response_format.json_schema.schema",
        ),
    ],
)
def test_invalid_values_and_combinations_are_refused_with_their_path(values, param):
    with pytest.raises(InvalidRequest) as caught:
        chat_options_module.read_options(values)
    assert caught.value.param == param


def test_requirements_and_options_follow_from_the_mapping():
    values = {"tools": [FUNCTION], "stream": True, "service_tier": "flex", "user": "u", "frequency_penalty": 0.5}
    request = request_of(
        "m", chat_options_module.read_options(values), PromptSize(5, images=1, messages=3), HELLO, marks=True
    )
    needs = request.requirements
    assert (needs.stream, needs.tools, needs.vision, needs.media, needs.messages) == (True, True, True, 1, 3)
    assert (needs.parameters, needs.cache_marks) == ({"penalties"}, True)
    assert (request.options.service_tier, request.options.session, request.user) == ("flex", "u", "u")
    assert request.native is None


def test_without_tools_their_options_have_no_effect():
    request = request_of(
        "m", chat_options_module.read_options({"tools": [], "tool_choice": "required"}), PromptSize(5), HELLO
    )
    assert request.requirements.forced_tool == "" and request.conversation().tool_choice is None
