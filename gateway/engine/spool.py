"""A buffer between the greenlet that produces a stream's bytes and a caller who may be slow or disconnect."""

import threading
from collections import deque
from collections.abc import Iterator

from gateway.runtime.byte_budget import ByteBudget
from gateway.transport.answer_room import KeptBytes

MAX_BYTES_AHEAD = 1 << 17  # bytes that the producer may be ahead of the caller once the stream is too long to keep
READER_TIMEOUT_S = 600.0  # a caller that reads nothing for this long counts as disconnected


class Spool:
    """Keeps all bytes of a stream up to `max_bytes`, and while the `budget` has room; a longer stream is only passed
    on, at the caller's speed. `cramped`: there was no room."""

    def __init__(self, max_bytes: int, budget: ByteBudget | None = None) -> None:
        self._max_bytes = max_bytes
        self._kept = KeptBytes(budget)
        self.cramped = False
        self._pieces: deque[bytes] = deque()
        self._contents: list[bytes] | None = []
        self._size = self._ahead = 0
        self._failure: Exception | None = None
        self._left = False
        self._ended = threading.Event()
        self._more = threading.Event()
        self._room = threading.Event()

    @property
    def contents(self) -> bytes | None:
        """All bytes that were written, or None when they were not kept."""
        if self._contents is None:
            return None
        return b"".join(self._contents)

    def write(self, piece: bytes) -> bool:
        """Add a piece; returns whether more is wanted, by the caller or by retries that need the kept bytes."""
        self._size += len(piece)
        if self._contents is not None:
            self._contents.append(piece)
            self.cramped = not self._kept.fits(len(piece))
            if self.cramped or self._size > self._max_bytes:
                self._contents = None
        if not self._left:
            self._pieces.append(piece)
            self._ahead += len(piece)
            self._more.set()
        while self._contents is None and not self._left and self._ahead > MAX_BYTES_AHEAD:
            self._room.clear()
            if not self._room.wait(READER_TIMEOUT_S):
                self._leave()
        return self._contents is not None or not self._left

    def end(self, failure: Exception | None = None) -> None:
        """Mark the end of the stream; `failure` is raised to the reader after the last piece."""
        self._failure = failure
        self._ended.set()
        self._more.set()

    def read(self) -> Iterator[bytes]:
        """Return the pieces as they arrive. Closing the iterator means that the caller disconnected, even before the
        first piece; it waits for the end of the stream, so that the limits on connections count the request."""
        pieces = self._read()
        next(pieces)
        return pieces

    def _read(self) -> Iterator[bytes]:
        try:
            yield b""  # consumed by `read`, so that closing this generator always runs its `finally`
            while True:
                self._more.clear()
                while self._pieces:
                    piece = self._pieces.popleft()
                    self._ahead -= len(piece)
                    self._room.set()
                    yield piece
                if self._ended.is_set() and not self._pieces:
                    break
                self._more.wait()
        finally:
            self._leave()
            self._ended.wait()
        if self._failure is not None:
            raise self._failure

    def _leave(self) -> None:
        self._left = True
        self._pieces.clear()
        self._room.set()
