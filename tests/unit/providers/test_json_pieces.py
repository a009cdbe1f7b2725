"""The rows of long answers are decoded in pieces, to the same values and with the same errors."""

from typing import Any

import orjson
import pytest
from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from gateway.providers import vectors
from gateway.providers.vectors import decode_rows


class Row(Struct):
    embedding: Raw
    index: int = 0


class Answer(Struct):
    data: list[Row]
    model: str = ""


WHOLE: Decoder[Answer] = Decoder(Answer)
ROWS: Decoder[list[Any]] = Decoder(list[Row])


def read_rows(body: bytes) -> list[tuple[int, Any]]:
    answer = decode_rows(WHOLE, body, "data", ROWS)
    assert answer.model == "m"
    return [(row.index, orjson.loads(bytes(row.embedding))) for row in answer.data]


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "MIN_PIECEWISE_BYTES", 0)
    monkeypatch.setattr(vectors, "PIECE_BYTES", 30)


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
