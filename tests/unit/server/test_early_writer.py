"""Blanks before a late answer keep the framing of the answer, whenever it arrives."""

from typing import Any

import gevent
import gevent.event

from gateway.runtime import early_answers
from gateway.server.early_writer import EarlyWriter
from gateway.surfaces.web.http import Outbound


class SlowConnection:
    """A connection whose caller takes half of the first blank until it `reads`."""

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
