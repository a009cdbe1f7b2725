"""Builds Responses output items from neutral events, with the stream events that show how each item grows.

Order and members of the events: openai/types/responses/response_*_event.py of the OpenAI SDK. Items may be open side by
side (parallel tool calls); text and reasoning are closed when another block begins.
"""

from typing import Any, Final

import orjson
from msgspec import Struct, field

from gateway import ids
from gateway.dialects import responses_vocabulary as dialect
from gateway.neutral.events import (
    BlockDone,
    Event,
    PartFound,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Image, Reasoning, Source
from gateway.runtime.threads import compute_if
from gateway.surfaces.responses.caller_tools import write_call
from gateway.surfaces.responses.opaque_tokens import SealedMarks, seal_marks, seal_reasoning, wrap
from gateway.surfaces.responses.response_answers import EventPlace, PartPlace, ResponseEvent, ResponseItem, SummaryPlace
from gateway.surfaces.responses.store import item_id

# Parts of output items: texts, citations, and the arguments of calls.

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


COMPLETED: Final = "completed"
INCOMPLETE: Final = "incomplete"
RUNNING: Final = "in_progress"
# Beyond these a text is joined in a thread.
MANY_PIECES = 10_000
LONG_TEXT = 1 << 20


class _Open(Struct):
    """An item in progress: `text` is the text of its part so far, `block` the neutral block that the part shows."""

    index: int
    item: ResponseItem
    block: int = -1
    pieces: list[str] = field(default_factory=list)
    length: int = 0  # position within the text of its part
    opaque: list[ReasoningDelta] = field(default_factory=list)
    custom: bool = False
    summary: bool = False

    @property
    def text(self) -> str:
        """The joined pieces; many or long ones are joined in a thread."""
        pieces = self.pieces
        large = len(pieces) > MANY_PIECES or sum(map(len, pieces)) > LONG_TEXT
        return compute_if(large, "".join, pieces)

    @property
    def place(self) -> EventPlace:
        return {"item_id": self.item["id"], "output_index": self.index}


NEAR = 64  # number of earlier items in which the text of a citation is searched


class Assembler:
    """Converts the events of one response in order; `items` is the output so far."""

    def __init__(
        self, answer_id: str, names: dict[str, tuple[str, str]], origin: str, own: dict[str, str] | None = None
    ) -> None:
        self.items: list[ResponseItem] = []
        self._answer_id = answer_id
        self._names = names
        self._origin = origin
        self._message: _Open | None = None
        self._thought: _Open | None = None
        self._calls: dict[int, _Open] = {}
        self._own = own or {}  # kinds of the caller's tools by the names of the functions that stand for them
        self._own_calls: dict[int, list[ToolCallDelta]] = {}
        self._hidden: set[int] = set()  # blocks that this format cannot show
        self._marks = SealedMarks()

    def add(self, event: Event) -> list[ResponseEvent]:
        """Return the stream events that show `event`, without their sequence numbers."""
        handler = HANDLERS.get(type(event))
        return handler(self, event) if handler is not None else []

    def finish(self, status: str) -> list[ResponseEvent]:
        """Close open items with `status` (COMPLETED or INCOMPLETE), and add the opaque tokens of other parts."""
        events = self._rest(status)
        for block in sorted((*self._calls, *self._own_calls)):
            events += self._close_call(block, status) if block in self._calls else self._close_own_call(block, status)
        if self._marks:
            sealed = seal_marks(self._marks)
            events += self.add_whole({"type": "reasoning", "summary": [], "encrypted_content": sealed})
        return events

    def _begin(self, item: ResponseItem) -> _Open:
        index = len(self.items)
        opened = _Open(index, {**item, "id": item_id(item["type"], self._answer_id, index)})
        self.items.append(opened.item)
        return opened

    def add_whole(self, item: ResponseItem) -> list[ResponseEvent]:
        """Return the events of an item that arrives complete."""
        opened = self._begin(item)
        return [_added(opened, opened.item), _done(opened)]

    def _rest(self, status: str = COMPLETED) -> list[ResponseEvent]:
        """Close message and reasoning, since another kind of block begins."""
        return self._close_message(status) + self._close_thought(status)

    # Text and refusals: parts of one message as long as nothing else comes between.

    def _add_text(self, event: TextDelta) -> list[ResponseEvent]:
        if event.signature:
            self._marks.text += event.signature
            self._marks.vendor = event.vendor or self._marks.vendor
        return self._append_text(event.text, event.block, "output_text") if event.text else []

    def _add_refusal(self, event: RefusalDelta) -> list[ResponseEvent]:
        return self._append_text(event.text, event.block, "refusal") if event.text else []

    def _append_text(self, text: str, block: int, kind: str) -> list[ResponseEvent]:
        message = self._message
        events: list[ResponseEvent] = []
        if message is None or message.block != block:
            events = self._open_part(block, kind)
            message = self._message
            assert message is not None
        message.pieces.append(text)
        message.length += len(text)
        delta: ResponseEvent = {"type": f"response.{kind}.delta", **_part_place(message), "delta": text}
        if kind == "output_text":
            delta["logprobs"] = []
        return [*events, delta]

    def _open_part(self, block: int, kind: str) -> list[ResponseEvent]:
        events = self._close_thought()
        if self._message is None:
            message = self._message = self._begin({"type": "message", "status": RUNNING, "role": "assistant"})
            message.item["content"] = []
            events.append(_added(message, {**message.item, "content": []}))
        else:
            message = self._message
            events += _close_part(message)
        part = {"type": kind, "refusal": ""} if kind == "refusal" else write_text("")
        message.item["content"].append(part)
        message.block = block
        message.pieces = []
        message.length = 0
        return [*events, {"type": "response.content_part.added", **_part_place(message), "part": dict(part)}]

    def _close_message(self, status: str = COMPLETED) -> list[ResponseEvent]:
        message = self._message
        self._message = None
        if message is None:
            return []
        events = _close_part(message)
        message.item["status"] = status
        return [*events, _done(message)]

    def _add_source(self, event: SourceFound) -> list[ResponseEvent]:
        """Add a citation to the current text; a late one to the last text."""
        message = self._message
        if message is not None and message.item["content"][-1]["type"] == "output_text":
            place = _part_place(message)
            part = message.item["content"][-1]
            length = message.length
        else:
            last = self._last_text()
            if last is None:
                return []
            place, part = last
            length = len(part["text"])
        annotation = write_source(event.source, length)
        part["annotations"].append(annotation)
        number = len(part["annotations"]) - 1
        kind = "response.output_text.annotation.added"
        return [{"type": kind, **place, "annotation_index": number, "annotation": annotation}]

    def _last_text(self) -> tuple[PartPlace, Json] | None:
        for index in range(len(self.items) - 1, max(-1, len(self.items) - 1 - NEAR), -1):
            item = self.items[index]
            if item["type"] == "message" and item["content"][-1]["type"] == "output_text":
                number = len(item["content"]) - 1
                place: PartPlace = {"item_id": item["id"], "output_index": index, "content_index": number}
                return place, item["content"][number]
        return None

    # Reasoning is always shown as a summary, the form that every client of this dialect reads.

    def _add_reasoning(self, event: ReasoningDelta) -> list[ResponseEvent]:
        thought = self._thought
        events: list[ResponseEvent] = []
        if thought is None or thought.block != event.block:
            events = self._rest()
            thought = self._thought = self._begin({"type": "reasoning", "summary": []})
            thought.block = event.block
            events.append(_added(thought, {**thought.item, "summary": []}))
        if event.signature or event.sealed or event.vendor or event.ident or not thought.opaque:
            thought.opaque.append(event)
        thought.summary = event.summary
        return events + self._think(thought, event.text) if event.text else events

    def _think(self, thought: _Open, text: str) -> list[ResponseEvent]:
        place: SummaryPlace = {**thought.place, "summary_index": 0}
        events: list[ResponseEvent] = []
        if not thought.pieces:
            part = {"type": "summary_text", "text": ""}
            events.append({"type": "response.reasoning_summary_part.added", **place, "part": part})
        thought.pieces.append(text)
        return [*events, {"type": "response.reasoning_summary_text.delta", **place, "delta": text}]

    def _close_thought(self, status: str = COMPLETED) -> list[ResponseEvent]:
        thought = self._thought
        self._thought = None
        if thought is None:
            return []
        events: list[ResponseEvent] = []
        text = thought.text
        place: SummaryPlace = {**thought.place, "summary_index": 0}
        if text:
            part = {"type": "summary_text", "text": text}
            thought.item["summary"] = [part]
            events.append({"type": "response.reasoning_summary_text.done", **place, "text": text})
            events.append({"type": "response.reasoning_summary_part.done", **place, "part": part})
        whole = Reasoning(
            text,
            "".join([token.signature for token in thought.opaque]),
            "".join([token.sealed for token in thought.opaque]),
            next((token.vendor for token in reversed(thought.opaque) if token.vendor), ""),
            next((token.ident for token in reversed(thought.opaque) if token.ident), ""),
            thought.summary,
        )
        sealed = seal_reasoning(whole, self._origin)
        if sealed:
            thought.item["encrypted_content"] = sealed
        return [*events, _done(thought)]

    # Calls.

    def _add_call(self, event: ToolCallDelta) -> list[ResponseEvent]:
        if event.block in self._hidden:
            return []
        if self._own and (event.name in self._own or event.block in self._own_calls) and not event.executed:
            return self._add_own_call(event)
        call = self._calls.get(event.block)
        events: list[ResponseEvent] = []
        if call is None:
            events = self._rest()
            call = self._open_call(event)
            if call is None:
                return events
            events += _announce_call(call)
        elif event.name and not call.item.get("name") and "name" in call.item:
            self._set_name(call.item, event.name)
        if event.signature and "call_id" in call.item:
            self._marks.calls[call.item["call_id"]] = event.signature
            self._marks.vendor = event.vendor or self._marks.vendor
        if event.arguments:
            call.pieces.append(event.arguments)
            if call.item["type"] != "web_search_call":
                events.append({"type": f"{_call_event(call)}.delta", **call.place, "delta": event.arguments})
        return events

    def _add_own_call(self, event: ToolCallDelta) -> list[ResponseEvent]:
        """Collect the pieces of a call of one of the caller's tools: its item needs all of the arguments."""
        pieces = self._own_calls.get(event.block)
        if pieces is not None:
            pieces.append(event)
            return []
        self._own_calls[event.block] = [event]
        return self._rest()

    def _close_own_call(self, block: int, status: str = COMPLETED) -> list[ResponseEvent]:
        pieces = self._own_calls.pop(block)
        ident = next((piece.id for piece in pieces if piece.id), "") or f"call_{ids.new_hex()}"
        signature = "".join([piece.signature for piece in pieces])
        if signature:
            self._marks.calls[ident] = signature
            self._marks.vendor = pieces[0].vendor or self._marks.vendor
        kind = next(self._own[piece.name] for piece in pieces if piece.name in self._own)
        text = "".join([piece.arguments for piece in pieces])
        return self.add_whole(write_call(kind, ident, text, status))

    def _open_call(self, event: ToolCallDelta) -> _Open | None:
        """Return the item of a call; None for a server tool other than search, which has no form here."""
        if event.executed:
            if "search" not in event.name:
                self._hidden.add(event.block)
                return None
            item: ResponseItem = {
                "type": "web_search_call",
                "status": RUNNING,
                "action": {"type": "search", "query": ""},
            }
        else:
            ident = event.id or f"call_{ids.new_hex()}"
            kind = "custom_tool_call" if event.custom else "function_call"
            item = {"type": kind, "status": RUNNING, "call_id": ident}
            self._set_name(item, event.name)
            set_arguments(item, "")
        call = self._calls[event.block] = self._begin(item)
        call.custom = event.custom
        return call

    def _set_name(self, item: ResponseItem, flat: str) -> None:
        namespace, item["name"] = self._names.get(flat, ("", flat))
        if namespace:
            item["namespace"] = namespace

    def _close_call(self, block: int, status: str = COMPLETED) -> list[ResponseEvent]:
        call = self._calls.pop(block)
        item = call.item
        text = call.text
        item["status"] = status
        if item["type"] == "web_search_call":
            item["action"] = read_action(text)
            return [{"type": "response.web_search_call.completed", **call.place}, _done(call)]
        events: list[ResponseEvent] = []
        if not text and not call.custom and status == COMPLETED:
            # Clients parse the arguments: for a call without any they must be an empty object.
            text = "{}"
            events.append({"type": f"{_call_event(call)}.delta", **call.place, "delta": text})
        set_arguments(item, text)
        done: ResponseEvent = {"type": f"{_call_event(call)}.done", **call.place}
        if call.custom:
            done["input"] = text
        else:
            done["arguments"] = text
        return [*events, done, _done(call)]

    def _add_done(self, event: BlockDone) -> list[ResponseEvent]:
        if event.block in self._calls:
            return self._close_call(event.block)
        if event.block in self._own_calls:
            return self._close_own_call(event.block)
        if self._thought is not None and self._thought.block == event.block:
            return self._close_thought()
        return []

    def _add_part(self, event: PartFound) -> list[ResponseEvent]:
        part = event.part
        if isinstance(part, Image):
            result = part.media.data or part.media.url
            return self._rest() + self.add_whole(
                {"type": "image_generation_call", "status": COMPLETED, "result": result}
            )
        if part.vendor != dialect.NAME:
            return []
        body: Any = wrap({name: value for name, value in part.body.items() if name != "id"}, self._origin)
        return self._rest() + self.add_whole(body)


HANDLERS: dict[type, Any] = {
    TextDelta: Assembler._add_text,
    RefusalDelta: Assembler._add_refusal,
    SourceFound: Assembler._add_source,
    ReasoningDelta: Assembler._add_reasoning,
    ToolCallDelta: Assembler._add_call,
    BlockDone: Assembler._add_done,
    PartFound: Assembler._add_part,
}


def _part_place(message: _Open) -> PartPlace:
    return {**message.place, "content_index": max(0, len(message.item["content"]) - 1)}


def _close_part(message: _Open) -> list[ResponseEvent]:
    part = message.item["content"][-1]
    text = message.text
    place = _part_place(message)
    if part["type"] == "refusal":
        part["refusal"] = text
        done: ResponseEvent = {"type": "response.refusal.done", **place, "refusal": text}
    else:
        part["text"] = text
        done = {"type": "response.output_text.done", **place, "text": text, "logprobs": []}
    return [done, {"type": "response.content_part.done", **place, "part": part}]


def _announce_call(call: _Open) -> list[ResponseEvent]:
    events = [_added(call, call.item.copy())]
    if call.item["type"] == "web_search_call":
        steps = ("in_progress", "searching")
        events.extend({"type": f"response.web_search_call.{step}", **call.place} for step in steps)
    return events


def _call_event(call: _Open) -> str:
    return "response.custom_tool_call_input" if call.custom else "response.function_call_arguments"


def _added(opened: _Open, item: ResponseItem) -> ResponseEvent:
    return {"type": "response.output_item.added", "output_index": opened.index, "item": item}


def _done(opened: _Open) -> ResponseEvent:
    return {"type": "response.output_item.done", "output_index": opened.index, "item": opened.item}
