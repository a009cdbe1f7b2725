"""Long JSON texts are decoded and encoded in pieces, to the same values and with the same errors."""

import json
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.neutral import long_json
from gateway.neutral.json_weight import without_halves
from gateway.neutral.long_json import dumps_in_pieces, end_of_text, loads_in_pieces

MEGABYTE = 1 << 20
SHORT = {"PIECE_BYTES": 16, "READ_BYTES": 16, "LONG_STRING": 5, "NODES": 5, "WHOLE": 0, "CHARACTERS_PER_NODE": 3}
SHORT |= {"REPEATED_BYTES": -1}
SIGNS = ["a", '"', "\\", "\n", "é", "€", "\U0001f600", "\x01", "[", "}", ",", "x" * 9, "\\ud83d"]
TEXTS = st.lists(st.sampled_from(SIGNS)).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(TEXTS, inner, max_size=9),
    max_leaves=40,
).filter(lambda value: isinstance(value, list | dict))
CODE = 'def f(a):\n\treturn {"x": [1, 2]}\n'
CHOICE = {"index": 0, "message": {"role": "assistant", "content": CODE * 100_000, "n": "é" * MEGABYTE}}
PARTS = [{"type": "text", "text": f"part {number}"} for number in range(30_000)]
LONG = [
    {"choices": [CHOICE, CHOICE], "usage": {"prompt_tokens": 1}},
    {"messages": [{"role": "user", "content": PARTS}]},
    ["x" * 1000] * 3_000,
    [0] * 300_000,
    {"a": ["\U0001f600" + "x" * MEGABYTE, "y" * MEGABYTE, 1, "\\" * MEGABYTE]},
    {f"name {number}": number for number in range(50_000)},
]


@pytest.fixture
def short_pieces() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SHORT.items():
            patch.setattr(long_json, name, value)
        patch.setattr(long_json, "JOINED", 0)
        yield


@given(VALUES)
@pytest.mark.usefixtures("short_pieces")
def test_a_text_in_pieces_has_the_values_of_the_text(value: Any) -> None:
    for text in (orjson.dumps(value), orjson.dumps(value, option=orjson.OPT_INDENT_2), json.dumps(value).encode()):
        decoded = loads_in_pieces(text)
        assert decoded == value
        assert orjson.dumps(decoded) == orjson.dumps(value)  # members in the same order
    assert dumps_in_pieces(value) == orjson.dumps(value)


@given(VALUES, st.integers(0), st.sampled_from(b'[]{},:"\\1 \xff'))
@pytest.mark.usefixtures("short_pieces")
def test_a_changed_text_is_as_invalid_as_for_the_decoder(value: Any, place: int, byte: int) -> None:
    text = bytearray(json.dumps(value).encode())
    text[place % len(text)] = byte
    whole = without_halves(bytes(text))
    try:
        expected = orjson.loads(whole)
    except orjson.JSONDecodeError:
        if b"\\ud8" not in whole:  # a half of a pair may be replaced
            with pytest.raises(orjson.JSONDecodeError):
                loads_in_pieces(bytes(text))
        return
    if isinstance(expected, list | dict):
        assert loads_in_pieces(bytes(text)) == expected


@pytest.mark.parametrize("value", LONG, ids=range(len(LONG)))
@pytest.mark.parametrize("escaped", [True, False])
def test_no_call_decodes_or_encodes_much_more_than_a_piece(
    monkeypatch: pytest.MonkeyPatch, value: Any, escaped: bool
) -> None:
    """One call for an answer of 62 MB held the interpreter lock for 0.3 to 0.65 s."""
    sizes: list[int] = []

    def loads(text: bytes) -> Any:
        sizes.append(len(text))
        return orjson.loads(text)

    def dumps(given: Any) -> bytes:
        sizes.append(len(orjson.dumps(given)))
        return orjson.dumps(given)

    text = json.dumps(value).encode() if escaped else orjson.dumps(value)
    monkeypatch.setattr(
        long_json, "orjson", SimpleNamespace(loads=loads, dumps=dumps, JSONDecodeError=orjson.JSONDecodeError)
    )
    decoded = loads_in_pieces(text)
    assert decoded == value
    assert dumps_in_pieces(decoded) == orjson.dumps(value)
    assert max(sizes) <= 5 * long_json.PIECE_BYTES


@pytest.mark.parametrize("wrong", [b"[1,", b'{"a":}', b'["\xff"]', b"[01]", b"[1,]", b"[1 2]", b'{"a":1}}'])
def test_an_invalid_text_has_the_error_of_the_decoder(wrong: bytes) -> None:
    long = b"[" + b'"text",' * 20_000 + wrong + b"]"
    with pytest.raises(orjson.JSONDecodeError) as expected:
        orjson.loads(long)
    with pytest.raises(orjson.JSONDecodeError) as raised:
        loads_in_pieces(long)
    assert str(raised.value) == str(expected.value)


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"[" * MEGABYTE,
        b'["' + b"x" * MEGABYTE,
        b'["' + b"x" * MEGABYTE + b"\\",
        b'["' + b"\\" * (MEGABYTE + 1) + b'"]',
        b"[" + b" " * 3 * MEGABYTE + b"1]",
        b"1" * MEGABYTE,
        b'["a"]' + b" " * MEGABYTE + b"[]",
        b"[" + b"1," * MEGABYTE + b"}",
    ],
    ids=range(9),
)
def test_a_long_invalid_text_is_never_decoded_in_one_call(monkeypatch: pytest.MonkeyPatch, wrong: bytes) -> None:
    monkeypatch.setattr(long_json, "REPEATED_BYTES", -1)
    monkeypatch.setattr(long_json, "PIECE_BYTES", 1 << 12)
    with pytest.raises(orjson.JSONDecodeError):
        loads_in_pieces(wrong + b" " * (1 << 13))


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("levels", [250, 500, 700, 1000])
def test_nested_long_containers_are_read_or_refused(
    opening: bytes, closing: bytes, levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_json, "REPEATED_BYTES", -1)
    raw = opening * levels + b'"' + b"x" * MEGABYTE + b'"' + closing * levels
    try:
        assert orjson.dumps(loads_in_pieces(raw)) == raw
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        assert levels > 254  # which cannot be written


@pytest.mark.parametrize("text", [b"\\u00e9", b"\\ud83d\\ude00", b"\\\\", b'\\"', "é".encode(), "\U0001f600".encode()])
@pytest.mark.parametrize("before", range(24))
def test_a_text_is_cut_between_its_characters(text: bytes, before: int) -> None:
    raw = b"x" * before + text * 20
    at = 0
    while at < len(raw):
        end = end_of_text(raw, at, at + 16)
        assert at < end
        assert (max(0, end - before)) % len(text) == 0
        at = end


# Strings that are put together piece by piece are the strings that the interpreter joins.


@pytest.mark.parametrize("signs", ["a", "é", "€", "\U0001f600", "aé", "a€", "é\U0001f600", "€\U0001f600"])
def test_joined_strings_are_those_of_join(monkeypatch: pytest.MonkeyPatch, signs: str) -> None:
    monkeypatch.setattr(long_json, "JOINED", 0)
    pieces = [sign * 1000 for sign in signs] * 3
    joined = long_json.join_pieces(pieces)
    assert joined == "".join(pieces)
    assert hash(joined) == hash("".join(pieces))
    assert joined.__sizeof__() == "".join(pieces).__sizeof__()
