"""A protocol's work on one call: where request or answer are large it is done in a thread, off the event loop."""

from collections.abc import Iterator

from msgspec import Struct

from gateway.neutral.chat import ChatRequest, ChatResult, Native
from gateway.providers.protocol import Call, Protocol, Target, UpstreamReply
from gateway.threads import compute

LARGE = 1 << 17  # bytes of an answer


class Whole(Struct):
    """A reply whose body was read already."""

    reply: UpstreamReply
    body: bytes

    @property
    def status(self) -> int:
        return self.reply.status

    @property
    def headers(self) -> dict[str, str]:
        return self.reply.headers

    def read_all(self) -> bytes:
        return self.body

    def chunks(self) -> Iterator[bytes]:
        yield self.body

    def close(self) -> None:
        self.reply.close()


def write(protocol: Protocol, request: ChatRequest, target: Target) -> Call:
    """As the protocol's `write`."""
    if request.large and not protocol.waits:
        return compute(protocol.write, request, target)
    return protocol.write(request, target)


def relay(protocol: Protocol, native: Native, request: ChatRequest, target: Target) -> Call:
    """As the protocol's `relay`."""
    if request.large:
        return compute(protocol.relay, native, request, target)
    return protocol.relay(native, request, target)


def read(protocol: Protocol, reply: UpstreamReply, relayed: bool) -> ChatResult:
    """As the protocol's `read`; the body is received here."""
    body = reply.read_all()
    if len(body) >= LARGE:
        return compute(protocol.read, Whole(reply, body), relayed)
    return protocol.read(Whole(reply, body), relayed)
