"""The contents of files: encrypted with the installation's key, in a folder or in an object store.

A content is written once, in pieces of equal size that are encrypted separately, so that any range can be read and
neither memory nor time of a worker depends on the size of a file.
"""

from collections.abc import Iterable, Iterator

from gateway import ids
from gateway.callers.vault import Vault
from gateway.files.content_folder import ContentFolder
from gateway.files.content_store import PIECE_BYTES, ContentLost
from gateway.files.object_store import ObjectStore

DAMAGED = "The content of this file is damaged."


class FileContents:
    """The contents of an installation: in the object store, if there is one, else in the folder. Contents that
    were stored in the folder before the installation had an object store are read and deleted there."""

    def __init__(self, folder: ContentFolder, objects: ObjectStore | None, vault: Vault) -> None:
        self.folder = folder
        self.objects = objects
        self._vault = vault

    def write(self, pieces: Iterable[bytes]) -> tuple[str, int]:
        """Store bytes; return the id of the content and its size. Unavailable when the disk is full or the object store
        does not take them."""
        ident = ids.new_hex()
        sized = _Sized(pieces)
        (self.objects or self.folder).write(ident, sized, self._vault.seal_bytes)
        return ident, sized.size

    def read(self, ident: str, start: int, end: int) -> Iterator[bytes]:
        """Return the bytes from `start` to `end` in pieces. The iterator must be closed. ContentLost when the content
        is not there, at once."""
        first = start // PIECE_BYTES
        pieces = self._open(ident, first, max(first, -(-end // PIECE_BYTES)))
        cut = _cut(pieces, start, end)
        next(cut)
        return cut

    def delete(self, idents: Iterable[str]) -> None:
        """Delete contents that no file has any more."""
        idents = list(idents)
        if self.objects is not None:
            self.objects.delete(idents)
        self.folder.delete(idents)

    def _open(self, ident: str, first: int, end: int) -> Iterator[bytes]:
        unseal = self._vault.open_bytes
        if self.objects is None:
            return self.folder.read(ident, first, end, unseal)
        try:
            return self.objects.read(ident, first, end, unseal)
        except ContentLost:
            try:
                return self.folder.read(ident, first, end, unseal)
            except ContentLost:
                pass  # the answer is that of the store which should have it
            raise


class _Sized:
    """Joins bytes to pieces of PIECE_BYTES, of which the last one may be shorter. `size` is that of all before."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        buffer = bytearray()
        for piece in self._pieces:
            buffer += piece
            self.size += len(piece)
            while len(buffer) >= PIECE_BYTES:
                yield bytes(buffer[:PIECE_BYTES])
                del buffer[:PIECE_BYTES]
        if buffer:
            yield bytes(buffer)


def _cut(pieces: Iterator[bytes], start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes from `start` to `end` of the pieces, of which the first one contains `start`."""
    try:
        yield b""  # consumed by `read`, so that closing this generator always closes the pieces
        while start < end:
            offset = start % PIECE_BYTES
            piece = next(pieces, b"")[offset : offset + end - start]
            if not piece:
                raise ContentLost(DAMAGED)
            yield piece
            start += len(piece)
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            close()
