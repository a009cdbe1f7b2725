"""Contents of files in a folder, which all nodes of an installation share."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from gateway.clock import SECOND_US
from gateway.errors import Unavailable
from gateway.files.content_store import SEALED_PIECE, Cipher, ContentLost, place_of
from gateway.runtime.loop_turns import bulk_turn
from gateway.runtime.threads import compute

UNFINISHED = ".part"
NO_SPACE = "The gateway has no disk space for files; try again later."
NOT_HERE = "The content of this file is not on this node: the nodes of the gateway must share the folder of files."


class ContentFolder:
    """A ContentStore with a file for each content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, ident: str, pieces: Iterable[bytes], seal: Cipher) -> None:
        """Unavailable when the disk is full."""
        path = self._path(ident)
        unfinished = path.with_name(path.name + UNFINISHED)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as file:
                for piece in pieces:
                    bulk_turn()
                    compute(_seal_to, file, piece, seal)
                compute(os.fsync, file.fileno())
            unfinished.rename(path)
        except BaseException as error:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise Unavailable(NO_SPACE) from error
            raise

    def read(self, ident: str, first: int, end: int, unseal: Cipher) -> Iterator[bytes]:
        try:
            descriptor = os.open(self._path(ident), os.O_RDONLY)
        except OSError as error:
            raise ContentLost(NOT_HERE) from error
        pieces = _read_pieces(descriptor, first, end, unseal)
        next(pieces)
        return pieces

    def delete(self, idents: Iterable[str]) -> None:
        """Delete contents. The sweep of another node deletes those that it stores meanwhile."""
        paths = [self._path(ident) for ident in idents]
        if paths:
            compute(_unlink_all, paths)  # one upload may have a thousand parts, and a file system may be slow

    def older_than(self, age_us: int, now_us: int) -> Iterator[str]:
        before = (now_us - age_us) / SECOND_US
        for folder in sorted(self.folder.glob("??")):
            for entry in os.scandir(folder):
                with suppress(OSError):
                    if entry.stat().st_mtime >= before:
                        continue
                    if entry.name.endswith(UNFINISHED):
                        os.unlink(entry.path)
                    else:
                        yield entry.name

    def _path(self, ident: str) -> Path:
        return self.folder / place_of(ident)


def _read_pieces(descriptor: int, first: int, end: int, unseal: Cipher) -> Iterator[bytes]:
    try:
        yield b""  # consumed by `read`, so that closing this generator always closes the file
        for number in range(first, end):
            bulk_turn()
            yield compute(_open_from, descriptor, number, unseal)
    finally:
        os.close(descriptor)


def _open_from(descriptor: int, number: int, unseal: Cipher) -> bytes:
    sealed = os.pread(descriptor, SEALED_PIECE, number * SEALED_PIECE)
    return unseal(sealed) if sealed else b""


def _seal_to(file: IO[bytes], piece: bytes, seal: Cipher) -> None:
    rest = memoryview(seal(piece))
    while rest:
        rest = rest[file.write(rest) :]


def _unlink_all(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()
