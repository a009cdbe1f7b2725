"""Writes HTTP responses: WSGI's start_response, framing (RFC 9112, 6) and as few sends as possible."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import gevent
from msgspec import Struct

from gateway.errors import GatewayError, Overloaded
from gateway.ids import new_hex
from gateway.runtime import early_answers
from gateway.server.connection import CallerConnection, ClientGone
from gateway.surfaces.web.http import Outbound
from gateway.surfaces.web.http_responses import OPENAI, error_reply, write_status

# A body of declared length up to this size is sent together with its head, however many pieces it has.
JOIN_BYTES = 65_536
# A stream with pieces that are always ready never yields, so after this many pieces other greenlets get a turn.
ITEMS_PER_TURN = 32
# Headers that the server sets itself; an application's Transfer-Encoding and Keep-Alive are dropped.
SERVER_HEADERS = frozenset({"content-length", "connection", "date", "transfer-encoding", "keep-alive"})

# Formats a (name, value) pair as a header line, without interpreter steps when mapped over all pairs.
LINE = ": ".join
LINE_END = "\r\n"
# The last lines of every head: no browser may guess another content type for a response.
HEAD_END = ("X-Content-Type-Options: nosniff", "", "")

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]
Headers = list[tuple[str, str]]


class ResponseWriter(Struct, eq=False):
    """The response to one request. Afterwards `keep_alive` is whether the connection can carry another request.
    `modern`: the caller speaks HTTP/1.1; `bare`: the body is not sent; `end` are the last lines of the head."""

    _connection: CallerConnection
    keep_alive: bool
    _modern: bool
    _bare: bool
    _end: tuple[str, ...] = HEAD_END
    status: str = ""
    headers: Headers = []
    sent: int = 0
    begun: bool = False
    _length: int | None = None
    _chunked: bool = False
    _dated: bool = False

    def start(self, status: str, headers: Headers, exc_info: ExcInfo | None = None) -> Callable[[bytes], None]:
        """Implement WSGI's start_response (PEP 3333): a second call needs `exc_info`, which is raised if the head was
        sent."""
        if exc_info is not None:
            try:
                if self.begun:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None
        elif self.status:
            raise AssertionError("start_response was called twice")
        self.status = status
        self.headers = headers
        return self.write

    def deliver(self, result: Iterable[bytes]) -> None:
        """Send the body: a list or a short body of declared length together with the head, anything else in pieces."""
        if self.status and not self.begun:
            lines = self._read_headers()
            if isinstance(result, list | tuple):
                self._send_whole(lines, b"".join(result))
                return
            if self._bare or self._is_bodiless():
                self._send_whole(lines, b"")
                return
            if self._length is not None and self._length <= JOIN_BYTES:
                self._send_whole(lines, join(result, self._length))
                return
            self._begin(lines)
        self._send_items(result)

    def answer(self, outbound: Outbound) -> None:
        """Send a response of the express lane; its headers contain no framing."""
        body = outbound.body
        self.status = write_status(outbound.status)
        self.headers = outbound.headers
        if self._bare or (outbound.status != 200 and self._is_bodiless()):
            self.deliver([body] if isinstance(body, bytes) else body)
            return
        lines = [f"HTTP/1.1 {self.status}", *map(LINE, outbound.headers)]
        if not isinstance(body, bytes):
            self._begin(lines)
            self._send_items(body)
            return
        size = len(body)
        lines.append(f"Content-Length: {size}")
        head = self._write_head(lines)
        self.begun = True
        self.sent = size
        self._send_message(head, body)

    def write(self, data: bytes) -> None:
        """Send one piece, with the head before the first. An empty piece is ignored."""
        if not self.begun:
            self._begin(self._read_headers())
        if not data:
            return
        if self._chunked:
            if len(data) > JOIN_BYTES:  # too long to be copied
                self.sent += len(data)
                self._connection.send(b"%x\r\n" % len(data))
                self._connection.send(data)
                self._connection.send(b"\r\n")
                return
            data = b"%x\r\n%b\r\n" % (len(data), data)
        elif self._bare or self._is_bodiless():
            return
        elif self._length is not None:
            data = data[: self._length - self.sent]
        self.sent += len(data)
        if data:
            self._connection.send(data)

    def fail(self, error: GatewayError) -> None:
        """Respond with `error` if nothing was sent yet. A response that has begun is cut off, so that it cannot look
        complete."""
        self.keep_alive = False
        if not self.begun:
            self.begun = True
            self.status = write_status(error.status)
            self._connection.send(write_refusal(error, self._connection.state.date, self._bare))

    def _send_items(self, result: Iterable[bytes]) -> None:
        count = 0
        for item in result:
            self.write(item)
            count += 1
            if count >= ITEMS_PER_TURN:
                count = 0
                gevent.sleep(0)
        if not self.begun:
            self.write(b"")
        if self._chunked:
            self._connection.send(b"0\r\n\r\n")
        elif self._length is not None and not self._bare and self.sent < self._length:
            self.keep_alive = False

    def _send_whole(self, lines: list[str], body: bytes) -> None:
        if self._bare or self._is_bodiless():
            if body and self._length is None and not self._is_bodiless():
                lines.append(f"Content-Length: {len(body)}")
            body = b""
        elif self._length is None:
            lines.append(f"Content-Length: {len(body)}")
        elif len(body) != self._length:
            # Too long: truncate it to the declared length. Too short: the closed connection shows it to the caller.
            self.keep_alive = self.keep_alive and len(body) > self._length
            body = body[: self._length]
        head = self._write_head(lines)
        self.begun = True
        self.sent = len(body)
        self._send_message(head, body)

    def _send_message(self, head: bytes, body: bytes) -> None:
        """Send head and body together, unless the body is too long to be copied. Overloaded, before anything was sent,
        when there is no room for it."""
        if len(body) <= JOIN_BYTES:
            self._connection.send(head + body)
            return
        try:
            self._connection.send_long(head, body)
        except Overloaded:
            self.begun = False
            self.sent = 0
            raise

    def _begin(self, lines: list[str]) -> None:
        """Send the head of a body that is sent in pieces."""
        if self._length is None and not self._bare and not self._is_bodiless():
            if self._modern:
                self._chunked = True
                lines.append("Transfer-Encoding: chunked")
            else:
                self.keep_alive = False
        head = self._write_head(lines)
        self.begun = True
        self._connection.send_head(head)

    def _read_headers(self) -> list[str]:
        """Return the status and the application's headers as lines; remembers length, date and connection."""
        if not self.status:
            raise AssertionError("the application gave a body before start_response")
        self._length = None
        self._dated = False
        lines = [f"HTTP/1.1 {self.status}"]
        for pair in self.headers:
            lower = pair[0].lower()
            if lower not in SERVER_HEADERS or self._note(lower, pair[1]):
                lines.append(LINE(pair))
        return lines

    def _note(self, name: str, value: str) -> bool:
        """Remember a header of SERVER_HEADERS; returns whether it is sent as it is."""
        if name == "content-length":
            self._length = int(value)
            return not self._is_bodiless() or self.status.startswith("304")
        if name == "date":
            self._dated = True
            return True
        if name == "connection" and "close" in value.lower():
            self.keep_alive = False
        return False

    def _is_bodiless(self) -> bool:
        """Return whether the status has no body: 1xx, 204 and 304; the first two have no length (RFC 9110, 8.6)."""
        return self.status[:3] in ("204", "304") or self.status.startswith("1")

    def _write_head(self, lines: list[str]) -> bytes:
        state = self._connection.state
        if not self._dated:
            lines.append(state.date)
        if state.leaving or not self.keep_alive:
            self.keep_alive = False
            lines.append("Connection: close")
        elif not self._modern:
            lines.append("Connection: keep-alive")
        lines += self._end
        text = LINE_END.join(lines)
        ends = len(lines) - 1
        # Exactly one line end per line: a header that contains one would become a second header, or a second response.
        if text.count("\n") != ends or text.count("\r") != ends or "\0" in text:
            raise ValueError("a response header contains a line end or a null")
        return text.encode("latin-1")


class AccessLine:
    """The attributes that gunicorn's access logger reads from a response."""

    __slots__ = ("headers", "sent", "status")

    def __init__(self, reply: ResponseWriter) -> None:
        self.status = reply.status or "-"
        self.headers = reply.headers
        self.sent = reply.sent


def secure_end(hsts_s: int) -> tuple[str, ...]:
    """Return the last lines of the head of an https response (RFC 6797)."""
    if hsts_s:
        return (f"Strict-Transport-Security: max-age={hsts_s}", *HEAD_END)
    return HEAD_END


def join(result: Iterable[bytes], length: int) -> bytes:
    """Return the pieces of `result` up to at least `length` bytes."""
    pieces: list[bytes] = []
    missing = length
    for item in result:
        pieces.append(item)
        missing -= len(item)
        if missing <= 0:
            break
    return b"".join(pieces)


def write_refusal(error: GatewayError, date: str, bare: bool = False) -> bytes:
    """Return a complete response for an error before any surface; the connection ends with it."""
    outbound = error_reply(error, OPENAI, new_hex())
    body = outbound.body if isinstance(outbound.body, bytes) else b"".join(outbound.body)
    lines = [f"HTTP/1.1 {write_status(error.status)}", *map(LINE, outbound.headers)]
    lines += f"Content-Length: {len(body)}", date, "Connection: close", *HEAD_END
    head = LINE_END.join(lines).encode("latin-1")
    if bare:
        return head
    return head + body


# Writes JSON answers that take long with blanks before them.

BLANK = b" "


class EarlyWriter(ResponseWriter):
    """The response to one request. If no answer is ready `seconds` after its handler called `begin`, it sends the head,
    and then a blank after every further `seconds`. The status of the head remains, also if an error follows."""

    seconds: float = 0.0
    _owner: Any = None
    _timer: gevent.Greenlet | None = None
    _sending: bool = False  # whether the timer is sending a blank

    def __post_init__(self) -> None:
        self._owner = gevent.getcurrent()
        early_answers.offer(self if self._modern and not self._bare else None)

    def begin(self, headers: early_answers.Headers) -> None:
        if self._timer is None and not self.begun:
            self._timer = gevent.spawn_later(self.seconds, self._send_blanks, headers)

    def start(
        self, status: str, headers: early_answers.Headers, exc_info: ExcInfo | None = None
    ) -> Callable[[bytes], None]:
        """Implement start_response. After blanks the status and the headers of the application come too late."""
        self._end_blanks()
        if self.begun and exc_info is None:
            return self.write
        return super().start(status, headers, exc_info)

    def answer(self, outbound: Outbound) -> None:
        self._end_blanks()
        if not self.begun:
            super().answer(outbound)
            return
        body = outbound.body
        self._send_items([body] if isinstance(body, bytes) else body)

    def deliver(self, result: Iterable[bytes]) -> None:
        self._end_blanks()
        super().deliver(result)

    def fail(self, error: GatewayError) -> None:
        self._end_blanks()
        super().fail(error)

    def _end_blanks(self) -> None:
        early_answers.offer(None)
        timer = self._timer
        if timer is None:
            return
        self._timer = None
        if self._sending:
            timer.join()  # half a chunk would break the framing of what follows
        timer.kill()

    def _send_blanks(self, headers: early_answers.Headers) -> None:
        super().start("200 OK", headers)
        try:
            while self._timer is not None and not self._owner.dead:
                self._sending = True
                self.write(BLANK)
                self._sending = False
                gevent.sleep(self.seconds)
        except ClientGone:
            return
