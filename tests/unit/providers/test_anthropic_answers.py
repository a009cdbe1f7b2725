import re
from collections.abc import Iterator

import orjson
import pytest
from fakes.anthropic import Answer, events_of, message_of
from fakes.anthropic_checks import sign
from support.replies import json_reply

from gateway.errors import StreamTruncated, UpstreamFailed, UpstreamRateLimited
from gateway.neutral.chat import ChatResult
from gateway.neutral.events import Batch, Failed, Finished, Heartbeat, NativeChunk, Progress, Started, collect
from gateway.neutral.parts import Reasoning, Source, Text, ToolCall, VendorPart
from gateway.neutral.usage import Usage
from gateway.providers.anthropic.messages import AnthropicMessages

PROTOCOL = AnthropicMessages()
RICH = Answer(
    "It is sunny in Oslo.",
    thinking="I must look.",
    redacted="gAAA==",
    search="https://a.org/x",
    tools=(("weather", '{"city": "Oslo"}'), ("time", "{}")),
)


class Reply:
    """An answer from memory, cut into pieces of `size` bytes."""

    def __init__(self, body: bytes, size: int = 0, kind: str = "text/event-stream") -> None:
        self.status = 200
        self.headers = {"content-type": kind}
        self._body, self._size = body, size or len(body) or 1

    def read_all(self) -> bytes:
        return self._body

    def chunks(self) -> Iterator[bytes]:
        for at in range(0, len(self._body), self._size):
            yield self._body[at : at + self._size]

    def close(self) -> None:
        pass


def stream_of(answer: Answer) -> bytes:
    return b"".join(events_of(answer, "claude"))


def batches(body: bytes, relayed: bool = False, size: int = 0) -> list[Batch]:
    return list(PROTOCOL.read_stream(Reply(body, size), relayed))


def whole(answer: Answer, relayed: bool = False) -> ChatResult:
    return PROTOCOL.read(Reply(orjson.dumps(message_of(answer, "claude"))), relayed)


def events(body: bytes, relayed: bool = False) -> list:
    return [event for batch in batches(body, relayed) for event in batch]


def test_all_kinds_of_blocks_are_read_in_order():
    parts = whole(RICH).choices[0].parts
    assert parts[0] == Reasoning("I must look.", signature=sign("I must look."), vendor="anthropic")
    assert parts[1] == Reasoning(sealed="gAAA==", vendor="anthropic")
    assert parts[2] == ToolCall("srvtoolu_1", "web_search", '{"query":"news"}', vendor="anthropic", executed="provider")
    assert isinstance(parts[3], VendorPart) and parts[3].kind == "web_search_tool_result"
    assert parts[4] == Text("It is sunny in Oslo.", sources=(Source("https://a.org/x", "A page", "words"),))
    assert parts[5] == ToolCall("toolu_0", "weather", '{"city":"Oslo"}')


def test_a_call_at_a_tool_server_keeps_the_name_of_its_server():
    call = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "look", "server_name": "maps", "input": {"at": "Oslo"}}
    body = {"type": "message", "content": [call], "stop_reason": "pause_turn", "usage": {}}
    (part,) = PROTOCOL.read(json_reply(body), False).choices[0].parts
    assert part == VendorPart("anthropic", "mcp_tool_use", call)


@pytest.mark.parametrize("size", [0, 1, 7, 100])
def test_a_stream_in_pieces_of_any_size_is_the_same_answer(size: int):
    streamed = collect(iter(batches(stream_of(RICH), size=size)))
    plain = whole(RICH)
    assert streamed.usage == plain.usage and streamed.choices[0].finish == "tool_calls"
    for mine, theirs in zip(streamed.choices[0].parts, plain.choices[0].parts, strict=True):
        if isinstance(mine, ToolCall):
            assert (mine.id, mine.name, orjson.loads(mine.arguments)) == (
                theirs.id,
                theirs.name,
                orjson.loads(theirs.arguments),
            )
        else:
            assert mine == theirs


def in_full(body: bytes) -> bytes:
    """The stream without the names of its events: then none is read as a piece."""
    return re.sub(rb"^event: .*\n", b"", body, flags=re.MULTILINE)


ODD_DELTAS = (
    b'{"type":"text_delta","text":7}',
    b'{"type":"text_delta","text":"a","more":[1]}',
    b'{"type":"text_delta"}',
    b'{"type":"input_json_delta","partial_json":""}',
    b'{"type":"input_json_delta","partial_json":"{}"}',
    b'{"type":"thinking_delta","thinking":""}',
    b'{"type":"signature_delta","signature":"s"}',
    b'{"type":"news"}',
    b'{"type":"text_delta","text":"\xff"}',
    b'{"type":"text_delta","text":"\\ud800"}',
    b"null",
)


@pytest.mark.parametrize("index", [b"0", b'"0"', b"1.0", b"null", b"99999999999999999999", b"-1"])
def test_deltas_bring_the_same_whether_they_are_read_as_pieces_or_in_full(index: bytes):
    begun = stream_of(RICH).split(b"event: content_block_delta", 1)[0]
    delta = b'{"type":"text_delta","text":"a"}'
    for odd in (delta, *ODD_DELTAS):
        wire = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%b,"delta":%b}\n\n'
        body = begun + wire % (b"0", delta) + wire % (index, odd)
        assert repr(events(body)) == repr(events(in_full(body)))


def test_a_whole_stream_brings_the_same_whether_it_is_read_in_pieces_or_in_full():
    body = stream_of(RICH)
    assert len(events(body)) > 10 and events(body) == events(in_full(body))


def test_usage_is_read_in_disjoint_buckets():
    usage = whole(Answer("x", input=10, output=5, cache_read=100, cache_5m=20, cache_1h=30, search="https://a")).usage
    assert usage == Usage(input=10, cache_read=100, cache_write=20, cache_write_1h=30, output=5, searches=1)
    assert usage.input_total == 160


def test_cumulative_usage_is_not_added_up():
    last = events(stream_of(Answer("x", input=10, output=5, cache_read=100, cache_5m=20)))[-1]
    assert last.usage == Usage(input=10, cache_read=100, cache_write=20, output=5)


@pytest.mark.parametrize(
    ("wire", "finish"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "pause"),
        ("stop_sequence", "stop_sequence"),
    ],
)
def test_stop_reasons_have_neutral_words(wire: str, finish: str):
    answer = Answer("x", finish=wire, stop_sequence="END" if wire == "stop_sequence" else None)
    assert whole(answer).choices[0].finish == finish
    last = events(stream_of(answer))[-1]
    assert (last.reason, last.stop_sequence) == (finish, answer.stop_sequence or "")


def test_an_empty_answer_is_a_failure_unless_its_stop_reason_explains_it():
    def read(reason: str) -> ChatResult:
        return PROTOCOL.read(json_reply({"type": "message", "content": [], "stop_reason": reason}), False)

    for reason in ("refusal", "pause_turn"):
        assert not read(reason).choices[0].parts
    with pytest.raises(UpstreamFailed):
        read("end_turn")


def test_a_relayed_stream_keeps_the_upstreams_events():
    read_events = events(stream_of(RICH), relayed=True)
    chunks = [event for event in read_events if type(event) is NativeChunk]
    assert type(read_events[0]) is Started and type(read_events[-1]) is Finished
    assert any(type(event) is Progress for event in read_events)  # what is owed if the caller leaves
    assert chunks[0].event == "message_start" and not chunks[0].content
    assert chunks[-1].event == "message_delta"
    assert any(chunk.content and chunk.size for chunk in chunks)
    assert collect(iter(batches(stream_of(RICH)))).usage == read_events[-1].usage


def test_a_relayed_reply_keeps_the_body():
    assert whole(RICH, relayed=True).native.body["content"][0]["signature"] == sign("I must look.")


def test_a_stream_cut_at_any_byte_never_looks_complete():
    body = stream_of(Answer("Hello there", tools=(("f", "{}"),)))
    for cut in range(0, len(body) - len(b"\n"), 5):
        for relayed in (False, True):
            last = events(body[:cut], relayed)[-1]
            assert type(last) is Failed and isinstance(last.error, StreamTruncated | UpstreamFailed), cut


def test_an_end_without_message_stop_is_truncated():
    last = events(stream_of(Answer("Hello", stop=False)))[-1]
    assert type(last) is Failed and isinstance(last.error, StreamTruncated) and last.usage.output == 7


def test_an_error_event_ends_the_stream_with_what_is_owed():
    last = events(stream_of(Answer("Hello there", error_at=4)))[-1]
    assert type(last) is Failed and last.error.blame == "provider" and last.usage.input == 12
    limited = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}
    last = events(stream_of(Answer("Hello there", error_at=0, error=limited)))[-1]
    assert isinstance(last.error, UpstreamRateLimited)


def test_an_error_event_without_json_keeps_the_providers_text():
    last = events(stream_of(Answer("Hello", stop=False)) + b"event: error\ndata: overrun\n\n")[-1]
    assert last.error.details["responseText"] == "overrun"


def test_the_first_ping_is_nothing_and_later_ones_keep_the_caller_waiting():
    one = b"".join(list(events_of(Answer("x"), "m"))[:2])
    assert not any(type(event) is Heartbeat for event in events(one))
    ping = b'event: ping\ndata: {"type":"ping"}\n\n'
    read_events = batches(one + ping, size=len(one))
    assert [Heartbeat] == [type(event) for event in read_events[1]][:1]


def test_silence_is_passed_on_and_unknown_events_are_not():
    reply = Reply(stream_of(Answer("x")).replace(b'"type": "ping"', b'"type": "weather"'))
    reply.chunks = lambda: iter([b"", reply.read_all()])
    events = list(PROTOCOL.read_stream(reply, False))
    assert type(events[0][0]) is Heartbeat and type(events[-1][-1]) is Finished


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"[]", b'{"type":"message"}', b'{"type":"error","error":{"type":"api_error","message":"x"}}'],
)
def test_a_body_that_is_no_message_is_the_providers_fault(body: bytes):
    with pytest.raises(UpstreamFailed):
        PROTOCOL.read(Reply(body), False)


def test_an_empty_answer_is_a_failure_unless_it_was_refused_or_paid():
    with pytest.raises(UpstreamFailed):
        whole(Answer("", output=0))
    assert whole(Answer("", output=0, finish="refusal")).choices[0].finish == "refusal"
    assert whole(Answer("", output=3)).choices[0].parts == ()
    assert type(events(stream_of(Answer("", output=0)))[-1]) is Failed


def test_an_answer_that_is_no_stream_fails_with_its_own_error():
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    events = list(PROTOCOL.read_stream(Reply(body, kind="application/json"), False))
    assert type(events[0][0]) is Started and events[0][-1].error.blame == "provider"


def test_a_call_whose_input_comes_whole_at_the_start_is_read():
    start = b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":'
    start += b'{"type":"tool_use","id":"t","name":"f","input":{"a":1}}}\n\n'
    stop = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    frames = list(events_of(Answer("", output=3), "m"))
    result = collect(iter(batches(b"".join([frames[0], start, stop, *frames[2:]]))))
    assert result.choices[0].parts == (ToolCall("t", "f", '{"a":1}'),)
