from copy import deepcopy

import msgspec
import pytest

from gateway.neutral.cache_marks import minimum_bytes
from gateway.neutral.chat import Options
from gateway.providers.anthropic import messages
from gateway.surfaces.anthropic import schema
from gateway.surfaces.anthropic.reader import read_messages

BIG = "x" * minimum_bytes(0)
OWN = {"type": "ephemeral"}


def typed(body: dict) -> dict:
    """The body as the messages surface hands it over: typed values."""
    sent = msgspec.json.encode({"model": "m", "max_tokens": 5, **body})
    return read_messages(schema.decode(sent)).native.body


def plain(body: dict) -> dict:
    return msgspec.json.decode(msgspec.json.encode(body))


def apply_policy(body: dict, policy: str, ttl: str = "") -> dict:
    size = len(msgspec.json.encode(body))
    return messages.apply_policy(body, Options(cache_marks=policy, cache_ttl=ttl), size, 0)


def text(said: str, **more) -> dict:
    return {"type": "text", "text": said, **more}


@pytest.mark.parametrize("form", [typed, deepcopy])
def test_long_instructions_and_the_end_are_marked_in_a_copy(form):
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [text("b")]},
        {"role": "user", "content": "c"},
    ]
    body = form({"system": BIG, "messages": turns})
    before = plain(body)
    changed = plain(apply_policy(body, "automatic"))
    assert changed["system"] == [text(BIG, cache_control=OWN)]
    assert changed["messages"][2]["content"] == [text("c", cache_control=OWN)]
    assert changed["messages"][0]["content"] == [text("a", cache_control=OWN)]
    assert changed["messages"][1] == before["messages"][1] and plain(body) == before
    hourly = plain(apply_policy(body, "automatic", "1h"))
    assert hourly["system"] == [text(BIG, cache_control={**OWN, "ttl": "1h"})]


@pytest.mark.parametrize("form", [typed, deepcopy])
@pytest.mark.parametrize(
    "thought",
    [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "redacted_thinking", "data": "sealed"}],
)
def test_thinking_at_the_end_bears_no_mark(form, thought):
    content = [text("b"), thought]
    turns = [{"role": role, "content": content if role == "assistant" else "a"} for role in ("user", "user")]
    body = form({"messages": [*turns, {"role": "assistant", "content": content}]})
    blocks = plain(apply_policy(body, "automatic"))["messages"][2]["content"]
    assert [("cache_control" in block) for block in blocks] == [True, False]


@pytest.mark.parametrize("form", [typed, deepcopy])
@pytest.mark.parametrize(
    ("body", "marks"),
    [
        ({"cache_control": OWN, "messages": [{"role": "user", "content": BIG}]}, 2),
        ({"system": [text("s", cache_control=OWN)], "messages": [{"role": "user", "content": BIG}]}, 2),
        ({"messages": [{"role": "user", "content": [text("a", cache_control={"type": "ephemeral", "ttl": "1h"})]}]}, 1),
        ({"tools": [{"name": "f", "input_schema": {}, "cache_control": OWN}],
         "messages": [{"role": "user", "content": BIG}]}, 2),
        ({"messages": [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": [text("r", cache_control=OWN)]}]}]}, 1),
        ({"system": [text(name, cache_control=OWN) for name in "abc"],
         "messages": [{"role": role, "content": BIG} for role in ("user", "assistant", "user")]}, 4),
        ({"cache_control": OWN, "system": [text(name, cache_control=OWN) for name in "abc"],
         "messages": [{"role": "user", "content": BIG}]}, 4),
    ],
)  # fmt: skip
def test_callers_own_marks_stay_beside_others_and_all_go_when_marks_are_disabled(form, body, marks):
    own = form(body)
    before = plain(own)
    assert apply_policy(own, "") is own
    changed = msgspec.json.encode(apply_policy(own, "automatic"))
    assert changed.count(b"cache_control") == marks
    bare = apply_policy(own, "disabled")
    assert b"cache_control" not in msgspec.json.encode(bare) and plain(own) == before


def test_marks_of_the_caller_are_kept():
    hour = {"type": "ephemeral", "ttl": "1h"}
    turns = [{"role": role, "content": [text(BIG)]} for role in ("user", "assistant")]
    body = {"messages": [*turns, {"role": "user", "content": [text("b", cache_control=hour)]}]}
    changed = plain(apply_policy(typed(body), "automatic"))
    marks = [block.get("cache_control") for turn in changed["messages"] for block in turn["content"]]
    assert marks == [hour, hour, hour]  # a mark of five minutes must not stand before one of an hour


def test_blank_text_at_the_end_bears_no_mark():
    turns = [{"role": role, "content": "a"} for role in ("user", "assistant")]
    body = {"messages": [*turns, {"role": "user", "content": [text("b"), text(" ")]}]}
    blocks = plain(apply_policy(body, "automatic"))["messages"][2]["content"]
    assert [("cache_control" in block) for block in blocks] == [True, False]


def test_body_without_marks_is_not_copied_to_take_them_out():
    body = typed({"messages": [{"role": "user", "content": "x"}]})
    assert apply_policy(body, "disabled") is body
