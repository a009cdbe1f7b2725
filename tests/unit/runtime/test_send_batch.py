"""Sends of one turn of the event loop, over socket pairs."""

import gevent
import pytest
from gevent import socket
from gevent.event import Event

from gateway.runtime.send_batch import MAX_BYTES, MAX_SENDS, QueuedSends, current_batch


class Connection:
    """One end of a socket pair; `peer` is the other end."""

    def __init__(self, batched: bool = True) -> None:
        self.socket, self.peer = socket.socketpair()
        self.socket.settimeout(0.0)
        self.sent: list[bytes] = []
        self.failed = False
        self.queued = QueuedSends(self, batched)

    def send(self, data: bytes) -> None:
        if not self.queued.take(data):
            self.socket.sendall(data)

    def send_now(self, data: bytes) -> int:
        self.sent.append(data)
        return self.socket._sock.send(data)

    def send_rest(self, rest: memoryview) -> None:
        self.socket.settimeout(5.0)
        self.socket.sendall(rest)

    def fail(self) -> None:
        self.failed = True

    def has_arrived(self) -> bool:
        try:
            return bool(self.peer._sock.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False


@pytest.fixture
def connections():
    gevent.sleep(0)  # the turn of the test before ends
    made = [Connection() for _ in range(3)]
    yield made
    for connection in made:
        connection.queued.close()
        connection.socket.close()
        connection.peer.close()


def test_greenlets_that_are_woken_together_send_together(connections):
    arrived = []
    woken = Event()

    def answer(connection):
        woken.wait()
        connection.send(b"answer")
        arrived.append([connection.has_arrived() for connection in connections])

    greenlets = [gevent.spawn(answer, connection) for connection in connections]
    gevent.sleep(0)
    woken.set()
    current_batch().open()
    gevent.joinall(greenlets)
    gevent.sleep(0)
    assert arrived == [[False] * 3] * 3
    assert [connection.peer.recv(100) for connection in connections] == [b"answer"] * 3


def test_lone_send_leaves_at_once(connections):
    gevent.sleep(0)
    connections[0].send(b"answer")
    assert connections[0].has_arrived()


def test_pieces_of_one_connection_leave_in_one_send_and_in_order(connections):
    connection = connections[0]
    current_batch().open()
    connection.send(b"one ")
    connection.send(b"two")
    gevent.sleep(0)
    assert connection.sent == [b"one two"]


def test_head_leaves_with_the_first_piece_which_waits_for_no_other_connection(connections):
    connection = connections[0]
    connection.queued.open()
    connection.send(b"head ")
    assert not connection.sent
    connection.send(b"first piece")
    assert connection.sent == [b"head first piece"]


def test_head_without_a_piece_leaves_at_the_end_of_the_turn(connections):
    connection = connections[0]
    connection.queued.open()
    connection.send(b"head")
    gevent.sleep(0)
    assert connection.sent == [b"head"]


def test_head_and_first_piece_leave_with_those_of_connections_that_have_data_too(connections):
    def serve(connection):
        connection.socket.recv(10)
        connection.queued.open()
        connection.send(b"head ")
        connection.send(b"piece")
        arrived.append([other.has_arrived() for other in connections])

    arrived = []
    for connection in connections:
        connection.socket.settimeout(5.0)
    greenlets = [gevent.spawn(serve, connection) for connection in connections]
    gevent.sleep(0)
    for connection in connections:
        connection.peer.send(b"data")
    gevent.joinall(greenlets, timeout=60)
    gevent.sleep(0)
    assert arrived[0] == arrived[1] == [False] * 3
    assert all(connection.has_arrived() for connection in connections)


def test_large_piece_leaves_at_once_behind_the_queued_ones(connections):
    connection = connections[0]
    current_batch().open()
    connection.send(b"first")
    connection.send(b"x" * (MAX_BYTES + 1))
    assert connection.sent == [b"first"]
    assert connection.peer.recv(6) == b"firstx"


def test_full_batch_leaves_before_the_turn_ends(connections):
    others = [Connection() for _ in range(MAX_SENDS)]
    current_batch().open()
    for connection in others:
        connection.send(b"answer")
    assert all(connection.has_arrived() for connection in others)


def test_rest_that_the_kernel_does_not_take_is_sent_as_the_peer_reads(connections):
    connection = connections[0]
    while True:
        try:
            connection.socket._sock.send(b"." * 65536)
        except BlockingIOError:
            break
    current_batch().open()
    connection.send(b"one ")
    gevent.sleep(0)
    reader = gevent.spawn(connection.peer.recv, 1 << 24)
    connection.send(b"two ")
    current_batch().open()
    connection.send(b"three")
    gevent.sleep(0)
    connection.socket.shutdown(socket.SHUT_WR)
    received = reader.get(timeout=60)
    while piece := connection.peer.recv(1 << 24):
        received += piece
    assert received.lstrip(b".") == b"one two three"


def test_failed_send_is_reported_to_its_connection(connections):
    connection = connections[0]
    connection.peer.close()
    current_batch().open()
    connection.send(b"answer")
    assert not connection.failed
    gevent.sleep(0)
    assert connection.failed


def test_connection_with_tls_never_joins_a_batch():
    connection = Connection(batched=False)
    current_batch().open()
    connection.send(b"answer")
    assert connection.has_arrived()


def test_closed_connection_discards_what_is_queued(connections):
    connection = connections[0]
    current_batch().open()
    connection.send(b"answer")
    connection.queued.close()
    gevent.sleep(0)
    assert not connection.has_arrived()
