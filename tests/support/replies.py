"""Upstream replies from memory, for tests of codecs without a server."""

from collections.abc import Iterator, Mapping

import orjson

EVENT_STREAM = {"content-type": "text/event-stream"}


class MemoryReply:
    """An UpstreamReply of bytes, or of pieces; an exception among the pieces is raised. The default `headers` are those
    of an event stream."""

    def __init__(
        self, *pieces: bytes | Exception, headers: Mapping[str, str] = EVENT_STREAM, status: int = 200
    ) -> None:
        self.status, self.headers, self._pieces = status, dict(headers), pieces

    def read_all(self) -> bytes:
        return b"".join(piece for piece in self._pieces if isinstance(piece, bytes))

    def chunks(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def close(self) -> None: ...


def json_reply(body: object, status: int = 200, **headers: str) -> MemoryReply:
    """Return a complete JSON answer."""
    return MemoryReply(orjson.dumps(body), headers=headers, status=status)
