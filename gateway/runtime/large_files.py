"""Large uploads: temporary storage, and bodies that are sent from it to a provider."""

import os
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, Protocol

from gateway.errors import Unavailable
from gateway.runtime.threads import compute_if

IN_MEMORY = 1 << 20  # larger files are on disk
PIECE_BYTES = 1 << 18
LARGE = 1 << 22


class MessageBody(Protocol):
    """A message body that is sent in pieces, any number of times. `len()` returns its size in bytes."""

    def __len__(self) -> int: ...
    def pieces(self) -> Iterator[bytes]: ...


def whole(body: bytes | MessageBody) -> bytes:
    """Return the whole body: only if it is small, or for a server inside this process."""
    if isinstance(body, bytes):
        return body
    return b"".join(body.pieces())


class StoredFile:
    """Bytes that are written once, sequentially, and read any number of times, also concurrently.

    Up to `in_memory` bytes are held in memory; a larger file is in an unnamed temporary file, which disappears when it
    is closed or the process ends. `folder` "": the system's folder for temporary files. Raise Unavailable if the disk
    is full.
    """

    __slots__ = ("__weakref__", "_file", "_folder", "_in_memory", "_memory", "_size")

    def __init__(self, folder: str = "", in_memory: int = IN_MEMORY) -> None:
        self._folder = folder
        self._in_memory = in_memory
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        self._size = 0

    @classmethod
    def of(cls, data: bytes) -> "StoredFile":
        """Create a file that holds `data` in memory, whatever its size."""
        made = cls(in_memory=len(data))
        made.write(data)
        return made

    def __len__(self) -> int:
        return self._size

    @property
    def on_disk(self) -> bool:
        return self._file is not None

    @property
    def descriptor(self) -> int:
        """The descriptor of a file that is on disk."""
        return -1 if self._file is None else self._file.fileno()

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
            raise Unavailable("The gateway has no disk space for the upload; try again later.") from error

    def read(self, size: int, offset: int = 0) -> bytes:
        """Return at most `size` bytes from `offset` on; b"" at the end."""
        if self._file is None:
            return bytes(self._memory[offset : offset + size])
        return os.pread(self._file.fileno(), size, offset)

    def read_all(self) -> bytes:
        """Return the whole file: only if it is known to be small."""
        return self.read(self._size)

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole file, one piece at a time."""
        at = 0
        while piece := self.read(PIECE_BYTES, at):
            yield piece
            at += len(piece)

    def close(self) -> None:
        """Release memory and disk space; the file must not be read afterwards. Safe to repeat.

        If it were left to the garbage collector, a file would stay until the next collection.
        """
        self._memory = bytearray()
        if self._file is not None:
            # The system takes 0.2 ms per megabyte to release a deleted file.
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
    """A stored file as WSGI's input, read sequentially."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(len(self._file) if size < 0 else size, self._at)
        self._at += len(data)
        return data

    def readline(self, size: int = -1) -> bytes:
        """Required by PEP 3333; the gateway reads no lines."""
        data = self._file.read(PIECE_BYTES if size < 0 else size, self._at)
        line = data[: data.find(b"\n") + 1] or data
        self._at += len(line)
        return line

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")


def copy(read: Callable[[int], bytes], file: StoredFile, maximum: int, too_much: Callable[[], Exception]) -> None:
    """Append everything that `read` returns; raise the exception of `too_much` beyond `maximum` bytes."""
    while data := read(PIECE_BYTES):
        if len(file) + len(data) > maximum:
            raise too_much()
        file.write(data)
