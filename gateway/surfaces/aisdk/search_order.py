"""Orders the web searches of a streamed answer as clients expect: each call, its result, then the sources."""

from typing import Any

from msgspec import Struct

from gateway.neutral.events import Batch, SourceFound, ToolCallDelta
from gateway.neutral.parts import Source
from gateway.surfaces.aisdk import searches
from gateway.surfaces.aisdk.ai_answers import StreamPart

Json = dict[str, Any]


class _Search(Struct, eq=False):
    """One search: its known data, and how much of it was sent."""

    id: str
    arguments: str = ""
    called: bool = False
    answered: bool = False


class SearchOrder:
    """Takes the search events of a stream and returns parts. Without a `name` given by the caller only sources are
    shown, since clients fail on calls of tools that they did not define."""

    def __init__(self, request_id: str, name: str) -> None:
        self._request_id = request_id
        self._name = name
        self._known: dict[int, _Search] = {}
        self._waiting: list[_Search] = []  # searches without a result, and possibly others
        self._cited = 0

    def has(self, block: int) -> bool:
        return block in self._known

    def run(self, event: ToolCallDelta) -> list[StreamPart]:
        """Add a chunk of a search's call: nothing is sent until it is complete."""
        known = self._known.get(event.block)
        if known is None:
            known = self._known[event.block] = _Search(event.id or f"search_{self._request_id}_{event.block}")
            self._waiting.append(known)
        known.arguments += event.arguments
        return []

    def end(self, block: int) -> list[StreamPart]:
        """Return the parts of a block that is complete."""
        known = self._known.get(block)
        if known is not None:
            return self._write_call(known)
        return []

    def found(self, body: Json) -> list[StreamPart]:
        """Return the parts of a provider's block with search results; nothing for any other block."""
        ident, pages = searches.found_in(body)
        known = next((search for search in self._known.values() if search.id == ident), None)
        if known is not None:
            return self._answer(known, pages)
        return []

    def cite(self, source: Source, batch: Batch) -> list[StreamPart]:
        """Return a source, after the calls and results of all searches so far; the other sources of its `batch` are
        results as well."""
        if not self._known:
            # A provider that reports only sources searched nevertheless.
            self._known[-1] = _Search(f"search_{self._request_id}")
            self._waiting.append(self._known[-1])
        if self._waiting:
            parts = self._answer_all(searches.found_of(_sources_of(batch)))
        else:
            parts = []
        ident = f"src_{self._request_id}_{self._cited}"
        self._cited += 1
        return [*parts, searches.write_source(source, ident)]

    def close(self) -> list[StreamPart]:
        """Return the results of searches without a reported result."""
        return self._answer_all([])

    def _answer_all(self, pages: list[Json]) -> list[StreamPart]:
        waiting = [search for search in self._waiting if not search.answered]
        self._waiting = []
        return [part for search in waiting for part in self._answer(search, pages if search is waiting[-1] else [])]

    def _answer(self, known: _Search, pages: list[Json]) -> list[StreamPart]:
        if known.answered:
            return []
        parts = self._write_call(known)
        known.answered = True
        if self._name:
            return [*parts, searches.write_result(known.id, self._name, pages)]
        return []

    def _write_call(self, known: _Search) -> list[StreamPart]:
        if known.called or not self._name:
            return []
        known.called = True
        return [searches.write_call(known.id, self._name, known.arguments)]


def _sources_of(batch: Batch) -> list[Source]:
    return [event.source for event in batch if type(event) is SourceFound and event.choice == 0]
