"""Pieces of text that arrive together are compared as a block, and give the same as pieces that arrive one by one."""

import random

import orjson
import pytest
from support.replies import MemoryReply

from gateway.neutral.events import Failed, Finished, NativeChunk, TextDelta
from gateway.providers.openai.chat import OpenAIChat

FIRST = b'{"id":"x","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"a"}}]}'
COMPACT = (
    b'{"id":"x","object":"chat.completion.chunk","model":"m","service_tier":"default",'
    b'"choices":[{"index":0,"delta":{"content":"%b"},"logprobs":null,"finish_reason":null}],"usage":null}'
)
SPACED = b'{"id": "x", "choices": [{"index": 0, "delta": {"content": "%b"}, "finish_reason": null}]}'
ROLE_LAST = b'{"choices":[{"delta":{"content":"%b","role":"assistant"},"index":0}],"model":"m"}'
BRACKET_IN_ROLE = b'{"choices":[{"delta":{"content":"%b","role":"]"},"index":0}]}'
REPEATED = b'{"choices":[{"delta":{"content":"no"},"index":0}],"choices":[{"delta":{"content":"%b"},"index":0}]}'
FORMS = (COMPACT, SPACED, ROLE_LAST, BRACKET_IN_ROLE, REPEATED)
END = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
USAGE = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}'
# Contents of JSON strings, some of which are not valid.
VALID = (
    b"word",
    b" ",
    b"\\n",
    b'\\"',
    b"\\\\",
    b"a\\\\",
    b"\\u00fc",
    "ü€😀".encode(),
    b'[{\\"x\\":1}]',
    b"\\ud83d\\ude00",
)
INVALID = (b"a\\", b'"', b'a","b', b'",', b',"b', b"\x01", b"\xff", b"\xc3", b"\\x", b"", b"\\u12")


def read(texts: list[bytes], form: bytes, relayed: bool, together: bool) -> list:
    """Return what a caller sees of a stream: the choices or the texts, then the kind and the tier of its end."""
    events = [b"data: %b\n\n" % data for data in (FIRST, *[form % text for text in texts], END, USAGE, b"[DONE]")]
    pieces = [b"".join(events)] if together else events
    seen: list = []
    size = 0
    for batch in OpenAIChat().read_stream(MemoryReply(*pieces), relayed):
        for event in batch:
            if type(event) is NativeChunk:
                seen += [orjson.loads(ready) for ready in event.ready] or [event.body["choices"]]
                size += event.size
            elif type(event) is TextDelta:
                seen.append(event.text)
            elif type(event) is Failed:
                seen.append(event.error.code)
            elif type(event) is Finished:
                seen += [event.reason, event.service_tier, event.usage]
    return [seen, size]


@pytest.mark.parametrize("relayed", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_texts_that_arrive_together_are_those_that_arrive_one_by_one(form: bytes, relayed: bool) -> None:
    texts = [b"x", *VALID * 2]
    together = read(texts, form, relayed, together=True)
    assert together == read(texts, form, relayed, together=False)
    assert len(together[0]) >= len(texts)


@pytest.mark.parametrize("relayed", [True, False])
@pytest.mark.parametrize("invalid", INVALID)
def test_text_that_is_not_valid_json_ends_a_block(invalid: bytes, relayed: bool) -> None:
    for place in range(8):
        texts = [b"x"] * 8
        texts[place] = invalid
        assert read(texts, COMPACT, relayed, together=True) == read(texts, COMPACT, relayed, together=False)


@pytest.mark.parametrize("seed", range(40))
def test_invalid_texts_beside_each_other_do_not_pass_as_one_valid_text(seed: int) -> None:
    chance = random.Random(seed)
    texts = [b"x"] * 3 + chance.choices((*VALID, *INVALID), k=12)
    for relayed in (True, False):
        assert read(texts, COMPACT, relayed, together=True) == read(texts, COMPACT, relayed, together=False)


def test_tier_that_changes_within_a_block_is_the_last_one() -> None:
    forms = [COMPACT] * 6 + [COMPACT.replace(b'"default"', b'"priority"')]
    data = b"".join(b"data: %b\n\n" % one for one in (FIRST, *[form % b"x" for form in forms], END, USAGE, b"[DONE]"))
    last = [event for batch in OpenAIChat().read_stream(MemoryReply(data), True) for event in batch][-1]
    assert type(last) is Finished and last.service_tier == "priority"
