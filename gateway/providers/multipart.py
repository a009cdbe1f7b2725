"""Multipart forms for upstreams, with fields and stored files. They are sent in pieces and can be sent again."""

import secrets
from collections.abc import Iterator
from typing import NamedTuple

from gateway.runtime.large_files import StoredFile

QUOTED = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})  # WHATWG HTML, multipart/form-data


class UploadPart(NamedTuple):
    """A file of a form. `filename` indicates the format to upstreams and is never a path of this system."""

    name: str
    filename: str
    media_type: str
    file: StoredFile


class FormBody:
    """A form as a message body; `content_type` contains its boundary."""

    __slots__ = ("_parts", "_size", "content_type")

    def __init__(self, fields: list[tuple[str, str]], files: list[UploadPart]) -> None:
        boundary = f"llmgateway-{secrets.token_hex(16)}"
        self.content_type = f"multipart/form-data; boundary={boundary}"
        self._parts: list[bytes | StoredFile] = []
        for name, value in fields:
            head = f'--{boundary}\r\nContent-Disposition: form-data; name="{_quote(name)}"\r\n\r\n{value}\r\n'
            self._parts.append(head.encode())
        for part in files:
            head = (
                f'--{boundary}\r\nContent-Disposition: form-data; name="{_quote(part.name)}"; '
                f'filename="{_quote(part.filename)}"\r\nContent-Type: {part.media_type}\r\n\r\n'
            )
            self._parts += (head.encode(), part.file, b"\r\n")
        self._parts.append(f"--{boundary}--\r\n".encode())
        self._size = sum(map(len, self._parts))

    def __len__(self) -> int:
        return self._size

    def pieces(self) -> Iterator[bytes]:
        for part in self._parts:
            if isinstance(part, StoredFile):
                yield from part.pieces()
            else:
                yield part


def _quote(text: str) -> str:
    return text.translate(QUOTED)
