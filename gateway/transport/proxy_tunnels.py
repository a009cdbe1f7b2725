"""A tunnel through a forward proxy by CONNECT (RFC 9110, section 9.3.6)."""

import re
from typing import Any

from gateway.errors import ConnectFailed
from gateway.transport.outgoing_routes import ForwardProxy
from gateway.transport.request_bytes import Origin

MAX_HEAD_BYTES = 65_536
RECEIVE_BYTES = 4_096
STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})(?: ([^\r\n]{0,100}))?")
PROXY_AUTHENTICATION_REQUIRED = 407


def open_tunnel(sock: Any, proxy: ForwardProxy, origin: Origin) -> None:
    """Ask the proxy at `sock` to connect to `origin`; from then on the socket leads there.

    ConnectFailed with the proxy's name if it refuses; OSError as the socket.
    """
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    lines = [f"CONNECT {host}:{origin.port} HTTP/1.1", f"host: {host}:{origin.port}"]
    if proxy.authorization:
        lines.append(f"proxy-authorization: {proxy.authorization}")
    sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
    head = _receive_head(sock, proxy)
    match = STATUS_LINE.match(head)
    if match is None:
        raise ConnectFailed(f"The proxy {proxy.name} does not speak HTTP.")
    status = int(match[1])
    if 200 <= status < 300:
        return
    if status == PROXY_AUTHENTICATION_REQUIRED:
        wrong = "refused the user and password" if proxy.authorization else "requires a user and password"
        raise ConnectFailed(f"The proxy {proxy.name} {wrong} (407).")
    raise ConnectFailed(f"The proxy {proxy.name} refused a connection to {origin.host} ({status}).")


def _receive_head(sock: Any, proxy: ForwardProxy) -> bytes:
    """Return the head of the response. No byte of the tunnel can follow it, since TLS begins with the client."""
    received = bytearray()
    while b"\r\n\r\n" not in received:
        data = sock.recv(RECEIVE_BYTES)
        received += data
        if not data or len(received) > MAX_HEAD_BYTES:
            raise ConnectFailed(f"The proxy {proxy.name} closed the connection.")
    return bytes(received)
