"""Writes a neutral stream as the events of a streamed message (Anthropic documentation, "Streaming messages")."""

from collections.abc import Iterable, Iterator
from typing import Any

from gateway.dialects.anthropic import NAME as SURFACE
from gateway.dialects.anthropic import MessageTokens, error_body, write_usage
from gateway.dialects.field_names import reword
from gateway.errors import GatewayError
from gateway.neutral.events import Batch, Failed, Finished, Heartbeat, NativeChunk, Notice, Progress, Started, TextDelta
from gateway.neutral.usage import Usage
from gateway.surfaces.anthropic.block_frames import frame
from gateway.surfaces.anthropic.message_answers import (
    EndedMessage,
    MessageDelta,
    MessageEnding,
    MessageStart,
    StartedMessage,
    StreamMark,
)
from gateway.surfaces.anthropic.stream_blocks import BlockOrder
from gateway.surfaces.anthropic.writer import NO_USAGE, write_stop
from gateway.surfaces.facts import Facts
from gateway.surfaces.http_responses import write_frames
from gateway.surfaces.token_estimates import estimate_tokens

PING: StreamMark = {"type": "ping"}
STOP: StreamMark = {"type": "message_stop"}
PING_FRAME = frame(PING)
STOP_FRAME = frame(STOP)


def frames(batches: Iterable[Batch], facts: Facts) -> Iterator[bytes]:
    """Write server-sent events, one item a batch. A complete response ends with message_stop; a failed one with an
    `error` event as its last, so that no client takes it for complete."""
    stream = _Stream(facts)
    return write_frames(batches, stream.write, stream.fail)


class _Stream:
    """The state of one stream."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._started = False
        self._usage: Usage | None = None  # as the upstream reported it at the start
        self._blocks = BlockOrder(silent=facts.hides_reasoning)
        self._end: Any = None  # the upstream's own message_delta, when it is relayed
        self._warnings: list[str] = []

    def write(self, batch: Batch) -> bytes:
        """Return all frames of one batch, joined."""
        sent: list[bytes] = []
        for event in batch:
            if type(event) is NativeChunk:
                sent.append(self._relay(event))
            elif type(event) is TextDelta and event.choice == 0:
                sent += (self._start(), self._blocks.write(event))
            elif type(event) is Heartbeat:
                sent.append(PING_FRAME)
            elif type(event) is Started:
                self._usage = event.usage
            elif type(event) is Notice:
                self._warnings.append(reword(SURFACE, event.message))
            elif type(event) is Finished:
                sent.append(self._finish(event))
            elif type(event) is Failed:
                sent.append(self.fail(event.error))
            elif type(event) is not Progress and event.choice == 0:
                sent += (self._start(), self._blocks.write(event))
        return b"".join(sent)

    def fail(self, error: GatewayError) -> bytes:
        """Return the error event, the last event of a failed stream."""
        return frame(error_body(error, self._facts.context.shown_id))

    def _start(self, message: Any = None) -> bytes:
        """Return message_start, once; sent with the first content, since only then the serving model is certain."""
        if self._started:
            return b""
        self._started = True
        started: StartedMessage = {
            "type": "message",
            "role": "assistant",
            "stop_reason": None,
            "stop_sequence": None,
            "usage": write_usage(self._usage or self._estimate_prompt()),
            "id": self._facts.answer_id,
            "model": self._facts.requested_model,
            "content": [],
        }
        if message is not None:
            started = {**started, **message, "id": started["id"], "model": started["model"], "content": []}
        event: MessageStart = {"type": "message_start", "message": started}
        return frame(event)

    def _estimate_prompt(self) -> Usage:
        """Return the estimated tokens of the prompt: many clients read them at the start of a stream, most providers
        report them at its end."""
        asked = self._facts.outcome.request.requirements
        return Usage(input=estimate_tokens(asked.prompt_bytes, asked.messages, asked.media, 0, False))

    def _relay(self, chunk: NativeChunk) -> bytes:
        """Return the upstream's event; the last one waits for the cost."""
        if chunk.event == "message_start":
            return self._start(chunk.body["message"])
        if chunk.event == "message_delta":
            self._end = chunk.body
            return b""
        return frame(chunk.body)

    def _finish(self, event: Finished) -> bytes:
        """Close open blocks, then return message_delta with usage and cost, then message_stop."""
        sent = self._start() + self._blocks.close()
        try:
            return sent + frame(self._last(event)) + STOP_FRAME
        except GatewayError as error:
            return sent + self.fail(error)

    def _last(self, event: Finished) -> MessageDelta:
        facts = self._facts
        last: EndedMessage
        usage: MessageTokens
        if self._end is not None:
            last = self._end
            usage = self._end.get("usage") or NO_USAGE
        else:
            reason = write_stop(event.reason, self._blocks.called, self._blocks.refused)
            ending: MessageEnding = {"stop_reason": reason, "stop_sequence": event.stop_sequence or None}
            last = {"type": "message_delta", "delta": ending}
            usage = write_usage(facts.usage)
        metadata = facts.metadata()
        if self._warnings:
            metadata["warnings"] = list(dict.fromkeys([*metadata.get("warnings", ()), *self._warnings]))
        return {**last, "usage": {**usage, **facts.cost()}, "metadata": metadata}
