"""The part of a file that a Range header asks for (RFC 9110, section 14)."""

from werkzeug.http import parse_range_header


class NoSuchRange(ValueError):
    """The file has no such part: the answer is 416."""


def read_range(text: str, size: int) -> tuple[int, int] | None:
    """The first byte and the one behind the last; None for the whole: without a header, for one that is no range of
    bytes, and for several parts, which a server may answer with the whole."""
    if text:
        wanted = parse_range_header(text)
    else:
        wanted = None
    if wanted is None or wanted.units != "bytes" or len(wanted.ranges) != 1:
        return None
    start, end = wanted.ranges[0]
    if start < 0:
        start = max(0, size + start)
    if start >= size:
        raise NoSuchRange
    return start, size if end is None else min(end, size)
