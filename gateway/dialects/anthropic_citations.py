"""Citations of the Anthropic Messages dialect: of web pages, search results and places in documents.

Source: Anthropic API reference, "Messages", text block citations; documentation, "Citations" and "Search results".
"""

from typing import Any

from gateway.neutral.parts import RangeKind, Source, SourceRange

WEB = "web_search_result_location"
RESULT = "search_result_location"
# Citation type → the kind of range, and the names of its first and last index.
LOCATIONS: dict[str, tuple[RangeKind, str, str]] = {
    "char_location": ("characters", "start_char_index", "end_char_index"),
    "page_location": ("pages", "start_page_number", "end_page_number"),
    "content_block_location": ("blocks", "start_block_index", "end_block_index"),
}
TYPES = {kind: (name, first, last) for name, (kind, first, last) in LOCATIONS.items()}
BLOCKS = ("start_block_index", "end_block_index")


def read_citation(wire: Any) -> Source | None:
    """Parse a citation into its source; None for an unknown shape."""
    if not isinstance(wire, dict):
        return None
    kind = wire.get("type")
    quote = _text(wire.get("cited_text"))
    if kind in LOCATIONS:
        range_kind, begin, end = LOCATIONS[kind]
        place = SourceRange(
            range_kind, _count(wire.get("document_index"), 0), _count(wire.get(begin)), _count(wire.get(end)),
            _text(wire.get("file_id")),
        )  # fmt: skip
        return Source("", _text(wire.get("document_title")), quote, place=place)
    address = _text(wire.get("url")) or _text(wire.get("source"))
    if not address:
        return None
    index = _count(wire.get("search_result_index"), 0)
    first, last = (_count(wire.get(name)) for name in BLOCKS)
    if kind == RESULT:
        source_range = SourceRange("result", index, first, last)
    else:
        source_range = None
    return Source(address, _text(wire.get("title")), quote, place=source_range)


def write_citation(source: Source) -> dict[str, Any]:
    """Render a citation. The index of a web page is empty because only the vendor's own search can use it."""
    place = source.place
    title = source.title or None
    if place is None:
        return {"type": WEB, "url": source.url, "title": title, "cited_text": source.quote, "encrypted_index": ""}
    first = max(place.first, 0)
    last = max(place.last, 0)
    if place.kind == "result":
        return {
            "type": RESULT,
            "source": source.url or place.file_id,
            "title": title,
            "cited_text": source.quote,
            "search_result_index": place.document,
            BLOCKS[0]: first,
            BLOCKS[1]: last,
        }
    name, start, end = TYPES[place.kind]
    return {
        "type": name,
        "cited_text": source.quote,
        "document_index": place.document,
        "document_title": title,
        "file_id": place.file_id or None,
        start: first,
        end: last,
    }


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""


def _count(value: Any, missing: int = -1) -> int:
    if type(value) is int and value >= 0:
        return value
    return missing
