"""The lines of a stream of bytes, such as a file with a JSON object in each line."""

from collections.abc import Iterable, Iterator


def split_lines(pieces: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yield the lines that are not blank. The parts of a long line are joined once. A line of more than `max_bytes` may
    be incomplete, and the caller must not read on after it."""
    parts: list[bytes] = []
    size = 0
    for piece in pieces:
        *ended, rest = piece.split(b"\n")
        for text in ended:
            line = b"".join((*parts, text))
            parts, size = [], 0
            if line.strip():
                yield line
        parts.append(rest)
        size += len(rest)
        if size > max_bytes:
            yield b"".join(parts)
            return
    line = b"".join(parts)
    if line.strip():
        yield line
