"""The estimated memory of decoded JSON, compared with the memory that it takes."""

import gc
import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.neutral.json_weight import COPIES, PIECE_BYTES, SLICE, STRUCTS, count_marks, weigh

CODE = "def f(a, b): return {'x': [1, 2, 3], 'y': (a, b)}; " * 40
SHAPES: dict[str, Any] = {
    "one letter parts": [{"type": "text", "text": "x"} for _ in range(20_000)],
    "empty objects": [{} for _ in range(100_000)],
    "empty lists": [[] for _ in range(100_000)],
    "nested lists": [[[[[]]]] for _ in range(30_000)],
    "large numbers": list(range(10**15, 10**15 + 100_000)),
    "fractions": [place + 0.5 for place in range(100_000)],
    "short texts": [f"{place:06}" for place in range(100_000)],
    "distinct names": [{f"name{place}": place} for place in range(50_000)],
    "messages": [{"role": "user", "content": f"{place} " + "word " * 50} for place in range(5_000)],
    "code": [{"role": "user", "content": f"{place} {CODE}"} for place in range(2_000)],
    "one text": "x" * 5_000_000,
    "one emoji": "x" * 3_000_000 + "\U0001f600",
    "one Greek letter": "x" * 3_000_000 + "\u03b1",
    "a wide text among plain ones": ["x" * 2_000_000, "y" * 2_000_000, "\U0001f600" * 1000],
}


def memory_of(raw: bytes) -> int:
    """Return the bytes of what is decoded from a text."""
    gc.collect()
    tracemalloc.start()
    try:
        decoded = orjson.loads(raw)
        taken, _ = tracemalloc.get_traced_memory()
        del decoded
    finally:
        tracemalloc.stop()
    return taken


@pytest.mark.parametrize("name", SHAPES)
def test_decoded_json_takes_at_most_its_estimate(name: str) -> None:
    raw = orjson.dumps(SHAPES[name])
    assert memory_of(raw) <= 1.1 * (weigh(raw) - COPIES * len(raw))


def test_escapes_weigh_as_the_characters_that_they_are() -> None:
    raw = b'"' + b"x" * 3_000_000 + b"\\ud83d\\ude00" + b'"'
    assert memory_of(raw) <= 1.1 * (weigh(raw) - COPIES * len(raw))


@pytest.mark.parametrize(("character", "width"), [("\u00fc", 1), ("\u2713", 2)])
@pytest.mark.parametrize("place", range(SLICE - 5, SLICE + 2))
def test_a_character_counts_wherever_a_piece_of_the_text_ends(character: str, width: int, place: int) -> None:
    raw = b"x" * place + character.encode() + b"x" * 1000
    assert weigh(raw) == len(raw) * (COPIES + width)


@pytest.mark.parametrize("name", ["code", "one text", "messages", "a wide text among plain ones"])
def test_long_texts_are_not_weighed_as_many_objects(name: str) -> None:
    raw = orjson.dumps(SHAPES[name])
    assert weigh(raw, STRUCTS) <= 5 * len(raw)


@pytest.mark.parametrize("emoji", ["\U0001f600".encode(), b"\\ud83d\\ude00"], ids=["utf-8", "escaped"])
@pytest.mark.parametrize("behind", range(1, 13))
def test_an_emoji_counts_for_its_string_wherever_a_piece_of_the_json_ends(emoji: bytes, behind: int) -> None:
    raw = b'"' + b"x" * (PIECE_BYTES - 1 - behind) + emoji + b"x" * PIECE_BYTES * 4 + b'"'
    assert weigh(raw) >= len(raw) * (COPIES + 4)


@given(st.text(st.sampled_from("a[{,é\xff\u0100\u07ff\u0800\uffff\U00010000\U0010ffff"), max_size=60))
def test_marks_have_the_width_that_python_gives_a_text(text: str) -> None:
    widest = max(map(ord, text), default=0)
    width = next(width for width in (1, 2, 4) if widest < 1 << 8 * width)
    assert count_marks(text.encode()) == (text.count("[") + text.count("{"), text.count(","), width)
