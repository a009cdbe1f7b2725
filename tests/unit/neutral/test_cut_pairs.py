import json
import random

import orjson
import pytest

from gateway.neutral import cut_pairs
from gateway.neutral.cut_pairs import LONE, REPLACEMENT, read_joined, without_halves


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


def test_a_text_is_mended_alike_wherever_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    atoms = [rb"\ud83d", rb"\ude00", rb"\ud83d\ude00", b"\\\\", b"\\n", b"x", b"dd00"]
    for _ in range(300):
        text = b'"%b"' % b"".join(chance.choice(atoms) for _ in range(40))
        monkeypatch.setattr(cut_pairs, "PIECE", chance.randint(1, 20))
        assert without_halves(text) == LONE.sub(REPLACEMENT, text)


def test_the_halves_of_two_pieces_are_one_character() -> None:
    value, half = read_joined(json.dumps({"text": "Hi \ud83d"}).encode(), b"")
    assert value == {"text": "Hi "}
    assert read_joined(json.dumps({"text": "\ude00 there"}).encode(), half) == ({"text": "😀 there"}, b"")


def test_a_half_that_never_finds_the_other_spoils_nothing() -> None:
    _, half = read_joined(json.dumps({"text": "Hi \ud83d"}).encode(), b"")
    assert read_joined(json.dumps({"text": "x\ud83dy"}).encode(), half) == ({"text": "x\ufffdy"}, b"")
    assert read_joined(json.dumps({"text": "\ude00"}).encode(), b"") == ({"text": "\ufffd"}, b"")


def test_what_is_no_json_is_none() -> None:
    assert read_joined(rb'{"text": "\ud83d"', b"") == (None, b"")


def test_what_is_long_is_mended_without_joining_and_what_is_too_long_is_left() -> None:
    long = b'"%b%b"' % (b"x" * cut_pairs.PIECE, rb"\ud83d")
    assert read_joined(long, b"") == ("x" * cut_pairs.PIECE + "\ufffd", b"")
    longest = b'"%b%b"' % (b"x" * cut_pairs.MOST, rb"\ud83d")
    assert without_halves(longest) is longest
