"""Reads streams of audio and image events, which are distinguished by their `type`, as batches. Each operation reads
the content of its events; start, end and failure are common."""

from collections.abc import Callable
from typing import Any

import orjson

from gateway.errors import GatewayError, UpstreamFailed
from gateway.neutral.events import Batch, Event, Failed, Finished, Started
from gateway.neutral.long_json import loads_long
from gateway.providers.answer_checks import NOT_JSON, SHAPE_ERRORS, UNKNOWN_SHAPE
from gateway.providers.failures import ERROR, stream_failure, text_failure, truncated

DONE_MARK = b"[DONE]"


class TypedEvents:
    """An EventStream. `read` returns the neutral event or events for an object, None for an object that is skipped.
    Only a Finished or Failed ends the stream."""

    def __init__(self, read: Callable[[dict[str, Any]], Batch | Event | None]) -> None:
        self._read_event = read
        self._started = False
        self._loads: Callable[[bytes], Any] = orjson.loads

    def expect_long(self) -> None:
        """Decode the next events in pieces."""
        self._loads = loads_long

    def take(self, pieces: list[tuple[str, bytes]]) -> tuple[Batch, bool]:
        batch: Batch = []
        for name, data in pieces:
            if data == DONE_MARK:
                continue
            events = self._read(name, data)
            if events is not None:
                batch += events if isinstance(events, list) else [events]
                if isinstance(batch[-1], Finished | Failed):
                    return self._opened(batch), True
        return self._opened(batch), False

    def finish(self, pieces: list[tuple[str, bytes]]) -> Batch:
        batch, done = self.take(pieces)
        if done:
            return batch
        return [*batch, Failed(truncated())]

    def fail(self, error: GatewayError) -> Batch:
        return self._opened([Failed(error)])

    def _opened(self, batch: Batch) -> Batch:
        if batch and not self._started:
            self._started = True
            return [Started(), *batch]
        return batch

    def _read(self, name: str, data: bytes) -> Batch | Event | None:
        try:
            wire = self._loads(data)
            if wire.get("error") or wire.get("type") == "error":
                return Failed(stream_failure(wire))
            return self._read_event(wire)
        except orjson.JSONDecodeError:
            if name == ERROR:
                return Failed(text_failure(data))
            return Failed(UpstreamFailed(NOT_JSON, upstream_status=200))
        except SHAPE_ERRORS:
            return Failed(UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200))
