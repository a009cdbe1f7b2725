"""Sources that some servers of OpenAI's format list beside the choices of an answer."""

from typing import Any

from gateway.neutral.parts import Source

# `search_results` is a list of {url, title}, `citations` one of addresses.
LISTED_SOURCES = frozenset(("citations", "search_results"))


def read_sources(wire: dict[str, Any]) -> tuple[Source, ...]:
    """Return the sources in `search_results`, otherwise those in `citations`."""
    listed = wire.get("search_results")
    if isinstance(listed, list):
        entries = [entry for entry in listed if isinstance(entry, dict) and _text(entry.get("url"))]
        if entries:
            return tuple(Source(entry["url"], _text(entry.get("title"))) for entry in entries)
    cited = wire.get("citations")
    if isinstance(cited, list):
        return tuple(Source(url) for url in cited if isinstance(url, str) and url)
    return ()


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""
