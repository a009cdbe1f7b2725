"""The contents of files: encrypted with the installation's key, in a folder that all nodes share.

A content is written once, in pieces of equal size that are encrypted separately, so that any range can be read and
neither memory nor time of a worker depends on the size of a file.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from gateway import ids
from gateway.callers.vault import Vault
from gateway.clock import SECOND_US
from gateway.errors import Unavailable
from gateway.runtime.loop_turns import bulk_turn
from gateway.runtime.threads import compute

PIECE_BYTES = 1 << 18
# A token of Fernet: version, time and vector before the padded text, and the MAC after it (Fernet specification).
TOKEN_HEAD, BLOCK, TOKEN_END = 25, 16, 32
SEALED_PIECE = TOKEN_HEAD + (PIECE_BYTES // BLOCK + 1) * BLOCK + TOKEN_END
UNFINISHED = ".part"
NO_SPACE = "The gateway has no disk space for files; try again later."
NOT_HERE = "The content of this file is not on this node: the nodes of the gateway must share the folder of files."


class ContentLost(Unavailable):
    """The content of a file is not in the folder of this node, or damaged."""


class FileContents:
    """The contents in a folder, each in a file under its id."""

    def __init__(self, folder: Path, vault: Vault) -> None:
        self._folder = folder
        self._vault = vault

    def write(self, pieces: Iterable[bytes]) -> tuple[str, int]:
        """Store bytes; return the id of the content and its size. Unavailable when the disk is full."""
        ident = ids.new_hex()
        path = self._path(ident)
        unfinished = path.with_name(path.name + UNFINISHED)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as file:
                size = self._write_pieces(file, pieces)
                compute(os.fsync, file.fileno())
            unfinished.rename(path)
        except BaseException as error:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise Unavailable(NO_SPACE) from error
            raise
        return ident, size

    def read(self, ident: str, start: int, end: int) -> Iterator[bytes]:
        """Return the bytes from `start` to `end` in pieces. The iterator must be closed. ContentLost when the content
        is not on this node, at once."""
        try:
            descriptor = os.open(self._path(ident), os.O_RDONLY)
        except OSError as error:
            raise ContentLost(NOT_HERE) from error
        pieces = self._read_pieces(descriptor, start, end)
        next(pieces)
        return pieces

    def delete(self, idents: Iterable[str]) -> None:
        """Delete contents that no file has any more. What another node stores is deleted by its sweep."""
        paths = [self._path(ident) for ident in idents]
        if paths:
            compute(_unlink_all, paths)  # one upload may have a thousand parts, and a file system may be slow

    def older_than(self, age_us: int, now_us: int) -> Iterator[str]:
        """Yield the ids of contents of at least this age, and delete incomplete files of that age."""
        before = (now_us - age_us) / SECOND_US
        for folder in sorted(self._folder.glob("??")):
            for entry in os.scandir(folder):
                with suppress(OSError):
                    if entry.stat().st_mtime >= before:
                        continue
                    if entry.name.endswith(UNFINISHED):
                        os.unlink(entry.path)
                    else:
                        yield entry.name

    def _path(self, ident: str) -> Path:
        return self._folder / ident[-2:] / ident  # ids begin with their time, which is the same for many

    def _write_pieces(self, file: IO[bytes], pieces: Iterable[bytes]) -> int:
        size = 0
        buffer = bytearray()
        for piece in pieces:
            buffer += piece
            size += len(piece)
            while len(buffer) >= PIECE_BYTES:
                bulk_turn()
                compute(self._seal_to, file, bytes(buffer[:PIECE_BYTES]))
                del buffer[:PIECE_BYTES]
        if buffer:
            compute(self._seal_to, file, bytes(buffer))
        return size

    def _seal_to(self, file: IO[bytes], piece: bytes) -> None:
        rest = memoryview(self._vault.seal_bytes(piece))
        while rest:
            rest = rest[file.write(rest) :]

    def _read_pieces(self, descriptor: int, start: int, end: int) -> Iterator[bytes]:
        try:
            yield b""  # consumed by `read`, so that closing this generator always closes the file
            while start < end:
                number, offset = divmod(start, PIECE_BYTES)
                bulk_turn()
                piece = compute(self._open_from, descriptor, number)[offset : offset + end - start]
                if not piece:
                    raise ContentLost("The content of this file is damaged.")
                yield piece
                start += len(piece)
        finally:
            os.close(descriptor)

    def _open_from(self, descriptor: int, number: int) -> bytes:
        sealed = os.pread(descriptor, SEALED_PIECE, number * SEALED_PIECE)
        return self._vault.open_bytes(sealed) if sealed else b""


def _unlink_all(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()
