"""OCR: the texts of a PDF's pages as in its content streams; for anything else its URL.

Facts: Mistral's reference of OCR; ISO 32000-1, 7.3.4.2 (strings), 7.7.3 (pages), 9.4.3 (showing text).
"""

import re
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Any

import orjson

from gateway.neutral.encoded import decode_base64
from gateway.providers.sandbox.checks import Check, check_fields, of
from gateway.providers.sandbox.directives import Directives, strip
from gateway.providers.sandbox.error_responses import refuse
from gateway.providers.sandbox.personas import Persona
from gateway.providers.sandbox.response import Response

PAGE = re.compile(rb"/Type\s{0,8}/Page(?![a-zA-Z])")
STREAM = b"stream"
END = b"endstream"
SHOWN = re.compile(rb"\(((?:[^()\\]++|\\.)*+)\)\s{0,8}(?:Tj|')")
# What is read of one document, packed or not: whoever sends more learns nothing of the gateway by it.
MOST_PAGES = 1000
MOST_UNPACKED = 1 << 20
SIZE = {"dpi": 200, "height": 2200, "width": 1700}


def check_ocr(body: dict[str, Any]) -> None:
    """Raise InvalidRequest with the wire's words for the first thing that is wrong."""
    check_fields(body, FIELDS, ("model", "document"))


def directive_text(body: dict[str, Any]) -> str:
    """Where directives are looked for: the document's name."""
    return body["document"].get("document_name") or ""


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """The answer to a checked body."""
    document = body["document"]
    address = document.get("document_url") or document.get("image_url") or ""
    address = address["url"] if isinstance(address, dict) else address
    data = decode_base64(address.partition(",")[2]) if address.startswith("data:") else b""
    texts = _pages_of(data) or [f"The sandbox does not load {address[:200]}."]
    pages_wanted = body.get("pages")
    chosen = [page for page in pages_wanted if page < len(texts)] if pages_wanted is not None else range(len(texts))
    if not chosen:
        raise refuse(f"Invalid 'pages': the document has {len(texts)}.", "pages")
    pages: list[dict[str, Any]] = [
        {"index": page, "markdown": strip(texts[page]), "images": [], "dimensions": SIZE} for page in chosen
    ]
    reported = {"usage_info": {"pages_processed": len(pages), "doc_size_bytes": len(data) or None}}
    whole: dict[str, Any] = {"pages": pages, "model": body["model"], "document_annotation": None}
    return Response(orjson.dumps(whole | ({} if directives.no_usage else reported)), bare=orjson.dumps({"pages": []}))


def _pages_of(data: bytes) -> list[str]:
    """What each page shows: the streams in their order, one a page, as simple writers make them."""
    count = sum(1 for _ in islice(PAGE.finditer(data), MOST_PAGES))
    if not data.startswith(b"%PDF-") or not count:
        return []
    left = MOST_UNPACKED
    texts = list[str]()
    for stream in islice(_streams(data), MOST_PAGES):
        plain = _unpack(stream, left)
        left -= len(plain)
        if text := _shown(plain):
            texts.append(text)
        if left <= 0:
            break
    return [texts[page] if page < len(texts) else "" for page in range(count)]


def _streams(data: bytes) -> Iterator[bytes]:
    """What stands between the words, each looked for behind the one before."""
    at = 0
    while (begin := data.find(STREAM, at)) >= 0 and (end := data.find(END, begin + len(STREAM))) >= 0:
        yield data[begin + len(STREAM) : end].removeprefix(b"\r").removeprefix(b"\n")
        at = end + len(END)


def _unpack(stream: bytes, most: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(stream, most)
    except zlib.error:
        return stream[:most]  # it is not packed


def _shown(stream: bytes) -> str:
    return " ".join(re.sub(rb"\\(.)", rb"\1", one).decode("latin-1") for one in SHOWN.findall(stream))


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
