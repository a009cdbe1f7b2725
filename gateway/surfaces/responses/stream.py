"""The frames of a streamed response: numbered events, in the order that clients rely on."""

from bisect import bisect, insort
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from gateway.dialects import openai
from gateway.errors import GatewayError
from gateway.neutral.events import Batch, Failed, Finished, Heartbeat, NativeChunk, Notice, Started
from gateway.neutral.usage import Usage
from gateway.runtime.threads import compute_if
from gateway.surfaces.http_responses import write_frames
from gateway.surfaces.responses import writer
from gateway.surfaces.responses.assembler import INCOMPLETE, Assembler
from gateway.surfaces.responses.reader import ResponseTurn
from gateway.surfaces.responses.response_answers import ResponseEvent, ResponseItem
from gateway.surfaces.responses.store import conceal, is_mark, is_reasoning, item_id

KEEP_ALIVE = b": keep-alive\n\n"
LARGE = 1 << 20  # bytes of a stream; the end of a longer one, which repeats all of it, is written in a thread
# Events without content: `created` is sent with the first event that has content.
EVENTS_WITHOUT_CONTENT = (Heartbeat, Finished, Failed, Started, Notice)
Json = dict[str, Any]


def frames(
    batches: Iterable[Batch], turn: ResponseTurn, facts: writer.ResponseFacts, keep: writer.Keep
) -> Iterator[bytes]:
    """Write server-sent events, one item a batch. A complete response ends with response.completed or
    response.incomplete; a failed one with response.failed, whose member `error` makes SDKs raise, so that no client
    takes it for complete."""
    stream = _Stream(turn, facts, keep)
    return write_frames(batches, stream.write, lambda error: stream.fail(error, None))


class _Stream:
    """The state of one stream. Items come from the assembler, or unchanged from a server of this dialect."""

    def __init__(self, turn: ResponseTurn, facts: writer.ResponseFacts, keep: writer.Keep) -> None:
        self._turn = turn
        self._facts = facts
        self._keep = keep
        self._sequence = 0
        self._begun = False
        self._assembler: Assembler | None = None
        self._relayed: dict[int, ResponseItem] = {}
        self._relayed_ids: dict[int, str] = {}
        # Output indexes of hidden reasoning, in order: later items move up.
        self._hidden: set[int] = set()
        self._hidden_order: list[int] = []
        self._size = 0

    def write(self, batch: Batch) -> bytes:
        """Return all frames of one batch, joined."""
        sent: list[bytes] = []
        for event in batch:
            if type(event) is NativeChunk:
                sent += (self._begin(), self._relay(event.body))
            elif type(event) not in EVENTS_WITHOUT_CONTENT:
                sent += (self._begin(), self._emit_all(self._assembled().add(event)))
            elif type(event) is Heartbeat:
                sent.append(KEEP_ALIVE)
            elif type(event) is Finished:
                sent.append(self._finish(event))
            elif type(event) is Failed:
                sent.append(self.fail(event.error, event.usage))
        frames = b"".join(sent)
        self._size += len(frames)
        return frames

    def _begin(self) -> bytes:
        """Return the two opening events; written with the first content, since only then the serving model is
        certain."""
        if self._begun:
            return b""
        self._begun = True
        response = writer.opening(self._turn, self._facts)
        return self._emit({"type": "response.created", "response": response}) + self._emit(
            {"type": "response.in_progress", "response": response}
        )

    def _assembled(self) -> Assembler:
        if self._assembler is None:
            self._assembler = writer.assembler_of(self._turn, self._facts)
        return self._assembler

    def _emit_all(self, events: list[ResponseEvent]) -> bytes:
        return b"".join(self._emit(event) for event in events)

    def _emit(self, event: ResponseEvent) -> bytes:
        """Return one frame, or none for hidden reasoning. Encrypted content is only shown if the request included it;
        opaque tokens of other parts are encrypted content only."""
        item = event.get("item")
        index = event.get("output_index")
        if not self._turn.reasoned and index is not None:
            if item is not None and is_reasoning(item) and index not in self._hidden:
                self._hidden.add(index)
                insort(self._hidden_order, index)
            if index in self._hidden:
                return b""
            if self._hidden:
                event = {**event, "output_index": index - bisect(self._hidden_order, index)}
        if item is not None and not self._turn.sealed:
            if is_mark(item):
                return b""
            event = {**event, "item": conceal(item)}
        event["sequence_number"] = self._sequence
        self._sequence += 1
        return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))

    def _relay(self, body: Json) -> bytes:
        """Return an event of a server of this dialect with the gateway's ids. It is copied because other readers may
        share the batch."""
        event: Any = body.copy()
        index = event.get("output_index")
        item = event.get("item")
        if isinstance(item, dict) and type(index) is int:
            own = event["item"] = writer.own_item(item, index, self._facts)
            self._relayed_ids[index] = own["id"]
            if event["type"] == "response.output_item.done":
                self._relayed[index] = own
        elif "item_id" in event and type(index) is int:
            event["item_id"] = self._relayed_ids.get(index) or item_id("", self._facts.answer_id, index)
        return self._emit(event)

    def _output(self) -> list[ResponseItem]:
        if self._assembler is not None:
            made = self._assembler.items
        else:
            made = []
        return made or [self._relayed[index] for index in sorted(self._relayed)]

    def _finish(self, event: Finished) -> bytes:
        sent = self._begin()
        large = self._size >= LARGE
        try:
            if self._assembler is not None:
                events = self._assembler.finish(writer.status_of(event.reason))
                sent += compute_if(large, self._emit_all, events)
            output = self._output()
            response = writer.conclude(self._turn, self._facts, output, event.reason, self._keep, event.native)
        except GatewayError as error:
            return sent + self.fail(error, event.usage)
        last: ResponseEvent = {"type": f"response.{response['status']}", "response": response}
        return compute_if(large, lambda: sent + self._emit(last))

    def fail(self, error: GatewayError, usage: Usage | None) -> bytes:
        """Return response.failed, which ends the response: the only event after the content.

        openai-python and openai-node raise on any event with a member `error` (their `_streaming.py` and
        `core/streaming.ts`); clients that read events by type find the error in the response.
        """
        if self._assembler is not None:
            self._assembler.finish(
                INCOMPLETE
            )  # the failed response has the partial output; no event reports it as done
        response = writer.failure(self._turn, self._facts, error, self._output(), usage)
        body = openai.error_body(error)["error"]
        return self._begin() + self._emit({"type": "response.failed", "response": response, "error": body})
