"""OCR: returns the text of a PDF's content streams, and for other documents a note with their size or URL.

Sources: Mistral API reference, OCR; ISO 32000-1, 7.3.4.2 (strings), 7.7.3 (pages), 9.4.3 (showing text).
"""

import re
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Any

import orjson

from gateway.neutral.file_types import decode_base64
from gateway.providers.sandbox.checks import Check, check_fields, of
from gateway.providers.sandbox.directives import Directives, Persona, strip
from gateway.providers.sandbox.response import Response, refuse

PAGE = re.compile(rb"/Type\s{0,8}/Page(?![a-zA-Z])")
STREAM = b"stream"
STREAM_END = b"endstream"
SHOW_TEXT = re.compile(rb"\(((?:[^()\\]++|\\.)*+)\)\s{0,8}(?:Tj|')")
# Limits of a document: pages, and bytes of decompressed streams. They bound the work for a malicious document.
MAX_PAGES = 1000
MAX_UNPACKED_BYTES = 1 << 20
SIZE = {"dpi": 200, "height": 2200, "width": 1700}


def check_ocr(body: dict[str, Any]) -> None:
    """Raise InvalidRequest with OpenAI's error text for the first mistake."""
    check_fields(body, FIELDS, ("model", "document"))


def directive_text(body: dict[str, Any]) -> str:
    """Return the text that may contain directives: the document's name."""
    return body["document"].get("document_name") or ""


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """Return the answer to a checked body."""
    document = body["document"]
    address = document.get("document_url") or document.get("image_url") or ""
    address = address["url"] if isinstance(address, dict) else address
    data = decode_base64(address.partition(",")[2]) if address.startswith("data:") else b""
    if data:
        note = f"The sandbox recognizes no text in this file of {len(data)} bytes."
    else:
        note = f"The sandbox does not load {address[:200]}."
    texts = _pages_of(data) or [note]
    pages_wanted = body.get("pages")
    chosen = list(range(len(texts)))
    if pages_wanted is not None:
        chosen = [page for page in pages_wanted if page < len(texts)]
    if not chosen:
        raise refuse(f"Invalid 'pages': the document has {len(texts)} pages.", "pages")
    pages: list[dict[str, Any]] = [
        {"index": page, "markdown": strip(texts[page]), "images": [], "dimensions": SIZE} for page in chosen
    ]
    reported = {"usage_info": {"pages_processed": len(pages), "doc_size_bytes": len(data) or None}}
    whole: dict[str, Any] = {"pages": pages, "model": body["model"], "document_annotation": None}
    return Response(orjson.dumps(whole | ({} if directives.no_usage else reported)), bare=orjson.dumps({"pages": []}))


def _pages_of(data: bytes) -> list[str]:
    """Return the text of each page, assuming one content stream per page, as simple PDF writers produce them."""
    count = sum(1 for _ in islice(PAGE.finditer(data), MAX_PAGES))
    if not data.startswith(b"%PDF-") or not count:
        return []
    left = MAX_UNPACKED_BYTES
    texts = list[str]()
    for stream in islice(_streams(data), MAX_PAGES):
        plain = _unpack(stream, left)
        left -= len(plain)
        if text := _shown(plain):
            texts.append(text)
        if left <= 0:
            break
    return [texts[page] if page < len(texts) else "" for page in range(count)]


def _streams(data: bytes) -> Iterator[bytes]:
    """Yield the bytes between each `stream` and the next `endstream`."""
    at = 0
    while (begin := data.find(STREAM, at)) >= 0 and (end := data.find(STREAM_END, begin + len(STREAM))) >= 0:
        yield data[begin + len(STREAM) : end].removeprefix(b"\r").removeprefix(b"\n")
        at = end + len(STREAM_END)


def _unpack(stream: bytes, maximum: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(stream, maximum)
    except zlib.error:
        return stream[:maximum]  # the stream is not compressed


def _shown(stream: bytes) -> str:
    return " ".join(re.sub(rb"\\(.)", rb"\1", text).decode("latin-1") for text in SHOW_TEXT.findall(stream))


FIELDS: dict[str, Check] = {
    "model": of(str),
    "document": of(dict),
    "pages": of(list),
    "include_image_base64": of(bool),
    "image_limit": of(int),
    "image_min_size": of(int),
    "bbox_annotation_format": of(dict),
    "document_annotation_format": of(dict),
    "document_annotation_prompt": of(str),
    "table_format": of(str),
    "extract_header": of(bool),
    "extract_footer": of(bool),
    "include_blocks": of(bool),
    "confidence_scores_granularity": of(str),
}
