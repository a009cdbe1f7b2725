"""A head that is known is read as a fresh one would be, whatever came before it; chunks and trailers are strict."""

import gevent
import pytest
from gevent.socket import socketpair
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.clock import Clock
from gateway.errors import GatewayError
from gateway.server.connection import CallerConnection, WorkerState
from gateway.server.http1 import read_chunked, read_head
from gateway.server.request_heads import HeadCache

NAMES = ("Content-Length", "content-length", "CONTENT-LENGTH", "Content-length", "Content_Length", "Content-Length ")
LENGTHS = [
    *(f"{name}{mark}{value}" for name in NAMES for mark in (": ", ":", ":\t", ":  ") for value in ("0", "68", "5 ")),
    *("Content-Length: +5", "Content-Length: 5, 5", "Content-Length: ", "Content-Length: 0005", "content-length: 5\n"),
    *("Transfer-Encoding: chunked", "TRANSFER-ENCODING:chunked", "Transfer-Encoding: identity"),
]
OTHERS = (
    *(
        "Host: a",
        "Host: b",
        "X-A: 1",
        "X-A: 1\n",
        "X-A: 1\nContent-Length: 7",
        "X-A: 1\rX-B: 2",
        " folded: 1",
        "\tfolded",
    ),
    *("Connection: close", "Expect: 100-continue", "X_A: 1", "X-A:", "X-A: Content-Length: 5", "Upgrade: websocket"),
)
LINE_ENDS = ("\r\n", "\r\n", "\r\n", "\r\n", "\n")
LINES = st.lists(st.tuples(st.sampled_from([*LENGTHS, *OTHERS]), st.sampled_from(LINE_ENDS)), max_size=5)
STARTS = st.sampled_from(("POST /x HTTP/1.1\r\nHost: a\r\n", "GET /x HTTP/1.1\r\nHost: a\r\n", "POST /x HTTP/1.0\r\n"))
HEAD = st.builds(lambda start, lines: (start + "".join(map("".join, lines)) + "\r\n").encode(), STARTS, LINES)


def outcome(heads: HeadCache, connection: CallerConnection):
    try:
        taken = heads.take(connection)
    except GatewayError as error:
        return error.status
    if taken is None:
        return None
    head, length = taken
    return head.environ, head.headers, head.modern, head.keep_alive, head.expects, length


def read_all(wire: list[bytes], shared: bool) -> list:
    """Return the outcome of each head, over one connection that remembers earlier heads or over a new one for each."""
    found, heads = [], HeadCache(lambda environ: None)
    ours, theirs = socketpair()
    connection = CallerConnection(ours, "", WorkerState(Clock()))
    try:
        for data in wire:
            if not shared:
                connection.close()
                theirs.close()
                ours, theirs = socketpair()
                connection = CallerConnection(ours, "", WorkerState(Clock()))
                heads = HeadCache(lambda environ: None)
            theirs.sendall(data)
            with gevent.Timeout(60):
                found.append(outcome(heads, connection))
            if not isinstance(found[-1], tuple):
                connection._buffer, connection._at = b"", 0
    finally:
        connection.close()
        theirs.close()
    return found


SMUGGLED = b"POST /x HTTP/1.1\r\nHost: a\r\nCONTENT-LENGTH: 0\r\nContent-Length: 68\r\n\r\n"


@example([SMUGGLED.replace(b"Content-Length: 68\r\n", b""), SMUGGLED])
@given(st.lists(HEAD, min_size=1, max_size=6).filter(lambda wire: all(data.count(b"\r\n\r\n") == 1 for data in wire)))
def test_a_head_is_read_alike_whatever_came_before(wire):
    # Twice each, so that a head that may be known is.
    doubled = [data for data in wire for _ in range(2)]
    assert read_all(doubled, shared=True) == read_all(doubled, shared=False)


def test_a_known_head_hides_no_second_length_of_another_spelling():
    heads = HeadCache(lambda environ: None)
    for _ in range(2):
        assert heads.read(SMUGGLED.replace(b"Content-Length: 68\r\n", b""))[1] == 0
    with pytest.raises(GatewayError) as caught:
        heads.read(SMUGGLED)
    assert caught.value.status == 400


@pytest.mark.parametrize("end", [b"\r", b"\n", b"\r\n\r"])
def test_a_lone_line_end_before_a_request_is_refused(pair, end):
    refuse(pair, end + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")


@pytest.mark.parametrize(
    "line", [b"GET  / HTTP/1.1", b"GET /  HTTP/1.1", b"GET / HTTP/1.1 ", b" GET / HTTP/1.1", b"GET /"]
)
def test_a_request_line_has_three_words_and_two_spaces(pair, line):
    refuse(pair, line + b"\r\nHost: a\r\n\r\n")


def refuse(pair, wire: bytes) -> None:
    connection, caller = pair
    caller.sendall(wire)
    with pytest.raises(GatewayError) as caught:
        HeadCache(lambda environ: None).take(connection)
    assert caught.value.status == 400


def read_body(pair, wire: bytes) -> bytes:
    connection, caller = pair
    caller.sendall(wire)
    return read_chunked(connection, 1_000_000)


@pytest.mark.parametrize(
    "wire",
    [
        b"1;a\nGET /admin HTTP/1.1\r\na\r\n0\r\n\r\n",
        b'1;a="b\nc"\r\na\r\n0\r\n\r\n',
        b"1;\x00\r\na\r\n0\r\n\r\n",
        b"1;\r\na\r\n0\r\n\r\n",
        b"1\n\r\na\r\n0\r\n\r\n",
        b"0\r\nGET /admin HTTP/1.1\r\nHost: b\r\n\r\n",
        b"0\r\nX: a\nGET /admin HTTP/1.1\r\n\r\n",
        b"0\r\n folded\r\n\r\n",
        b"0\r\nX : a\r\n\r\n",
        b"0\r\nContent-Length:: 4\r\n\r\n",
        b"0\r\ntransfer-encoding: chunked\r\n\r\n",
        b"0\r\nHost: b\r\n\r\n",
        b"1\r\na\r\n" * 5000 + b"0\r\n\r\n",
    ],
)
def test_chunks_and_trailers_that_another_server_could_read_otherwise_are_refused(pair, wire):
    with pytest.raises(GatewayError) as caught:
        read_body(pair, wire)
    assert caught.value.code == "malformed_request"


@pytest.mark.parametrize("line", [b"1", b"01 ", b"1;a", b"1; a=b ;c", b'1;a="b\\"c;d"', b"1 ;a = b"])
def test_chunk_extensions_of_the_grammar_pass(pair, line):
    assert read_body(pair, line + b"\r\na\r\n0;x=y\r\nX-Sum: 1 2\r\nEmpty:\r\n\r\n") == b"a"


def test_many_small_chunks_leave_the_others_their_turn(pair):
    turns = []
    counting = gevent.spawn(lambda: [turns.append(gevent.sleep(0)) for _ in range(1)])
    assert read_body(pair, b"1\r\na\r\n" * 500 + b"0\r\n\r\n") == b"a" * 500
    assert len(turns) == 1 and counting.ready()


@pytest.mark.parametrize(
    "host", ["[", "[::1", "[abc]", "[::1]x", "a b", "a/b", "a@b", "a#b", "a?b", "a:b", "é", "a:123456"]
)
def test_an_invalid_host_is_refused(host: str) -> None:
    """It would be part of addresses: of those that answers tell, and of the one that a browser's origin is held to."""
    with pytest.raises(GatewayError) as caught:
        read_head(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host.encode("latin-1"), {})
    assert (caught.value.status, caught.value.code) == (400, "malformed_request")


@pytest.mark.parametrize(
    "host", ["", "a", "my_service:80", "a.b.example.", "10.0.0.1:8080", "[::1]", "[fe80::1]:443", "a:"]
)
def test_a_host_may_be_a_name_or_an_address_with_a_port(host: str) -> None:
    environ: dict[str, str] = {}
    read_head(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host.encode(), environ)
    assert environ["HTTP_HOST"] == host


@pytest.mark.parametrize(
    "line",
    [
        *("Host: a", "Content-Length: 5", "Transfer-Encoding: chunked"),
        *("Content-Type: text/plain", "Authorization: Bearer k"),
    ],
)
def test_a_head_that_says_twice_what_counts_once_is_refused(line: str) -> None:
    lines = ["POST /x HTTP/1.1", *(["Host: a"] if line != "Host: a" else []), line, line]
    with pytest.raises(GatewayError) as caught:
        read_head("\r\n".join([*lines, "", ""]).encode(), {})
    assert caught.value.status == 400
