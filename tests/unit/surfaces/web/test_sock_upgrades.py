"""WebSockets by Flask-Sock: the connections that it gets, and the end of a connection before its handshake."""

import socket

import pytest
from flask import Flask, request

from gateway.surfaces.web.sock_upgrades import channel_of
from gateway.transport.websocket_channels import SocketClosed
from gateway.transport.websockets import Handshake

HEAD = {
    "Host": "here",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}


@pytest.mark.parametrize("environ", [{}, {"HTTP_UPGRADE": "websocket"}, {"gunicorn.socket": object()}])
def test_a_request_without_an_upgrade_or_a_socket_has_no_channel(environ: dict[str, object]) -> None:
    assert channel_of(environ) is None


def test_session_resources_are_released_when_the_caller_left_before_the_handshake() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    theirs.close()
    handshake = Handshake({name.lower(): value for name, value in HEAD.items()}, "/")
    ended: list[str] = []
    flask = Flask("test")
    with flask.test_request_context("/", headers=HEAD, environ_overrides={"gunicorn.socket": ours}):
        channel = channel_of(request.environ)
        assert channel is not None

        def work() -> None:
            with pytest.raises(SocketClosed):
                channel.open(handshake, None, [])
            ended.append("given back")

        assert channel.serve(work).status_code == 400
    assert ended == ["given back"]
