"""A caller's connection under TLS: what lies in its layer is read though the socket has nothing more."""

import socket
import ssl

import gevent
import pytest
from gevent.socket import socketpair
from gevent.ssl import PROTOCOL_TLS_CLIENT, PROTOCOL_TLS_SERVER, SSLContext
from support.certificates import write_certificate
from support.small_server import Server

from gateway.clock import Clock
from gateway.server.connection import RECEIVES_PER_TURN, CallerConnection, WorkerState
from gateway.server.request_heads import HeadCache

HEAD = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"


@pytest.fixture
def server_context(tmp_path) -> SSLContext:
    file = write_certificate(tmp_path / "server.pem", "gateway.example")
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


@pytest.fixture
def pair(server_context):
    ours, theirs = socketpair()
    context = SSLContext(PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    greeting = gevent.spawn(context.wrap_socket, theirs)
    connection = CallerConnection(
        server_context.wrap_socket(ours, server_side=True), "", WorkerState(Clock()), peekable=False
    )
    caller = greeting.get(timeout=60)
    yield connection, caller
    caller.close()
    connection.close()


def test_a_caller_under_tls_is_read_and_answered(pair):
    connection, caller = pair
    heads = HeadCache(lambda environ: None)
    for number in range(RECEIVES_PER_TURN * 2):
        caller.sendall(HEAD + b"%04d" % number)
        assert heads.take(connection)[1] == 4 and connection.take(4) == b"%04d" % number
        connection.send(b"reply")
        assert caller.recv(5) == b"reply"


def test_a_large_body_and_a_large_reply_pass_tls_whole(pair):
    connection, caller = pair
    sending = gevent.spawn(caller.sendall, b"a" * 1_000_000)
    assert connection.take(1_000_000) == b"a" * 1_000_000
    sending.join(60)
    sending, received = gevent.spawn(connection.send, b"b" * 1_000_000), 0
    while received < 1_000_000:
        received += len(caller.recv(100_000))
    sending.join(60)
    assert sending.successful()


class SealedServer(Server):
    """A server with readiness checks over TLS."""

    def call(self):
        caller = super().call()
        context = SSLContext(PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        caller.socket = context.wrap_socket(caller.socket)
        return caller


@pytest.fixture
def sealed_server(server_context, tmp_path):
    """A gunicorn that speaks TLS; a handshake has a second."""
    keys = f"--certfile {tmp_path}/server.pem --keyfile {tmp_path}/server.pem"
    made = SealedServer(tmp_path, GUNICORN_CMD_ARGS=keys, GATEWAY_SERVER_HEAD_TIMEOUT_S="1")
    yield made
    made.stop()


@pytest.mark.slow
def test_a_handshake_that_does_not_come_ends_the_connection(sealed_server):
    silent, begun = (socket.create_connection(("127.0.0.1", sealed_server.port), timeout=8) for _ in range(2))
    begun.sendall(b"\x16\x03\x01\x02\x00\x01")  # half a record
    for caller in (silent, begun):
        assert caller.recv(1) == b""
        caller.close()
    assert sealed_server.call().get("/ready").reply()[0] == 200
