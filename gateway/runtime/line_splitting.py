"""The lines of a stream of bytes, such as a file with a JSON object in each line."""

from collections.abc import Iterable, Iterator


def split_lines(pieces: Iterable[bytes], max_bytes: int, goes_on: bool = False) -> Iterator[bytes]:
    """Yield the lines that are not blank. The parts of a long line are joined once. A line of more than `max_bytes` may
    be incomplete; with `goes_on` its rest is skipped, otherwise the caller must not read on after it."""
    parts: list[bytes] = []
    size = 0
    skips = False  # up to the end of a line that is too long
    for piece in pieces:
        *ended, rest = piece.split(b"\n")
        if skips and ended:
            ended = ended[1:]
            skips = False
        for text in ended:
            line = b"".join((*parts, text))
            parts, size = [], 0
            if line.strip():
                yield line
        if skips:
            continue
        parts.append(rest)
        size += len(rest)
        if size > max_bytes:
            yield b"".join(parts)
            if not goes_on:
                return
            parts, size, skips = [], 0, True
    line = b"".join(parts)
    if line.strip():
        yield line
