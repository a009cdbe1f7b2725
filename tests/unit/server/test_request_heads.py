"""Request heads are cached by their bytes, and a cached head is never used for a different one."""

import gevent
import pytest

from gateway.errors import GatewayError
from gateway.server.connection import CallerConnection
from gateway.server.http1 import CHUNKED
from gateway.server.request_heads import CACHE_SIZE, HeadCache


def head(*lines: str, target: str = "/v1/x") -> bytes:
    return "\r\n".join([f"POST {target} HTTP/1.1", "Host: a", *lines, "", ""]).encode()


@pytest.fixture
def heads() -> HeadCache:
    return HeadCache(lambda environ: None)


def send_known(heads: HeadCache, connection: CallerConnection, caller) -> None:
    """Requests until the connection knows its head by its bytes."""
    for _ in range(3):
        caller.sendall(head("Content-Length: 2", "authorization: one") + b"ab")
        assert heads.take(connection)[1] == 2 and connection.take(2) == b"ab"
    assert connection.head.before and connection.head.after


def test_a_head_that_comes_again_on_its_connection_has_its_own_length(heads, pair):
    connection, caller = pair
    send_known(heads, connection, caller)
    caller.sendall(head("Content-Length: 13", "authorization: one") + b"c" * 13)
    known = connection.head
    assert heads.take(connection) == (known, 13) and connection.take(13) == b"c" * 13


@pytest.mark.parametrize("lines", [("Content-Length: 2", "authorization: two"), ("authorization: one",), ()])
def test_another_head_on_the_same_connection_is_never_confused_with_the_last(heads, pair, lines):
    connection, caller = pair
    send_known(heads, connection, caller)
    caller.sendall(head(*lines) + b"ab")
    found, length = heads.take(connection)
    assert found.headers.get("authorization") == (lines[-1].partition(": ")[2] if lines else None)
    assert length == (2 if len(lines) == 2 else 0)


@pytest.mark.parametrize("digits", ["", "+2", "2x", "2, 2", "-1", "1234567890123456789"])
def test_a_head_that_comes_again_with_a_bad_length_is_refused(heads, pair, digits):
    connection, caller = pair
    send_known(heads, connection, caller)
    caller.sendall(head(f"Content-Length: {digits}", "authorization: one") + b"ab")
    with pytest.raises(GatewayError):
        heads.take(connection)


def test_a_repeated_head_in_pieces_is_read_completely(heads, pair):
    connection, caller = pair
    send_known(heads, connection, caller)
    wire = b"\r\n" + head("Content-Length: 2", "authorization: one") + b"ab"
    for at in range(1, len(wire) - 2):
        taking = gevent.spawn(heads.take, connection)
        caller.sendall(wire[:at])
        gevent.sleep(0)
        caller.sendall(wire[at:])
        assert taking.get()[1] == 2 and connection.take(2) == b"ab"


def test_a_caller_that_leaves_after_known_heads_is_gone(heads, pair):
    connection, caller = pair
    send_known(heads, connection, caller)
    caller.close()
    assert heads.take(connection) is None


def test_the_same_head_with_another_length_is_read_once(heads):
    first, length = heads.read(head("Content-Length: 12", "x-a: 1"))
    again, other = heads.read(head("Content-Length: 7", "x-a: 1"))
    assert (length, other) == (12, 7) and again is first
    assert "content-length" not in first.headers and "CONTENT_LENGTH" not in first.environ


@pytest.mark.parametrize("line", ["x-a: 2", "x-a: 1\r\nx-b: 1", "X-A: 1", "authorization: Bearer other"])
def test_heads_that_differ_anywhere_are_distinguished(heads, line):
    first, _ = heads.read(head("content-length: 12", "x-a: 1"))
    other, _ = heads.read(head("content-length: 12", line))
    assert other is not first


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 3", "Content-Length: 4"),
        ("content-length: 3", "Content-Length: 3"),
        ("Content-Length: 3", "CONTENT-LENGTH: 3"),
        ("Content-Length: 3", "Transfer-Encoding: chunked"),
        ("Content-Length: 3x",),
        ("Content-Length: +3",),
        ("Content-Length: 3, 3",),
        ("Content-Length: ",),
        ("Content-Length: 1234567890123456789",),
        ("Content-Length: \u0663",),
    ],
)
def test_a_known_head_lets_no_bad_length_pass(heads, lines):
    heads.read(head("Content-Length: 3"))
    heads.read(head())
    for _ in range(2):
        with pytest.raises(GatewayError):
            heads.read(head(*lines))


def test_a_head_without_length_has_no_body_even_when_it_is_known_with_one(heads):
    heads.read(head("Content-Length: 3"))
    assert heads.read(head())[1] == 0
    assert heads.read(head("Content-Length: 0"))[1] == 0


def test_a_chunked_body_is_not_taken_for_one_without_length(heads):
    for _ in range(2):
        assert heads.read(head("Transfer-Encoding: chunked"))[1] == CHUNKED
        assert heads.read(head())[1] == 0


def test_odd_spellings_of_the_length_hold_too(heads):
    for length in (5, 6):
        assert heads.read(head(f"CONTENT-LENGTH:{length}"))[1] == length
        assert heads.read(head(f"content-length:  {length} "))[1] == length


def test_a_folded_line_after_the_length_is_never_remembered(heads):
    for length in (5, 6):
        try:
            _, found = heads.read(head(f"Content-Length: {length}\r\n 7", "x-a: 1"))
        except GatewayError:
            continue
        assert found != length, "the fold belongs to the length"


def test_memory_of_heads_is_bounded(heads):
    first, _ = heads.read(head("x-n: 0"))
    for number in range(1, CACHE_SIZE + 2):
        heads.read(head(f"x-n: {number}"))
    assert len(heads._known) <= CACHE_SIZE
    assert heads.read(head("x-n: 0"))[0] is not first


def test_the_handler_of_a_hot_operation_is_found_once():
    asked: list[str] = []
    heads = HeadCache(lambda environ: asked.append(environ["PATH_INFO"]) or (lambda inbound: None))
    for length in (1, 2, 3):
        assert heads.read(head(f"Content-Length: {length}", target="/hot"))[0].handler is not None
    assert asked == ["/hot"]


def test_an_environ_is_fresh_for_each_request(heads):
    known, _ = heads.read(head("Content-Length: 2", "x-forwarded-proto: https"))
    one = known.environ_for({"gateway.trusted_peer": True, "wsgi.url_scheme": "http"}, b"ab", 2)
    one["HTTP_HOST"] = "other"
    two = known.environ_for({"gateway.trusted_peer": False, "wsgi.url_scheme": "http"}, b"cd", 2)
    assert two["HTTP_HOST"] == "a" and two["wsgi.input"].read() == b"cd" and two["CONTENT_LENGTH"] == "2"
    assert (one["wsgi.url_scheme"], two["wsgi.url_scheme"]) == ("https", "http")
