"""The estimated memory of decoded JSON, compared with the memory that it takes."""

import gc
import json
import random
import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.neutral import json_weight
from gateway.neutral.json_weight import (
    COPIES,
    LONE_SURROGATE,
    PIECE_BYTES,
    REPLACEMENT,
    SLICE,
    STRUCTS,
    count_marks,
    join_halves,
    weigh,
    without_halves,
)

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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (rb'"ab\ud83d"', "ab\ufffd"),
        (rb'"\uDE00x"', "\ufffdx"),
        (rb'"\ud83d\ude00"', "😀"),
        (rb'"\ud83d\ud83d\ude00\ude00"', "\ufffd😀\ufffd"),
        (rb'"\\ud83d"', "\\ud83d"),  # a backslash and five letters
        (rb'"\\\ud83d"', "\\\ufffd"),
        (rb'"\n\ud83d\n"', "\n\ufffd\n"),
    ],
)
def test_a_half_of_a_character_is_replaced_and_nothing_else(text: bytes, value: str) -> None:
    assert orjson.loads(without_halves(text)) == value and len(without_halves(text)) == len(text)


def test_a_text_is_repaired_equally_wherever_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    atoms = [rb"\ud83d", rb"\ude00", rb"\ud83d\ude00", b"\\\\", b"\\n", b"x", b"dd00"]
    for _ in range(300):
        text = b'"%b"' % b"".join(chance.choice(atoms) for _ in range(40))
        monkeypatch.setattr(json_weight, "PIECE_BYTES", chance.randint(1, 20))
        assert without_halves(text) == LONE_SURROGATE.sub(REPLACEMENT, text)


def wire(text: str) -> bytes:
    return json.dumps({"text": text}).encode()


def test_the_halves_of_two_pieces_are_one_character() -> None:
    text, half = join_halves(wire("Hi \ud83d"), b"")
    assert text == wire("Hi ")
    assert join_halves(wire("\ude00 there"), half) == (wire("😀 there"), b"")


def test_a_half_that_never_finds_the_other_spoils_nothing() -> None:
    _, half = join_halves(wire("Hi \ud83d"), b"")
    assert join_halves(wire("x\ud83dy"), half) == (wire("x\ufffdy"), b"")
    assert join_halves(wire("\ude00"), b"") == (wire("\ufffd"), b"")


def test_long_texts_are_repaired_in_pieces_and_the_longest_are_unchanged() -> None:
    assert join_halves(wire("x" * json_weight.SUBSTITUTION_BYTES + "\ud83d"), b"") == (
        wire("x" * json_weight.SUBSTITUTION_BYTES + "\ufffd"),
        b"",
    )
    longest = wire("x" * json_weight.MAX_LENGTH + "\ud83d")
    assert without_halves(longest) is longest
