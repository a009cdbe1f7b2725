"""JSON bodies that contain stored files as base64. Each file is read and encoded in pieces while the body is sent."""

import secrets
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from msgspec import json

from gateway.runtime.large_files import MessageBody, StoredFile

PIECE_BYTES = 3 << 16  # bytes read at a time: the base64 of a multiple of three has no padding


class Base64Files:
    """Collects the files of one body and writes the body with placeholders for them."""

    def __init__(self) -> None:
        self._mark = f"file-{secrets.token_hex(16)}-"
        self._files: list[StoredFile] = []

    def hold(self, file: StoredFile) -> str:
        """Return a placeholder that is replaced by the file's base64 when the body is sent."""
        self._files.append(file)
        return f"{self._mark}{len(self._files) - 1:06d}"

    def encode(self, body: dict[str, Any]) -> "bytes | MessageBody":
        """Return the body as JSON, with the files in place of their placeholders."""
        written = json.encode(body)
        if not self._files:
            return written
        first, *others = written.split(self._mark.encode())
        parts: list[bytes | StoredFile] = [first]
        for other in others:
            parts += (self._files[int(other[:6])], other[6:])
        return _Base64Body(parts)


class _Base64Body:
    """A MessageBody that consists of bytes and files."""

    __slots__ = ("_parts", "_size")

    def __init__(self, parts: list[bytes | StoredFile]) -> None:
        self._parts = parts
        self._size = sum(len(part) if isinstance(part, bytes) else -(-len(part) // 3) * 4 for part in parts)

    def __len__(self) -> int:
        return self._size

    def pieces(self) -> Iterator[bytes]:
        for part in self._parts:
            if isinstance(part, bytes):
                yield part
                continue
            for at in range(0, len(part), PIECE_BYTES):
                yield b64encode(part.read(PIECE_BYTES, at))
