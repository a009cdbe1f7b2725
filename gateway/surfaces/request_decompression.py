"""Decompresses request bodies in small steps, so that none blocks the event loop or is copied repeatedly."""

import zlib
from collections.abc import Callable, Generator, Iterator
from itertools import islice

import zstandard

from gateway.errors import InvalidRequest, RequestTooLarge, UnsupportedMediaType

# zlib's wbits: 47 detects gzip and zlib; "deflate" without the zlib wrapper is -15 (RFC 9110, 8.4.1.2).
GZIP_OR_ZLIB = 47
BARE_DEFLATE = -15
PLAIN_CODINGS = ("", "identity")
ZLIB_CODINGS = ("gzip", "x-gzip", "deflate")
ZSTD = "zstd"
# A body may consist of several members (gzip) or frames (zstd), as parallel compressors write them; each needs a new
# decompressor.
MAX_MEMBERS = 64
# One step reads and writes at most this many bytes, which takes about a millisecond. After this many steps a thread
# continues, with as many steps at a time.
STEP_IN = 65_536
STEP_OUT = 262_144
STEPS_INLINE = 8
STEPS_PER_RUN = 16
# RFC 8878, 3.1.1, 3.1.2 and 3.1.1.2.2.
FRAME_MAGIC = 0xFD2FB528
SKIPPED_MAGIC = 0x184D2A50
SKIPPED_MASK = 0xFFFFFFF0
REPEATED_BLOCK = 1
BLOCKS_PER_STEP = 2048
MIN_WINDOW_BYTES = 8 << 20  # RFC 8878, 3.1.1.1.2: what every decoder should support

# Runs a function with an argument in a native thread and returns its result.
Run = Callable[[Callable[[Iterator[bytes]], list[bytes]], Iterator[bytes]], list[bytes]]


def is_coded(coding: str | None) -> bool:
    """Return whether a Content-Encoding header names an encoding to be removed."""
    return coding is not None and coding.strip().lower() not in PLAIN_CODINGS


def decode_body(
    body: bytes, coding: str, max_body: int, run: Run | None = None, grow: Callable[[int], object] = int
) -> bytes:
    """Remove the Content-Encoding `coding`; at most `max_body` bytes are produced. A long body continues in `run`, part
    by part; `grow` is called with the number of bytes produced and may raise.

    Raises RequestTooLarge; UnsupportedMediaType for another encoding; InvalidRequest for a corrupt body or too many
    members.
    """
    name = coding.strip().lower()
    if name in PLAIN_CODINGS:
        return body
    steps = _steps(body, name, max_body)
    parts: list[bytes] = []
    for part in steps:
        parts.append(part)
        grow(len(part))
        if run is not None and len(parts) >= STEPS_INLINE:
            while more := run(_take, steps):
                parts += more
                grow(sum(map(len, more)))
            break
    return b"".join(parts)


def _take(steps: Iterator[bytes]) -> list[bytes]:
    return list(islice(steps, STEPS_PER_RUN))


def too_large(max_body: int) -> RequestTooLarge:
    """Return the error for a body over `max_body` bytes."""
    return RequestTooLarge(f"The request body is larger than {max_body} bytes.")


def _steps(body: bytes, name: str, max_body: int) -> Iterator[bytes]:
    if name == ZSTD:
        made = _unpack_zstd(body, max_body)
    elif name in ZLIB_CODINGS:
        bare = name == "deflate" and not _is_zlib(body)
        made = _inflate(body, BARE_DEFLATE if bare else GZIP_OR_ZLIB, max_body)
    else:
        raise UnsupportedMediaType("The Content-Encoding of the request is not supported; use gzip, deflate or zstd.")
    left = max_body
    try:
        for part in made:
            left -= len(part)
            if left < 0:
                raise too_large(max_body)
            yield part
    except (zlib.error, zstandard.ZstdError):
        raise InvalidRequest(f"The request body is not valid {name}.", code="malformed_request") from None


def _inflate(body: bytes, wbits: int, max_body: int) -> Iterator[bytes]:
    """Yield all members of `body`. Raises zlib.error when one is corrupt or truncated."""
    view = memoryview(body)
    at = 0
    members = 0
    while at < len(body):
        members = _count(members)
        engine = zlib.decompressobj(wbits)
        while not engine.eof:
            given = view[at : at + STEP_IN]
            part = engine.decompress(given, STEP_OUT)
            # After the end, unconsumed_tail repeats the unused data.
            at += len(given) - len(engine.unused_data if engine.eof else engine.unconsumed_tail)
            if not part and not given and not engine.eof:
                raise zlib.error("cut")
            yield part


def _unpack_zstd(body: bytes, max_body: int) -> Iterator[bytes]:
    """Yield all frames of `body` (RFC 8878). Raises ZstdError when one is corrupt or truncated.

    The reader limits its output, but continues after an empty frame and accepts a truncated one. Therefore it gets each
    frame separately; the block headers tell where a frame ends.
    """
    engine = zstandard.ZstdDecompressor(max_window_size=max(MIN_WINDOW_BYTES, max_body))
    view = memoryview(body)
    at = 0
    members = 0
    left = max_body
    while at < len(body):
        members = _count(members)
        end = yield from _walk_frame(view, at)
        reader = engine.stream_reader(view[at:end], read_across_frames=False)
        while part := reader.read(min(STEP_OUT, left + 1)):
            left -= len(part)
            yield part
        at = end


def _walk_frame(view: memoryview, at: int) -> Generator[bytes, None, int]:
    """Return where the frame at `at` ends; yields an empty step after a fixed number of blocks."""
    magic = int.from_bytes(view[at : at + 4], "little")
    if magic & SKIPPED_MASK == SKIPPED_MAGIC:
        return _within(view, at + 8 + int.from_bytes(view[at + 4 : at + 8], "little"))
    if magic != FRAME_MAGIC or at + 5 > len(view):
        raise zstandard.ZstdError("no frame")
    descriptor = view[at + 4]
    single = descriptor >> 5 & 1
    size_bytes = (single, 2, 4, 8)[descriptor >> 6]
    at += 5 + (not single) + (0, 1, 2, 4)[descriptor & 3] + size_bytes
    last = blocks = 0
    while not last:
        head = int.from_bytes(view[at : _within(view, at + 3)], "little")
        last = head & 1
        repeated = head >> 1 & 3 == REPEATED_BLOCK
        at += 3 + (1 if repeated else head >> 3)
        blocks += 1
        if blocks % BLOCKS_PER_STEP == 0:
            yield b""
    return _within(view, at + 4 * (descriptor >> 2 & 1))


def _within(view: memoryview, end: int) -> int:
    if end > len(view):
        raise zstandard.ZstdError("cut")
    return end


def _count(members: int) -> int:
    if members >= MAX_MEMBERS:
        raise InvalidRequest(
            f"The compressed request body has more than {MAX_MEMBERS} members; compress it as one.",
            code="malformed_request",
        )
    return members + 1


def _is_zlib(body: bytes) -> bool:
    """Return whether the body begins with a zlib header (RFC 1950, 2.2)."""
    return len(body) >= 2 and body[0] & 0x0F == 8 and int.from_bytes(body[:2], "big") % 31 == 0
