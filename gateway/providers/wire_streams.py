"""The base class of all stream readers: start, end, and usage."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from gateway.errors import GatewayError, UpstreamFailed
from gateway.neutral.cut_pairs import join_halves
from gateway.neutral.events import Batch, Failed, Finished, Started
from gateway.neutral.long_json import loads_long
from gateway.neutral.usage import Usage
from gateway.providers.answer_checks import NOT_JSON
from gateway.providers.failures import ERROR, text_failure, truncated
from gateway.providers.protocol import UpstreamReply
from gateway.providers.sse import EVENTS, read_batches

NO_EVENT = (b"", b"[DONE]")  # data that is no event: some servers add OpenAI's end to streams of other formats


class WireStream(ABC):
    """Reads one stream, as an EventStream. Derived classes implement `take` for their format."""

    framing = EVENTS
    loads: Callable[[bytes], Any] = staticmethod(orjson.loads)
    _started = False  # whether a batch with Started was returned
    _content = False  # whether any content arrived
    _usage: Usage | None = None  # the last reported usage
    _half = b""  # the first half of a UTF-16 surrogate pair at the end of the last text

    def read(self, reply: UpstreamReply) -> Iterator[Batch]:
        """Yield batches up to and including the terminal one. Yields Failed instead of raising a GatewayError."""
        return read_batches(reply, self, self.framing)

    def expect_long(self) -> None:
        self.loads = loads_long

    @abstractmethod
    def take(self, pieces: list[Any]) -> tuple[Batch, bool]:
        """Return the neutral events for some frames, and whether the last is terminal."""

    def finish(self, pieces: list[Any]) -> Batch:
        """Return the last batch of a stream that the upstream closed cleanly: truncated, unless one of `pieces` is
        terminal."""
        batch, done = self.take(pieces)
        if done:
            return batch
        return self._fail(batch, truncated())

    def fail(self, error: GatewayError) -> Batch:
        """Return the last batch of a stream that broke."""
        return self._fail([], error)

    def _read_joined(self, data: bytes) -> Any:
        """Parse a piece that is invalid JSON because it ends or starts with half a surrogate pair, joined with the half
        of the previous piece. None when it is still not JSON."""
        joined, self._half = join_halves(data, self._half)
        try:
            return orjson.loads(joined)
        except orjson.JSONDecodeError:
            return None

    def _unreadable(self, name: str, data: bytes) -> GatewayError:
        """Return the error for a piece that is not JSON, with the provider's text where the event is named "error"."""
        if name == ERROR:
            return text_failure(data)
        return UpstreamFailed(NOT_JSON)

    def _used(self) -> Usage | None:
        """Return the usage to bill so far, as far as the upstream reported it."""
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
