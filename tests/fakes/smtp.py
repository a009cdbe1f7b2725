"""A mail server on the loopback: RFC 5321 as far as one client needs it, with STARTTLS, TLS and AUTH PLAIN."""

import base64
import ssl
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from typing import Any, Self

from gevent.server import StreamServer
from gevent.ssl import SSLContext as GeventContext


@dataclass
class Delivery:
    """An accepted message."""

    sender: str
    recipients: list[str]
    raw: bytes
    encrypted: bool
    signed_in: str = ""

    @property
    def message(self) -> Message:
        return message_from_bytes(self.raw)

    @property
    def text(self) -> str:
        return self.message.get_payload(decode=True).decode()  # type: ignore[union-attr]


@dataclass
class FakeSmtp:
    """`mode` is starttls, tls or none; `refusals` are answers to the next messages in place of 250."""

    certificate: str = ""
    mode: str = "starttls"
    refusals: list[str] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    connections: int = 0

    def __enter__(self) -> Self:
        context = None
        if self.certificate:
            context = GeventContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
        self._context = context
        more: dict[str, Any] = {"ssl_context": context} if self.mode == "tls" else {}
        self._server = StreamServer(("127.0.0.1", 0), self._serve, **more)
        self._server.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.stop(timeout=0.2)

    @property
    def port(self) -> int:
        return self._server.server_port

    def _serve(self, channel: Any, address: Any) -> None:
        self.connections += 1
        try:
            self._talk(channel)
        except OSError:
            return

    def _talk(self, channel: Any) -> None:
        encrypted, user, sender, recipients = self.mode == "tls", "", "", []
        lines = channel.makefile("rb")
        channel.sendall(b"220 fake ESMTP\r\n")
        while line := lines.readline():
            verb, _, rest = line.decode().strip().partition(" ")
            answer = "250 ok"
            match verb.upper():
                case "EHLO":
                    offered = ["fake", "AUTH PLAIN"] + (["STARTTLS"] if self._context and not encrypted else [])
                    answer = "\r\n".join(f"250-{one}" for one in offered) + "\r\n250 8BITMIME"
                case "STARTTLS":
                    channel.sendall(b"220 go on\r\n")
                    channel = self._context.wrap_socket(channel, server_side=True)
                    lines, encrypted = channel.makefile("rb"), True
                    continue
                case "AUTH":
                    user = base64.b64decode(rest.partition(" ")[2]).split(b"\0")[1].decode()
                    answer = "235 signed in"
                case "MAIL":
                    sender, recipients = rest, []
                case "RCPT":
                    recipients.append(rest.partition("<")[2].partition(">")[0])
                case "DATA":
                    channel.sendall(b"354 go on\r\n")
                    raw = b"".join(iter(lines.readline, b".\r\n"))
                    if self.refusals:
                        answer = self.refusals.pop(0)
                    else:
                        self.deliveries.append(Delivery(sender, recipients, raw, encrypted, user))
                case "QUIT":
                    channel.sendall(b"221 bye\r\n")
                    return
            channel.sendall(answer.encode() + b"\r\n")
