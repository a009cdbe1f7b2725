"""Answers of upstreams from memory, for codecs that are asked without any server."""

from collections.abc import Iterator, Mapping

import orjson

EVENT_STREAM = {"content-type": "text/event-stream"}


class MemoryReply:
    """An UpstreamReply: whole, or in pieces where an exception is raised in its place. Without `headers` it has those
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
    """A whole answer in JSON."""
    return MemoryReply(orjson.dumps(body), headers=headers, status=status)
