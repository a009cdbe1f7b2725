"""Server-sent events as they come: bytes in, events out, whatever the split."""

from gateway.errors import UpstreamFailed

LINE_LIMIT = 16 * 1024 * 1024  # an image in base64 comes in one line


class EventReader:
    """An incremental reader of an event stream (WHATWG HTML, server-sent events).

    `feed` returns the events that are whole by now as (name, data); the name is "" when the event gave none. Comments,
    ids and retry times are skipped. LF and CRLF end a line; a lone CR does not (no known upstream sends it).
    """

    __slots__ = ("_held", "_size", "_limit")

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._held: list[bytes] = []
        self._size = 0
        self._limit = limit

    @property
    def unfinished(self) -> bool:
        """Whether part of an event is still waiting for its end: the stream was cut inside it."""
        return any(piece.strip(b"\r\n") for piece in self._held)

    def feed(self, piece: bytes) -> list[tuple[str, bytes]]:
        """Take bytes, give events. UpstreamFailed when one event outgrows the limit."""
        if self._held:
            if b"\n" not in piece:
                self._hold(piece)
                return []
            self._held.append(piece)
            piece = b"".join(self._held)
            self._held, self._size = [], 0
        if b"\r" in piece:
            # A CR at the very end may be the first half of a CRLF: it is held with the rest.
            piece = piece.replace(b"\r\n", b"\n")
        *blocks, rest = piece.split(b"\n\n")
        if rest:
            self._hold(rest)
        events: list[tuple[str, bytes]] = []
        for block in blocks:
            if block[:6] == b"data: " and b"\n" not in block:
                events.append(("", block[6:]))
            elif block:
                self._add(block, events)
        return events

    def finish(self) -> list[tuple[str, bytes]]:
        """Events that only lacked their closing blank line when the stream ended cleanly."""
        block = b"".join(self._held).replace(b"\r\n", b"\n").strip(b"\r\n")
        self._held, self._size = [], 0
        events: list[tuple[str, bytes]] = []
        if block:
            self._add(block, events)
        return events

    def _hold(self, piece: bytes) -> None:
        self._held.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            raise UpstreamFailed("The provider sent an event larger than the gateway accepts.")

    @staticmethod
    def _add(block: bytes, events: list[tuple[str, bytes]]) -> None:
        """The event of one block of lines, when it has data."""
        name, data = "", []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            value = value[1:] if value[:1] == b" " else value
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value.decode("utf-8", "replace")
        if data:
            events.append((name, data[0] if len(data) == 1 else b"\n".join(data)))
