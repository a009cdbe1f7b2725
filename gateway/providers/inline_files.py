"""Reads JSON answers that contain files as base64. The files are decoded to the disk while they arrive, so that no
video is in memory as a whole. The rest is read like any other JSON."""

import binascii
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import json

from gateway.errors import UpstreamFailed
from gateway.providers.answer_checks import UNKNOWN_SHAPE
from gateway.runtime.large_files import MessageBody, StoredFile
from gateway.runtime.loop_turns import bulk_turn

# JSON bodies that contain stored files as base64. Each file is read and encoded in pieces while the body is sent.

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


MIN_FILE_BYTES = 1 << 16  # bytes above which a string is a file
TURN = 1 << 16  # bytes after which other greenlets run
MAX_REST_BYTES = 1 << 18  # bytes of an answer without its files
MAX_FILE_BYTES = 1 << 30  # bytes of all files of an answer
STRING_END = re.compile(rb'["\\]')


class InlineFiles:
    """The files of one answer, stored in `folder`. `whole=False`: only the first bytes of each file are kept. The
    creator must call `close`."""

    def __init__(self, folder: str = "", whole: bool = True) -> None:
        self._folder = folder
        self._whole = whole
        self._mark = f"file-{secrets.token_hex(16)}-"
        self._files: dict[str, StoredFile] = {}
        self._rest = bytearray()
        self._text = bytearray()
        self._in_text = self._escaped = False
        self._file: StoredFile | None = None  # the file for the current string, once that is longer than MIN_FILE_BYTES
        self._digits = b""  # base64 digits that are not decoded yet
        self._size = 0

    def read(self, pieces: Iterable[bytes]) -> bytes:
        """Return the body with a mark in place of each file, for `take`. UpstreamFailed for a long string that is not
        base64 and for too large an answer; also raises the errors of `pieces`."""
        passed = 0
        for piece in pieces:
            self._feed(piece)
            passed += len(piece)
            if passed >= TURN:
                passed = 0
                bulk_turn()  # a nearby provider would otherwise keep the event loop busy
            if len(self._rest) + len(self._text) > MAX_REST_BYTES + MIN_FILE_BYTES or self._size > MAX_FILE_BYTES:
                raise UpstreamFailed("The provider's answer is too large.", code="response_too_large")
        return bytes(self._rest + self._text)

    def take(self, text: object) -> StoredFile | None:
        """Return the file for a mark and hand its ownership to the caller; None for any other value."""
        if isinstance(text, str):
            return self._files.pop(text, None)
        return None

    def close(self) -> None:
        """Close the files that were not taken."""
        for file in self._files.values():
            file.close()

    def _feed(self, piece: bytes) -> None:
        at = 0
        while at < len(piece):
            if not self._in_text:
                at = self._pass_rest(piece, at)
            elif self._file is not None:
                at = self._pass_file(piece, at, self._file)
            else:
                at = self._pass_text(piece, at)

    def _pass_rest(self, piece: bytes, at: int) -> int:
        """Consume bytes outside of strings. Return the end position, as the other `_pass_` methods do."""
        quote = piece.find(b'"', at)
        end = len(piece) if quote < 0 else quote + 1
        self._rest += piece[at:end]
        self._in_text = quote >= 0
        return end

    def _pass_text(self, piece: bytes, at: int) -> int:
        if self._escaped:
            self._text += piece[at : at + 1]
            self._escaped = False
            return at + 1
        match = STRING_END.search(piece, at)
        end = len(piece) if match is None else match.start()
        self._text += piece[at:end]
        if len(self._text) > MIN_FILE_BYTES:
            self._begin_file()
        elif match is not None and match[0] == b"\\":
            self._text += match[0]
            self._escaped = True
            end += 1
        elif match is not None:
            self._rest += self._text + match[0]
            self._text.clear()
            self._in_text = False
            end += 1
        return end

    def _begin_file(self) -> None:
        mark = f"{self._mark}{len(self._files)}"
        self._rest += mark.encode()
        self._file = self._files[mark] = StoredFile(self._folder)
        self._digits = b""
        text = bytes(self._text)
        self._text.clear()
        self._write(text, self._file)

    def _pass_file(self, piece: bytes, at: int, file: StoredFile) -> int:
        quote = piece.find(b'"', at)
        self._write(piece[at : len(piece) if quote < 0 else quote], file)
        if quote < 0:
            return len(piece)
        if self._digits:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200)
        self._rest += b'"'
        self._in_text = False
        self._file = None
        return quote + 1

    def _write(self, digits: bytes, file: StoredFile) -> None:
        digits = (self._digits + digits).replace(b"\\/", b"/")
        cut = len(digits) // 4 * 4
        if digits[:cut].endswith(b"\\"):
            cut -= 4
        self._digits = digits[cut:]
        try:
            data = b64decode(digits[:cut], validate=True)
        except binascii.Error:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
        self._size += len(data)
        if self._whole or not len(file):
            file.write(data)
