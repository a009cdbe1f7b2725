"""Hostile callers in a process of their own: `python crowd.py <port> <how many> <seconds>`; none of them has a key."""

import gzip
import os
import resource
import socket
import sys
import time
from collections.abc import Callable

if __name__ == "__main__":
    from gevent import monkey

    monkey.patch_all()

import gevent

HEAD = b"POST %b HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n%b\r\n"
LONG = b"Content-Length: 33554432\r\n"
MEMBERS = gzip.compress(b"") * 5000
PAUSE_S = 1.0
AGAIN_S = 1.0  # before the next connection: what is shown is what connections do, not a flood that fills the machine


def trickle(sock: socket.socket, data: bytes) -> None:
    """A byte now and then."""
    for byte in data:
        sock.sendall(bytes([byte]))
        gevent.sleep(PAUSE_S)


def half_head(sock: socket.socket) -> None:
    trickle(sock, HEAD % (b"/v1/chat/completions", b"X-Long: " + b"a" * 1000))


def half_body(sock: socket.socket) -> None:
    sock.sendall(HEAD % (b"/auth/sign-in/email", b"Content-Length: 9000\r\n"))
    trickle(sock, b"a" * 9000)


def long_body(sock: socket.socket) -> None:
    sock.sendall(HEAD % (b"/v1/messages", LONG))
    for _ in range(32):
        sock.sendall(bytes(65536))
        gevent.sleep(PAUSE_S / 4)


def members(sock: socket.socket) -> None:
    more = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n" % len(MEMBERS)
    sock.sendall(HEAD % (b"/v1/chat/completions", more) + MEMBERS)
    sock.recv(65536)


def crumbs(sock: socket.socket) -> None:
    sock.sendall(HEAD % (b"/auth/sign-in/email", b"Transfer-Encoding: chunked\r\n") + b"1\r\na\r\n" * 2000)
    gevent.sleep(PAUSE_S)


def smuggler(sock: socket.socket) -> None:
    sock.sendall(HEAD % (b"/v1/models", b"CONTENT-LENGTH: 0\r\nContent-Length: 68\r\n"))
    sock.recv(65536)


def noise(sock: socket.socket) -> None:
    sock.sendall(bytes(range(256)) * 16)
    sock.recv(65536)


def slow_reader(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.sendall(b"GET /v1/models HTTP/1.1\r\nHost: gateway\r\n\r\n")
    for _ in range(60):
        sock.recv(64)
        gevent.sleep(PAUSE_S)


def idle(sock: socket.socket) -> None:
    gevent.sleep(60)


KINDS: tuple[Callable[[socket.socket], None], ...] = (
    *(half_head, half_body, half_body, idle, idle, slow_reader, long_body, members, crumbs, smuggler, noise),
)


def harass(port: int, kind: Callable[[socket.socket], None], until: float) -> None:
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
                kind(sock)
        except OSError:
            pass
        gevent.sleep(AGAIN_S)


def main(port: int, count: int, seconds: float) -> None:
    # Callers elsewhere compute on machines of their own: what they do there takes nothing from the gateway.
    os.nice(10)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 100)), hard))
    until = time.monotonic() + seconds
    crowd = [gevent.spawn(harass, port, KINDS[number % len(KINDS)], until) for number in range(count)]
    gevent.joinall(crowd, timeout=seconds)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
