"""Parses the frames of application/vnd.amazon.eventstream from bytes that arrive in any pieces.

Wire facts: Amazon Transcribe developer guide, "Event stream encoding"; Smithy specification, "Amazon Event Stream". A
frame is its total length, the length of its headers and the CRC of both (4 bytes each, big endian), the headers, the
payload, and the CRC of everything before.
"""

import struct
import zlib
from typing import NamedTuple

from gateway.errors import UpstreamFailed
from gateway.providers.answer_checks import check_parts
from gateway.providers.failures import truncated
from gateway.providers.sse import THREAD_BYTES, LongEvent

PRELUDE = struct.Struct(">III")
CRC = struct.Struct(">I")
OVERHEAD = PRELUDE.size + CRC.size
FRAME_LIMIT = 24 * 1024 * 1024
HEADERS_LIMIT = 128 * 1024
# Sizes of header values by type; values of types 6 (bytes) and 7 (text) have a length prefix.
HEADER_VALUE_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
TEXT = 7
BYTES = 6
DAMAGED_EVENT = "The provider sent a damaged event."


class Frame(NamedTuple):
    """A parsed frame.

    `kind` is event, exception or error; `name` is the type of the event or exception, or the error's code.
    """

    kind: str
    name: str
    payload: bytes


class FrameReader:
    """An incremental parser that verifies both checksums of every frame."""

    __slots__ = ("_held", "_needed", "_warned")

    def __init__(self) -> None:
        self._held = bytearray()
        self._warned = False
        self._needed = 0  # size of the incomplete frame, once it is known

    @property
    def held(self) -> int:
        return len(self._held)

    def finish(self) -> list[Frame]:
        """End the stream. StreamTruncated if it ends inside a frame."""
        if self._held:
            raise truncated()
        return []

    def feed(self, piece: bytes) -> list[Frame]:
        """Add bytes and return the completed frames.

        UpstreamFailed for a damaged frame; LongEvent once for a frame longer than THREAD_BYTES.
        """
        held = self._held
        if held:
            held += piece
            if len(held) < self._needed:
                if len(held) > THREAD_BYTES and not self._warned:
                    self._warned = True
                    raise LongEvent
                return []
            data = bytes(held)
            held.clear()
        else:
            data = piece
        frames = []
        at = 0
        self._needed = 0
        while len(data) - at >= PRELUDE.size:
            total, size = _read_prelude(data, at)
            if len(data) - at < total:
                self._needed = total
                break
            frames.append(_read_frame(data[at : at + total], size))
            at += total
        held += data[at:]
        return frames


def _read_prelude(data: bytes, at: int) -> tuple[int, int]:
    total, size, checksum = PRELUDE.unpack_from(data, at)
    if zlib.crc32(data[at : at + 8]) != checksum:
        raise UpstreamFailed(DAMAGED_EVENT)
    if total > FRAME_LIMIT or size > HEADERS_LIMIT or size > total - OVERHEAD:
        raise UpstreamFailed("The provider sent an event larger than the gateway accepts.")
    return total, size


def _read_frame(data: bytes, size: int) -> Frame:
    if zlib.crc32(data[: -CRC.size]) != CRC.unpack_from(data, len(data) - CRC.size)[0]:
        raise UpstreamFailed(DAMAGED_EVENT)
    try:
        headers = _read_headers(data[PRELUDE.size : PRELUDE.size + size])
    except (struct.error, UnicodeDecodeError, KeyError, IndexError):
        raise UpstreamFailed(DAMAGED_EVENT) from None
    kind = headers.get(":message-type", "event")
    name = headers.get({"error": ":error-code", "exception": ":exception-type"}.get(kind, ":event-type"), "")
    payload = data[PRELUDE.size + size : -CRC.size]
    if kind == "error" and not payload:
        payload = headers.get(":error-message", "").encode()
    check_parts(payload)
    return Frame(kind, name, payload)


def _read_headers(data: bytes) -> dict[str, str]:
    """Return the text headers; values of other types are skipped."""
    headers = {}
    at = 0
    while at < len(data):
        end = at + 1 + data[at]
        name = data[at + 1 : end].decode()
        kind = data[end]
        at = end + 1
        if kind in (TEXT, BYTES):
            (length,) = struct.unpack_from(">H", data, at)
            at += 2
            if kind == TEXT:
                headers[name] = data[at : at + length].decode()
        else:
            length = HEADER_VALUE_SIZES[kind]
        at += length
        if at > len(data):
            raise IndexError
    return headers
