"""Writes a neutral stream as stream parts: blocks are opened and closed in order, calls are complete at their end."""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson
from msgspec import Struct

from gateway.dialects.aisdk import FailurePart, error_part
from gateway.errors import GatewayError
from gateway.neutral.events import (
    Batch,
    BlockDone,
    Event,
    Failed,
    Finished,
    Heartbeat,
    PartFound,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Image, Reasoning, Source
from gateway.surfaces.aisdk import writer
from gateway.surfaces.aisdk.options import write_reasoning, write_signature
from gateway.surfaces.aisdk.reader import Question
from gateway.surfaces.aisdk.writer import StreamPart, downgrade_part, takes_addresses
from gateway.surfaces.web.facts import Facts
from gateway.surfaces.web.http_responses import write_frames

# Orders the web searches of a streamed answer as clients expect: each call, its result, then the sources.

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
        ident, pages = writer.found_in(body)
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
        parts = self._answer_all(writer.found_of(_sources_of(batch))) if self._waiting else []
        ident = f"src_{self._request_id}_{self._cited}"
        self._cited += 1
        return [*parts, writer.write_source(source, ident)]

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
            return [*parts, writer.write_result(known.id, self._name, pages)]
        return []

    def _write_call(self, known: _Search) -> list[StreamPart]:
        if known.called or not self._name:
            return []
        known.called = True
        return [writer.write_search_call(known.id, self._name, known.arguments)]


def _sources_of(batch: Batch) -> list[Source]:
    return [event.source for event in batch if type(event) is SourceFound and event.choice == 0]


# A comment: a separate event would block or fail clients of the older versions.
KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
TEXT_END = b"}\n\n"


def frames(batches: Iterable[Batch], facts: Facts, question: Question) -> Iterator[bytes]:
    """Write server-sent events, one item a batch. A complete response ends with `finish` and [DONE]; a failed one with
    an `error` part and a `finish` with the reason error, without [DONE]."""
    stream = _Stream(facts, question)
    return write_frames(batches, stream.write, stream.fail)


class _Call:
    """A call of one of the caller's tools that is being written."""

    __slots__ = ("begun", "custom", "id", "name", "pieces", "signature", "vendor")

    def __init__(self) -> None:
        self.id = self.name = self.signature = self.vendor = ""
        self.pieces: list[str] = []
        self.custom = self.begun = False


class _Stream:
    """The state of one stream. One block of text or reasoning is open at a time, each with its own number."""

    def __init__(self, facts: Facts, question: Question) -> None:
        self._facts = facts
        self._question = question
        self._begun = self._called = False
        self._kind: type | None = None  # id of the open block
        self._block = self._text = -1  # its number upstream; the same if it is text
        self._id = -1
        self._head = b""  # beginning of its text deltas
        self._thoughts: list[ReasoningDelta] = []
        self._signatures: list[str] = []
        self._vendor = ""
        self._calls: dict[int, _Call] = {}
        self._searches = SearchOrder(facts.context.request_id, question.search)

    def write(self, batch: Batch) -> bytes:
        """Return all frames of one batch, joined."""
        sent: list[bytes] = []
        for event in batch:
            if type(event) is TextDelta and event.block == self._text and event.choice == 0 and not event.signature:
                sent += (self._head, orjson.dumps(event.text), TEXT_END)
            elif type(event) is Heartbeat:
                sent.append(KEEP_ALIVE)
            elif type(event) is Failed:
                sent.append(self.fail(event.error))
            elif type(event) is Finished:
                sent.append(self._finish(event))
            elif getattr(event, "choice", 0) == 0:
                parts = self._parts(event, batch)
                if parts:
                    sent += (self._start(), *map(self._frame, parts))
        return b"".join(sent)

    def fail(self, error: GatewayError) -> bytes:
        """Return the error, and a finish that no client takes for a success. Open blocks stay open."""
        start = b"" if self._begun else self._start(served=False)
        begun = bool(self._facts.outcome.attempts)
        if begun:
            usage, metadata = writer.write_costs(self._facts)
        else:
            usage = writer.write_no_costs()
            metadata = {}
        finish: StreamPart = {"type": "finish", "finishReason": writer.FAILED, "usage": usage}
        frame = self._frame(error_part(error, self._facts.context.shown_id))
        return start + frame + self._frame(writer.with_metadata(finish, metadata))

    def _frame(self, part: StreamPart | FailurePart) -> bytes:
        return b"data: %b\n\n" % orjson.dumps(downgrade_part(part, self._question.version))

    def _start(self, served: bool = True) -> bytes:
        """Return warnings and the serving model, which are certain when the first content arrives."""
        if self._begun:
            return b""
        self._begun = True
        warnings = writer.write_warnings(self._facts, self._question)
        start = self._frame({"type": "stream-start", "warnings": warnings})
        if not served:
            return start
        return start + self._frame({"type": "response-metadata", **writer.write_response(self._facts)})

    def _parts(self, event: Event, batch: Batch) -> list[StreamPart]:
        """Return the parts of one event."""
        match event:
            case TextDelta() | RefusalDelta():
                return self._add_text(event)
            case ReasoningDelta():
                return self._think(event)
            case ToolCallDelta():
                return self._call(event)
            case BlockDone():
                return self._end_block(event.block)
            case SourceFound():
                return self._searches.cite(event.source, batch)
            case PartFound(part=Image(media=media)) if media.url and not takes_addresses(self._question.version):
                return self._add_text(TextDelta(writer.as_link(media), event.block))
            case PartFound(part=Image(media=media)):
                return [*self._close(), writer.write_file(media)]
            case PartFound(part=part):
                return self._searches.found(getattr(part, "body", {}))
        return []

    def _add_text(self, event: TextDelta | RefusalDelta) -> list[StreamPart]:
        parts = self._open(TextDelta, event.block, "text")
        if type(event) is TextDelta and event.signature:
            self._signatures.append(event.signature)
            self._vendor = event.vendor or self._vendor
        if event.text:
            parts.append({"type": "text-delta", "id": str(self._id), "delta": event.text})
        return parts

    def _think(self, event: ReasoningDelta) -> list[StreamPart]:
        parts = self._open(ReasoningDelta, event.block, "reasoning")
        if event.signature or event.sealed or not self._thoughts:
            self._thoughts.append(event)
        if event.text:
            parts.append({"type": "reasoning-delta", "id": str(self._id), "delta": event.text})
        return parts

    def _open(self, kind: type, block: int, name: str) -> list[StreamPart]:
        """Close the open block if it is another one, and open this one."""
        if self._kind is kind and self._block == block:
            return []
        parts = self._close()
        self._id += 1
        self._kind = kind
        self._block = block
        if kind is TextDelta:
            self._text = block
            self._head = b'data: {"type":"text-delta","id":"%d","delta":' % self._id
        return [*parts, {"type": f"{name}-start", "id": str(self._id)}]

    def _close(self) -> list[StreamPart]:
        """Return the end of the open block, with the data that its vendor needs back."""
        kind = self._kind
        ident = str(self._id)
        self._kind = None
        self._block = -1
        self._text = -1
        if kind is None:
            return []
        if kind is TextDelta:
            metadata = write_signature("".join(self._signatures), self._vendor)
            self._signatures = []
            self._vendor = ""
            return [writer.with_metadata({"type": "text-end", "id": ident}, metadata)]
        pieces = self._thoughts
        self._thoughts = []
        whole = Reasoning(
            signature="".join(piece.signature for piece in pieces),
            sealed="".join(piece.sealed for piece in pieces),
            vendor=next((piece.vendor for piece in pieces if piece.vendor), ""),
            ident=next((piece.ident for piece in pieces if piece.ident), ""),
            summary=any(piece.summary for piece in pieces),
        )
        return [writer.with_metadata({"type": "reasoning-end", "id": ident}, write_reasoning(whole))]

    def _call(self, event: ToolCallDelta) -> list[StreamPart]:
        """Return a piece of a call, which begins once its name is known. A call that the provider executes is a
        search."""
        if event.executed or self._searches.has(event.block):
            return [*self._close(), *self._searches.run(event)]
        parts = self._close() if event.block not in self._calls else []
        call = self._calls.setdefault(event.block, _Call())
        call.id = call.id or event.id
        call.name = call.name or event.name
        call.signature += event.signature
        call.vendor = call.vendor or event.vendor
        call.custom = call.custom or event.custom
        if event.arguments:
            call.pieces.append(event.arguments)
        piece = event.arguments
        if not call.begun and call.name:
            call.begun, piece = True, "".join(call.pieces)
            parts.append({"type": "tool-input-start", "id": call.id, "toolName": call.name})
        if call.begun and piece and not call.custom:
            parts.append({"type": "tool-input-delta", "id": call.id, "delta": piece})
        return parts

    def _end_block(self, block: int) -> list[StreamPart]:
        if block in self._calls:
            return self._end_call(block)
        if block == self._block:
            return self._close()
        return self._searches.end(block)

    def _end_call(self, block: int) -> list[StreamPart]:
        """Return a complete call: only now clients may run it. A call without a name cannot be run."""
        call = self._calls.pop(block)
        if not call.begun:
            return []
        self._called = True
        whole = writer.write_call(call.id, call.name, "".join(call.pieces), call.custom, call.signature, call.vendor)
        return [{"type": "tool-input-end", "id": call.id}, whole]

    def _finish(self, event: Finished) -> bytes:
        """Close open blocks, then return the end with usage and cost."""
        parts = self._close()
        for block in list(self._calls):
            parts += self._end_call(block)
        parts += self._searches.close()
        sent = self._start() + b"".join(map(self._frame, parts))
        try:
            usage, metadata = writer.write_costs(self._facts)
        except GatewayError as error:
            return sent + self.fail(error)
        reason = writer.write_finish(event.reason, self._called)
        finish: StreamPart = {"type": "finish", "finishReason": reason, "usage": usage, "providerMetadata": metadata}
        return sent + self._frame(finish) + DONE
