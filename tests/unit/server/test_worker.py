"""The worker against hostile and hurried callers, over raw sockets."""

import json
import socket
import time

import pytest

from gateway.server.http1 import read_head


def test_head_split_at_every_byte_is_one_request(caller):
    for byte in b"POST /echo?a=b HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nhi":
        caller.send(bytes([byte]))
        time.sleep(0.001)
    assert caller.reply()[2] == b"POST /echo a=b \nhi"


def test_pipelined_requests_are_answered_in_order(caller):
    one = b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\n\r\n"
    caller.send(one + b"1" + one + b"2" + b"\r\n" + one + b"3")
    assert [caller.reply()[2][-1:] for _ in range(3)] == [b"1", b"2", b"3"]


def test_reply_is_one_segment_with_date_and_length(caller):
    caller.get("/echo")
    time.sleep(0.1)
    reply = caller.socket.recv(65536)
    assert (
        reply.endswith(b"\r\n\r\nGET /echo  \n") and b"\r\nDate: " in reply and b"\r\nContent-Length: 12\r\n" in reply
    )


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"Content-Length: 1\r\nContent-Length: 1", 400),
        (b"Content-Length: +1", 400),
        (b"Content-Length: 1_0", 400),
        (b"Content-Length: 1, 1", 400),
        (b"Content-Length: 1\r\nTransfer-Encoding: chunked", 400),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
        (b"Transfer-Encoding: gzip, chunked", 501),
        (b"X-Folded: a\r\n b", 400),
        (b"X Space: a", 400),
        (b"Host: second", 400),
        (b"Expect: miracles", 417),
        (b"X-Long: " + b"a" * 70_000, 431),
    ],
)
def test_head_that_two_readers_could_take_differently_is_refused_and_closed(caller, head, status):
    caller.send(b"POST /echo HTTP/1.1\r\nHost: here\r\n" + head + b"\r\n\r\n")
    found, headers, body = caller.reply()
    assert (found, headers["connection"]) == (status, "close")
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"} and all(type(value) is str for value in error.values())
    assert error["type"] == "invalid_request_error" and error["code"] and headers["x-request-id"]
    assert caller.rest() == b""


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET / HTTP/1.1", 400),
        (b"GET / HTTP/2.0", 505),
        (b"CONNECT here:443 HTTP/1.1\r\nHost: here", 405),
        (b"GET ftp://here/ HTTP/1.1\r\nHost: here", 400),
        (b"\x16\x03\x01", 400),
    ],
)
def test_request_line_that_is_not_served_gets_its_own_status(caller, line, status):
    caller.send(line + b"\r\n\r\n")
    assert caller.reply()[0] == status


def test_header_with_an_underscore_cannot_pose_as_its_twin(caller):
    caller.get("/echo", "X_Forwarded: evil", "X-Real: a")
    assert caller.reply()[2] == b"GET /echo  HTTP_X_REAL\n"


def test_a_session_may_be_named_with_an_underscore():
    environ = {}
    read_head(b"GET / HTTP/1.1\r\nHost: here\r\nSession_Id: one\r\nconversation_id: two\r\n\r\n", environ)
    assert (environ["HTTP_SESSION_ID"], environ["HTTP_CONVERSATION_ID"]) == ("one", "two")


def test_absolute_target_and_escapes_are_understood(caller):
    caller.get("http://here/echo%3Fq?x=%20")
    status, _, _ = caller.reply()
    caller.get("http://here/%65cho?x=%20")
    assert status == 404 and caller.reply()[2] == b"GET /echo x=%20 \n"


def test_chunked_body_arrives_whole_with_its_length(caller):
    caller.post("/size", b"3;ext=1\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n", "Transfer-Encoding: chunked")
    assert caller.reply()[2] == b"13 13"
    assert caller.get("/ready").reply()[0] == 200


@pytest.mark.parametrize(
    "body", [b"x\r\n", b"-1\r\n", b"0x1\r\na\r\n", b"1\r\nab\r\n0\r\n\r\n", b"\r\n", b"1" * 2000, b"1" * 17 + b"\r\n"]
)
def test_broken_chunks_are_refused(caller, body):
    caller.post("/size", body, "Transfer-Encoding: chunked")
    assert caller.reply()[0] == 400


def test_body_over_the_cap_is_refused_before_it_is_sent(caller):
    caller.post("/size", b"", "Content-Length: 300001", "Expect: 100-continue")
    assert caller.reply()[0] == 413


def test_caller_that_sends_on_still_reads_the_refusal(caller):
    caller.post("/size", b"a" * 3_000_000)
    assert caller.reply()[0] == 413


def test_chunked_body_over_the_cap_is_refused(caller):
    caller.post("/size", (b"10000\r\n" + b"a" * 65536 + b"\r\n") * 5 + b"0\r\n\r\n", "Transfer-Encoding: chunked")
    assert caller.reply()[0] == 413


def test_largest_allowed_body_passes(caller):
    caller.post("/size", b"a" * 300_000)
    assert caller.reply()[2] == b"300000 300000"


def test_a_caller_with_expect_continue_gets_100(caller):
    caller.post("/size", b"", "Content-Length: 2", "Expect: 100-continue")
    assert caller.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert caller.send(b"hi").reply()[2] == b"2 2"


def test_a_caller_that_already_sent_its_body_gets_no_100(caller):
    caller.post("/size", b"hi", "Content-Length: 2", "Expect: 100-continue")
    assert caller.reply()[0] == 200


def test_head_request_has_the_headers_only(caller):
    caller.send(b"HEAD /echo HTTP/1.1\r\nHost: here\r\n\r\n")
    assert caller.until(b"\r\n\r\n").count(b"Content-Length: 13") == 1
    assert caller.get("/ready").reply()[0] == 200


@pytest.mark.parametrize(("status", "length"), [("204", None), ("304", "4")])
def test_status_without_body_has_none(caller, status, length):
    caller.get(f"/status?{status}")
    head = caller.until(b"\r\n\r\n")
    assert (b"Content-Length: 4" in head) == bool(length) and b"chunked" not in head
    assert caller.get("/ready").reply()[0] == 200


def test_old_protocol_gets_no_chunks_and_a_close(caller):
    caller.send(b"GET /stream?3,0 HTTP/1.0\r\n\r\n")
    reply = caller.rest()
    assert b"chunked" not in reply and reply.endswith(b"\r\n\r\nitem 0\nitem 1\nitem 2\n")


def test_old_protocol_may_ask_to_keep_the_connection(caller):
    caller.send(b"GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert caller.reply()[1]["connection"] == "keep-alive"
    assert caller.get("/ready").reply()[0] == 200


def test_a_connection_whose_caller_requests_its_end_is_closed(caller):
    assert caller.get("/echo", "Connection: close").reply()[1]["connection"] == "close"
    assert caller.rest() == b""


def test_stream_is_one_chunk_an_item_as_it_comes(caller):
    caller.get("/stream?3,0.01")
    assert b"chunked" in caller.until(b"\r\n\r\n")
    items = b"".join(b"7\r\nitem %d\n\r\n" % number for number in range(3))
    assert caller.until(b"0\r\n\r\n") == items + b"0\r\n\r\n"
    assert caller.get("/ready").reply()[0] == 200
    # Each as it comes: the next one is made long after the caller would have given up.
    caller.get("/stream?2,60").until(b"\r\n\r\n")
    assert caller.until(b"\n\r\n") == b"7\r\nitem 0\n\r\n"


def test_head_of_a_stream_does_not_wait_for_its_first_item(caller):
    assert b"chunked" in caller.get("/late_first?60").until(b"\r\n\r\n")


@pytest.mark.parametrize(("path", "body"), [("/lazy", b"lazy"), ("/written", b"one")])
def test_late_and_old_style_bodies_are_sent(caller, path, body):
    caller.get(path)
    assert body in caller.until(b"0\r\n\r\n")


def test_body_longer_than_declared_is_cut_and_shorter_closes(caller):
    assert caller.get("/declared?3,2").reply()[2] == b"xxx"
    assert caller.get("/declared?70000,35001").reply()[2] == b"x" * 70_000
    assert caller.get("/declared?9,2").until(b"\r\n\r\n") and caller.rest() == b"xxxx"


def test_crash_is_answered_500_without_its_words(caller):
    status, headers, body = caller.get("/crash").reply()
    assert (status, headers["connection"]) == (500, "close") and b"trouble" not in body


def test_crash_in_a_stream_cuts_it_without_an_end(server, caller):
    caller.get("/crash_late")
    assert caller.rest().endswith(b"4\r\npart\r\n")
    server.wait_for("closed crash_late")


def test_reply_is_replaced_with_exc_info_before_it_is_out(caller):
    status, _, body = caller.get("/replace").reply()
    assert (status, body) == (503, b"replaced")


def test_header_with_a_line_end_becomes_500(caller):
    assert caller.get("/split").reply()[0] == 500


@pytest.mark.slow
def test_idle_connection_ends_after_its_time(caller):
    caller.get("/ready").reply()
    began = time.monotonic()
    assert caller.rest() == b"" and 1.5 < time.monotonic() - began < 4


def test_hang_up_is_noticed_while_the_application_is_silent(server):
    caller = server.call().get("/silent?20")
    server.wait_for("began")
    began = time.monotonic()
    caller.close()
    gone = server.wait_for("ClientGone", 10)
    assert float(gone.split()[1]) - began < 5  # of twenty
    server.wait_for("settled")


def test_hang_up_in_a_stream_closes_its_iterator(server):
    caller = server.call().get("/stream?1000,0.05")
    caller.until(b"item 1")
    caller.close()
    # By the sweep or by a send that failed, whichever came first.
    assert server.wait_for("cut") in ("cut ClientGone", "cut GeneratorExit")


def test_forwarded_scheme_of_a_near_proxy_holds(caller):
    assert caller.get("/scheme", "X-Forwarded-Proto: https").reply()[2] == b"https"
    # The value of the first of several proxies describes the caller.
    assert caller.get("/scheme", "X-Forwarded-Proto: https, http").reply()[2] == b"https"
    assert caller.get("/scheme", "X-Forwarded-Proto: http, https").reply()[2] == b"http"
    assert caller.get("/scheme").reply()[2] == b"http"


def test_websocket_takes_the_socket_over(server, caller):
    key = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
    caller.get("/socket", *key, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
    assert caller.until(b"\r\n\r\n").startswith(b"HTTP/1.1 101")
    caller.send(b"\x81\x82\0\0\0\0hi")
    assert caller.until(b"hi") == b"\x81\x02hi"
    caller.send(b"\x88\x82\0\0\0\0\x03\xe8")
    assert caller.rest() == b"\x88\x02\x03\xe8"
    server.wait_for("socket ended")


def test_a_half_sent_request_does_not_delay_others(server):
    slow = server.call().send(b"POST /echo HTTP/1.1\r\nHost: here\r\n")
    quick = server.call()
    assert quick.get("/ready").reply()[0] == 200
    slow.socket.shutdown(socket.SHUT_WR)
    assert slow.rest() == b""


def test_requests_that_wait_together_begin_in_separate_rounds_of_the_event_loop(server):
    waiting = [server.call() for _ in range(6)]
    assert {caller.get("/hold?0").reply()[0] for caller in waiting} == {200}
    holder = server.call().get("/hold?0.5")
    server.wait_for("holding")
    for caller in waiting:
        caller.get("/hold?0")
    rounds = [int(caller.reply()[2]) for caller in (*waiting, holder)]
    assert len(set(rounds)) == len(rounds)


FORM = b"Host: here\r\nContent-Type: multipart/form-data; boundary=b\r\n"


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_form_is_accepted_by_length_and_by_chunks_and_the_connection_goes_on(caller, size):
    body = bytes(range(250)) * (size // 250) + b"e" * (size % 250)
    caller.send(b"POST /size HTTP/1.1\r\n" + FORM + b"Content-Length: %d\r\n\r\n" % size + body)
    assert caller.reply()[2] == b"%d %d" % (size, size)
    head = b"POST /echo HTTP/1.1\r\n" + FORM + b"Transfer-Encoding: chunked\r\n\r\n"
    pieces = [body[at : at + 100_000] for at in range(0, size, 100_000)]
    caller.send(head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n")
    assert caller.reply()[2].partition(b"\n")[2] == body
