"""Parsing of Range headers (RFC 9110, section 14)."""

from typing import TYPE_CHECKING

from gateway.runtime.lazy_import import LazyImport

if TYPE_CHECKING:
    from werkzeug import http
else:
    http = LazyImport("werkzeug.http")


class NoSuchRange(ValueError):
    """The file has no such part: the response is 416."""


def read_range(text: str, size: int) -> tuple[int, int] | None:
    """Return the first byte and the end of the requested range, or None for the whole file.

    It is None without a header, for other units than bytes, and for several ranges, which a server may answer with the
    whole file.
    """
    byte_range = http.parse_range_header(text) if text else None
    if byte_range is None or byte_range.units != "bytes" or len(byte_range.ranges) != 1:
        return None
    start, end = byte_range.ranges[0]
    if start < 0:
        start = max(0, size + start)
    if start >= size:
        raise NoSuchRange
    return start, size if end is None else min(end, size)
