"""Differences between the prompts of two requests."""

import random
import time
from typing import Any

import orjson
from support.spoiled_json import spoil

from gateway.surfaces.console.prompt_changes import PromptDifference, compare_payloads

MARK = {"cache_control": {"type": "ephemeral"}}
TOOLS = [{"name": "read", "input_schema": {"type": "object"}}, {"name": "write"}]
FIRST: dict[str, Any] = {
    "model": "m",
    "tools": TOOLS,
    "system": [{"type": "text", "text": "It is Monday. Be brief.", **MARK}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", **MARK}]}],
}
NEXT = {
    **FIRST,
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": [{"type": "text", "text": "More", **MARK}]},
    ],
}


def compare(before: Any, after: Any) -> PromptDifference:
    difference = compare_payloads(orjson.dumps(before), orjson.dumps(after))
    assert difference is not None
    return difference


def changes(difference: PromptDifference) -> list[tuple[str, str]]:
    return [(change.kind, change.place) for change in difference.changes]


def test_a_continued_conversation_adds_messages_and_keeps_the_cache() -> None:
    difference = compare(FIRST, NEXT)
    assert difference.is_continued and not difference.changes and not difference.settings
    assert [message.parts[0].text for message in difference.added] == ["Hello", "More"]


def test_a_changed_beginning_is_named_with_its_texts_and_loses_what_follows() -> None:
    difference = compare(FIRST, {**NEXT, "system": "It is Tuesday. Be brief."})
    assert changes(difference) == [("changed", "part 1 of the instructions")]
    assert difference.changes[0].before == "It is Monday. Be brief."
    assert difference.changes[0].after == "It is Tuesday. Be brief."
    assert difference.first == "part 1 of the instructions" and difference.lost_tokens and not difference.is_continued


def test_changes_of_tools_are_named() -> None:
    added = compare(FIRST, {**NEXT, "tools": [*TOOLS, {"name": "today"}]})
    assert changes(added) == [("added", "tool today")] and added.first == "tool today"
    assert changes(compare(FIRST, {**NEXT, "tools": TOOLS[:1]})) == [("removed", "tool write")]
    assert changes(compare(FIRST, {**NEXT, "tools": [{**TOOLS[0], "description": "x"}, TOOLS[1]]})) == [
        ("changed", "tool read")
    ]
    assert changes(compare(FIRST, {**NEXT, "tools": TOOLS[::-1]})) == [
        ("moved", "tools: the same ones in another order")
    ]


def test_changed_and_removed_messages_are_named() -> None:
    rewritten = compare(NEXT, {**NEXT, "messages": [{"role": "user", "content": "A summary"}]})
    assert changes(rewritten)[0] == ("changed", "message 1 (user)")
    assert ("removed", "2 parts of earlier messages") in changes(rewritten)
    assert changes(compare(NEXT, FIRST)) == [("removed", "2 parts of messages at the end")]


def test_changed_parameters_are_named() -> None:
    difference = compare(FIRST, {**NEXT, "model": "n", "temperature": 1})
    assert difference.settings == [("model", "m", "n"), ("temperature", "", "1")]


def test_a_text_and_a_list_begin_the_same_conversation_of_the_responses_api() -> None:
    later = {"input": [{"role": "user", "content": "Hi"}, {"type": "reasoning"}, {"role": "user", "content": "More"}]}
    difference = compare({"input": "Hi"}, later)
    assert difference.is_continued and difference.added[-1].parts[0].text == "More"


def test_other_requests_have_no_differences() -> None:
    for body in (b"", b"[]", b"{}", b'{"input": 3}', b"\xff"):
        assert compare_payloads(body, orjson.dumps(NEXT)) is None


def test_long_prompts_are_compared_in_linear_time() -> None:
    many = {"messages": [{"role": "user", "content": f"{number} {'x' * 60}"} for number in range(40_000)]}
    long = {"messages": [{"role": "user", "content": "a" * 1_900_000 + "b" + "a" * 1_900_000}]}
    other = {"messages": [{"role": "user", "content": "a" * 1_900_000 + "c" + "a" * 1_900_000}]}
    began = time.process_time()
    compare(many, many)
    [change] = compare(long, other).changes
    assert time.process_time() - began < 5
    assert change.before.strip("…a") == "b" and change.after.strip("…a") == "c" and len(change.before) < 200


def test_whatever_is_sent_is_compared() -> None:
    dice = random.Random(3)
    values: tuple[Any, ...] = (None, 0, "", "x", [], [None], {}, {"text": []}, [["x"]])

    for _ in range(2_000):
        compare_payloads(orjson.dumps(spoil(FIRST, dice, values)), orjson.dumps(spoil(NEXT, dice, values)))
