"""Reads streams of chat completion chunks as batches of neutral events, or as chunks to relay.

A stream is complete after `[DONE]`. For servers that never send it, a stream is also complete after a finish reason for
every choice, the requested usage and a clean end of the connection. Otherwise it is truncated.
"""

from collections.abc import Sequence
from typing import Any

import orjson
from msgspec import Struct, field

from gateway import ids
from gateway.dialects import openai as dialect
from gateway.errors import GatewayError, UpstreamFailed
from gateway.neutral.chat import FinishReason
from gateway.neutral.events import (
    Batch,
    Failed,
    Finished,
    NativeChunk,
    PartFound,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.usage import with_shown
from gateway.providers.answer_checks import (
    EMPTY,
    SHALLOW_BYTES,
    SHAPE_ERRORS,
    UNKNOWN_SHAPE,
    check_choice,
    check_depth,
    is_empty,
)
from gateway.providers.failures import stream_failure, truncated
from gateway.providers.openai.pieces import REBUILT, RELAYED, read_run
from gateway.providers.openai.reply import (
    arguments_text,
    details_text,
    flatten_content,
    read_annotations,
    read_image,
    read_sources,
    refuse_failed,
    text_of,
)
from gateway.providers.wire_streams import WireStream

DONE = b"[DONE]"
NO_FUNCTION: dict[str, Any] = {}
NO_BODY: dict[str, Any] = {}
# The number of failed attempts after which a stream no longer uses the fast path for text.
MAX_FAST_FAILURES = 3
# Members of a delta, besides `content`, that show something of the answer.
CONTENT_FIELDS = (
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "tool_calls",
    "refusal",
    "images",
    "annotations",
)


class _Call(Struct):
    """A tool call in progress: `slot` is its index among the choice's calls. `filled`: it has arguments."""

    slot: int
    block: int
    id: str
    name: str
    filled: bool = False


class _Choice(Struct):
    """The state of one choice."""

    kind: str = ""
    block: int = -1
    calls: list[_Call] = field(default_factory=list)
    by_index: dict[Any, _Call] = field(default_factory=dict)
    finish: FinishReason | None = None
    thought: list[str] = field(default_factory=list)  # the text of `reasoning_details` so far
    thought_size: int = 0

    def open(self, kind: str) -> int:
        """Return the block index for a delta of `kind`: the current block, or a new one when the kind changes."""
        if kind != self.kind:
            self.kind = kind
            self.block += 1
        return self.block

    def reported(self, delta: dict[str, Any]) -> str:
        """Return the new text in `reasoning_details`: some servers send pieces, others always the whole text so far."""
        text = details_text(delta)
        if 0 < self.thought_size < len(text):
            self.thought = ["".join(self.thought)]
            text = text.removeprefix(self.thought[0])
        self.thought.append(text)
        self.thought_size += len(text)
        return text


class ChatStreamReader(WireStream):
    """Reads one stream."""

    def __init__(self, relayed: bool) -> None:
        self._relayed = relayed
        self._choices: dict[int, _Choice] = {}
        self._tier = ""
        self._images = 0
        self._searched = False
        self._texting = False  # the last chunk was text, so the next chunk probably is too
        self._fast_tries = MAX_FAST_FAILURES

    def finish(self, events: list[tuple[str, bytes]]) -> Batch:
        batch, done = self.take(events)
        if done:
            return batch
        return self._end(batch, self._last(False))

    def take(self, events: list[tuple[str, bytes]]) -> tuple[Batch, bool]:
        """Return the neutral events of some wire events, and whether the last is terminal."""
        batch: Batch = []
        place = 0
        end = len(events)
        while place < end:
            if self._texting:
                place += self._take_run(events, place, batch)
                if place == end:
                    break
                self._texting = False
                self._fast_tries -= 1
            last = self._take_chunk(*events[place], batch)
            if last is not None:
                return self._end(batch, last), True
            place += 1
        return batch, False

    def _take_run(self, events: list[tuple[str, bytes]], start: int, batch: Batch) -> int:
        """Add the run of plain text chunks from `start` on and return their number."""
        if self._relayed:
            relayed = read_run(events, start, RELAYED)
            if relayed.values:
                batch.append(NativeChunk(dialect.NAME, NO_BODY, True, relayed.size, ready=relayed.values))
            self._tier = relayed.tier or self._tier
            return len(relayed.values)
        rebuilt = read_run(events, start, REBUILT)
        block = self._choices[0].block
        batch += [TextDelta(text, block) for text in rebuilt.values]
        self._tier = rebuilt.tier or self._tier
        return len(rebuilt.values)

    def _take_chunk(self, name: str, data: bytes, batch: Batch) -> Finished | Failed | None:
        """Add the neutral events for a wire event. Return the terminal event when it ends the stream."""
        if data == DONE:
            return self._last(True)
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            chunk = self._read_joined(data)
            if chunk is None:
                return Failed(self._unreadable(name, data), self._usage)
        if type(chunk) is not dict or name == "error" or chunk.get("error"):
            return Failed(stream_failure(chunk), self._usage)
        try:
            if len(data) > SHALLOW_BYTES:
                check_depth(chunk)
            if b'"images"' in data or b'"annotations"' in data:
                self._count_shown(chunk.get("choices") or ())
            self._read_chunk(chunk, batch)
        except GatewayError as error:
            return Failed(error, self._usage)
        except SHAPE_ERRORS:
            return Failed(UpstreamFailed(UNKNOWN_SHAPE), self._usage)
        return None

    def _read_chunk(self, chunk: dict[str, Any], batch: Batch) -> None:
        if not self._started:
            self._started = True
            batch.append(Started(text_of(chunk.get("model")), text_of(chunk.get("id"))))
        self._note(chunk)
        if not chunk.get("choices"):
            return
        if self._relayed:
            self._relay(chunk, batch)
        else:
            self._rebuild(chunk, batch)

    def _note(self, chunk: dict[str, Any]) -> None:
        """Record usage and service tier of a chunk. Usage is cumulative, so the last report is valid."""
        usage = chunk.get("usage")
        if usage:
            self._usage = dialect.read_usage(usage) or self._usage
        tier = chunk.get("service_tier")
        if tier and type(tier) is str:
            self._tier = tier

    def _count_shown(self, choices: Sequence[dict[str, Any]]) -> None:
        """Count images and citations: not every server reports their usage."""
        for delta in map(_delta_of, choices):
            self._images += len(delta.get("images") or ())
            self._searched = self._searched or bool(read_annotations(delta))

    def _relay(self, chunk: dict[str, Any], batch: Batch) -> None:
        has_content = False
        size = 0
        for choice in chunk["choices"]:
            delta = choice.get("delta")
            if type(delta) is not dict:
                delta = choice["delta"] = {}
            if choice.get("index", 0) not in self._choices:
                self._choice(choice)
            content = delta.get("content")
            if content:
                has_content = True
                if type(content) is list:
                    flatten_content(delta)
                size += len(delta.get("content") or "")
            else:
                has_content = has_content or any(map(delta.get, CONTENT_FIELDS))
                size += len(delta.get("reasoning_content") or delta.get("reasoning") or delta.get("refusal") or "")
            if delta.get("tool_calls"):
                for call in delta["tool_calls"]:
                    self._number(choice, call)
                    size += len((call.get("function") or NO_FUNCTION).get("arguments") or "")
            if choice.get("finish_reason"):
                self._close(choice)
                self._fill_calls(choice, delta)
        self._content = self._content or has_content
        self._texting = self._fast_tries > 0 and _is_text(chunk["choices"])
        batch.append(NativeChunk(dialect.NAME, chunk, has_content, size))

    def _choice(self, wire: dict[str, Any]) -> _Choice:
        number = wire["index"] = wire.get("index") or 0
        if number not in self._choices:
            check_choice(number)
            self._choices[number] = _Choice()
        return self._choices[number]

    def _close(self, wire: dict[str, Any]) -> None:
        """Record the finish reason of a choice, and the usage that some servers put beside it. Some say "stop" beside
        calls, while clients continue only after "tool_calls"."""
        choice = self._choice(wire)
        if wire.get("usage"):
            self._usage = dialect.read_usage(wire["usage"]) or self._usage
        refuse_failed(wire["finish_reason"])
        choice.finish = dialect.FINISH_READ.get(wire["finish_reason"], "stop")
        if choice.finish == "stop" and choice.calls:
            choice.finish = wire["finish_reason"] = "tool_calls"

    def _fill_calls(self, wire: dict[str, Any], delta: dict[str, Any]) -> None:
        """Give the calls without arguments an empty object, since clients parse the arguments."""
        empty = [call.slot for call in self._choice(wire).calls if not call.filled]
        if empty:
            filling = [{"index": slot, "function": {"arguments": "{}"}} for slot in empty]
            delta["tool_calls"] = [*(delta.get("tool_calls") or ()), *filling]

    def _number(self, wire: dict[str, Any], call: dict[str, Any]) -> tuple[_Call, bool]:
        """Return the call that a delta belongs to, and whether the delta starts it. Writes the index into it, and
        the id into the first one of a call. Later ones keep neither id nor name, since clients join repeated texts.

        Calls are distinguished by index. Servers that omit the index, or send 0 for every call, start a new call with a
        new name and id. An id that changes without a name is ignored.
        """
        choice = self._choice(wire)
        inner = call.get("function") or call.get("custom") or {}
        index = call.get("index")
        ident = text_of(call.get("id"))
        known: _Call | None
        if index is None and not ident and choice.calls:
            known = choice.calls[-1]
        else:
            known = choice.by_index.get(ident if index is None else index)
        if known is not None and inner.get("name") and ident and ident != known.id:
            known = None
        fresh = known is None
        if known is None:
            choice.kind = "call"
            choice.block += 1
            known = _Call(len(choice.calls), choice.block, ident or f"call_{ids.new_hex()}", text_of(inner.get("name")))
            choice.calls.append(known)
            choice.by_index[ident if index is None else index] = known
            call["id"] = known.id
            # Some servers leave the type out.
            call["type"] = "custom" if "custom" in call else "function"
        else:
            call.pop("id", None)
            if known.name and inner.get("name") == known.name:
                del inner["name"]
        call["index"] = known.slot
        if "function" in call and type(inner.get("arguments")) is dict:
            arguments_text(inner)
        known.filled = known.filled or "custom" in call or bool(inner.get("arguments"))
        return known, fresh

    def _rebuild(self, chunk: dict[str, Any], batch: Batch) -> None:
        if any(choice.get("finish_reason") for choice in chunk["choices"]):
            sources = read_sources(chunk)
        else:
            sources = ()
        for wire in chunk["choices"]:
            number = wire.get("index") or 0
            choice = self._choice(wire)
            delta = wire.get("delta")
            if type(delta) is dict and delta:
                before = len(batch)
                self._read_delta(delta, wire, number, choice, batch)
                self._content = self._content or len(batch) > before
            elif type(wire.get("text")) is str and wire["text"]:  # a piece of a text completion
                batch.append(TextDelta(wire["text"], block=choice.open("text"), choice=number))
                self._content = True
            if wire.get("finish_reason"):
                self._close(wire)
        last = batch[-1] if batch else None
        self._texting = self._fast_tries > 0 and type(last) is TextDelta and last.choice == 0
        batch.extend(SourceFound(source) for source in sources)

    def _read_delta(self, delta: dict[str, Any], wire: dict[str, Any], number: int, choice: _Choice, to: Batch) -> None:
        if type(delta.get("content")) is list:
            flatten_content(delta)
        thought = delta.get("reasoning") or delta.get("reasoning_content")
        if not thought and delta.get("reasoning_details"):
            thought = choice.reported(delta)
        if thought and type(thought) is str:
            to.append(ReasoningDelta(thought, block=choice.open("reasoning"), choice=number))
        if delta.get("content"):
            to.append(TextDelta(delta["content"], block=choice.open("text"), choice=number))
        if delta.get("refusal"):
            to.append(RefusalDelta(delta["refusal"], block=choice.open("refusal"), choice=number))
        for call in delta.get("tool_calls") or ():
            to.append(self._read_call(call, wire, number))
        for image in delta.get("images") or ():
            choice.kind = "image"
            choice.block += 1
            to.append(PartFound(read_image(image), block=choice.block, choice=number))
        for source in read_annotations(delta):
            to.append(SourceFound(source, choice=number))

    def _read_call(self, call: dict[str, Any], wire: dict[str, Any], number: int) -> ToolCallDelta:
        known, fresh = self._number(wire, call)
        custom = call.get("custom")
        if isinstance(custom, dict):
            name = text_of(custom.get("name"))
            arguments = custom.get("input") or ""
        else:
            function = call.get("function") or {}
            name = text_of(function.get("name"))
            arguments = arguments_text(function)
        late = not fresh and not known.name and bool(name)
        known.name = known.name or name
        return ToolCallDelta(
            known.block,
            arguments,
            id=known.id if fresh else "",
            name=name if fresh or late else "",
            custom=isinstance(custom, dict),
            choice=number,
        )

    def _last(self, marked: bool) -> Finished | Failed:
        """Return the terminal event. `marked`: the stream sent `[DONE]`."""
        ended = bool(self._choices) and all(choice.finish for choice in self._choices.values())
        if not marked and not (ended and self._usage is not None):
            return Failed(truncated(), self._usage)
        numbers = range(max(self._choices, default=0) + 1)
        reasons = tuple(self._reason(number) for number in numbers)
        if is_empty(self._content, reasons[0], self._usage):
            return Failed(UpstreamFailed(EMPTY, upstream_status=200), self._usage)
        usage = with_shown(self._usage, self._searched, self._images)
        return Finished(reasons[0], usage, service_tier=self._tier, reasons=reasons)

    def _reason(self, number: int) -> FinishReason:
        choice = self._choices.get(number) or _Choice()
        return choice.finish or ("tool_calls" if choice.calls else "stop")


def _delta_of(choice: dict[str, Any]) -> dict[str, Any]:
    delta = choice.get("delta")
    if type(delta) is dict:
        return delta
    return NO_FUNCTION


def _is_text(choices: list[dict[str, Any]]) -> bool:
    """Whether a chunk contains only text of the first choice."""
    return len(choices) == 1 and not choices[0].get("index") and bool(choices[0]["delta"].get("content"))
