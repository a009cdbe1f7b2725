from typing import Any

import orjson
import pytest
from fakes.responses import Answer, FakeResponse, call, custom_call, refused, said, searched, thought

from gateway.errors import InvalidRequest, StreamTruncated, UpstreamFailed
from gateway.neutral.chat import ChatResult
from gateway.neutral.events import (
    BlockDone,
    Failed,
    Finished,
    NativeChunk,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
    collect,
    has_content,
    text_length,
)
from gateway.neutral.parts import Reasoning, Refusal, Source, Text, ToolCall
from gateway.providers.openai.responses import OpenAIResponses
from gateway.providers.openai.responses_reply import PARAGRAPH

REQUEST = {"model": "gpt-5", "include": ["reasoning.encrypted_content"]}
FULL = Answer(
    thought("First.", "Second."),
    searched("oslo"),
    said("Let me see.", sources=("https://a.org",)),
    call("weather", '{"city": "Oslo"}'),
    call("weather", '{"city": "Rome"}'),
    custom_call("patch", "*** Begin"),
    piece=3,
    cached=4,
    reasoning=2,
)


class Stream:
    """A streamed answer from memory, in pieces of `size` bytes, cut after `cut` of them."""

    status = 200

    def __init__(self, answer: Answer, size: int = 0, cut: int | None = None) -> None:
        self.headers = {"content-type": "text/event-stream"}
        whole = answer.raw if answer.raw is not None else b"".join(FakeResponse(answer, REQUEST, 1, set()).frames())
        self._body = whole[:cut]
        self._size = size or max(1, len(whole))

    def chunks(self):
        yield from (self._body[at : at + self._size] for at in range(0, len(self._body), self._size))


def read(answer: Answer, size: int = 0) -> ChatResult:
    return collect(OpenAIResponses().read_stream(Stream(answer, size), False))


def last(answer: Answer, relayed: bool = False, cut: int | None = None):
    return list(OpenAIResponses().read_stream(Stream(answer, 0, cut), relayed))[-1][-1]


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_stream_is_rebuilt_whole_whatever_its_pieces(size: int) -> None:
    result = read(FULL, size)
    reasoning, search, text, *calls = result.choices[0].parts
    assert reasoning.text == "First.\n\nSecond." and reasoning.sealed == "gAAAA-1.0+/é=="
    assert (search.executed, search.name) == ("provider", "web_search")
    assert text.text == "Let me see." and [source.url for source in text.sources] == ["https://a.org"]
    assert [call.arguments for call in calls] == ['{"city": "Oslo"}', '{"city": "Rome"}', "*** Begin"]
    assert calls[2].custom
    assert (result.choices[0].finish, result.usage.searches, result.usage.cache_read) == ("tool_calls", 1, 4)


CITED = {"type": "url_citation", "url": "https://a.org", "title": "A", "start_index": 0, "end_index": 2}


@pytest.mark.parametrize(
    ("kind", "fields", "event"),
    [
        ("output_text.delta", {"delta": "Hi"}, TextDelta("Hi")),
        ("refusal.delta", {"delta": "No"}, RefusalDelta("No")),
        ("reasoning_text.delta", {"delta": "Hm"}, ReasoningDelta("Hm", vendor="responses", ident="item_1")),
        (
            "reasoning_summary_text.delta",
            {"delta": "Hm", "summary_index": 0},
            ReasoningDelta("Hm", vendor="responses", ident="item_1", summary=True),
        ),
        ("function_call_arguments.delta", {"delta": '{"a'}, ToolCallDelta(0, '{"a')),
        ("custom_tool_call_input.delta", {"delta": "***"}, ToolCallDelta(0, "***")),
        (
            "output_item.added",
            {"item": {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": ""}},
            ToolCallDelta(0, id="c1", name="weather"),
        ),
        (
            "output_item.added",
            {"item": {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": ""}},
            ToolCallDelta(0, id="c1", name="patch", custom=True),
        ),
    ],
)
def test_a_caller_gets_each_piece_when_the_provider_sends_it(kind: str, fields: dict[str, Any], event: Any) -> None:
    """Before the end of its item, which repeats all of it."""
    wire = {"type": f"response.{kind}", "item_id": "item_1", "output_index": 0, "content_index": 0, **fields}
    frames = [
        b"data: " + orjson.dumps(frame) + b"\n\n" for frame in ({"type": "response.created", "response": {}}, wire)
    ]
    batches = OpenAIResponses().read_stream(Stream(Answer(raw=b"".join(frames))), False)
    assert [found for batch in batches for found in batch][1:-1] == [event]


def test_a_citation_follows_its_text_although_the_provider_sends_it_before() -> None:
    place = {"item_id": "item_1", "output_index": 0, "content_index": 0}
    cited = {"type": "response.output_text.annotation.added", **place, "annotation": CITED}
    text = {"type": "response.output_text.delta", **place, "delta": "Hi"}
    part = {"type": "output_text", "text": "Hi", "annotations": [CITED]}
    done = {"type": "response.output_item.done", **place, "item": {"type": "message", "content": [part]}}
    source = SourceFound(Source("https://a.org", "A", start=0, end=2), 0)
    for order in ([cited, text, done], [text, cited, done], [text, done]):
        frames = b"".join(b"data: " + orjson.dumps(frame) + b"\n\n" for frame in order)
        batches = OpenAIResponses().read_stream(Stream(Answer(raw=frames)), False)
        assert [found for batch in batches for found in batch][1:-1] == [TextDelta("Hi"), source, BlockDone(0)]


@pytest.mark.parametrize("kind", ["response.created", "response.in_progress"])
def test_a_stream_names_the_model_and_the_response_at_its_start(kind: str) -> None:
    body = b"data: " + orjson.dumps({"type": kind, "response": {"id": "resp_1", "model": "gpt-5-2026"}}) + b"\n\n"
    batch = next(iter(OpenAIResponses().read_stream(Stream(Answer(raw=body)), False)))
    assert batch[0] == Started("gpt-5-2026", "resp_1")


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call"])
def test_a_relayed_call_without_an_id_gets_one_for_all_its_events(kind: str) -> None:
    item = {"type": kind, "name": "look"}
    frames = [{"type": f"response.output_item.{step}", "output_index": 0, "item": item} for step in ("added", "done")]
    body = b"".join(b"data: " + orjson.dumps(frame) + b"\n\n" for frame in frames)
    batches = OpenAIResponses().read_stream(Stream(Answer(raw=body)), True)
    chunks = [event for batch in batches for event in batch if type(event) is NativeChunk]
    first, second = [chunk.body["item"].get("call_id") for chunk in chunks]
    assert first and first == second


def test_a_refusal_is_a_refusal() -> None:
    assert read(Answer(refused("No."))).choices[0].parts == (Refusal("No."),)


def test_relayed_events_come_through_as_they_are() -> None:
    batches = list(OpenAIResponses().read_stream(Stream(FULL, 50), True))
    chunks = [event for batch in batches for event in batch if type(event) is NativeChunk]
    rebuilt = [event for batch in OpenAIResponses().read_stream(Stream(FULL, 50), False) for event in batch]
    written = sum(text_length(event) for event in rebuilt if has_content(event))
    assert sum(chunk.size for chunk in chunks) == written - len(PARAGRAPH)  # which joins the summaries
    assert not chunks[0].content  # an item that only begins does not bind the caller to this provider
    assert type(batches[-1][-1]) is Finished


@pytest.mark.parametrize("relayed", [False, True])
def test_a_stream_cut_anywhere_is_never_whole(relayed: bool) -> None:
    size = len(b"".join(FakeResponse(FULL, REQUEST, 1, set()).frames()))
    for cut in range(0, size - 2, 97):
        end = last(FULL, relayed, cut)
        assert type(end) is Failed and isinstance(end.error, StreamTruncated), cut


def test_done_without_a_terminal_event_is_truncated() -> None:
    frames = b"".join(FakeResponse(Answer(said("x"), terminal=False), REQUEST, 1, set()).frames())
    end = last(Answer(raw=frames + b"data: [DONE]\n\n"))
    assert isinstance(end.error, StreamTruncated)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(said("x"), incomplete="max_output_tokens"), "length"),
        (Answer(said("x"), incomplete="content_filter"), "content_filter"),
        (Answer(call("f", "{}")), "tool_calls"),
        (Answer(said("x")), "stop"),
    ],
)
def test_every_good_end_has_its_reason_and_its_usage(answer: Answer, reason: str) -> None:
    end = last(answer)
    assert (end.reason, end.usage.output) == (reason, 5)


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (Answer(said("x"), failed="server_error"), UpstreamFailed, 5),
        (Answer(said("x"), failed="invalid_prompt"), InvalidRequest, 5),
        (Answer(said("x"), cancelled=True), UpstreamFailed, 5),
        (Answer(said("x"), error_at=4), UpstreamFailed, None),
        (Answer(raw=b"data: nonsense\n\n"), UpstreamFailed, None),
        (Answer(completion=0), UpstreamFailed, 0),
    ],
)
@pytest.mark.parametrize("relayed", [False, True])
def test_every_bad_end_is_an_error_that_shows_what_is_owed(answer, error, told, relayed) -> None:
    end = last(answer, relayed)
    assert isinstance(end.error, error)
    assert (end.usage.output if end.usage else None) == told


def test_an_event_of_another_shape_is_an_upstream_failure() -> None:
    end = last(Answer(raw=b'data: {"type": "response.output_text.delta"}\n\n'))
    assert isinstance(end.error, UpstreamFailed)


def test_items_that_only_the_terminal_event_brings_are_read() -> None:
    made = FakeResponse(Answer(thought("Hm."), said("Hello."), call("f", "{}")), REQUEST, 1, set())
    frames = [frame for frame in made.frames() if b"response.completed" in frame[:30]]
    parts = read(Answer(raw=b"".join(frames))).choices[0].parts
    assert [type(part) for part in parts] == [Reasoning, Text, ToolCall]


def test_an_error_event_without_json_keeps_the_providers_text() -> None:
    failed = last(Answer(raw=b"event: error\ndata: overrun\n\ndata: {}\n\n"))
    assert failed.error.details["responseText"] == "overrun"
