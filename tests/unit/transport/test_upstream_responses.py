import gzip
import time
import zlib

import gevent
import pytest

from gateway.errors import Overloaded, StreamTruncated, UpstreamFailed, UpstreamTimeout, UpstreamUnreachable
from gateway.runtime.byte_budget import ByteBudget
from gateway.transport import connections, upstream_responses
from gateway.transport.answer_room import AnswerRoom
from gateway.transport.upstream_responses import (
    PIECE_BYTES,
    STREAM_FREE,
    STREAM_SHARE,
    Pending,
    TimeLimits,
    find_unpacker,
)

FIXED = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\nX-A: 1\r\nx-a: 2\r\n\r\nhello world"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX-T: 1\r\n\r\n"
EARLY = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + FIXED


def call(transport, upstream, stream=False, seconds=5.0, method="POST"):
    deadline = time.monotonic() + seconds
    return transport.open(method, upstream.url, {}, b"{}", stream=stream, deadline=deadline)


@pytest.mark.parametrize("split", [0, 1, 2, 7])
@pytest.mark.parametrize("wire", [FIXED, CHUNKED, EARLY])
def test_framed_body_comes_whole_however_it_is_cut_and_keeps_the_connection(upstream, make_transport, wire, split):
    upstream.split = split
    transport = make_transport()
    for _ in range(2):
        upstream.answer(wire)
        reply = call(transport, upstream)
        assert (reply.status, reply.read_all()) == (200, b"hello world")
    assert upstream.connections == 1


@pytest.mark.parametrize("split", [0, 1])
def test_body_without_length_ends_with_the_connection(upstream, make_transport, split):
    upstream.split = split
    upstream.answer(b"HTTP/1.1 200 OK\r\n\r\nhello world", None)
    assert call(make_transport(), upstream).read_all() == b"hello world"


def test_header_names_are_lower_case_and_repeated_ones_joined(upstream, make_transport):
    upstream.answer(EARLY)
    reply = call(make_transport(), upstream)
    assert reply.headers == {"content-length": "11", "x-a": "1, 2"}


def test_long_streams_count_as_memory_until_they_are_closed_and_end_without_room(upstream, make_transport):
    budget = ByteBudget(1 << 20, 1 << 18)
    transport = make_transport(options={"room": AnswerRoom(budget, 1.0, time.monotonic)})
    body = b"x" * (STREAM_FREE + (1 << 19))
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    upstream.answer(whole)
    first = call(transport, upstream, stream=True)
    pieces = first.chunks()
    read = len(next(pieces))
    while read < len(body):
        read += len(next(pieces))
    assert (1 << 19) // STREAM_SHARE <= budget.held <= 1 << 18
    upstream.answer(whole)
    second = call(transport, upstream, stream=True)
    with pytest.raises(Overloaded):
        list(second.chunks())
    assert list(pieces) == [] and budget.held == 0
    upstream.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nshort")
    assert b"".join(call(transport, upstream, stream=True).chunks()) == b"short" and budget.held == 0


@pytest.mark.parametrize("at", range(len(CHUNKED) - 1, CHUNKED.index(b"\r\n\r\n") + 3, -1))
def test_chunked_body_cut_at_any_byte_never_looks_complete(upstream, make_transport, at):
    upstream.answer(CHUNKED[:at], None)
    with pytest.raises(StreamTruncated):
        list(call(make_transport(), upstream, stream=True).chunks())


@pytest.mark.parametrize("at", [40, len(FIXED) - 11, len(FIXED) - 1])
def test_answer_cut_before_its_length_is_an_error(upstream, make_transport, at):
    upstream.answer(FIXED[:at], None)
    with pytest.raises((StreamTruncated, UpstreamUnreachable)):
        call(make_transport(), upstream).read_all()


@pytest.mark.parametrize("status", [204, 304])
def test_answer_without_body_is_empty_and_keeps_the_connection(upstream, make_transport, status):
    transport = make_transport()
    for wire in (b"HTTP/1.1 %d X\r\n\r\n" % status, FIXED):
        upstream.answer(wire)
        call(transport, upstream).read_all()
    assert upstream.connections == 1


def test_answer_to_head_has_no_body(upstream, make_transport):
    upstream.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n")
    assert call(make_transport(), upstream, method="HEAD").read_all() == b""


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH_9\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 200_000,
    ],
)
def test_invalid_http_is_an_error_of_the_upstream(upstream, make_transport, wire):
    upstream.answer(wire, 0.2)
    with pytest.raises(UpstreamFailed):
        call(make_transport(), upstream).read_all()


def test_endless_trailers_are_cut_off(upstream, make_transport):
    upstream.answer(CHUNKED[:-2] + b"y: 1\r\n" * 40_000, 0.5)
    with pytest.raises(UpstreamFailed, match="headers"):
        call(make_transport(), upstream).read_all()


def test_body_above_the_cap_is_an_error_and_closes(upstream, make_transport):
    upstream.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n", *[b"x" * 10_000] * 900)
    with pytest.raises(UpstreamFailed) as refusal:
        call(make_transport(), upstream).read_all(limit=50_000)
    assert refusal.value.code == "response_too_large"


def test_one_receive_is_one_item_with_all_chunks_in_hand_joined(upstream, make_transport):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    upstream.answer(head, 0.05, b"1\r\na\r\n1\r\nb\r\n", 0.05, b"1\r\nc\r\n0\r\n\r\n")
    assert list(call(make_transport(), upstream, stream=True).chunks()) == [b"ab", b"c"]


def test_silence_gives_heartbeats_and_then_the_answer_goes_on(upstream, make_transport):
    upstream.answer(FIXED[:-5], 0.25, FIXED[-5:])
    reply = call(make_transport(heartbeat_s=0.1), upstream, stream=True)
    assert list(reply.chunks()) == [b"hello ", b"", b"", b"world"]


def test_silence_beyond_its_limit_is_a_timeout_and_closes(upstream, make_transport):
    upstream.answer(FIXED[:-5], 5.0)
    chunks = call(make_transport(heartbeat_s=0.05, silence_s=0.12), upstream, stream=True).chunks()
    with pytest.raises(UpstreamTimeout, match="silent"):
        list(chunks)


def test_a_slow_reader_is_not_confused_with_a_silent_upstream(upstream, make_transport):
    upstream.answer(FIXED[:-5], 0.01, FIXED[-5:])
    items = []
    for item in call(make_transport(silence_s=0.1), upstream, stream=True).chunks():
        items.append(item)
        time.sleep(0.15)
    assert b"".join(items) == b"hello world"


def test_steady_stream_still_ends_at_its_deadline(upstream, make_transport):
    upstream.answer(b"HTTP/1.1 200 OK\r\n\r\n", *[b"x", 0.02] * 200)
    with pytest.raises(UpstreamTimeout, match="in time"):
        list(call(make_transport(), upstream, stream=True, seconds=0.2).chunks())


def test_reading_twice_gives_nothing_more(upstream, make_transport):
    upstream.answer(FIXED)
    reply = call(make_transport(), upstream)
    assert (reply.read_all(), reply.read_all()) == (b"hello world", b"")


def test_closed_reply_never_reads_the_next_answer_of_its_connection(upstream, make_transport):
    transport = make_transport()
    upstream.answer(FIXED)
    first = call(transport, upstream)
    first.close()
    upstream.answer(FIXED)
    second = call(transport, upstream)
    with pytest.raises(StreamTruncated):
        first.read_all()
    assert second.read_all() == b"hello world"


def packed(body: bytes, cut: int = 0) -> bytes:
    data = gzip.compress(body, mtime=0)
    data = data[: len(data) - cut]
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(data) + data


def test_body_compressed_unasked_is_unpacked(upstream, make_transport):
    upstream.split = 5
    upstream.answer(packed(b"hello world"))
    reply = call(make_transport(), upstream)
    assert (reply.headers, reply.read_all()) == ({}, b"hello world")


def test_each_coding_of_http_but_identity_is_unpacked() -> None:
    """RFC 9110, section 8.4.1: x-gzip is gzip."""
    packers = {"gzip": gzip.compress, "x-gzip": gzip.compress, "X-GZip": gzip.compress, "deflate": zlib.compress}
    for coding, pack in packers.items():
        headers = {"content-encoding": coding, "content-length": "9"}
        unpacker = find_unpacker(headers, "acme.example")
        assert unpacker is not None and headers == {}
        assert unpacker.unpack(pack(b"hello"), last=True) == b"hello"


def test_bytes_after_the_end_of_a_compressed_body_are_not_read(upstream, make_transport):
    """It was copied, ever more of it, until the deadline."""
    data = gzip.compress(b"hello world")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(data)
    more = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    upstream.answer(head + data + b"\r\n", *[more] * 2000)
    assert call(make_transport(), upstream).read_all() == b"hello world"
    for _ in range(100):
        gevent.sleep(0.02)
        if upstream.hung_up:
            break
    assert upstream.hung_up == 1


@pytest.mark.parametrize(
    ("wire", "error"),
    [
        (packed(b"hello", cut=3), StreamTruncated),
        (packed(b"x" * 20_000_000), UpstreamFailed),
        (FIXED.replace(b"X-A: 1", b"Content-Encoding: gzip"), UpstreamFailed),
        (FIXED.replace(b"X-A: 1", b"Content-Encoding: br"), UpstreamFailed),
    ],
)
def test_damaged_oversized_or_unknown_packing_is_an_error(upstream, make_transport, wire, error):
    upstream.answer(wire)
    with pytest.raises(error):
        call(make_transport(), upstream).read_all()


def test_stream_that_never_pauses_leaves_turns_to_its_neighbours(upstream, make_transport):
    upstream.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 3_000_000)
    chunks = call(make_transport(), upstream, stream=True).chunks()
    next(chunks)
    gevent.sleep(0.05)  # what is sent now waits in the socket
    turns = []
    neighbour = gevent.spawn(lambda: [turns.append(gevent.sleep(0)) for _ in range(1000)])
    for _ in range(3):
        next(chunks)
    neighbour.kill()
    assert turns


def test_framing_of_tiny_chunks_counts_for_the_cap_of_an_answer(upstream, make_transport, monkeypatch):
    monkeypatch.setattr(upstream_responses, "STREAM_LIMIT", 1 << 20)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    upstream.answer(head, *[b"1;note=" + b"y" * 4000 + b"\r\nx\r\n"] * 1000)
    read = 0
    with pytest.raises(UpstreamFailed) as refusal:
        for piece in call(make_transport(), upstream, stream=True).chunks():
            read += len(piece)
    assert refusal.value.code == "response_too_large"
    assert read < 1000


def test_tiny_chunks_are_received_a_little_at_a_time(upstream, make_transport, monkeypatch):
    turns = []
    monkeypatch.setattr(connections, "bulk_turn", lambda: turns.append(None))
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    upstream.answer(head + b"1\r\nx\r\n" * 200_000 + b"0\r\n\r\n")
    chunks = call(make_transport(), upstream, stream=True).chunks()
    first = next(chunks)
    gevent.sleep(0.2)  # what is sent now waits in the socket
    pieces = [first, next(chunks), *chunks]
    assert b"".join(pieces) == b"x" * 200_000
    assert max(map(len, pieces[2:])) <= connections.SMALL_BYTES // 6 + 1
    assert turns


def test_a_reader_gets_an_error_when_another_greenlet_closes_its_reply(upstream, make_transport):
    upstream.answer(FIXED[:-5], 5.0)
    reply = call(make_transport(), upstream, stream=True)
    reader = gevent.spawn(lambda: list(reply.chunks()))
    gevent.sleep(0.05)
    reply.close()
    with pytest.raises(StreamTruncated):
        reader.get(timeout=60)


def test_the_body_of_an_unrequested_answer_is_not_read_as_ours(upstream, make_transport):
    upstream.answer(FIXED + FIXED.replace(b"hello world", b"HELLO WORLD"))
    assert call(make_transport(), upstream).read_all() == b"hello world"


def test_trailers_are_no_headers_of_this_answer_or_the_next(upstream, make_transport):
    transport = make_transport()
    for wire in (CHUNKED, FIXED):
        upstream.answer(wire)
        reply = call(transport, upstream)
        reply.read_all()
        assert "x-t" not in reply.headers
    assert upstream.connections == 1


def test_length_of_an_answer_to_head_is_no_body(upstream, make_transport):
    upstream.answer(FIXED)
    reply = call(make_transport(), upstream, method="HEAD")
    assert (reply.headers["content-length"], reply.read_all()) == ("11", b"")


class WokenEarly:
    """A connection with a timeout slightly before its time, as a timer of a cached clock may fire; then it answers."""

    host, lost, status, received = "upstream.test", False, 0, b"HTTP/1.1 200 OK\r\n\r\n"
    waits = 0

    def receive(self, until):
        self.waits += 1
        if self.waits == 2:
            self.status = 200
        return self.waits == 2


def test_a_wait_without_end_outlasts_a_timer_that_fires_early():
    connection, later = WokenEarly(), time.monotonic() + 60
    time_limits = TimeLimits(time.monotonic, 60.0, 60.0, 60.0, 1.0)
    assert Pending(connection, time_limits, later, later, None).wait().status == 200


def test_a_packed_stream_comes_as_slowly_as_any_other(upstream, make_transport):
    """64 KB of it brought four megabytes of events at once, which held the event loop for a second."""
    upstream.answer(packed(b"data: x\n\n" * 400_000))
    chunks = call(make_transport(), upstream, stream=True).chunks()
    turns = []
    neighbour = gevent.spawn(lambda: [turns.append(gevent.sleep(0)) for _ in range(1000)])
    sizes = [len(chunk) for chunk in chunks]
    neighbour.kill()
    assert sum(sizes) == 3_600_000 and max(sizes) <= PIECE_BYTES and len(turns) > len(sizes) // 2
