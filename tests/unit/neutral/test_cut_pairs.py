import json
import random

import orjson
import pytest

from gateway.neutral import cut_pairs
from gateway.neutral.cut_pairs import LONE_SURROGATE, REPLACEMENT, join_halves, without_halves


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
        monkeypatch.setattr(cut_pairs, "PIECE_BYTES", chance.randint(1, 20))
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
    assert join_halves(wire("x" * cut_pairs.PIECE_BYTES + "\ud83d"), b"") == (
        wire("x" * cut_pairs.PIECE_BYTES + "\ufffd"),
        b"",
    )
    longest = wire("x" * cut_pairs.MAX_LENGTH + "\ud83d")
    assert without_halves(longest) is longest
