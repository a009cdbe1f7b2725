"""Reads streams of chat completion chunks as batches of neutral events, or as chunks to relay.

A stream is complete after `[DONE]`. For servers that never send it, a stream is also complete after a finish reason for
every choice, the requested usage and a clean end of the connection. Otherwise it is truncated.
"""

import re
from collections.abc import Sequence
from typing import Any

import orjson
from msgspec import Struct, field

from gateway import ids
from gateway.dialects import google
from gateway.dialects import openai as dialect
from gateway.dialects.openai import LISTED_SOURCES, read_sources
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
from gateway.neutral.parts import Source
from gateway.neutral.tool_arguments import NOTHING, plain_arguments, unwrapped
from gateway.neutral.usage import with_shown
from gateway.providers.answer_checks import (
    SHALLOW_BYTES,
    SHAPE_ERRORS,
    UNKNOWN_SHAPE,
    check_choice,
    check_depth,
    empty_answer,
    is_empty,
)
from gateway.providers.failures import stream_failure, truncated
from gateway.providers.openai.pieces import REBUILT, RELAYED, read_run, split_chunk
from gateway.providers.openai.reply import (
    arguments_text,
    details_text,
    flatten_content,
    read_annotations,
    read_image,
    refuse_error,
    refuse_failed,
    text_of,
    write_annotation,
)
from gateway.providers.sse import TEXT_PIECE, WireStream

# The state of the choices of one stream of chat completion chunks: their blocks, calls and ends.

# Members of a choice that belong to the content of its chunk rather than to its end.
CONTENT_MEMBERS = ("delta", "logprobs", "usage")


MAX_TRIES = 64


class CallState(Struct):
    """A tool call in progress: `slot` is its index among the choice's calls. `filled`: it has arguments. `wrapped` are
    the pieces of arguments that are a JSON string so far, `tries` how often they were parsed."""

    slot: int
    block: int
    id: str
    name: str
    filled: bool = False
    wrapped: list[str] | None = None
    tries: int = 0

    def take(self, piece: str) -> str:
        """Return what a piece of the arguments adds to their text: nothing for a blank beginning, and the whole object
        at the end of arguments that are encoded once more as a string."""
        if self.filled:
            return piece
        if self.wrapped is None:
            text = piece.strip()
            if text in NOTHING:
                return ""
            if text[0] != '"':
                self.filled = True
                return piece
            self.wrapped = []
        self.wrapped.append(piece)
        if piece.rstrip().endswith('"') and self.tries < MAX_TRIES:
            self.tries += 1
            whole = unwrapped("".join(self.wrapped))
            self.filled = bool(whole)
            return whole
        return ""

    def rest(self) -> str:
        """Return what the arguments lack at the end, since clients parse them."""
        return plain_arguments("".join(self.wrapped or ()))


class ChoiceState(Struct):
    """The state of one choice. `end` is the wire choice with the finish reason, which waits for the end of the stream:
    some servers repeat a reason in every chunk."""

    kind: str = ""
    block: int = -1
    calls: list[CallState] = field(default_factory=list)
    by_index: dict[Any, CallState] = field(default_factory=dict)
    finish: FinishReason | None = None
    end: dict[str, Any] | None = None
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

    def number(self, call: dict[str, Any]) -> tuple[CallState, bool]:
        """Return the call that a delta belongs to, and whether the delta starts it. Writes the index into it, and
        the id into the first one of a call. Later ones keep neither id nor name, since clients join repeated texts.

        Calls are distinguished by index. Servers that omit the index, or send 0 for every call, start a new call with a
        new name and id. An id that changes without a name is ignored.
        """
        inner = call.get("function") or call.get("custom") or {}
        index = call.get("index")
        ident = text_of(call.get("id"))
        known: CallState | None
        if index is None and not ident and self.calls:
            known = self.calls[-1]
        else:
            known = self.by_index.get(ident if index is None else index)
        if known is not None and inner.get("name") and ident and ident != known.id:
            known = None
        fresh = known is None
        if known is None:
            self.kind = "call"
            self.block += 1
            known = CallState(len(self.calls), self.block, ident or f"call_{ids.new_hex()}", text_of(inner.get("name")))
            self.calls.append(known)
            self.by_index[ident if index is None else index] = known
            call["id"] = known.id
            # Some servers leave the type out.
            call["type"] = "custom" if "custom" in call else "function"
        else:
            call.pop("id", None)
            if known.name and inner.get("name") == known.name:
                del inner["name"]
        call["index"] = known.slot
        if "custom" in call:
            known.filled = True
        elif "arguments" in inner:
            inner["arguments"] = known.take(arguments_text(inner))
        return known, fresh

    def broken(self) -> list[CallState]:
        """Return the calls with a beginning of arguments that was never completed."""
        return [call for call in self.calls if call.wrapped and not call.filled]

    def reason(self) -> FinishReason:
        """Return the finish reason. Some servers say "stop" beside calls, while clients continue only after
        "tool_calls"."""
        if self.calls and self.finish in (None, "stop"):
            return "tool_calls"
        return self.finish or "stop"

    def hold_end(self, wire: dict[str, Any]) -> bool:
        """Keep the end that a wire choice contains. Return whether the choice has content besides, which is then left
        in it without the end."""
        delta = wire["delta"]
        if not any(delta.values()):
            self.end = wire
            return False
        self.end = {name: value for name, value in wire.items() if name not in CONTENT_MEMBERS}
        wire["finish_reason"] = None
        return True

    def write_end(self, number: int) -> dict[str, Any] | None:
        """Return the wire choice that ends the choice, None where its server sent none and no call lacks arguments.
        Calls without arguments get an empty object, since clients parse the arguments."""
        empty = [{"index": call.slot, "function": {"arguments": call.rest()}} for call in self.calls if not call.filled]
        if self.end is None and not empty:
            return None
        end = {"index": number, **(self.end or {}), "finish_reason": self.reason()}
        delta = dict(end.get("delta") or ())
        if empty:
            delta["tool_calls"] = empty
        return {**end, "delta": delta}


DONE = b"[DONE]"
NO_CHUNK = (DONE, b"")  # which some servers surround with blanks
NO_FUNCTION: dict[str, Any] = {}
NO_BODY: dict[str, Any] = {}
# Members that most chunks lack.
RARE = re.compile(rb'"(?:images|annotations|citations|search_results)"')
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


def no_run(events: list[tuple[str, bytes]], start: int, batch: Batch) -> int:
    """Take no run of plain text chunks: one call would decode a long event."""
    return 0


class ChatStreamReader(WireStream):
    """Reads one stream."""

    _sources: tuple[Source, ...] = ()  # those that the server lists beside the choices
    _listed: dict[str, Any] = NO_BODY  # their members as they came
    _cited: Batch | None = None  # citations, which may arrive before their text
    # A relayed chunk that only ends the only choice, until the stream ends: it is sent as it came, unless `_odd_end`.
    _held: dict[str, Any] | None = None
    _odd_end = False

    def __init__(self, relayed: bool) -> None:
        self._relayed = relayed
        self._choices: dict[int, ChoiceState] = {}
        self._tier = ""
        self._images = 0
        self._searched = False
        self._texting = False  # the last chunk was text, so the next chunk probably is too
        self._fast_tries = MAX_FAST_FAILURES

    def finish(self, events: list[tuple[str, bytes]]) -> Batch:
        batch, done = self.take(events)
        if done:
            return batch
        return self._conclude(batch, self._last(False))

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
                return self._conclude(batch, last), True
            place += 1
        return batch, False

    def _conclude(self, batch: Batch, last: Finished | Failed) -> Batch:
        """Return the batch with what waited for the end of the stream, and its terminal event."""
        if type(last) is Finished:
            if self._held is not None and not self._odd_end:
                batch.append(NativeChunk(dialect.NAME, self._held, False))
            elif self._relayed:
                self._relay_ends(batch)
                last.native = self._listed
            else:
                for number, choice in self._choices.items():
                    batch.extend(ToolCallDelta(call.block, call.rest(), choice=number) for call in choice.broken())
                batch += self._cited or ()
                if not self._searched:
                    batch.extend(SourceFound(source) for source in self._sources)
        return self._end(batch, last)

    def expect_long(self) -> None:
        super().expect_long()
        self._take_run = no_run  # type: ignore[method-assign]

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
            chunk = self.loads(data)
        except orjson.JSONDecodeError:
            text = data.strip()
            if text in NO_CHUNK:
                return self._last(True) if text else None
            chunk = self._read_joined(data)
            if chunk is None:
                return Failed(self._unreadable(name, data), self._usage)
        if type(chunk) is not dict or name == "error" or chunk.get("error"):
            return Failed(stream_failure(chunk), self._usage)
        try:
            if len(data) > SHALLOW_BYTES:
                check_depth(chunk, len(data))
            if RARE.search(data):
                self._count_shown(chunk.get("choices") or ())
                self._note_sources(chunk)
            self._read_chunk(chunk, batch)
        except GatewayError as error:
            return Failed(error, self._usage)
        except SHAPE_ERRORS:
            return Failed(UpstreamFailed(UNKNOWN_SHAPE), self._usage)
        return None

    def _read_chunk(self, chunk: dict[str, Any], batch: Batch) -> None:
        if not self._started:
            self._started = True
            batch.append(Started(text_of(chunk.get("model")), text_of(chunk.get("id")), used=self._used))
        self._note(chunk)
        if not chunk.get("choices"):
            refuse_error(chunk)
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

    def _note_sources(self, chunk: dict[str, Any]) -> None:
        """Keep the sources that a server lists beside the choices: some repeat them in every chunk, others send them
        with the usage."""
        sources = read_sources(chunk)
        if sources:
            self._odd_end = True
            self._sources = sources
            self._listed = {**self._listed, **{name: chunk[name] for name in LISTED_SOURCES if chunk.get(name)}}

    def _relay(self, chunk: dict[str, Any], batch: Batch) -> None:
        has_content = False
        size = 0
        ended = False
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
                size += self._relay_calls(choice, delta["tool_calls"])
            if choice.get("finish_reason"):
                self._close(choice)
                ended = True
        if ended and self._hold_ends(chunk, has_content):
            return
        self._content = self._content or has_content
        self._texting = self._fast_tries > 0 and _is_text(chunk["choices"])
        native = NativeChunk(dialect.NAME, chunk, has_content, size)
        if size > TEXT_PIECE:
            batch += split_chunk(native)
        else:
            batch.append(native)

    def _relay_calls(self, choice: dict[str, Any], calls: list[dict[str, Any]]) -> int:
        """Number the pieces of calls, and return the length of their arguments."""
        size = 0
        self._odd_end = True
        state = self._choice(choice)
        for call in calls:
            state.number(call)
            size += len((call.get("function") or NO_FUNCTION).get("arguments") or "")
        return size

    def _hold_ends(self, chunk: dict[str, Any], has_content: bool) -> bool:
        """Leave only choices with content in the chunk, without their ends. Return whether there is none."""
        choices = chunk["choices"]
        if not has_content and self._content and len(choices) == 1:
            self._held = chunk
            return True
        self._odd_end = True
        chunk["choices"] = [
            choice
            for choice in choices
            if not choice.get("finish_reason") or self._choices[choice.get("index", 0)].hold_end(choice)
        ]
        return not chunk["choices"]

    def _choice(self, wire: dict[str, Any]) -> ChoiceState:
        number = wire["index"] = wire.get("index") or 0
        if number not in self._choices:
            check_choice(number)
            self._choices[number] = ChoiceState()
        return self._choices[number]

    def _relay_ends(self, batch: Batch) -> None:
        """Add the chunk that ends the choices, with the sources that the server listed as citations."""
        for wire in self._held["choices"] if self._held is not None else ():
            self._choices[wire["index"]].hold_end(wire)
        ends = [end for number, choice in self._choices.items() if (end := choice.write_end(number)) is not None]
        if self._sources and not self._searched:
            first = next((end for end in ends if not end["index"]), None)
            if first is None:
                ends.append(first := {"index": 0, "delta": {}, "finish_reason": None})
            first["delta"]["annotations"] = [write_annotation(source) for source in self._sources]
        if ends:
            batch.append(NativeChunk(dialect.NAME, {"choices": ends}, bool(self._sources)))

    def _close(self, wire: dict[str, Any]) -> ChoiceState:
        """Record the finish reason of a choice, and the usage that some servers put beside it."""
        choice = self._choice(wire)
        if wire.get("usage"):
            self._usage = dialect.read_usage(wire["usage"]) or self._usage
        refuse_failed(wire["finish_reason"])
        choice.finish = dialect.read_finish(wire["finish_reason"])
        return choice

    def _rebuild(self, chunk: dict[str, Any], batch: Batch) -> None:
        for wire in chunk["choices"]:
            number = wire.get("index") or 0
            choice = self._choice(wire)
            delta = wire.get("delta")
            if type(delta) is dict and delta:
                before = len(batch)
                self._read_delta(delta, number, choice, batch)
                self._content = self._content or len(batch) > before
            elif type(wire.get("text")) is str and wire["text"]:  # a piece of a text completion
                batch.append(TextDelta(wire["text"], block=choice.open("text"), choice=number))
                self._content = True
            if wire.get("finish_reason"):
                self._close(wire)
        last = batch[-1] if batch else None
        self._texting = self._fast_tries > 0 and type(last) is TextDelta and last.choice == 0

    def _read_delta(self, delta: dict[str, Any], number: int, choice: ChoiceState, to: Batch) -> None:
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
            to.append(_read_call(call, choice, number))
        for image in delta.get("images") or ():
            choice.kind = "image"
            choice.block += 1
            to.append(PartFound(read_image(image), block=choice.block, choice=number))
        for source in read_annotations(delta):
            self._cited = self._cited or []
            self._cited.append(SourceFound(source, choice=number))

    def _last(self, marked: bool) -> Finished | Failed:
        """Return the terminal event. `marked`: the stream sent `[DONE]`."""
        ended = bool(self._choices) and all(choice.finish for choice in self._choices.values())
        if not marked and not (ended and self._usage is not None):
            return Failed(truncated(), self._usage)
        numbers = range(max(self._choices, default=0) + 1)
        reasons = tuple((self._choices.get(number) or ChoiceState()).reason() for number in numbers)
        if is_empty(self._content, reasons[0], self._usage):
            return Failed(empty_answer(reasons[0], self._usage), self._usage)
        usage = with_shown(self._usage, self._searched, self._images)
        return Finished(reasons[0], usage, service_tier=self._tier, reasons=reasons)


def _delta_of(choice: dict[str, Any]) -> dict[str, Any]:
    delta = choice.get("delta")
    if type(delta) is dict:
        return delta
    return NO_FUNCTION


def _is_text(choices: list[dict[str, Any]]) -> bool:
    """Whether a chunk contains only text of the first choice."""
    return len(choices) == 1 and not choices[0].get("index") and bool(choices[0]["delta"].get("content"))


def _read_call(call: dict[str, Any], choice: ChoiceState, number: int) -> ToolCallDelta:
    known, fresh = choice.number(call)
    custom = call.get("custom")
    if isinstance(custom, dict):
        name = text_of(custom.get("name"))
        arguments = custom.get("input") or ""
    else:
        function = call.get("function") or {}
        name = text_of(function.get("name"))
        arguments = function.get("arguments") or ""
    late = not fresh and not known.name and bool(name)
    known.name = known.name or name
    signature = google.read_extra(call.get("extra_content"))
    return ToolCallDelta(
        known.block,
        arguments,
        id=known.id if fresh else "",
        name=name if fresh or late else "",
        signature=signature,
        vendor=google.NAME if signature else "",
        custom=isinstance(custom, dict),
        choice=number,
    )
