"""Web searches run by the provider, as tool calls and results under the name that the caller gave to web search.

Whatever a provider reports about its searches, a caller sees a call with its query, then its result, then the sources.
"""

from collections.abc import Iterable
from typing import Any

import orjson

from gateway.neutral.parts import Source
from gateway.surfaces.aisdk.ai_answers import StreamPart

Json = dict[str, Any]

RESULT = "web_search_result"
PAGED = "application/pdf"
PLAIN_TEXT = "text/plain"


def write_call(ident: str, name: str, arguments: str) -> StreamPart:
    """Return the call; the schema of every search tool accepts an object with a query."""
    text = orjson.dumps({"query": _query_of(arguments)}).decode()
    return {"type": "tool-call", "toolCallId": ident, "toolName": name, "input": text, "providerExecuted": True}


def write_result(ident: str, name: str, results: list[Json]) -> StreamPart:
    return {"type": "tool-result", "toolCallId": ident, "toolName": name, "result": results}


def write_source(source: Source, ident: str) -> StreamPart:
    """Return a source: a page, or a place in the caller's content."""
    if source.url:
        page: StreamPart = {"type": "source", "sourceType": "url", "id": ident, "url": source.url}
        if source.title:
            page["title"] = source.title
        return page
    if source.place is not None and source.place.kind == "pages":
        kind = PAGED
    else:
        kind = PLAIN_TEXT
    return {
        "type": "source",
        "sourceType": "document",
        "id": ident,
        "mediaType": kind,
        "title": source.title or "Document",
    }


def found_of(sources: Iterable[Source]) -> list[Json]:
    """Return the result of a search if its pages are only known from citations."""
    pages = {source.url: source.title for source in sources if source.url}
    return [{"type": RESULT, "url": url, "title": title} for url, title in pages.items()]


def found_in(body: Json) -> tuple[str, list[Json]]:
    """Return the call id and results in a provider's own block of results; ("", []) for any other block."""
    ident = body.get("tool_use_id")
    content = body.get("content")
    if not isinstance(ident, str) or not isinstance(content, list):
        return "", []
    pages = [page for page in content if isinstance(page, dict) and isinstance(page.get("url"), str)]
    return ident, [{"type": RESULT, "url": page["url"], "title": page.get("title") or ""} for page in pages]


def _query_of(arguments: str) -> str:
    try:
        given = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(given, dict):
        return ""
    queries = given.get("queries")
    query = given.get("query") or (queries[0] if isinstance(queries, list) and queries else "")
    if isinstance(query, str):
        return query
    return ""
