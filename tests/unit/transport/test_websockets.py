"""WebSockets of either side: messages, what ends them, and how little of a peer's is held."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from fakes.realtime import FakeRealtime
from gevent import socket
from gevent.server import StreamServer
from gevent.ssl import PROTOCOL_TLS_SERVER, SSLContext, create_default_context
from support.certificates import write_certificate
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Request, TextMessage

from gateway.configuration import settings
from gateway.configuration.settings import Security
from gateway.errors import InvalidRequest, Overloaded, UpstreamFailed, UpstreamUnreachable
from gateway.runtime.threads import pause, spawn
from gateway.transport import Transport
from gateway.transport.websocket_channels import LOST, HandshakeRefused, SocketChannel, SocketClosed
from gateway.transport.websockets import Handshake, WebSocket, sendable

HEAD = {
    "host": "here",
    "upgrade": "websocket",
    "connection": "keep-alive, Upgrade",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "sec-websocket-version": "13",
    "sec-websocket-protocol": "other, realtime",
}


@pytest.fixture
def pair() -> Iterator[tuple[WebSocket, Any]]:
    """An open socket of the server's side, and a peer that speaks frames."""
    ours, theirs = socket.socketpair()
    handshake = Handshake(HEAD, "/v1/realtime")
    assert handshake.offered == ["other", "realtime"]
    served = handshake.accept(Plain(ours), "realtime", [("x-request-id", "1")])
    answer = theirs.recv(65_536)
    assert b" 101 " in answer and b"Sec-WebSocket-Protocol: realtime" in answer and b"x-request-id: 1" in answer
    peer = WSConnection(ConnectionType.CLIENT)
    peer.send(Request(host="here", target="/", subprotocols=["realtime"]))
    peer.handshake._nonce = HEAD["sec-websocket-key"].encode()
    peer.receive_data(answer)
    assert [type(event) for event in peer.events()] == [AcceptConnection]

    def send(*events: Any) -> None:
        for event in events:
            theirs.sendall(peer.send(event))

    def received() -> list[Any]:
        peer.receive_data(theirs.recv(65_536))
        return list(peer.events())

    yield served, (theirs, send, received)
    ours.close()
    theirs.close()


class Plain(SocketChannel):
    """The channel of a local socket."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock


def test_messages_go_both_ways_whole_however_they_were_cut(pair) -> None:
    served, (_, send, received) = pair
    parts = [TextMessage(data=part, message_finished=False) for part in "tw"]
    send(TextMessage(data="one"), *parts, TextMessage(data="o"))
    assert (served.receive(), served.receive()) == ("one", "two")
    served.send("three")
    assert [event.data for event in received()] == ["three"]


def test_pings_are_answered_and_close_frames_reported_and_answered(pair) -> None:
    served, (_, send, received) = pair
    send(Ping(payload=b"1"), TextMessage(data="x"))
    assert served.receive() == "x" and received()[0].payload == b"1"
    send(CloseConnection(code=4001, reason="enough"))
    assert served.receive() is None and (served.code, served.reason) == (4001, "enough")
    assert received()[0].code == 4001
    with pytest.raises(SocketClosed):
        served.send("more")


def test_messages_of_bytes_are_accepted_as_text(pair) -> None:
    served, (_, send, received) = pair
    served._bytes_too = True
    whole = "zwölf".encode()
    send(BytesMessage(data=whole[:3], message_finished=False), BytesMessage(data=whole[3:]), TextMessage(data="x"))
    assert (served.receive(), served.receive()) == ("zwölf", "x")
    send(BytesMessage(data=b"\xff"))
    assert served.receive() is None and served.code == 1007 and received()[-1].code == 1007


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([BytesMessage(data=b"x")], 1003),
        ([TextMessage(data="x" * 600, message_finished=False), TextMessage(data="x" * 600)], 1009),
    ],
)
def test_invalid_messages_close_the_socket_with_the_reason(pair, frames, code) -> None:
    served, (_, send, received) = pair
    served._maximum = 1000
    send(*frames)
    assert served.receive() is None and received()[0].code == code


def test_a_long_message_counts_until_the_next_is_requested_or_is_refused_without_room(pair) -> None:
    served, (_, send, received) = pair
    told: list[int] = []

    def hold(size: int) -> None:
        told.append(size)
        if size > 600_000:
            raise Overloaded("full")

    served._channel.hold = hold
    spawn(send, TextMessage(data="x" * 500_000), TextMessage(data="y"), TextMessage(data="z" * 700_000))
    assert len(served.receive()) == 500_000 and max(told) == told[-1] == 500_000
    assert served.receive() == "y" and told[-1] == 0
    assert served.receive() is None and served.code == 1013
    assert received()[-1].code == 1013


def test_broken_frames_and_broken_text_close_it(pair) -> None:
    served, (theirs, _, received) = pair
    theirs.sendall(b"\x81\x81\x00\x00\x00\x00\xff")  # a byte that is no UTF-8
    assert served.receive() is None and received()[0].code == 1007


@pytest.mark.parametrize("frame", [b"\x89\x80\0\0\0\0", b"\x00\x80\0\0\0\0"], ids=["pings", "pieces of nothing"])
def test_others_have_their_turn_between_frames_that_come_thousands_at_once(pair, frame: bytes) -> None:
    served, (theirs, _, _) = pair
    turns = 0

    def others() -> None:
        nonlocal turns
        while not served.closed:
            turns += 1
            gevent.sleep(0)

    other = spawn(others)
    spawn(theirs.sendall, b"\x01\x81\0\0\0\0x" + frame * 5_000 + b"\x80\x80\0\0\0\0")
    reader = spawn(lambda: [theirs.recv(1 << 20) for _ in range(100)])  # the answers to pings
    assert served.receive() == "x"
    served.abort()
    other.join()
    reader.kill()
    assert turns >= 5_000 // 64


def test_a_disconnected_peer_is_reported_as_lost(pair) -> None:
    served, (theirs, _, _) = pair
    theirs.close()
    assert served.receive() is None and served.code == LOST
    with pytest.raises(SocketClosed):
        served.send("x")


@pytest.mark.parametrize("missing", ["sec-websocket-key", "sec-websocket-version", "connection"])
def test_half_a_handshake_is_refused(missing: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Handshake({name: value for name, value in HEAD.items() if name != missing}, "/v1/realtime")
    assert caught.value.code == "invalid_handshake"


@pytest.fixture
def transport() -> Transport:
    chosen = settings.load({"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": "/nowhere"})
    return Transport(chosen.timeouts, chosen.security)


def test_the_provider_decides_and_its_refusal_is_passed_on(transport: Transport) -> None:
    with FakeRealtime() as fake:
        deadline = transport._now() + 10
        url, headers = f"{fake.url}/realtime?model=m", {"authorization": "x"}
        opened = transport.open_websocket(url, headers, deadline=deadline, trusted=True)
        assert '"session.created"' in (opened.receive() or "") and fake.last.headers["authorization"] == "x"
        opened.close()
        assert opened.receive() is None
        opened.abort()
        fake.refusal = 429
        with pytest.raises(HandshakeRefused) as refused:
            transport.open_websocket(f"{fake.url}/realtime", {}, deadline=deadline, trusted=True)
        assert refused.value.status == 429 and b"overloaded" in refused.value.read_all()


def test_a_session_over_tls_is_verified_and_ends_while_it_is_waited_for(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path / "api.pem", "api.test")
    served = SSLContext(PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate)
    chosen = settings.load({"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": "/nowhere"})
    ours = {"tls": create_default_context(cafile=certificate), "resolver": lambda host, port: ["127.0.0.1"]}
    transport = Transport(chosen.timeouts, chosen.security, **ours)
    with FakeRealtime(served) as fake:
        port = fake.url.rpartition(":")[2].partition("/")[0]
        deadline = transport._now() + 10
        opened = transport.open_websocket(f"https://api.test:{port}/v1/realtime", {}, deadline=deadline)
        assert '"session.created"' in (opened.receive() or "")
        opened.send('{"type": "response.create", "event_id": "1"}')
        assert '"response.created"' in (opened.receive() or "")
        seen = []
        reader = spawn(lambda: [seen.append(text) for text in iter(opened.receive, None)])
        while '"response.done"' not in "".join(seen):
            pause(0.01)
        opened.abort()  # while the reader waits
        reader.join(5)
        assert reader.dead and opened.code == LOST
        with pytest.raises(UpstreamUnreachable, match="certificate"):
            transport.open_websocket(f"https://other.test:{port}/v1/realtime", {}, deadline=deadline)


def test_the_guard_of_addresses_holds_for_websockets_too(transport: Transport) -> None:
    guarded = Transport(
        settings.load({"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": "/nowhere"}).timeouts, Security(False, (), ())
    )
    with FakeRealtime() as fake, pytest.raises(UpstreamUnreachable) as caught:
        guarded.open_websocket(f"{fake.url}/realtime", {}, deadline=transport._now() + 10)
    assert caught.value.code == "address_not_allowed" and fake.sessions == []


def test_a_server_that_speaks_no_http_is_the_providers_failure(transport: Transport) -> None:
    def babble(connection: Any, _: Any) -> None:
        connection.sendall(b"SSH-2.0-OpenSSH\r\n\r\n")

    server = StreamServer(("127.0.0.1", 0), babble)
    server.start()
    with pytest.raises(UpstreamFailed):
        url = f"http://127.0.0.1:{server.server_port}/realtime"
        transport.open_websocket(url, {}, deadline=transport._now() + 10, trusted=True)
    server.stop(timeout=0.1)


def test_pieces_of_a_message_are_held_as_bytes_however_wide_their_characters_are(pair) -> None:
    served, (_theirs, send, _) = pair
    served._maximum = 4_000
    send(TextMessage(data="\U0001f600", message_finished=False), TextMessage(data="a" * 3_996))
    assert served.receive() == "\U0001f600" + "a" * 3_996
    send(TextMessage(data="\U0001f600" * 600, message_finished=False), TextMessage(data="\U0001f600" * 600))
    assert served.receive() is None and served.code == 1009


def test_codes_that_must_not_be_in_a_close_frame_are_not_passed_on() -> None:
    """RFC 6455, section 7.4."""
    for number in (1000, 1001, 1003, 1011, 3000, 4999):
        assert sendable(number) == number
    for number in (0, 999, 1004, 1005, 1006, 1015, 5000):
        assert sendable(number) == 1011
