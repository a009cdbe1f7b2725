"""What the readers of one streamed answer share, whatever its format: how it begins, how it ends, what is paid."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import orjson

from gateway.errors import GatewayError
from gateway.neutral.cut_pairs import join_halves
from gateway.neutral.events import Batch, Failed, Finished, Started
from gateway.neutral.usage import Usage
from gateway.providers.failures import truncated
from gateway.providers.protocol import UpstreamReply
from gateway.providers.sse import EVENTS, read_batches


class WireStream(ABC):
    """Reads one stream, as an EventStream. Derived ones write `take`, and what their format has of its own."""

    framing = EVENTS
    _started = False  # the batch with Started is made
    _content = False  # something of an answer came
    _usage: Usage | None = None  # as reported last
    _half = b""  # of a character, which a text ended with

    def read(self, reply: UpstreamReply) -> Iterator[Batch]:
        """Batches up to and with the terminal one. Never raises a GatewayError: it comes as Failed."""
        return read_batches(reply, self, self.framing)

    @abstractmethod
    def take(self, pieces: list[Any]) -> tuple[Batch, bool]:
        """The neutral events of some pieces, and whether the last is terminal."""

    def finish(self, pieces: list[Any]) -> Batch:
        """The end of a stream that its upstream ended in order: too early, if none of the last pieces says so."""
        batch, done = self.take(pieces)
        return batch if done else self._fail(batch, truncated())

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

    def _used(self) -> Usage | None:
        """What is to be paid by now, as far as the upstream told."""
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
