from copy import deepcopy

import msgspec
import pytest

from gateway.neutral.cache_marks import MIN_CACHED_CHARACTERS
from gateway.providers.anthropic.messages import apply_policy
from gateway.surfaces.anthropic import schema
from gateway.surfaces.anthropic.reader import read

BIG = "x" * MIN_CACHED_CHARACTERS
OWN = {"type": "ephemeral"}


def typed(body: dict) -> dict:
    """The body as the messages surface hands it over: typed values."""
    sent = msgspec.json.encode({"model": "m", "max_tokens": 5, **body})
    return read(schema.decode(sent)).native.body


def plain(body: dict) -> dict:
    return msgspec.json.decode(msgspec.json.encode(body))


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
    assert changed["messages"][:2] == before["messages"][:2] and plain(body) == before


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
    "body",
    [
        {"cache_control": OWN, "messages": [{"role": "user", "content": BIG}]},
        {"system": [text("s", cache_control=OWN)], "messages": [{"role": "user", "content": BIG}]},
        {"messages": [{"role": "user", "content": [text("a", cache_control={"type": "ephemeral", "ttl": "1h"})]}]},
        {"tools": [{"name": "f", "input_schema": {}, "cache_control": OWN}],
         "messages": [{"role": "user", "content": BIG}]},
        {"messages": [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": [text("r", cache_control=OWN)]}]}]},
    ],
)  # fmt: skip
def test_callers_own_marks_stay_alone_and_go_when_marks_are_disabled(form, body):
    own = form(body)
    before = plain(own)
    assert apply_policy(own, "automatic") is own and apply_policy(own, "") is own
    bare = apply_policy(own, "disabled")
    assert b"cache_control" not in msgspec.json.encode(bare) and plain(own) == before


def test_body_without_marks_is_not_copied_to_take_them_out():
    body = typed({"messages": [{"role": "user", "content": "x"}]})
    assert apply_policy(body, "disabled") is body
