"""Callers' sockets as Flask-Sock opens them: messages, what ends them, and how little of a peer's is held."""

from collections.abc import Iterator
from typing import Any

import gevent
import pytest
from gevent import socket
from simple_websocket import Server
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Pong, Request, TextMessage

from gateway.runtime.threads import spawn
from gateway.transport import websocket_channels
from gateway.transport.sock_sockets import OPTIONS, PacedSocket, SockSocket
from gateway.transport.websocket_channels import SocketChannel, SocketClosed
from gateway.transport.websockets import MAX_MESSAGE_BYTES

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
LOW_MB = 3


class LocalChannel(SocketChannel):
    """A local socket knows no TCP option."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock


class Peer:
    """A client that speaks frames over `sock`."""

    def __init__(self, sock: Any) -> None:
        self.sock, self._connection = sock, WSConnection(ConnectionType.CLIENT)
        self._connection.send(Request(host="here", target="/", subprotocols=["realtime"]))
        self._connection.handshake._nonce = KEY.encode()

    def send(self, *events: Any) -> None:
        for event in events:
            self.sock.sendall(self._connection.send(event))

    def received(self) -> list[Any]:
        self._connection.receive_data(self.sock.recv(65_536))
        return list(self._connection.events())


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SockSocket, Peer]]:
    """The caller's socket as a session has it, and the caller."""
    monkeypatch.setattr("gateway.transport.sock_sockets.SocketChannel", LocalChannel)
    ours, theirs = socket.socketpair()
    for side in (ours, theirs):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    paced = PacedSocket(ours)
    head = {"HTTP_HOST": "here", "HTTP_SEC_WEBSOCKET_KEY": KEY, "HTTP_SEC_WEBSOCKET_VERSION": "13"}
    head |= {"HTTP_SEC_WEBSOCKET_PROTOCOL": "other, realtime"}
    made = Server({"gunicorn.socket": paced, "PATH_INFO": "/", "HTTP_UPGRADE": "websocket",
                   "HTTP_CONNECTION": "Upgrade", **head}, **OPTIONS)  # fmt: skip
    peer = Peer(theirs)
    (accepted,) = peer.received()
    assert isinstance(accepted, AcceptConnection) and accepted.subprotocol == "realtime"
    served = SockSocket(made, paced)
    yield served, peer
    served.abort()
    theirs.close()


def test_messages_go_both_ways_whole_however_they_were_cut(pair: tuple[SockSocket, Peer]) -> None:
    served, peer = pair
    parts = [TextMessage(data=part, message_finished=False) for part in "tw"]
    peer.send(TextMessage(data="one"), *parts, TextMessage(data="o"))
    assert (served.receive(), served.receive()) == ("one", "two")
    served.send("three")
    assert [event.data for event in peer.received()] == ["three"]


def test_a_long_message_to_a_slow_reader_arrives_whole(pair: tuple[SockSocket, Peer]) -> None:
    """A socket takes a part of it at a time."""
    served, peer = pair
    text = "x" * (4 << 20)
    sending = spawn(served.send, text)
    parts: list[str] = []
    while sum(map(len, parts)) < len(text):
        parts += [event.data for event in peer.received()]
    sending.join()
    assert "".join(parts) == text


def test_refused_messages_stay_with_the_caller(pair: tuple[SockSocket, Peer]) -> None:
    served, peer = pair
    piece, sent = "x" * 10_000, [0]

    def flood() -> None:
        for _ in range(3_000):
            peer.send(TextMessage(data=piece))
            sent[0] += 1

    flooding = spawn(flood)
    before = -1
    while before != sent[0]:
        before = sent[0]
        gevent.sleep(0.2)
    assert sent[0] * len(piece) < LOW_MB << 20
    assert [len(served.receive() or "") for _ in range(3_000)] == [len(piece)] * 3_000
    flooding.join()


def test_pings_and_answers_to_them_are_heard(pair: tuple[SockSocket, Peer]) -> None:
    served, peer = pair
    served.ping()
    assert isinstance(peer.received()[0], Ping)
    before = served.received_count
    peer.send(Pong(payload=b""), Ping(payload=b"1"))
    assert isinstance(peer.received()[0], Pong) and served.received_count > before


def test_a_close_frame_is_reported_and_nothing_is_sent_after_it(pair: tuple[SockSocket, Peer]) -> None:
    served, peer = pair
    peer.send(CloseConnection(code=4001, reason="enough"))
    assert served.receive() is None and (served.code, served.reason) == (4001, "enough")
    assert peer.received()[0].code == 4001
    with pytest.raises(SocketClosed):
        served.send("more")


def test_a_socket_that_its_peer_has_just_closed_can_be_closed(pair: tuple[SockSocket, Peer]) -> None:
    served, peer = pair
    peer.send(CloseConnection(code=1000))
    assert isinstance(peer.received()[0], CloseConnection)
    served.close(1000)
    assert served.receive() is None


@pytest.mark.parametrize(
    ("message", "code"), [(BytesMessage(data=b"x"), 1003), (TextMessage(data="x" * (MAX_MESSAGE_BYTES + 1)), 1009)]
)
def test_invalid_messages_close_the_socket_with_the_reason(pair: tuple[SockSocket, Peer], message, code) -> None:
    served, peer = pair
    peer.send(message)
    assert served.receive() is None
    assert peer.received()[0].code == code


def test_a_close_with_a_code_that_no_frame_has_tells_of_a_fault(pair: tuple[SockSocket, Peer]) -> None:
    served, peer = pair
    served.close(1006, "é" * 100)
    (closed,) = peer.received()
    assert closed.code == 1011 and closed.reason == "é" * 61
    served.close(1000)


def test_a_receiver_is_woken_when_the_caller_leaves(pair: tuple[SockSocket, Peer]) -> None:
    served, peer = pair
    waiting = gevent.spawn(served.receive)
    gevent.sleep(0)
    peer.sock.close()
    assert waiting.get(timeout=20) is None


def test_an_abort_wakes_a_receiver(pair: tuple[SockSocket, Peer]) -> None:
    served, _ = pair
    waiting = gevent.spawn(served.receive)
    gevent.sleep(0)
    served.abort()
    assert waiting.get(timeout=20) is None


def test_a_large_message_is_not_sent_when_the_peer_closes_while_a_thread_writes_it(
    pair: tuple[SockSocket, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, peer = pair

    def compute_slowly(large: bool, write: Any, event: Any) -> bytes:
        peer.send(CloseConnection(code=1000))
        served.receive()
        return write(event)

    monkeypatch.setattr("gateway.transport.sock_sockets.compute_if", compute_slowly)
    with pytest.raises(SocketClosed):
        served.send("more")


def test_a_caller_that_reads_nothing_is_lost_after_a_while(pair: tuple[SockSocket, Peer], monkeypatch) -> None:
    monkeypatch.setattr(websocket_channels, "STALL_TIMEOUT_S", 0.3)
    served, _ = pair
    with pytest.raises(SocketClosed):
        served.send("x" * (8 << 20))
