"""Files on their way to and from the inference API: sent and written in pieces, never whole in memory."""

import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

PIECE_BYTES = 1 << 18


class FileForm:
    """A multipart form with texts and one file (RFC 7578), or `size` bytes of it from the byte `start`. Its length is
    known before it is sent."""

    def __init__(
        self, fields: Mapping[str, str], name: str, path: Path, start: int = 0, size: int | None = None
    ) -> None:
        self._boundary = secrets.token_hex(16)
        self._path = path
        self._start = start
        self._head = b"".join(self._text(key, value) for key, value in fields.items()) + self._part(
            f'name="{name}"; filename="{_quoted(path.name)}"\r\nContent-Type: application/octet-stream'
        )
        self._end = f"\r\n--{self._boundary}--\r\n".encode()
        self.size = path.stat().st_size - start if size is None else size

    @property
    def content_type(self) -> str:
        return f"multipart/form-data; boundary={self._boundary}"

    def __len__(self) -> int:
        return len(self._head) + self.size + len(self._end)

    def __iter__(self) -> Iterator[bytes]:
        yield self._head
        with self._path.open("rb") as file:
            file.seek(self._start)
            left = self.size
            while piece := file.read(min(left, PIECE_BYTES)):
                left -= len(piece)
                yield piece
        yield self._end

    def _text(self, key: str, value: str) -> bytes:
        return self._part(f'name="{key}"') + f"{value}\r\n".encode()

    def _part(self, disposition: str) -> bytes:
        return f"--{self._boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode()


def write_pieces(pieces: Iterator[bytes], path: Path) -> int:
    """Write a download to a file that gets its name when it is complete; return its size."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    size = 0
    try:
        with unfinished.open("xb") as file:
            for piece in pieces:
                size += file.write(piece)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return size


def _quoted(name: str) -> str:
    return "".join("_" if char in '"\\\r\n' else char for char in name)
