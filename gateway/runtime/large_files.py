"""Large bytes on their way through: what a caller uploaded, and what is sent from it to a provider."""

import os
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, Protocol

from gateway.errors import Unavailable
from gateway.runtime.threads import compute_if

IN_MEMORY = 1 << 20  # what is larger lies on the disk
PIECE = 1 << 18
LARGE = 1 << 22


class MessageBody(Protocol):
    """A message body that is sent in pieces, as often as one likes. `len()` gives its bytes."""

    def __len__(self) -> int: ...
    def pieces(self) -> Iterator[bytes]: ...


def whole(body: bytes | MessageBody) -> bytes:
    """All of a body: only where it is small, or for a server inside this process."""
    if isinstance(body, bytes):
        return body
    return b"".join(body.pieces())


class StoredFile:
    """Bytes that are written once, front to back, and read as often as one likes, by several at the same time.

    Up to `in_memory` bytes are held in memory, all of a larger one in a file without a name: it is gone once it is
    closed, and with the process however that ends. `folder` "": the system's own for such files. Unavailable when the
    disk takes no more.
    """

    __slots__ = ("_folder", "_in_memory", "_memory", "_file", "_size", "__weakref__")

    def __init__(self, folder: str = "", in_memory: int = IN_MEMORY) -> None:
        self._folder = folder
        self._in_memory = in_memory
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        self._size = 0

    @classmethod
    def of(cls, data: bytes) -> "StoredFile":
        """One that holds `data` in memory, whatever its size."""
        made = cls(in_memory=len(data))
        made.write(data)
        return made

    def __len__(self) -> int:
        return self._size

    @property
    def on_disk(self) -> bool:
        return self._file is not None

    def write(self, data: bytes) -> None:
        """Append `data`."""
        self._size += len(data)
        try:
            if self._file is None:
                if self._size <= self._in_memory:
                    self._memory += data
                    return
                self._file = self._open()
                self._put(self._file, self._memory)
                self._memory = bytearray()
            self._put(self._file, data)
        except OSError as error:
            raise Unavailable("There is no room for the upload; try again later.") from error

    def read(self, size: int, offset: int = 0) -> bytes:
        """At most `size` bytes from `offset` on; b"" at the end."""
        if self._file is None:
            return bytes(self._memory[offset : offset + size])
        return os.pread(self._file.fileno(), size, offset)

    def read_all(self) -> bytes:
        """The whole: only for what was found to be small."""
        return self.read(self._size)

    def pieces(self) -> Iterator[bytes]:
        """All of it, a piece at a time."""
        at = 0
        while piece := self.read(PIECE, at):
            yield piece
            at += len(piece)

    def close(self) -> None:
        """Give back what it takes; nobody may read it any more. Doing it again changes nothing. Left to the garbage
        collector a file would stay for as long as that has nothing to do."""
        self._memory = bytearray()
        if self._file is not None:
            # The system takes a fifth of a millisecond a megabyte to give back what it holds of a file.
            compute_if(self._size >= LARGE, self._file.close)

    def _open(self) -> IO[bytes]:
        if self._folder:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
        return tempfile.TemporaryFile(buffering=0, dir=self._folder or None)

    @staticmethod
    def _put(file: IO[bytes], data: bytes | bytearray) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]


class FileReader:
    """A stored file as WSGI's input: read front to back."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(len(self._file) if size < 0 else size, self._at)
        self._at += len(data)
        return data

    def readline(self, size: int = -1) -> bytes:
        """PEP 3333 wants it; nothing of ours reads lines."""
        data = self._file.read(PIECE if size < 0 else size, self._at)
        line = data[: data.find(b"\n") + 1] or data
        self._at += len(line)
        return line

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")


def copy(read: Callable[[int], bytes], file: StoredFile, most: int, too_much: Callable[[], Exception]) -> None:
    """Append all that `read` gives, front to back; raises what `too_much` makes beyond `most` bytes."""
    while data := read(PIECE):
        if len(file) + len(data) > most:
            raise too_much()
        file.write(data)
