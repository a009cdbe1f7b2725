"""Heads of responses: the server writes their framing, whatever the application sends."""

import socket
from typing import Any

import gevent
import gevent.event
import pytest

from gateway.errors import InvalidRequest
from gateway.runtime import early_answers
from gateway.server.connection import CallerConnection
from gateway.server.response_writer import EarlyWriter, ResponseWriter, secure_end, write_refusal
from gateway.surfaces.web.http import Outbound

Pair = tuple[CallerConnection, socket.socket]


def received(caller: socket.socket) -> tuple[list[tuple[str, str]], bytes]:
    """Return the headers that the caller got, with lower-case names, and the body."""
    head, end, body = caller.recv(65_536).partition(b"\r\n\r\n")
    assert end
    lines = [line.partition(": ") for line in head.decode().split("\r\n")[1:]]
    return [(name.lower(), value) for name, _, value in lines], body


def test_the_application_cannot_change_the_framing(pair: Pair) -> None:
    connection, caller = pair
    writer = ResponseWriter(connection, True, True, False)
    framing = [("Transfer-Encoding", "chunked"), ("Keep-Alive", "timeout=5"), ("Connection", "keep-alive")]
    writer.start("200 OK", [("Content-Length", "5"), ("Date", "Sat, 28 Nov 2026 11:00:00 GMT"), ("X-A", "1"), *framing])
    writer.deliver([b"hello"])
    headers, body = received(caller)
    assert sorted(headers) == [
        ("content-length", "5"),
        ("date", "Sat, 28 Nov 2026 11:00:00 GMT"),
        ("x-a", "1"),
        ("x-content-type-options", "nosniff"),
    ]
    assert body == b"hello" and writer.keep_alive


def test_an_application_that_closes_the_connection_ends_it(pair: Pair) -> None:
    connection, caller = pair
    writer = ResponseWriter(connection, True, True, False)
    writer.start("200 OK", [("Connection", "Close")])
    writer.deliver([b"hello"])
    headers, _ = received(caller)
    assert ("connection", "close") in headers and ("content-length", "5") in headers and not writer.keep_alive


@pytest.mark.parametrize("end", [secure_end(0), secure_end(60)])
def test_no_browser_may_guess_another_type_of_any_answer(pair: Pair, end: tuple[str, ...]) -> None:
    connection, caller = pair
    ResponseWriter(connection, True, True, False, end).answer(Outbound(200, [], b"hello"))
    headers, _ = received(caller)
    assert headers.count(("x-content-type-options", "nosniff")) == 1
    assert (("strict-transport-security", "max-age=60") in headers) == (len(end) == len(secure_end(60)))
    assert b"\r\nX-Content-Type-Options: nosniff\r\n\r\n{" in write_refusal(
        InvalidRequest("It is wrong."), "Date: x", False
    )


# Blanks before a late answer keep the framing of the answer, whenever it arrives.


class SlowConnection:
    """A connection of a caller that takes half of the first blank until it `reads`."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self.sent = b""
        self.full = gevent.event.Event()
        self.reads = gevent.event.Event()

    def send(self, data: bytes) -> None:
        half = len(data) // 2
        self.sent += data[:half]
        self.full.set()
        self.reads.wait()
        self.sent += data[half:]

    def send_head(self, head: bytes) -> None:
        self.sent += head


def test_an_answer_waits_for_a_blank_that_is_being_sent(pair: Any) -> None:
    connection = SlowConnection(pair[0].state)
    writer = EarlyWriter(connection, True, True, False, seconds=0.01)  # type: ignore[arg-type]
    early_answers.begin([])
    assert connection.full.wait(10)
    answering = gevent.spawn(writer.answer, Outbound(200, [], b"{}"))
    gevent.sleep(0)
    connection.reads.set()
    answering.join(10)
    body = connection.sent.partition(b"\r\n\r\n")[2]
    assert body == b"1\r\n \r\n" + b"2\r\n{}\r\n" + b"0\r\n\r\n"
