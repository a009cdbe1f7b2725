from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import ClassVar

import anthropic
import httpx2
import orjson
import pytest
from fakes.anthropic import Answer, events_of
from fakes.message_facts import MessageFacts
from fakes.published_types import PublishedUnion
from fakes.server import serving
from gevent.monkey import get_original

from gateway.errors import StreamTruncated, Unavailable
from gateway.neutral.events import (
    Batch,
    BlockDone,
    Failed,
    Finished,
    Heartbeat,
    Notice,
    PartFound,
    Progress,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Image, Media, Reasoning, Source, Text, ToolCall, VendorPart
from gateway.neutral.usage import Usage
from gateway.providers.anthropic.messages import AnthropicMessages
from gateway.surfaces.anthropic import frames as frames_module
from gateway.surfaces.anthropic import reader, schema
from gateway.surfaces.anthropic.frames import frames

thread_id: Callable[[], int] = get_original("_thread", "get_ident")
END = Finished("stop", Usage(input=3, output=4))


@cache
def published_event() -> PublishedUnion:
    return PublishedUnion(anthropic.types.RawMessageStreamEvent)


def sent(*events) -> bytes:
    return b"".join(frames(iter([list(events)]), MessageFacts()))


def wire(*events) -> list[dict]:
    """Return every event of a stream, validated against the published type, blocks strictly one after the other."""
    bodies = [orjson.loads(chunk.split(b"data: ", 1)[1]) for chunk in sent(*events).split(b"\n\n") if chunk]
    open_index = None
    for body in bodies:
        if body["type"] not in ("ping", "error"):
            published_event().check(body)
        if body["type"] == "content_block_start":
            assert open_index is None
            open_index = body["index"]
        elif body["type"].startswith("content_block"):
            assert body["index"] == open_index
            open_index = None if body["type"] == "content_block_stop" else open_index
    assert open_index is None or bodies[-1]["type"] == "error"
    return bodies


@pytest.fixture
def serve() -> Iterator[Callable[..., anthropic.Anthropic]]:
    """Return a factory: serve(bytes) is a client of the official SDK with a server that returns these bytes."""
    servers = contextlib.ExitStack()

    def start(body: bytes) -> anthropic.Anthropic:
        def application(environ: dict, start_response: Callable) -> list[bytes]:
            start_response("200 OK", [("Content-Type", "text/event-stream")])
            return [body]

        base = servers.enter_context(serving(application))
        return anthropic.Anthropic(base_url=base, api_key="k", max_retries=0, http_client=httpx2.Client())

    with servers:
        yield start


def message(client: anthropic.Anthropic) -> anthropic.types.Message:
    """Return the message that the SDK builds from a stream."""
    hello = [{"role": "user", "content": "x"}]
    with client.messages.stream(model="m", max_tokens=9, messages=hello) as stream:
        return stream.get_final_message()


# Order.


def test_an_answer_is_started_shown_and_ended_with_usage_and_price():
    events = wire(Started("up", usage=Usage(input=9)), TextDelta("Hel"), TextDelta("lo"), END)
    assert [event["type"] for event in events] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    head, last = events[0]["message"], events[-2]
    assert (head["id"], head["model"], head["usage"]["input_tokens"]) == ("msg_ours", "acme/model-1:eu", 9)
    assert last["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert (last["usage"]["output_tokens"], last["usage"]["cost"]) == (50, 0.5)
    assert last["metadata"]["request_id"] == "r1"


def test_an_answer_without_content_is_whole_too():
    head, end, _ = wire(Started(), END)
    assert (head["type"], end["type"]) == ("message_start", "message_delta")
    assert (head["message"]["usage"]["input_tokens"], end["usage"]["input_tokens"]) == (14, 30)


def test_interleaved_calls_come_one_after_the_other():
    first, second = '{"city":"Oslo"}', '{"n":[1,2]}'
    deltas = [ToolCallDelta(0, id="a", name="f"), ToolCallDelta(1, id="b", name="g")]
    for place in range(max(len(first), len(second))):
        deltas += [ToolCallDelta(n, text[place]) for n, text in enumerate((first, second)) if place < len(text)]
    events = wire(Started(), *deltas, Finished("tool_calls"))
    joined = ["", ""]
    for event in events:
        if event["type"] == "content_block_delta":
            joined[event["index"]] += event["delta"]["partial_json"]
    assert joined == [first, second] and events[-2]["delta"]["stop_reason"] == "tool_use"


def test_a_call_that_is_whole_does_not_hold_up_the_next():
    batches: list[Batch] = [
        [Started(), ToolCallDelta(0, '{"a":1}', id="a", name="f")],
        [ToolCallDelta(1, id="b", name="g")],
    ]
    assert b'"name":"g"' in list(frames(iter(batches), MessageFacts()))[1]


def test_a_call_without_arguments_ends_with_its_block():
    batches: list[Batch] = [
        [Started(), ToolCallDelta(0, id="a", name="f"), ToolCallDelta(1, id="b", name="g"), BlockDone(1)],
        [BlockDone(0)],
    ]
    assert list(frames(iter(batches), MessageFacts()))[1].count(b"content_block_stop") == 2 * 2


def test_a_name_that_comes_late_is_waited_for():
    events = wire(Started(), ToolCallDelta(0, '{"a"', id="a"), ToolCallDelta(0, ":1}", name="f"), END)
    assert events[1]["content_block"] == {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    assert "".join(event["delta"].get("partial_json", "") for event in events[2:-2] if "delta" in event) == '{"a":1}'


def test_text_behind_an_open_call_waits_for_it():
    events = wire(
        Started(), ToolCallDelta(0, '{"a"', id="a", name="f"), TextDelta("x", 1), ToolCallDelta(0, ":1}"), END
    )
    shown = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
    assert shown == ["tool_use", "text"]


def test_sources_stand_in_the_text_or_in_one_of_their_own():
    source = Source("https://a", "A", "q")
    inside = wire(Started(), TextDelta("x"), SourceFound(source), END)
    assert inside[3]["delta"]["citation"]["url"] == "https://a"
    alone = wire(Started(), SourceFound(source), END)
    assert alone[1]["content_block"] == {"type": "text", "text": ""}


def test_calls_of_other_vendors_servers_are_not_shown():
    call = ToolCallDelta(0, id="ws", name="web_search", executed="provider", vendor="responses")
    assert len(wire(Started(), call, ToolCallDelta(0, '{"q":1}'), TextDelta("x", 1), END)) == 6


def test_silence_is_a_ping_even_before_the_start():
    assert wire(Heartbeat(), Started(), Heartbeat(), TextDelta("x"), END)[0] == {"type": "ping"}


def test_warnings_come_at_the_end():
    assert wire(Started(), Notice("left out"), TextDelta("x"), END)[-2]["metadata"]["warnings"] == ["left out"]


# Ends.


def test_nothing_follows_an_error():
    events = wire(Started(), TextDelta("x"), Progress(Usage()), Failed(StreamTruncated("It was cut.")))
    assert events[-1]["type"] == "error" and events[-1]["error"]["type"] == "api_error"
    assert events[-1]["request_id"] == "r1"


def test_books_that_cannot_be_written_end_the_stream_with_an_error():
    class Closed(MessageFacts):
        def cost(self):
            raise Unavailable()

    out = b"".join(frames(iter([[Started(), TextDelta("x"), END]]), Closed()))
    assert b"event: error" in out and b"message_stop" not in out


def test_an_error_out_of_the_batches_is_framed_and_they_are_closed():
    closed = []

    def broken() -> Iterator[Batch]:
        try:
            yield [Started(), TextDelta("x")]
            raise StreamTruncated("It was cut.")
        finally:
            closed.append(True)

    assert list(frames(broken(), MessageFacts()))[-1].startswith(b"event: error") and closed


# The message that the official SDK builds from a stream.


def test_the_sdk_rebuilds_every_kind_of_block(serve: Callable[..., anthropic.Anthropic]):
    events = (
        Started(),
        ReasoningDelta("hm ", vendor="google"),
        ReasoningDelta("so", signature="c2", vendor="google"),
        ReasoningDelta(signature="ln", vendor="google"),
        TextDelta("Hello", 1),
        RefusalDelta("No", 2),
        ToolCallDelta(3, '{"a":', id="t1", name="f", signature="bWFyaw", vendor="google"),
        ToolCallDelta(3, "1}"),
        PartFound(Image(Media(url="https://a/b.png")), 4),
        Finished("stop"),
    )
    answer = message(serve(sent(*events)))
    assert [block.type for block in answer.content] == ["thinking", "text", "text", "thinking", "tool_use", "text"]
    assert answer.stop_reason == "tool_use" and answer.usage.output_tokens == 50
    assert parts_of(answer)[0] == Reasoning("hm so", "c2ln", vendor="google")
    assert parts_of(answer)[3] == ToolCall("t1", "f", '{"a":1}', signature="bWFyaw", vendor="google")


def parts_of(answer: anthropic.types.Message) -> tuple:
    """Return the parts of a response after its client sent it back."""
    content = [block.model_dump(mode="json", exclude_none=True) for block in answer.content]
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": content}]
    body = {"model": "m", "max_tokens": 1, "messages": messages}
    return reader.read_messages(schema.decode(orjson.dumps(body))).conversation().messages[1].parts


def test_sealed_and_late_marks_come_back(serve: Callable[..., anthropic.Anthropic]):
    events = (
        Started(),
        ReasoningDelta(sealed="gAAA", vendor="responses", ident="rs_1"),
        ReasoningDelta(sealed="own", vendor="anthropic", block=1),
        TextDelta("Hi", 2),
        TextDelta("", 2, signature="c2ln", vendor="google"),
        PartFound(VendorPart("google", "x", {}), 3),
        END,
    )
    assert parts_of(message(serve(sent(*events)))) == (
        Reasoning(sealed="gAAA", vendor="responses", ident="rs_1"),
        Reasoning(sealed="own", vendor="anthropic"),
        Text("Hi", signature="c2ln", vendor="google"),
    )


def test_the_answers_text_stays_its_last_block_though_its_vendor_signed_it(serve: Callable[..., anthropic.Anthropic]):
    signed = TextDelta("", 0, signature="c2ln", vendor="google")
    assert [block.type for block in message(serve(sent(Started(), TextDelta("Hi"), signed, END))).content] == ["text"]
    call = ToolCallDelta(1, "{}", id="t1", name="f")
    parts = parts_of(message(serve(sent(Started(), TextDelta("Hi"), signed, call, END))))
    assert parts == (Text("Hi", signature="c2ln", vendor="google"), ToolCall("t1", "f", "{}"))


@pytest.mark.parametrize("relayed", [True, False])
def test_an_upstreams_own_stream_arrives_whole(serve: Callable[..., anthropic.Anthropic], relayed: bool):
    rich = Answer("Sunny.", thinking="hm", redacted="x", search="https://a", tools=(("f", '{"a": 1}'), ("g", "{}")))
    upstream = b"".join(events_of(rich, "claude"))
    batches = AnthropicMessages().read_stream(Memory(upstream), relayed)
    answer = message(serve(b"".join(frames(batches, MessageFacts()))))
    kinds = [
        "thinking",
        "redacted_thinking",
        "server_tool_use",
        "web_search_tool_result",
        "text",
        "tool_use",
        "tool_use",
    ]
    assert [block.type for block in answer.content] == kinds
    assert (answer.content[5].input, answer.content[6].input) == ({"a": 1}, {})
    assert answer.content[4].citations[0].url == "https://a"
    assert (answer.stop_reason, answer.id) == ("tool_use", "msg_ours")


class Memory:
    """A response from memory."""

    status = 200
    headers: ClassVar = {"content-type": "text/event-stream"}

    def __init__(self, body: bytes) -> None:
        self._body = body

    def chunks(self) -> Iterator[bytes]:
        yield self._body


def test_the_sdk_raises_on_a_broken_stream(serve: Callable[..., anthropic.Anthropic]):
    with pytest.raises(anthropic.APIStatusError):
        message(serve(sent(Started(), TextDelta("x"), Failed(StreamTruncated("It was cut.")))))


def test_many_calls_that_wait_for_another_are_written_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """30,000 waiting calls blocked the event loop for 0.3 s at the end of the stream."""
    threads = set()
    write = frames_module.frame

    def noting(event: dict) -> bytes:
        threads.add(thread_id())
        return write(event)

    calls = [ToolCallDelta(number, "{", id=f"c{number}", name="f") for number in range(2_000)]
    few = sent(*calls[:100], END).count(b"content_block_stop\n")
    monkeypatch.setattr(frames_module, "frame", noting)
    assert (few, sent(*calls, END).count(b"content_block_stop\n")) == (100, 2_000)
    assert len(threads) == 2


def test_parts_that_wait_for_another_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "MAX_BUFFERED", 1_000)
    pieces = [ToolCallDelta(number, "{", id=f"c{number}", name="f") for number in (0, 1)]
    read = wire(*pieces, *[ToolCallDelta(1, "1") for _ in range(998)], END)
    assert read[-1]["type"] == "message_stop"
    read = wire(*pieces, *[ToolCallDelta(1, "1") for _ in range(1_000)], END)
    assert read[-1]["error"]["code"] == "upstream_error"
