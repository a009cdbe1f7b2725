"""The arguments of tool calls as objects, for formats that have no JSON text."""

import pytest

from gateway.neutral.parts import ToolCall
from gateway.surfaces.anthropic.writer import write_part as write_block
from gateway.surfaces.google.writer import write_part

# The arguments as the model wrote them, and the object that clients get.
ARGUMENTS = {
    "object": ('{"city": "Rome"}', {"city": "Rome"}),
    "none": ("", {}),
    "white space": (" \n", {}),
    "list": ("[1]", {"input": [1]}),
    "cut": ('{"city": "Ro', {"input": '{"city": "Ro'}),
    "half of a surrogate pair": ('{"face": "\\ud83d"}', {"face": "\ufffd"}),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_clients_get_the_arguments_as_an_object(case: str) -> None:
    text, expected = ARGUMENTS[case]
    call = ToolCall("call_1", "look_up", text)
    assert write_block(call)[-1]["input"] == expected
    assert write_part(call, False)[0]["functionCall"]["args"] == expected


def test_clients_get_free_text_as_the_member_input() -> None:
    call = ToolCall("call_1", "run", '{"a": 1}', custom=True)
    assert write_block(call)[-1]["input"] == {"input": '{"a": 1}'}
    assert write_part(call, False)[0]["functionCall"]["args"] == {"input": '{"a": 1}'}
