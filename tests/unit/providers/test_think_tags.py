import pytest

from gateway.neutral.chat import ChatResult, Choice
from gateway.neutral.events import BlockDone, Failed, Finished, Started, TextDelta, ToolCallDelta, collect
from gateway.neutral.parts import Reasoning, Source, Text, ToolCall
from gateway.providers import think_tags
from gateway.providers.failures import truncated
from gateway.providers.think_tags import split_batches, split_result


def whole(text: str, *more) -> tuple:
    return split_result(ChatResult((Choice((Text(text), *more), "stop"),))).choices[0].parts


def streamed(text: str, size: int, *more) -> tuple:
    pieces = [[TextDelta(text[at : at + size])] for at in range(0, len(text), size)]
    batches = [[Started()], *pieces, [*more, Finished("stop")]]
    return collect(split_batches(iter(batches))).choices[0].parts


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<think>\nHm. So.\n</think>\n\nIt is 42.", (Reasoning("Hm. So."), Text("It is 42."))),
        ("<think></think>42", (Text("42"),)),
        ("<think>a < b </ c</think>x", (Reasoning("a < b </ c"), Text("x"))),
        ("<think>never ends", (Reasoning("never ends"),)),
        ("<thin air", (Text("<thin air"),)),
        ("Say <think>x</think>", (Text("Say <think>x</think>"),)),
    ],
)
def test_tags_are_split_off_wherever_they_are_cut(text, parts, size):
    assert streamed(text, size) == parts
    if "Say" not in text:
        assert whole(text) == parts


def test_reasoning_that_the_template_opened_ends_at_its_tag():
    assert whole("Hm.</think>42") == (Reasoning("Hm."), Text("42"))


def test_a_call_after_the_text_keeps_a_separate_block():
    call = ToolCallDelta(1, "{}", "c1", "look")
    assert streamed("<think>Hm.</think>", 4, call, BlockDone(1)) == (Reasoning("Hm."), ToolCall("c1", "look", "{}"))
    assert streamed("<think>Hm.</think>Now", 4, call)[1:] == (Text("Now"), ToolCall("c1", "look", "{}"))


def test_places_in_the_old_text_are_forgotten():
    text = Text("<think>Hm.</think>42", sources=(Source("https://a.example", start=18, end=20),))
    parts = split_result(ChatResult((Choice((text,), "stop"),))).choices[0].parts
    assert parts[1].sources == (Source("https://a.example"),)


def test_buffered_text_is_sent_before_a_failure():
    batches = [[Started(), TextDelta("<thi")], [Failed(truncated())]]
    events = [event for batch in split_batches(iter(batches)) for event in batch]
    assert events[1] == TextDelta("<thi") and isinstance(events[2], Failed)


@pytest.mark.parametrize("before", ["", "<think>", "<think>Hm.</think>", "<think>Hm."])
def test_white_space_without_end_is_not_held_and_read_again_with_each_piece(before):
    splitter = think_tags._Splitter(0)
    splitter.add(TextDelta(before))
    longest = 0
    for _ in range(1000):
        splitter.add(TextDelta(" " * 100))
        longest = max(longest, len(splitter._held))
    assert longest <= think_tags.MAX_BLANKS + 100
