"""Tools with free-text input become functions, and their calls come back as free text."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.neutral.chat import ChatResult, Choice, Conversation, CustomTool
from gateway.neutral.events import BlockDone, Finished, Started, TextDelta, ToolCallDelta, collect
from gateway.neutral.parts import Message, Text, ToolCall
from gateway.providers.custom_tools import InputReader, restore_batches, restore_result, with_functions

PATCH = CustomTool(
    "patch", "Changes files.", {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}}
)
NAMES = frozenset(("patch",))


def test_a_free_text_tool_is_a_function_with_one_text_that_knows_its_grammar() -> None:
    past = Message("assistant", (ToolCall("c", "patch", "*** Begin\n", custom=True),))
    changed, names = with_functions(Conversation((past,), (PATCH,)))
    assert names == NAMES
    (tool,) = changed.tools
    assert tool.schema["required"] == ["input"] and "lark" in tool.description and "start: x" in tool.description
    (call,) = changed.messages[0].parts
    assert orjson.loads(call.arguments) == {"input": "*** Begin\n"} and not call.custom


def test_a_conversation_without_free_text_tools_stays_the_same_object() -> None:
    talk = Conversation((Message("user", (Text("hi"),)),))
    assert with_functions(talk) == (talk, frozenset()) and with_functions(talk)[0] is talk


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input": "a\\nb"}', "a\nb"),
        ('{"patch": "a"}', "a"),
        ('{"other": 1, "input": "a"}', "a"),
        ('"a"', "a"),
        ("*** Begin", "*** Begin"),
        ("{}", "{}"),
        ('{"input": {"x": 1}}', '{"input": {"x": 1}}'),
        ("", ""),
    ],
)
def test_the_text_of_a_whole_call_is_restored(arguments: str, text: str) -> None:
    result = ChatResult((Choice((ToolCall("c", "patch", arguments), ToolCall("d", "f", arguments)), "tool_calls"),))
    patch, other = restore_result(result, NAMES).choices[0].parts
    assert patch == ToolCall("c", "patch", text, custom=True) and other == ToolCall("d", "f", arguments)
    batches = [
        [Started(), ToolCallDelta(1, id="c", name="patch")],
        *([ToolCallDelta(1, piece)] for piece in arguments),
        [ToolCallDelta(2, arguments, "d", "f"), Finished("tool_calls")],
    ]
    streamed = collect(restore_batches(iter(batches), NAMES)).choices[0].parts
    assert streamed == (patch, other)


def test_the_text_arrives_as_it_is_written_and_ends_with_its_block() -> None:
    batches = [
        [Started(), TextDelta("Now.", 0), ToolCallDelta(1, id="c", name="patch")],
        [ToolCallDelta(1, '{"inp')],
        [ToolCallDelta(1, 'ut": "one')],
        [ToolCallDelta(1, " two")],
        [ToolCallDelta(1, '"}'), BlockDone(1), Finished("tool_calls")],
    ]
    events = [event for batch in restore_batches(iter(batches), NAMES) for event in batch]
    calls = [event for event in events if isinstance(event, ToolCallDelta)]
    assert [event.arguments for event in calls] == ["", "one", " two"] and all(event.custom for event in calls)
    assert isinstance(events[-2], BlockDone)


@given(st.text(), st.lists(st.integers(1, 9), min_size=1, max_size=40), st.booleans())
def test_any_text_survives_any_cuts(text: str, sizes: list[int], escaped: bool) -> None:
    if escaped:
        digits = "".join(f"\\u{unit:04x}" for unit in _units(text))
        raw = '{ "input" : "' + digits + '" }'
    else:
        raw = orjson.dumps({"input": text}).decode()
    reader = InputReader()
    read: list[str] = []
    place = step = 0
    while place < len(raw):
        size = sizes[step % len(sizes)]
        read.append(reader.read(raw[place : place + size]))
        place += size
        step += 1
    assert "".join(read) + reader.finish() == text


def _units(text: str) -> list[int]:
    raw = text.encode("utf-16-be")
    return [int.from_bytes(raw[place : place + 2]) for place in range(0, len(raw), 2)]
