"""Decompresses request bodies in small steps, so that none blocks the event loop or is copied repeatedly."""

import zlib
from collections.abc import Callable, Iterator
from itertools import islice

from gateway.errors import InvalidRequest, RequestTooLarge, UnsupportedMediaType
from gateway.runtime.zstd import zstd

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
    except (zlib.error, zstd.ZstdError):
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
    """Yield all frames of `body`. Raises ZstdError when one is corrupt or truncated."""
    window_log = (max(MIN_WINDOW_BYTES, max_body) - 1).bit_length()
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: window_log}
    view = memoryview(body)
    at = 0
    members = 0
    while at < len(body):
        members = _count(members)
        engine = zstd.ZstdDecompressor(options=options)
        while not engine.eof:
            given = view[at : at + STEP_IN] if engine.needs_input else b""
            if engine.needs_input and not given:
                raise zstd.ZstdError("cut")
            at += len(given)
            yield engine.decompress(given, STEP_OUT)
        at -= len(engine.unused_data)


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
