import weakref
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from support.replies import MemoryReply

from gateway.errors import UpstreamFailed
from gateway.neutral.chat import ChatRequest, Conversation
from gateway.neutral.events import Batch, Finished, Started
from gateway.neutral.request import Requirements
from gateway.providers.protocol import Call, Credential
from gateway.providers.registry import chat_wire
from gateway.providers.upstream import Upstreams

TARGET = SimpleNamespace(
    memo={}, protocol="plain", quirks=(), provider=SimpleNamespace(id="vendor"), second="", credential=Credential("k")
)


class Plain:
    """A protocol that reads every stream as two batches."""

    dialect, waits, lost = "plain", False, frozenset()

    def write(self, request: object, target: object) -> Call:
        return Call("POST", "http://vendor.example", {}, b"", stream=True)

    def failure(self, reply: object, target: object) -> Exception:
        raise NotImplementedError

    def read_stream(self, reply: object, relayed: bool) -> Iterator[Batch]:
        yield [Started("", "")]
        yield [Finished("stop")]


class Opener:
    """Gives one reply at once and counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0
        self.status, self.headers = 200, {}

    def send(self, call: Call, target: object, deadline: float) -> "Opener":
        return self

    def wait(self, seconds: float | None = None) -> "Opener":
        return self

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("read", [0, 1, 2])
def test_read_bodies_are_freed_with_the_response_without_garbage_collection(read: int) -> None:
    opener = Opener()
    request = SimpleNamespace(operation="chat", native=None, warnings=(), large=False)
    answering = Upstreams({"plain": chat_wire("plain", Plain())}, opener, {}, 1.0).stream(request, TARGET, 1.0)
    for _ in range(read):
        next(answering.batches)
    answering.close()
    gone = weakref.ref(answering)
    del answering
    assert gone() is None and opener.closed == 1


class Protocol(Plain):
    """A protocol at a path of its provider."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def write(self, request: object, target: object) -> Call:
        return Call("POST", self.dialect, {}, b"")

    def read(self, reply: object, relayed: bool) -> str:
        return f"read as {self.dialect}"

    def failure(self, reply: object, target: object) -> Exception:
        return UpstreamFailed("failed")


class Server:
    """Answers calls of the first protocol, and those of the second with `status`. Notes the protocol of each call."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.asked: list[str] = []

    def send(self, call: Call, target: object, deadline: float) -> SimpleNamespace:
        self.asked.append(call.url)
        reply = MemoryReply(status=200 if call.url == "first" else self.status)
        return SimpleNamespace(wait=lambda seconds=None: reply)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_protocol_that_a_server_lacks_is_replaced_by_its_first_one_for_minutes(streamed: bool) -> None:
    def asked(status: int) -> list[str]:
        """Send two requests for which the second protocol is better, and return the protocols of all calls."""
        server = Server(status)
        wires = {name: chat_wire(name, Protocol(name)) for name in ("first", "second")}
        upstreams = Upstreams(wires, server, {}, 1.0)  # type: ignore[arg-type]
        mapping = SimpleNamespace(key="vendor/model", reasoning=True, extra={})
        target = SimpleNamespace(**{**vars(TARGET), "memo": {}, "mapping": mapping})
        target.protocol, target.second = "first", "second"
        request = ChatRequest("model", Requirements(keeps_reasoning=True), lambda: Conversation(()))
        for _ in range(2):
            if streamed:
                list(upstreams.stream(request, target, 1.0).batches)
            else:
                assert upstreams.send(request, target, 1.0).startswith("read as")
        return server.asked

    assert asked(200) == ["second", "second"]
    for status in (404, 405, 501):  # not found, method not allowed, not implemented
        assert asked(status) == ["second", "first", "first"]
    for status in (400, 403, 500, 503):
        with pytest.raises(UpstreamFailed):
            asked(status)
