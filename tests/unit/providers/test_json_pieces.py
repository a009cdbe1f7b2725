"""Long JSON texts are decoded in pieces, to the same values and with the same errors."""

from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from gateway.providers import json_pieces
from gateway.providers.json_pieces import decode_rows, loads_in_pieces

PARTS = [{"type": "text", "text": f"part {number}"} for number in range(30_000)]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=6), inner, max_size=6),
    max_leaves=40,
)


class Row(Struct):
    embedding: Raw
    index: int = 0


class Answer(Struct):
    data: list[Row]
    model: str = ""


WHOLE: Decoder[Answer] = Decoder(Answer)
ROWS: Decoder[list[Any]] = Decoder(list[Row])


@given(VALUES)
def test_a_text_in_pieces_has_the_values_of_the_text(value: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_pieces, "PIECE_BYTES", 8)
        for text in (orjson.dumps(value), orjson.dumps(value, option=orjson.OPT_INDENT_2)):
            assert loads_in_pieces(text) == orjson.loads(text)


def test_no_call_decodes_more_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call for 40,000 parts held the interpreter lock for 10 to 50 ms."""
    sizes: list[int] = []

    def loads(text: bytes) -> Any:
        sizes.append(len(text))
        return orjson.loads(text)

    text = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": PARTS}]})
    monkeypatch.setattr(json_pieces, "orjson", SimpleNamespace(loads=loads))
    assert loads_in_pieces(text)["messages"][0]["content"] == PARTS
    assert max(sizes) <= json_pieces.PIECE_BYTES * 1.1


@pytest.mark.parametrize("wrong", [b"[1,", b'{"a":}', b'["\xff"]', b"[01]", b"[1,]", b"[1 2]", b'{"a":1}}'])
def test_an_invalid_text_has_the_error_of_the_decoder(wrong: bytes) -> None:
    long = b"[" + b'"text",' * 20_000 + wrong + b"]"
    with pytest.raises(orjson.JSONDecodeError) as expected:
        orjson.loads(long)
    with pytest.raises(orjson.JSONDecodeError) as raised:
        loads_in_pieces(long)
    assert str(raised.value) == str(expected.value)


def read_rows(body: bytes) -> list[tuple[int, Any]]:
    answer = decode_rows(WHOLE, body, "data", ROWS)
    assert answer.model == "m"
    return [(row.index, orjson.loads(bytes(row.embedding))) for row in answer.data]


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "MIN_PIECEWISE_BYTES", 0)
    monkeypatch.setattr(json_pieces, "PIECE_BYTES", 30)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"embedding": [1.5, -2], "index": number} for number in range(100)],
        [{"index": number, "embedding": "AAAA},{"} for number in range(50)],
        [{"embedding": [[1], [2], [3], [4], [5], [6], [7], [8], [9]], "index": 3}] * 9,
        [{"note": 'a "data":[ within', "embedding": [1]}] * 20,
    ],
)
@pytest.mark.parametrize("option", [0, orjson.OPT_INDENT_2])
def test_rows_are_the_same_however_they_are_cut(rows: list[Any], option: int, short_pieces: None) -> None:
    for body in ({"data": rows, "model": "m"}, {"model": "m", "data": rows, "more": {"list": [1, 2]}}):
        text = orjson.dumps(body, option=option)
        assert read_rows(text) == [(row.get("index", 0), row["embedding"]) for row in rows]


@pytest.mark.parametrize(
    "text", [b'{"data":[{"embedding":[1]},],"model":"m"}', b'{"data":[{"embedding":[1]}', b'{"model":"m"}', b"[]", b'"']
)
def test_an_answer_that_is_invalid_is_refused(text: bytes, short_pieces: None) -> None:
    with pytest.raises(DecodeError):
        read_rows(text)


def test_a_row_of_another_shape_is_refused(short_pieces: None) -> None:
    with pytest.raises(ValidationError):
        read_rows(orjson.dumps({"data": [{"embedding": [1]}] * 9 + [{"index": 1}], "model": "m"}))
