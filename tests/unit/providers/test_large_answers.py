"""What a provider answers is bounded before it is decoded: whoever runs one may be somebody's custom provider."""

import orjson
import pytest

from gateway.errors import UpstreamFailed
from gateway.neutral.chat import ChatResult, Choice
from gateway.neutral.parts import ToolCall
from gateway.neutral.usage import Usage
from gateway.providers import offload
from gateway.providers.answers import MOST_PARTS, check_parts
from gateway.providers.failures import MOST_REFUSAL, read_refusal
from gateway.providers.sse import LONG, EventReader, LongEvent


class Reply:
    status = 200
    headers: dict[str, str] = {}

    def __init__(self, body: bytes) -> None:
        self.body = body

    def read_all(self) -> bytes:
        return self.body


class Never:
    def read(self, reply: object, relayed: bool) -> None:
        raise AssertionError("it was decoded")


MANY = b'{"choices":[' + b"[]," * MOST_PARTS + b"[]]}"


def test_an_answer_of_too_many_parts_is_not_decoded() -> None:
    """22 MB of small objects held the interpreter for 1.5 s."""
    with pytest.raises(UpstreamFailed, match="parts"):
        offload.read(Never(), Reply(MANY), False)  # type: ignore[arg-type]


class Calls:
    """Reads an answer of so many calls."""

    def __init__(self, count: int) -> None:
        self.count = count

    def read(self, reply: object, relayed: bool) -> ChatResult:
        return ChatResult((Choice((ToolCall("c", "f", "{}"),) * self.count, "tool_calls"),), Usage())


def test_an_answer_of_too_many_calls_is_refused() -> None:
    """100,000 of them were written for the caller in 0.4 s of the event loop."""
    body = bytes(offload.LARGE)
    assert offload.read(Calls(offload.MOST_CALLS), Reply(body), False).choices  # type: ignore[arg-type]
    with pytest.raises(UpstreamFailed, match="calls"):
        offload.read(Calls(offload.MOST_CALLS + 1), Reply(body), False)  # type: ignore[arg-type]


def test_the_likeliest_of_each_token_and_a_text_full_of_code_are_read() -> None:
    one = {"token": "a", "logprob": -0.5, "bytes": [97]}
    check_parts(orjson.dumps({"content": [{**one, "top_logprobs": [one] * 20}] * 5_000}))
    check_parts(orjson.dumps({"content": "if (a[0]) { b({}); }" * 200_000}))


def test_an_event_of_too_many_parts_is_not_decoded() -> None:
    wire, reader, last = b"data: " + MANY, EventReader(), EventReader()
    for one in (reader, last):
        assert one.feed(wire[:9]) == []
        with pytest.raises(LongEvent):
            one.feed(wire[9 : LONG + 1])
    with pytest.raises(UpstreamFailed, match="parts"):
        reader.feed(wire[LONG + 1 :] + b"\n\n")
    last.feed(wire[LONG + 1 :])
    with pytest.raises(UpstreamFailed, match="parts"):
        last.finish()


def test_of_a_refusal_so_much_is_looked_at() -> None:
    assert len(read_refusal(Reply(MANY))) == MOST_REFUSAL  # type: ignore[arg-type]
