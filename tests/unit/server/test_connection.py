"""One connection over a socket pair: late callers, slow readers, callers that vanish."""

import socket
import tracemalloc

import gevent
import pytest

from gateway.errors import InvalidRequest
from gateway.runtime.send_batch import current_batch
from gateway.server.connection import READING, SLICE_BYTES, CallerConnection, ClientGone
from gateway.server.http1 import read_chunked

SOCKETS = tracemalloc.Filter(True, "*/gevent/_socket*")


def expire_while_reading(connection: CallerConnection) -> None:
    """Expire the connection once a part of its request is read: an idle one stays open while a request arrives."""
    while connection.phase != READING:
        gevent.sleep(0.01)
    connection.expire()


def test_half_a_head_that_stops_coming_is_answered_408(pair):
    connection, caller = pair
    caller.sendall(b"GET / HT")
    gevent.spawn(expire_while_reading, connection)
    with pytest.raises(InvalidRequest) as caught:
        connection.take_head()
    assert caught.value.status == 408 and connection.phase == READING


def test_half_a_body_that_stops_coming_is_answered_408(pair):
    connection, caller = pair
    caller.sendall(b"abc")
    gevent.spawn(expire_while_reading, connection)
    with pytest.raises(InvalidRequest) as caught:
        connection.take(4)
    assert caught.value.status == 408


def test_idle_connection_that_expires_ends_without_a_word(pair):
    connection, _ = pair
    gevent.spawn_later(0.01, connection.expire)
    assert connection.take_head() is None


def test_request_that_came_as_its_connection_expired_is_still_read(pair):
    connection, caller = pair
    caller.sendall(b"GET / HTTP/1.1\r\n\r\n")
    connection.expire()
    assert connection.take_head() == b"GET / HTTP/1.1\r\n\r\n"


def test_request_that_is_arriving_as_its_connection_expires_is_read_to_its_end(pair):
    """A reload closed idle connections, also one whose request had arrived in part: its caller saw no answer."""
    connection, caller = pair
    caller.sendall(b"POST / HTTP/1.1\r\nContent-Le")
    connection.expire()
    gevent.spawn_later(0.01, caller.sendall, b"ngth: 4\r\n\r\nbody")
    assert connection.take_head() == b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n"
    assert connection.take(4) == b"body"


def test_caller_that_leaves_in_its_body_is_no_error_of_the_request(pair):
    connection, caller = pair
    caller.sendall(b"abc")
    caller.close()
    with pytest.raises(ConnectionResetError):
        connection.take(4)


@pytest.mark.parametrize("leave", [lambda caller: caller.shutdown(socket.SHUT_WR), lambda caller: caller.close()])
def test_closed_and_half_closed_callers_are_gone_and_silent_ones_are_not(pair, leave):
    connection, caller = pair
    assert not connection.is_gone()
    leave(caller)
    assert connection.is_gone()


def test_waiting_bytes_are_seen_but_not_consumed(pair):
    connection, caller = pair
    caller.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert not connection.is_gone() and connection.take_head() == b"GET / HTTP/1.1\r\n\r\n"


def test_large_reply_reaches_a_slow_reader_whole(pair):
    connection, caller = pair
    sending = gevent.spawn(connection.send, b"a" * 3_000_000)
    received = 0
    while received < 3_000_000:
        received += len(caller.recv(100_000))
    sending.join(60)
    assert sending.successful() and not connection.progress.is_too_slow(10_000, 1, 1)


def test_large_reply_is_passed_to_the_system_in_pieces(pair):
    connection, caller = pair
    sizes = []
    send = connection.send_now

    def send_now(data):
        sizes.append(len(data))
        return send(data)

    connection.send_now = send_now
    sending = gevent.spawn(connection.send, b"a" * 3_000_000)
    received = 0
    while received < 3_000_000:
        received += len(caller.recv(100_000))
    sending.get(timeout=5)
    assert sizes == [SLICE_BYTES]


def test_send_to_a_caller_that_left_is_reported_as_such(pair):
    connection, caller = pair
    caller.close()
    with pytest.raises(ClientGone):
        connection.send(b"a")


def test_chunks_cut_anywhere_give_the_same_body(pair):
    connection, caller = pair
    wire = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: v\r\n\r\nNEXT"
    for at in range(1, len(wire) - 4):
        reading = gevent.spawn(read_chunked, connection, 100)
        caller.sendall(wire[:at])
        gevent.sleep(0)
        caller.sendall(wire[at:])
        assert reading.get() == b"hello world" and connection.take(4) == b"NEXT"


def test_bytes_that_arrive_between_reads_are_returned_by_the_next_read(pair):
    connection, caller = pair
    caller.sendall(b"GET /a HTTP/1.1\r\n\r\n")
    assert connection.take_head().startswith(b"GET /a ")
    for path in (b"/b", b"/c"):
        caller.sendall(b"GET %b HTTP/1.1\r\n\r\n" % path)
        gevent.sleep(0.01)
        assert connection.take_head().startswith(b"GET %b " % path)


def test_a_reader_that_was_ended_leaves_the_bytes_to_the_next(pair):
    connection, caller = pair
    reading = gevent.spawn(connection.take_head)
    gevent.sleep(0)
    reading.kill()
    caller.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert connection.take_head() == b"GET / HTTP/1.1\r\n\r\n"


def test_a_fast_caller_leaves_the_others_their_turn(pair):
    connection, caller = pair
    caller.sendall(b"a" * 100_000)
    turns = []
    counting = gevent.spawn(lambda: [turns.append(gevent.sleep(0)) for _ in range(3)])
    for _ in range(4):
        connection.take(len(connection._buffer) - connection._at + 1)
    counting.kill()
    assert turns


def test_the_rest_of_an_unread_body_leaves_the_others_their_turn(pair, monkeypatch):
    connection, caller = pair
    caller.sendall(b"a" * 100_000)
    caller.shutdown(socket.SHUT_WR)
    monkeypatch.setattr("gateway.server.connection.BODY_RECEIVE_BYTES", 1_000)
    turns = []
    counting = gevent.spawn(lambda: [turns.append(gevent.sleep(0)) for _ in range(90)])
    connection.linger()
    counting.kill()
    assert len(turns) > 40


def test_caller_that_is_gone_before_the_batch_leaves_ends_the_next_send(pair):
    connection, caller = pair
    current_batch().open()
    caller.close()
    connection.send(b"one")
    gevent.sleep(0)
    with pytest.raises(ClientGone):
        connection.send(b"two")


@pytest.mark.parametrize("killed", [False, True])
def test_answer_in_the_batch_arrives_although_its_connection_is_closed(pair, killed):
    connection, caller = pair
    connection.killed = killed
    current_batch().open()
    connection.send(b"the end")
    connection.close()
    assert caller.recv(100) == b"the end"


@pytest.mark.parametrize("part", ["head", "body"])
def test_connection_holds_nothing_of_a_long_request_that_was_read(pair, part):
    """Ten thousand idle connections held 60 KB each, which nothing counted."""
    connection, caller = pair
    long = b"a" * 50_000
    head = b"POST / HTTP/1.1\r\nX: %b\r\n\r\n" % (long if part == "head" else b"")
    body = long if part == "body" else b"body"
    following = b"GET /next HTTP/1.1\r\n\r\n"
    caller.sendall(head + body + following)
    tracemalloc.start()
    try:
        assert connection.take_head() == head and connection.take(len(body)) == body
        # Not what other greenlets of the process allocate meanwhile.
        traced = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/server/*"), SOCKETS])
        held = sum(trace.size for trace in traced.traces)
    finally:
        tracemalloc.stop()
    assert held < 20_000
    assert connection.take_head() == following
