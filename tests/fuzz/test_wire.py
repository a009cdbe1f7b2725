"""Requests off the wire against h11: what we take in, a strict reader takes in alike, on fresh and known connections.

We may refuse what h11 allows. The reverse would be a request that two servers in a row see differently.
"""

import socket as sockets

import gevent
import h11
from gevent.socket import socketpair
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.clock import Clock
from gateway.errors import GatewayError
from gateway.server.connection import CallerConnection, WorkerState
from gateway.server.http1 import CHUNKED, read_chunked
from gateway.server.request_heads import HeadCache

MOST = 100_000
BYTES = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"0",
    b"5",
    b"-",
    b"_",
    b'"',
    b"\x80",
    b"\x0b",
    b"GET / HTTP/1.1",
]
LINES = [
    *(b"X-A: 1", b"X-A:", b"X_A: 1", b"X-B: a, b", b"Connection: close", b"Connection: keep-alive", b"Cookie: a=b"),
    *(b"Content-Length: 0", b"CONTENT-LENGTH: 3", b"content-length:3", b"Content-Length: 3, 3", b"Content-Length: +3"),
    *(b"Transfer-Encoding: chunked", b"TRANSFER-ENCODING: Chunked", b"Transfer-Encoding: gzip, chunked"),
    *(b"Expect: 100-continue", b"Host: b", b"Upgrade: h2c", b"X-A: 1\r\n folded", b"Content-Length:\t3", b"Proxy: a"),
]
CHUNKS = st.lists(
    st.tuples(st.binary(min_size=1, max_size=20), st.sampled_from([b"", b";a", b"; a=b", b';a="x;y"', b" ", b";a=\n"])),
    max_size=4,
)
TRAILERS = st.lists(
    st.sampled_from([b"X-Sum: 1", b"X:", b"GET / HTTP/1.1", b" x", b"X : 1", b"Content-Length: 4"]), max_size=2
)


@st.composite
def requests(draw) -> bytes:
    request_line = b" ".join(
        (
            draw(st.sampled_from([b"GET", b"POST", b"HEAD", b"OPTIONS", b"PUT"])),
            draw(st.sampled_from([b"/", b"/a?b=c", b"/%2e%2E/", b"*", b"http://a/b", b"/a%00"])),
            draw(st.sampled_from([b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0"])),
        )
    )
    lines = [request_line, b"Host: a", *draw(st.lists(st.sampled_from(LINES), max_size=3))]
    kind = draw(st.sampled_from(["none", "length", "length", "chunked"]))
    if kind == "length":
        body = draw(st.binary(max_size=30))
        lines.append(draw(st.sampled_from([b"Content-Length: %d", b"content-length: %d"])) % len(body))
    elif kind == "chunked":
        lines.append(b"Transfer-Encoding: chunked")
        body = b"".join(b"%x%b\r\n%b\r\n" % (len(data), more, data) for data, more in draw(CHUNKS))
        body += b"0\r\n" + b"".join(trailer + b"\r\n" for trailer in draw(TRAILERS)) + b"\r\n"
    else:
        body = b""
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@st.composite
def streams(draw) -> bytes:
    """Requests one after the other, with a few bytes changed."""
    data = b"".join(draw(st.lists(requests(), min_size=1, max_size=4)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.sampled_from(BYTES)) + data[at + draw(st.integers(0, 2)) :]
    return data


def read_ours(data: bytes, heads: HeadCache, cuts: list[int]) -> list[tuple[bytes, bytes, bytes]]:
    ours, theirs = socketpair()
    connection = CallerConnection(ours, "", WorkerState(Clock()))
    try:
        reading = gevent.spawn(_read_on, connection, heads)
        start = 0
        for cut in [*sorted(cut for cut in cuts if cut < len(data)), len(data)]:
            theirs.sendall(data[start:cut])
            start = cut
            gevent.sleep(0)
        theirs.shutdown(sockets.SHUT_WR)
        return reading.get(timeout=60)
    finally:
        connection.close()
        theirs.close()


def _read_on(connection: CallerConnection, heads: HeadCache) -> list[tuple[bytes, bytes, bytes]]:
    found = []
    try:
        while (read_head := heads.take(connection)) is not None:
            head, length = read_head
            body = read_chunked(connection, MOST) if length == CHUNKED else connection.take(length)
            found.append((head.method.encode(), head.environ["RAW_URI"].encode("latin-1"), body))
            if not head.keep_alive or not head.modern:  # h11 keeps no connection of HTTP/1.0
                break
            connection.wait()
    except (GatewayError, OSError):
        pass
    return found


def read_h11(data: bytes) -> tuple[list[tuple[bytes, bytes, bytes]], str]:
    """The requests, and why no more were read."""
    reader, found = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST), []
    reader.receive_data(data)
    try:
        while True:
            request = reader.next_event()
            if not isinstance(request, h11.Request):
                return found, "end"
            body = b""
            while isinstance(event := reader.next_event(), h11.Data):
                body += event.data
            if not isinstance(event, h11.EndOfMessage):
                return found, "cut"
            found.append((request.method, request.target, body))
            reader.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            reader.send(h11.EndOfMessage())
            reader.start_next_cycle()
    except h11.ProtocolError as error:
        return found, str(error)


@given(streams(), st.lists(st.integers(1, 400), max_size=3))
def test_h11_reads_the_same_requests(data: bytes, cuts: list[int]) -> None:
    ours = read_ours(data, HeadCache(lambda environ: None), cuts)
    theirs, why = read_h11(data)
    # RFC 9112, 2.2 lets a server skip blank lines before a request, which h11 does not.
    assume("no request line" not in why)
    # A target in other letters is taken as it is; RFC 3986 wants it escaped.
    assume(all(target.isascii() for _, target, _ in ours))
    assert ours == theirs[: len(ours)], why


@given(streams(), streams(), st.lists(st.integers(1, 400), max_size=3))
def test_earlier_streams_have_no_effect(data: bytes, before: bytes, cuts: list[int]) -> None:
    heads = HeadCache(lambda environ: None)
    fresh = read_ours(data, HeadCache(lambda environ: None), [])
    read_ours(before, heads, [])
    for _ in range(3):
        assert read_ours(data, heads, cuts) == fresh
