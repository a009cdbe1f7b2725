"""A document is read in proportion to its size, and so much of it at most."""

import zlib

import orjson
import pytest

from gateway.providers.sandbox import ocr
from gateway.providers.sandbox.directives import Directives, Persona


class Counted(bytes):
    """Counts how many bytes are looked through."""

    looked = 0

    def find(self, word: bytes, start: int = 0) -> int:  # type: ignore[override]
        found = super().find(word, start)
        Counted.looked += (found if found >= 0 else len(self)) - start
        return found


def test_streams_without_an_end_are_looked_for_once() -> None:
    """56 KB of beginnings held the interpreter for two seconds, a megabyte for ten minutes."""
    Counted.looked = 0
    data = Counted(b"%PDF- /Type /Page " + b"stream\n" * 8_000)
    assert ocr._pages_of(data) == [""] and Counted.looked < 3 * len(data)


def test_the_decompressed_size_of_a_document_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[int] = []
    unpack = ocr._unpack
    monkeypatch.setattr(ocr, "_unpack", lambda *given: unpacked.append(len(made := unpack(*given))) or made)
    packed = b"stream\n" + zlib.compress(b"(x) Tj " * 20_000) + b"endstream "
    pages = ocr._pages_of(b"%PDF- " + b"/Type /Page " * 5_000 + packed * 300)
    assert sum(unpacked) <= ocr.MAX_UNPACKED_BYTES and len(unpacked) < 10 and len(pages) == ocr.MAX_PAGES


def test_the_text_of_pages_is_read_compressed_and_plain() -> None:
    first = b"stream\r\n" + zlib.compress(b"BT (Hello \\(you\\)) Tj ET") + b"\r\nendstream"
    data = b"%PDF-1.4 /Type /Page /Type/Page " + first + b" stream\nBT (Two) ' ET\nendstream"
    assert ocr._pages_of(data) == ["Hello (you)", "Two"]


def test_an_image_is_named_by_its_size_and_not_repeated() -> None:
    document = {"type": "image_url", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    answer = ocr.respond({"model": "m", "document": document}, Persona(), Directives())
    assert orjson.loads(answer.body)["pages"][0]["markdown"].endswith("in this file of 8 bytes.")


def test_every_option_of_mistral_is_taken() -> None:
    # Mistral API reference, "OCR".
    flags = "include_image_base64 extract_header extract_footer include_blocks"
    numbers, texts = (
        "image_limit image_min_size",
        "document_annotation_prompt table_format confidence_scores_granularity",
    )
    formats = "bbox_annotation_format document_annotation_format"
    body = {"model": "m", "document": {"type": "document_url", "document_url": "https://a.example/b.pdf"}, "pages": [0]}
    for names, value in ((flags, True), (numbers, 3), (texts, "x"), (formats, {"type": "text"})):
        body |= dict.fromkeys(names.split(), value)
    ocr.check_ocr(body)
    page = orjson.loads(ocr.respond(body, Persona(), Directives()).body)["pages"][0]
    assert set(page["dimensions"]) == {"dpi", "height", "width"} and min(page["dimensions"].values()) > 0
