"""Pages of a document are counted in proportion to its size, and a list of pages has a length."""

from base64 import b64encode
from typing import Any

import pytest
from msgspec import ValidationError

from gateway.errors import InvalidRequest
from gateway.surfaces.openai import ocr


def count(data: bytes) -> int:
    return ocr._count_pages("data:application/pdf;base64," + b64encode(data).decode())


@pytest.mark.parametrize("size", [7, 16, 1000])
def test_pages_are_counted_wherever_a_piece_ends(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "PIECE", size)
    data = b"%PDF-1.7 " + b"<< /Type /Page /Parent 1 0 R >> " * 37 + b"<< /Type /Pages /Kids [] >>"
    assert count(data) == 37 and count(data + b"/Count 41 ") == 41
    assert count(data * 40) == ocr.MOST_PAGES


def test_no_look_is_at_more_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two looks at 24 MB held the interpreter for 0.3 s."""
    longest: list[int] = []

    class Watched:
        def finditer(self, piece: bytes) -> list[Any]:
            longest.append(len(piece))
            return []

    monkeypatch.setattr(ocr, "PAGE", Watched())
    count(bytes(3_000_000))
    assert len(longest) > 10 and max(longest) <= ocr.PIECE + ocr.LONGEST_WORD


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    """It asked for no page, for which nothing was reserved, and a provider may take none for all."""
    for pages in ("5-2", "0,5-2", "9-0,1"):
        with pytest.raises(InvalidRequest) as raised:
            ocr._pages_of(pages)
        assert raised.value.param == "pages"


def test_a_list_of_pages_has_a_length() -> None:
    """28 MB of numbers were split on the event loop."""
    assert ocr._pages_of("0-2, 7") == [0, 1, 2, 7]
    with pytest.raises(InvalidRequest):
        ocr._pages_of("1," * 5_000)
    assert len(ocr._pages_of("0-99999," * 900) or ()) <= 2 * ocr.MOST_PAGES


@pytest.mark.parametrize("field", ["image_limit", "image_min_size"])
@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_a_count_that_providers_read_as_no_whole_number_is_refused(field: str, number: int) -> None:
    body = b'{"model": "m", "document": {}, "%b": %d}' % (field.encode(), number)
    with pytest.raises(ValidationError, match=field):
        ocr.DECODER.decode(body)
