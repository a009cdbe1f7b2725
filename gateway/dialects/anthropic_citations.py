"""Citations of the Anthropic messages dialect: of web pages, of search results and of places in documents.

Wire facts: Anthropic API reference, "Messages", text block citations; documentation, "Citations" and "Search results".
"""

from typing import Any

from gateway.neutral.parts import RangeKind, Source, SourceRange

WEB = "web_search_result_location"
RESULT = "search_result_location"
# What a citation of a document counts, by its type: our word, and the names of the first and the last there.
LOCATIONS: dict[str, tuple[RangeKind, str, str]] = {
    "char_location": ("characters", "start_char_index", "end_char_index"),
    "page_location": ("pages", "start_page_number", "end_page_number"),
    "content_block_location": ("blocks", "start_block_index", "end_block_index"),
}
TYPES = {kind: (name, first, last) for name, (kind, first, last) in LOCATIONS.items()}
BLOCKS = ("start_block_index", "end_block_index")


def read_citation(wire: Any) -> Source | None:
    """The source of a citation; None for one of an unknown shape."""
    if not isinstance(wire, dict):
        return None
    kind = wire.get("type")
    quote = _word(wire.get("cited_text"))
    if kind in LOCATIONS:
        counted, begin, end = LOCATIONS[kind]
        place = SourceRange(
            counted, _count(wire.get("document_index"), 0), _count(wire.get(begin)), _count(wire.get(end)),
            _word(wire.get("file_id")),
        )  # fmt: skip
        return Source("", _word(wire.get("document_title")), quote, place=place)
    address = _word(wire.get("url")) or _word(wire.get("source"))
    if not address:
        return None
    index = _count(wire.get("search_result_index"), 0)
    first, last = (_count(wire.get(name)) for name in BLOCKS)
    if kind == RESULT:
        found = SourceRange("result", index, first, last)
    else:
        found = None
    return Source(address, _word(wire.get("title")), quote, place=found)


def write_citation(source: Source) -> dict[str, Any]:
    """A citation. The index of a web page's means something to the format's own search alone: it is empty."""
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


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""


def _count(value: Any, missing: int = -1) -> int:
    if type(value) is int and value >= 0:
        return value
    return missing
