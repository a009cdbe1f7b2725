"""What the stream readers of all formats share: beginning, end, and usage."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import orjson

from gateway.errors import GatewayError, UpstreamFailed
from gateway.neutral.cut_pairs import join_halves
from gateway.neutral.events import Batch, Failed, Finished, Started
from gateway.neutral.usage import Usage
from gateway.providers.answer_checks import NOT_JSON
from gateway.providers.failures import ERROR, text_failure, truncated
from gateway.providers.protocol import UpstreamReply
from gateway.providers.sse import EVENTS, read_batches


class WireStream(ABC):
    """Reads one stream, as an EventStream. Derived classes implement `take` and what is specific to their format."""

    framing = EVENTS
    _started = False  # whether the batch with Started was made
    _content = False  # whether any content arrived
    _usage: Usage | None = None  # as reported last
    _half = b""  # of a character, which a text ended with

    def read(self, reply: UpstreamReply) -> Iterator[Batch]:
        """Batches up to and including the terminal one. Never raises a GatewayError: it becomes Failed."""
        return read_batches(reply, self, self.framing)

    @abstractmethod
    def take(self, pieces: list[Any]) -> tuple[Batch, bool]:
        """The neutral events for some frames, and whether the last is terminal."""

    def finish(self, pieces: list[Any]) -> Batch:
        """The end of a stream that its upstream ended cleanly: truncated, unless one of the last frames is terminal."""
        batch, done = self.take(pieces)
        if done:
            return batch
        return self._fail(batch, truncated())

    def fail(self, error: GatewayError) -> Batch:
        """The end of a stream that broke."""
        return self._fail([], error)

    def _read_joined(self, data: bytes) -> Any:
        """The value of a piece that is no JSON as it stands, its text put together with the half of a character that
        the piece before ended with. None: it is no JSON at all."""
        joined, self._half = join_halves(data, self._half)
        try:
            return orjson.loads(joined)
        except orjson.JSONDecodeError:
            return None

    def _unreadable(self, name: str, data: bytes) -> GatewayError:
        """The error of a piece that is no JSON: in the provider's own words where it says that it is an error."""
        if name == ERROR:
            return text_failure(data)
        return UpstreamFailed(NOT_JSON)

    def _used(self) -> Usage | None:
        """The usage to pay so far, as far as the upstream reported it."""
        return self._usage

    def _fail(self, batch: Batch, error: GatewayError) -> Batch:
        return self._end(batch, Failed(error, self._used()))

    def _begin(self, batch: Batch) -> None:
        if not self._started:
            self._started = True
            batch.insert(0, Started())

    def _end(self, batch: Batch, last: Finished | Failed) -> Batch:
        self._begin(batch)
        batch.append(last)
        return batch
