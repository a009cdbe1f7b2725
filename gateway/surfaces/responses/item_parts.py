"""Parts of output items: texts, citations, and the arguments of calls."""

from typing import Any

import orjson

from gateway.neutral.parts import Source
from gateway.surfaces.responses.response_answers import ResponseItem

Json = dict[str, Any]


def write_source(source: Source, length: int) -> Json:
    """Return a url_citation, or a file_citation of one of the caller's documents (response_output_text.py of the OpenAI
    SDK); a url_citation without a position covers the whole text so far."""
    if not source.url and source.place is not None:
        place = source.place
        named = {"file_id": place.file_id, "filename": source.title}
        return {"type": "file_citation", **named, "index": place.document}
    known = source.start >= 0 and source.end >= 0
    start, end = (source.start, source.end) if known else (0, length)
    return {"type": "url_citation", "url": source.url, "title": source.title, "start_index": start, "end_index": end}


def write_text(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def set_arguments(item: ResponseItem, text: str) -> None:
    if item["type"] == "custom_tool_call":
        item["input"] = text
    else:
        item["arguments"] = text


def read_action(text: str) -> Json:
    """Return the query of a provider's search in any provider's format."""
    try:
        arguments = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        arguments = {}
    if isinstance(arguments, dict) and arguments.get("type") in ("search", "open_page", "find_in_page"):
        return arguments
    query = arguments.get("query") if isinstance(arguments, dict) else None
    return {"type": "search", "query": query if isinstance(query, str) else ""}
