import weakref
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from gateway.neutral.events import Batch, Finished, Started
from gateway.providers.protocol import Call, Credential
from gateway.providers.registry import chat_wire
from gateway.providers.upstream import Upstreams

TARGET = SimpleNamespace(
    memo={}, protocol="plain", quirks=(), provider=SimpleNamespace(id="vendor"), second="", credential=Credential("k")
)


class Plain:
    """A protocol that reads every stream as two batches."""

    dialect, marks, waits, lost = "plain", False, False, frozenset()

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
