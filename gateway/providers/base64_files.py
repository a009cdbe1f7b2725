"""JSON bodies with stored files in base64: each file is read and encoded in pieces while the body is sent."""

import secrets
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from msgspec import json

from gateway.runtime.large_files import MessageBody, StoredFile

PIECE = 3 << 16  # bytes of a file at a time: a multiple of three has no padding in base64


class Base64Files:
    """Collects the files of one body: `hold` returns a placeholder for a file."""

    def __init__(self) -> None:
        self._mark = f"file-{secrets.token_hex(16)}-"
        self._files: list[StoredFile] = []

    def hold(self, file: StoredFile) -> str:
        """The placeholder that is replaced by the file's base64 when the body is sent."""
        self._files.append(file)
        return f"{self._mark}{len(self._files) - 1:06d}"

    def encode(self, body: dict[str, Any]) -> "bytes | MessageBody":
        """The body, with its files in place of their placeholders."""
        written = json.encode(body)
        if not self._files:
            return written
        first, *others = written.split(self._mark.encode())
        parts: list[bytes | StoredFile] = [first]
        for other in others:
            parts += (self._files[int(other[:6])], other[6:])
        return _Base64Body(parts)


class _Base64Body:
    """A MessageBody of text and files."""

    __slots__ = ("_parts", "_size")

    def __init__(self, parts: list[bytes | StoredFile]) -> None:
        self._parts = parts
        self._size = sum(len(one) if isinstance(one, bytes) else -(-len(one) // 3) * 4 for one in parts)

    def __len__(self) -> int:
        return self._size

    def pieces(self) -> Iterator[bytes]:
        for part in self._parts:
            if isinstance(part, bytes):
                yield part
                continue
            for at in range(0, len(part), PIECE):
                yield b64encode(part.read(PIECE, at))
