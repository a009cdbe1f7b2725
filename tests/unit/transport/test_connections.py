"""How a connection waits: one watcher and one alarm serve all the requests that it carries."""

import time
from functools import partial

import gevent
import pytest
from gevent import get_hub, socket
from gevent.event import Event
from gevent.monkey import get_original

from gateway.errors import StreamTruncated, UpstreamTimeout, UpstreamUnreachable
from gateway.runtime.send_batch import current_batch
from gateway.transport.client import WATCHED_S
from gateway.transport.connections import UpstreamConnection

NativeSocket = get_original("socket", "socket")
native_sleep = get_original("time", "sleep")
start_native_thread = get_original("_thread", "start_new_thread")

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n"


def call(transport, upstream, stream=False, seconds=5.0):
    return transport.open("POST", upstream.url, {}, b"{}", stream=stream, deadline=time.monotonic() + seconds)


def send(transport, upstream):
    head = transport.prepare("POST", upstream.url, {}, False)
    return transport.transmit(head, b"{}", False, time.monotonic() + 5)


@pytest.fixture
def kept(upstream, make_transport):
    """A transport with a single connection that has served one request; its alarm rings in five seconds."""
    transport = make_transport(options={"per_origin": 1}, heartbeat_s=0.05)
    upstream.answer(OK)
    assert call(transport, upstream).read_all() == b"ok"
    return transport


def turns_of_the_loop(seconds: float) -> int:
    loop = get_hub().loop
    before = loop.iteration
    gevent.sleep(seconds)
    return loop.iteration - before


def wait_until(condition):
    with gevent.Timeout(60):
        while not condition():
            gevent.sleep(0.005)


def test_unread_data_does_not_spin_the_event_loop(upstream, kept):
    upstream.answer(LONG, b"x" * 1000, 0.02, b"x" * 199_000)
    chunks = call(kept, upstream, stream=True).chunks()
    size = len(next(chunks))
    gevent.sleep(0.05)
    assert turns_of_the_loop(0.1) < 20
    assert size + sum(map(len, chunks)) == 200_000
    assert upstream.connections == 1


def test_idle_connection_that_the_upstream_ended_does_not_spin_the_loop(upstream, kept):
    upstream.answer(OK, None)
    call(kept, upstream).read_all()
    gevent.sleep(0.02)
    assert turns_of_the_loop(0.1) < 20


def test_connection_that_ended_while_the_process_was_stopped_is_not_used(make_transport):
    """The event loop could not notice the end, and a request sent over the connection would be lost."""
    listener = NativeSocket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    port = listener.getsockname()[1]

    def serve() -> None:
        for _ in range(2):
            sock, _ = listener.accept()
            sock.recv(65536)
            sock.sendall(OK)
            native_sleep(0.05)
            sock.close()

    start_native_thread(serve, ())
    transport = make_transport()
    with listener:
        for _ in range(2):
            reply = transport.open("POST", f"http://127.0.0.1:{port}/", {}, b"{}", deadline=time.monotonic() + 60)
            assert reply.read_all() == b"ok"
            native_sleep(WATCHED_S + 0.1)  # stops the event loop as well


def test_nearer_deadline_than_that_of_the_request_before_holds(upstream, kept):
    upstream.answer(20.0, OK)
    started = time.monotonic()
    with pytest.raises(UpstreamTimeout):
        call(kept, upstream, seconds=0.1)
    assert 0.1 <= time.monotonic() - started < 10


def test_wait_outlives_the_alarm_of_a_shorter_one_before(upstream, kept):
    upstream.answer(LONG[:20], 0.12, LONG[20:], b"x" * 200_000)
    pending = send(kept, upstream)
    assert pending.wait(0.05) is None
    reply = pending.wait()
    assert len(reply.read_all()) == 200_000


def test_heartbeats_come_evenly_though_one_alarm_serves_them_all(upstream, kept):
    go_on = Event()
    upstream.answer(LONG, b"x", go_on, b"x" * 199_999)
    chunks = call(kept, upstream, stream=True).chunks()
    assert [next(chunks) for _ in range(5)] == [b"x", b"", b"", b"", b""]
    go_on.set()
    assert b"".join(chunks) == b"x" * 199_999


def test_killed_reader_of_a_kept_connection_frees_its_place_at_once(upstream, kept):
    upstream.answer(0.05, OK, 0.05, OK, 0.05, OK)
    caller = gevent.spawn(call, kept, upstream)
    wait_until(lambda: len(upstream.requests) == 2)
    caller.kill()
    wait_until(lambda: upstream.hung_up)
    upstream.answer(OK)
    assert call(kept, upstream).read_all() == b"ok"


def test_reader_is_reported_at_once_when_its_request_is_closed_by_another(upstream, kept):
    upstream.answer(2.0, OK)
    pending = send(kept, upstream)
    reader = gevent.spawn(pending.wait)
    gevent.sleep(0.02)
    pending.close()
    with pytest.raises(UpstreamUnreachable):
        reader.get(timeout=0.5)


def test_reader_killed_in_the_turn_in_which_its_connection_is_closed_dies_once(upstream, kept):
    upstream.answer(LONG, 2.0)
    reply = call(kept, upstream, stream=True)
    reader = gevent.spawn(lambda: list(reply.chunks()))
    gevent.sleep(0.02)
    reply.close()
    reader.kill()
    upstream.answer(OK)
    assert (reader.dead, call(kept, upstream).read_all()) == (True, b"ok")


def test_answer_that_came_while_the_process_stood_still_is_in_time():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        caller = socket.create_connection(listener.getsockname())
        upstream, _ = listener.accept()
    connection = UpstreamConnection(caller, "upstream", None, time.monotonic)
    reader = gevent.spawn(connection.receive, time.monotonic() + 0.05)
    gevent.sleep(0)
    upstream.sendall(OK)
    get_original("time", "sleep")(0.1)
    assert reader.get(timeout=60) and connection.done
    connection.close()
    upstream.close()


def test_switch_that_was_not_meant_for_the_wait_does_not_end_it(upstream, kept):
    upstream.answer(0.1, OK)
    caller = gevent.spawn(call, kept, upstream)
    wait_until(lambda: len(upstream.requests) == 2)
    get_hub().loop.run_callback(caller.switch)
    assert caller.get(timeout=60).read_all() == b"ok"


def test_kept_connection_that_breaks_off_its_next_answer_is_reported_of(upstream, kept):
    upstream.answer(LONG, 0.02, b"x", None)
    with pytest.raises(StreamTruncated):
        call(kept, upstream).read_all()


def test_requests_of_one_turn_are_sent_together(upstream, make_transport):
    transport = make_transport()
    upstream.answer(OK)
    upstream.answer(OK)
    assert call(transport, upstream).read_all() == b"ok"
    current_batch().open()
    pending = send(transport, upstream)
    assert len(upstream.requests) == 1
    assert pending.wait().read_all() == b"ok"
    assert len(upstream.requests) == 2 and upstream.connections == 1


def test_request_of_a_batch_that_cannot_be_sent_is_an_unreachable_upstream(upstream, make_transport, monkeypatch):
    transport = make_transport()
    upstream.answer(OK)
    assert call(transport, upstream).read_all() == b"ok"
    current_batch().open()
    pending = send(transport, upstream)
    pending._connection._sock.shutdown(socket.SHUT_RDWR)
    with pytest.raises(UpstreamUnreachable):
        pending.wait()


def test_head_that_comes_alone_is_acknowledged_at_once(upstream, make_transport):
    """A peer without TCP_NODELAY waits for it before it sends the body, and the kernel delays it by 40 ms."""
    transport = make_transport(options={"per_origin": 1})
    head, body = OK[:-2], OK[-2:]
    acknowledged_before = set()
    for _ in range(40):  # the kernel begins to delay acknowledgements after some exchanges
        go_on = Event()
        upstream.answer(head, go_on, body)
        reply = call(transport, upstream)
        sock = reply._connection._sock
        acknowledged_before.add(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))
        reading = gevent.spawn(reply.read_all)
        wait_until(partial(sock.getsockopt, socket.IPPROTO_TCP, socket.TCP_QUICKACK))
        go_on.set()
        assert reading.get() == b"ok"
    assert 0 in acknowledged_before
