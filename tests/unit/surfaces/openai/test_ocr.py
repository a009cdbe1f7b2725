"""The pages of a document are counted by its content, and lists of pages have a length limit."""

from base64 import b64encode

import pytest
from msgspec import ValidationError, json
from support.pdfs import packed

from gateway.errors import InvalidRequest
from gateway.neutral.usage import Units, Usage
from gateway.providers.sandbox.images import png
from gateway.surfaces.openai import ocr


def units(data: bytes | str, kind: str = "application/pdf", field: str = "document_url") -> Units:
    """Return the units of a document, given as bytes or by its URL."""
    address = data if isinstance(data, str) else f"data:{kind};base64," + b64encode(data).decode()
    body = {"model": "m", "document": {"type": field, field: address}}
    return ocr.read(ocr.DECODER.decode(json.encode(body)))[1]


@pytest.mark.slow
def test_pages_of_a_packed_pdf_are_counted() -> None:
    """With a decoy comment, packed pages counted as one page: a key with a limit of $0.05 spent $40."""
    assert units(packed(1000, decoy=b"% /Type /Page \n")).maximum.pages == ocr.MAX_PAGES
    assert units(packed(200, declared=1), "image/png", "image_url").maximum.pages >= 200
    assert units(packed(200), "text/plain").maximum.pages == 200


@pytest.mark.parametrize("data", [b"%PDF-1.7 garbage", b"PK\3\4 a document", b"II*\0 an image of many pages"])
def test_a_document_that_tells_no_number_of_pages_is_reserved_as_the_longest(data: bytes) -> None:
    assert units(data) == Units(Usage(pages=ocr.MAX_PAGES), Usage(pages=1))


def test_an_image_is_one_page_and_one_at_an_address_may_be_more() -> None:
    assert units(b"\x89PNG\r\n\x1a\n", "image/png", "image_url") == Units(Usage(pages=1), Usage(pages=1))
    for head, kind in ((b"\xff\xd8\xff\xe0", "image/jpeg"), (b"RIFF\0\0\0\0WEBP", "image/webp")):
        assert units(head, kind, "image_url") == Units(Usage(pages=1), Usage(pages=1)), kind
    at_an_address = units("https://example.com/a.png", field="image_url")
    assert at_an_address == Units(Usage(pages=ocr.MAX_PAGES), Usage(pages=1), Usage(pages=1))
    assert units("https://example.com/a.pdf") == Units(Usage(pages=ocr.MAX_PAGES), Usage(pages=1))


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    """The range contained no page, so nothing was reserved, and a provider may read no page as all pages."""
    for pages in ("5-2", "0,5-2", "9-0,1"):
        with pytest.raises(InvalidRequest) as raised:
            ocr._pages_of(pages)
        assert raised.value.param == "pages"


def test_a_list_of_pages_has_a_length() -> None:
    """28 MB of numbers were split on the event loop."""
    assert ocr._pages_of("0-2, 7") == [0, 1, 2, 7]
    with pytest.raises(InvalidRequest):
        ocr._pages_of("1," * 5_000)
    assert len(ocr._pages_of("0-99999," * 900) or ()) <= 2 * ocr.MAX_PAGES


@pytest.mark.parametrize("field", ["image_limit", "image_min_size"])
@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_a_count_that_providers_read_as_no_whole_number_is_refused(field: str, number: int) -> None:
    body = b'{"model": "m", "document": {}, "%b": %d}' % (field.encode(), number)
    with pytest.raises(ValidationError, match=field):
        ocr.DECODER.decode(body)


def test_an_image_that_may_be_read_as_a_document_counts_as_one() -> None:
    """One page was reserved for a document that begins with the signature of a picture."""
    picture = png(1, 1, "")
    assert units(picture, "image/png").maximum.pages == 1
    assert units(picture + bytes(2000) + packed(1000), "image/png").maximum.pages == ocr.MAX_PAGES
    assert units(picture).maximum.pages == ocr.MAX_PAGES
