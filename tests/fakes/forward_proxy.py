"""A strict forward proxy (RFC 9110 and 9112): it tunnels by CONNECT and forwards requests for http in absolute form."""

import base64
import contextlib
from collections.abc import Mapping
from typing import Self
from urllib.parse import urlsplit

import gevent
from gevent import socket
from gevent.server import StreamServer

END = b"\r\n\r\n"


class FakeForwardProxy:
    """The only way to `hosts`, names that only the proxy knows, each with the local port that serves it.

    `credentials` ("user:password") are required if set. `asked` are the request lines, `refused` the statuses of
    refusals. A request in origin form is answered 400, as by every proxy.
    """

    def __init__(self, hosts: Mapping[str, int], credentials: str = "") -> None:
        self.hosts = hosts
        self.credentials = credentials
        self.asked: list[str] = []
        self.refused: list[int] = []
        self._server = StreamServer(("127.0.0.1", 0), self._serve)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.stop(timeout=0.2)

    @property
    def url(self) -> str:
        account = f"{self.credentials}@" if self.credentials else ""
        return f"http://{account}127.0.0.1:{self._server.server_port}"

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def _serve(self, sock: socket.socket, _address: object) -> None:
        with contextlib.closing(sock), contextlib.suppress(OSError):
            data = b""
            while END not in data:
                piece = sock.recv(65536)
                if not piece:
                    return
                data += piece
            head, _, rest = data.partition(END)
            lines = head.decode("ascii").split("\r\n")
            self.asked.append(lines[0])
            fields = dict(line.lower().split(": ", 1) for line in lines[1:])
            plain = {name: line for line in lines[1:] for name in [line.partition(":")[0].lower()]}
            if self.credentials and not self._knows(plain.get("proxy-authorization", "")):
                self._refuse(sock, 407, "Proxy Authentication Required")
                return
            method, target, version = lines[0].split(" ")
            if method == "CONNECT":
                assert fields["host"] == target.lower() and version == "HTTP/1.1" and not rest
                self._tunnel(sock, target)
            else:
                self._forward(sock, method, target, lines, rest)

    def _knows(self, line: str) -> bool:
        scheme, _, value = line.partition(": ")[2].partition(" ")
        return scheme == "Basic" and base64.b64decode(value).decode() == self.credentials

    def _refuse(self, sock: socket.socket, status: int, reason: str) -> None:
        self.refused.append(status)
        sock.sendall(f"HTTP/1.1 {status} {reason}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())

    def _tunnel(self, sock: socket.socket, target: str) -> None:
        host, _, _port = target.rpartition(":")
        if host not in self.hosts:
            self._refuse(sock, 502, "Bad Gateway")
            return
        with socket.create_connection(("127.0.0.1", self.hosts[host])) as server:
            sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self._relay(sock, server)

    def _forward(self, sock: socket.socket, method: str, target: str, lines: list[str], rest: bytes) -> None:
        parts = urlsplit(target)
        if parts.scheme != "http" or parts.hostname not in self.hosts:
            self._refuse(sock, 400 if not parts.scheme else 502, "Bad")
            return
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        kept = [line for line in lines[1:] if not line.lower().startswith(("proxy-", "connection:"))]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "connection: close"])
        with socket.create_connection(("127.0.0.1", self.hosts[parts.hostname])) as server:
            server.sendall(head.encode() + END + rest)
            self._relay(sock, server)

    def _relay(self, sock: socket.socket, server: socket.socket) -> None:
        def copy(source: socket.socket, sink: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    sink.sendall(data)
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

        gevent.joinall([gevent.spawn(copy, sock, server), gevent.spawn(copy, server, sock)])
