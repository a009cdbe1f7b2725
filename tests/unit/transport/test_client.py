import _socket
import time

import gevent
import pytest
from gevent import socket
from gevent.monkey import get_original
from gevent.server import StreamServer

from gateway.errors import StreamTruncated, UpstreamFailed, UpstreamTimeout, UpstreamUnreachable
from gateway.runtime.large_files import StoredFile

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def call(transport, url, method="POST", stream=False, seconds=5.0, **options):
    return transport.open(method, url, {}, b"{}", stream=stream, deadline=time.monotonic() + seconds, **options)


def wait_until(condition):
    with gevent.Timeout(60):
        while not condition():
            gevent.sleep(0.005)


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_refused_connection_is_an_unreachable_upstream(make_transport):
    with pytest.raises(UpstreamUnreachable, match="refused"):
        call(make_transport(), f"http://127.0.0.1:{closed_port()}/")


def test_next_address_is_tried_when_the_first_is_dead(upstream, make_transport):
    transport = make_transport(options={"resolver": lambda host, port: ["127.0.0.9", "127.0.0.1"]})
    upstream.answer(OK)
    assert call(transport, f"http://api.test:{upstream.port}/").read_all() == b"ok"
    assert b"host: api.test" in upstream.requests[0]


def test_name_service_that_hangs_is_a_timeout(make_transport):
    transport = make_transport(options={"resolver": lambda host, port: gevent.sleep(5)}, connect_s=0.05)
    with pytest.raises(UpstreamTimeout, match="resolved"):
        call(transport, "http://api.test/")


def test_names_of_callers_whose_name_service_hangs_keep_no_provider_waiting(upstream, make_transport, monkeypatch):
    """A thread waits for each look-up, and there are only so many of them for all names."""
    answered, look_up = get_original("threading", "Event")(), _socket.getaddrinfo

    def ask(host, *more):
        if host.startswith("slow"):
            answered.wait(60)
            raise OSError("no such name")
        return look_up(host, *more)

    monkeypatch.setattr(_socket, "getaddrinfo", ask)
    transport = make_transport(connect_s=2.0)

    def fetch(number):
        with pytest.raises(UpstreamUnreachable):
            transport.fetch(f"http://slow-{number}.example/", 10, timeout_s=1.0)

    waiting = [gevent.spawn(fetch, number) for number in range(24)]
    gevent.sleep(0.05)
    upstream.answer(OK)
    try:
        reply = call(transport, f"http://localhost:{upstream.port}/", seconds=0.8, trusted=True)
        assert reply.read_all() == b"ok"
    finally:
        answered.set()
        gevent.killall(waiting)


def test_deadline_that_passed_opens_nothing(upstream, make_transport):
    with pytest.raises(UpstreamTimeout):
        call(make_transport(), upstream.url, seconds=-1)
    assert upstream.connections == 0


def test_answer_that_does_not_begin_in_time_is_a_timeout_and_hangs_up(upstream, make_transport):
    upstream.answer(0.3, OK, 0.05, OK)
    with pytest.raises(UpstreamTimeout):
        call(make_transport(), upstream.url, seconds=0.1)
    wait_until(lambda: upstream.hung_up)


def test_stream_that_does_not_begin_within_the_silence_limit_is_a_timeout(upstream, make_transport):
    upstream.answer(1.0, OK)
    with pytest.raises(UpstreamTimeout, match="begin"):
        call(make_transport(silence_s=0.1), upstream.url, stream=True)


def test_plain_answer_may_think_for_longer_than_the_silence_limit(upstream, make_transport):
    upstream.answer(0.2, OK)
    assert call(make_transport(silence_s=0.1), upstream.url).read_all() == b"ok"


def test_caller_can_act_while_the_upstream_thinks(upstream, make_transport):
    upstream.answer(1.0, OK)
    transport = make_transport()
    head = transport.prepare("POST", upstream.url, {}, False)
    pending = transport.transmit(head, b"{}", True, time.monotonic() + 60)
    beats = 0
    while (reply := pending.wait(0.05)) is None:
        beats += 1
    assert beats >= 2
    assert reply.read_all() == b"ok"


def test_unread_stream_that_is_closed_hangs_up_on_the_upstream(upstream, make_transport):
    upstream.answer(b"HTTP/1.1 200 OK\r\n\r\n", *[b"data", 0.01] * 400)
    reply = call(make_transport(), upstream.url, stream=True)
    next(reply.chunks())
    reply.close()
    reply.close()
    wait_until(lambda: upstream.hung_up)


def test_killed_greenlet_hangs_up_and_frees_its_place(upstream, make_transport):
    transport = make_transport(options={"per_origin": 1})
    upstream.answer(0.05, OK, 0.05, OK, 0.05, OK)
    caller = gevent.spawn(call, transport, upstream.url)
    wait_until(lambda: upstream.requests)
    caller.kill()
    wait_until(lambda: upstream.hung_up)
    upstream.answer(OK)
    assert call(transport, upstream.url).read_all() == b"ok"


def test_a_full_pool_waits_a_bounded_time_and_suggests_a_retry(upstream, make_transport):
    transport = make_transport(options={"per_origin": 1}, connect_s=0.05)
    upstream.answer(OK)
    held = call(transport, upstream.url)
    with pytest.raises(UpstreamUnreachable, match="in use") as refusal:
        call(transport, upstream.url)
    assert refusal.value.retry_after == 1
    held.close()


def test_waiting_caller_gets_the_place_that_comes_free(upstream, make_transport):
    transport = make_transport(options={"per_origin": 1})
    for _ in range(2):
        upstream.answer(OK)
    held = call(transport, upstream.url)
    waiting = gevent.spawn(lambda: call(transport, upstream.url).read_all())
    gevent.sleep(0.02)
    held.read_all()
    assert waiting.get(timeout=60) == b"ok"


def test_connection_that_ended_while_idle_is_replaced_unnoticed(upstream, make_transport):
    transport = make_transport()
    for _ in range(2):
        upstream.answer(OK, None)
        assert call(transport, upstream.url).read_all() == b"ok"
        gevent.sleep(0.02)
    assert (upstream.connections, len(upstream.requests)) == (2, 2)


@pytest.mark.parametrize(("told", "connections"), [(b"timeout=1", 2), (b"max=9, timeout=0", 2), (b"timeout=60", 1)])
def test_connection_is_not_used_again_when_its_server_is_about_to_end_it(upstream, make_transport, told, connections):
    """A request sent while the server closes the connection is lost, and a paid request is never sent again."""
    transport = make_transport()
    for _ in range(2):
        upstream.answer(OK.replace(b"\r\n\r\n", b"\r\nKeep-Alive: %b\r\n\r\n" % told))
        assert call(transport, upstream.url).read_all() == b"ok"
    assert upstream.connections == connections


@pytest.mark.parametrize("surplus", [b"x", OK])
def test_connection_with_bytes_after_its_answer_is_not_used_again(upstream, make_transport, surplus):
    transport = make_transport()
    for wire in (OK + surplus, OK):
        upstream.answer(wire)
        assert call(transport, upstream.url).read_all() == b"ok"
    assert upstream.connections == 2


@pytest.mark.parametrize("wire", [OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"), OK.replace(b"1.1", b"1.0")])
def test_connection_that_announces_its_end_is_not_used_again(upstream, make_transport, wire):
    transport = make_transport()
    for _ in range(2):
        upstream.answer(wire)
        assert call(transport, upstream.url).read_all() == b"ok"
    assert upstream.connections == 2


def test_paid_request_that_may_have_left_is_never_sent_again(upstream, make_transport):
    transport = make_transport()
    upstream.answer(OK)
    call(transport, upstream.url).read_all()
    upstream.answer(None)
    with pytest.raises(UpstreamUnreachable, match="before it answered"):
        call(transport, upstream.url)
    assert len(upstream.requests) == 2


def test_harmless_request_is_sent_again_once_when_its_pooled_connection_dies(upstream, make_transport):
    transport = make_transport()
    for steps in ((OK,), (None,), (OK,)):
        upstream.answer(*steps)
    call(transport, upstream.url, "GET").read_all()
    assert call(transport, upstream.url, "GET").read_all() == b"ok"
    assert len(upstream.requests) == 3


def test_harmless_request_on_a_new_connection_is_not_repeated(upstream, make_transport):
    upstream.answer(None)
    with pytest.raises(UpstreamUnreachable):
        call(make_transport(), upstream.url, "GET")
    assert len(upstream.requests) == 1


def test_an_answer_before_the_end_of_the_body_is_read(make_transport):
    def refuse(sock, _address):
        sock.recv(1000)
        sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        gevent.sleep(0.3)

    with gevent.server.StreamServer(("127.0.0.1", 0), refuse) as server:
        server.start()
        url = f"http://127.0.0.1:{server.server_port}/"
        reply = make_transport().open("POST", url, {}, b"x" * 100_000, deadline=time.monotonic() + 2)
        assert (reply.status, reply.read_all()) == (413, b"big")


def test_large_body_arrives_whole(upstream, make_transport):
    upstream.answer(OK)
    body = bytes(range(256)) * 40_000
    reply = make_transport().open("POST", upstream.url, {}, body, deadline=time.monotonic() + 5)
    assert reply.read_all() == b"ok"
    assert upstream.requests[0].endswith(b"\r\n\r\n" + body)


def test_private_address_is_refused_unless_trusted(upstream, make_transport):
    transport = make_transport(private=False)
    with pytest.raises(UpstreamUnreachable) as refusal:
        call(transport, upstream.url)
    assert (refusal.value.code, upstream.connections) == ("address_not_allowed", 0)
    upstream.answer(OK)
    assert call(transport, upstream.url, trusted=True).read_all() == b"ok"
    with pytest.raises(UpstreamUnreachable):
        call(transport, upstream.url)


def test_name_is_looked_up_once_so_a_second_answer_cannot_lead_inside(make_transport):
    answers = [["192.0.2.1"], ["127.0.0.1"]]
    transport = make_transport(private=False, options={"resolver": lambda host, port: answers.pop(0)})
    with pytest.raises(UpstreamUnreachable) as refusal:
        call(transport, "http://rebind.test/")
    assert refusal.value.code == "address_not_allowed"
    assert answers == [["127.0.0.1"]]


def test_redirect_is_not_followed_for_a_provider(upstream, make_transport):
    upstream.answer(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
    assert call(make_transport(), upstream.url).status == 302


def redirect(target: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()


def test_fetch_follows_redirects_to_their_target(upstream, make_transport):
    upstream.answer(redirect("/elsewhere"))
    upstream.answer(OK)
    answer = make_transport().fetch(upstream.url, 100)
    assert (answer.status, answer.body) == (200, b"ok")
    assert upstream.requests[1].startswith(b"GET /elsewhere HTTP/1.1")


def test_fetch_checks_each_hop_of_a_redirect(upstream, make_transport):
    looked_up = []

    def resolver(host, port):
        looked_up.append(host)
        return ["127.0.0.1"]

    transport = make_transport(options={"resolver": resolver})
    upstream.answer(redirect("ftp://inner.test/"))
    with pytest.raises(UpstreamUnreachable):
        transport.fetch(f"http://outer.test:{upstream.port}/", 100)
    assert looked_up == ["outer.test"]


def test_fetch_ends_a_loop_of_redirects(upstream, make_transport):
    for _ in range(6):
        upstream.answer(redirect("/again"))
    with pytest.raises(UpstreamFailed) as refusal:
        make_transport().fetch(upstream.url, 100)
    assert refusal.value.code == "too_many_redirects"


def test_fetch_follows_no_redirect_when_none_is_allowed(upstream, make_transport):
    upstream.answer(redirect("/again"))
    with pytest.raises(UpstreamFailed) as refusal:
        make_transport().fetch(upstream.url, 100, redirects=0)
    assert refusal.value.code == "too_many_redirects" and len(upstream.requests) == 1


@pytest.mark.parametrize("wire", [OK, b"HTTP/1.1 200 OK\r\n\r\nok"])
def test_fetch_refuses_more_than_its_cap(upstream, make_transport, wire):
    upstream.answer(wire, None)
    with pytest.raises(UpstreamFailed) as refusal:
        make_transport().fetch(upstream.url, 1)
    assert refusal.value.code == "response_too_large"


def test_request_gives_status_headers_and_body(upstream, make_transport):
    upstream.answer(OK.replace(b"200 OK", b"500 X"))
    status, headers, body = make_transport().request("PUT", upstream.url, {"x-a": "1"}, b"{}")
    assert (status, headers, body) == (500, {"content-length": "2"}, b"ok")


def test_fast_stream_lets_others_run(upstream, make_transport):
    upstream.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n" + b"x" * 4_000_000)
    turns = []
    other = gevent.spawn(lambda: [turns.append(gevent.sleep(0)) for _ in range(1000)])
    call(make_transport(), upstream.url, stream=True).read_all()
    other.kill()
    assert len(turns) > 20


def test_reset_in_a_body_is_a_truncated_stream(make_transport):
    def reset(sock, _address):
        sock.recv(1000)
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\nhel")
        gevent.sleep(0.05)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        sock.close()

    with gevent.server.StreamServer(("127.0.0.1", 0), reset) as server:
        server.start()
        with pytest.raises(StreamTruncated):
            call(make_transport(), f"http://127.0.0.1:{server.server_port}/").read_all()


def test_prepared_head_serves_calls_with_bodies_of_any_length(upstream, make_transport):
    transport = make_transport()
    head = transport.prepare("POST", upstream.url, {"authorization": "Bearer k"}, trusted=False)
    for body in (b"{}", b"", b"x" * 70_000):
        upstream.answer(OK)
        reply = transport.transmit(head, body, False, time.monotonic() + 5).wait()
        assert reply.read_all() == b"ok"
        sent, _, rest = upstream.requests[-1].partition(b"\r\n\r\n")
        assert sent.endswith(b"content-length: %d" % len(body)) and rest == body
        assert b"\r\nauthorization: Bearer k\r\n" in sent


def test_prepared_head_never_shows_its_headers(upstream, make_transport):
    head = make_transport().prepare("POST", upstream.url, {"authorization": "Bearer secret"}, trusted=False)
    assert "secret" not in repr(head)


def test_a_body_in_pieces_arrives_whole_and_can_be_sent_again(make_transport, upstream, tmp_path):
    file = StoredFile(str(tmp_path), in_memory=0)
    file.write(bytes(range(256)) * 20_000)  # five megabytes: more than any socket's buffer
    transport = make_transport()
    for _ in range(2):
        upstream.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        head = transport.prepare("POST", upstream.url, {}, True)
        reply = transport.transmit(head, file, False, time.monotonic() + 30).wait()
        assert reply.read_all() == b"ok"
    assert [request.partition(b"\r\n\r\n")[2] == file.read_all() for request in upstream.requests] == [True, True]
    assert upstream.connections == 1


def test_a_peer_that_refuses_halfway_is_heard(make_transport, tmp_path):
    file = StoredFile(str(tmp_path), in_memory=0)
    file.write(bytes(30_000_000))
    refusing = StreamServer(("127.0.0.1", 0), refuse_halfway)
    refusing.start()
    transport = make_transport()
    head = transport.prepare("POST", f"http://127.0.0.1:{refusing.server_port}/", {}, True)
    reply = transport.transmit(head, file, False, time.monotonic() + 30).wait()
    assert reply.status == 413
    refusing.stop(timeout=0.1)


def refuse_halfway(sock, _address):
    sock.recv(65536)
    sock.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    while sock.recv(1 << 20):
        pass
