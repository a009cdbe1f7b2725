import dataclasses
from pathlib import Path

import orjson
import pytest
from support.replies import MemoryReply

from gateway.errors import StreamTruncated, UpstreamFailed, UpstreamTimeout
from gateway.neutral.events import Failed, Finished, Heartbeat, NativeChunk, Started, collect, has_content
from gateway.neutral.parts import Reasoning, Text, ToolCall
from gateway.neutral.usage import Usage
from gateway.providers.openai.chat import OpenAIChat
from gateway.providers.sse import TEXT_PIECE

SAMPLES = Path(__file__).parents[2] / "samples" / "openai"
TEXT_STREAM = (SAMPLES / "text_stream.sse").read_bytes()
TOOLS_STREAM = (SAMPLES / "tools_stream.sse").read_bytes()
TEXT_REPLY = (SAMPLES / "text_reply.json").read_bytes()
PROTOCOL = OpenAIChat()
SSE = {"content-type": "text/event-stream; charset=utf-8"}


def events(*pieces: bytes | Exception, relayed=False) -> list:
    return [event for batch in PROTOCOL.read_stream(MemoryReply(*pieces), relayed) for event in batch]


def chunk(delta: dict, finish=None, **more) -> bytes:
    body = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]} | more
    return b"data: " + orjson.dumps(body) + b"\n\n"


USAGE = {"usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
DONE = b"data: [DONE]\n\n"


def test_whole_answer_is_read_into_disjoint_counts():
    result = PROTOCOL.read(MemoryReply(TEXT_REPLY, headers={}), False)
    assert (result.model, result.service_tier, result.native) == ("gpt-5-mini-2026-01-01", "default", None)
    assert result.choices[0].parts == (Text("Hello there."),)
    usage = Usage(input=25, cache_read=60, cache_write=5, input_audio=10, output=46, reasoning=30, output_audio=4)
    assert result.usage == usage and (usage.input_total, usage.output_total) == (100, 50)


def test_relayed_answer_keeps_its_body():
    assert PROTOCOL.read(MemoryReply(TEXT_REPLY, headers={}), True).native.body["id"] == "chatcmpl-upstream"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices":[]}',
        b'{"choices":[7]}',
        b'{"error":{"message":"overloaded"}}',
        b'{"choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"stop"}]}',
        b'{"choices":[{"index":0,"message":null,"finish_reason":"stop"}]}',
    ],
)
@pytest.mark.parametrize("relayed", [True, False])
def test_success_that_brings_nothing_is_the_providers_fault(body, relayed):
    with pytest.raises(UpstreamFailed) as caught:
        PROTOCOL.read(MemoryReply(body, headers={}), relayed)
    assert caught.value.blame == "provider"


def test_filtered_answer_may_be_empty():
    body = b'{"choices":[{"index":0,"message":{"content":null},"finish_reason":"content_filter"}]}'
    assert PROTOCOL.read(MemoryReply(body, headers={}), False).choices[0].finish == "content_filter"


def test_content_in_parts_is_text_and_reasoning():
    content = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Hi"}]
    body = orjson.dumps({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]})
    assert PROTOCOL.read(MemoryReply(body, headers={}), False).choices[0].parts == (Reasoning("hm"), Text("Hi"))


def test_call_without_id_gets_one_and_objects_become_text():
    call = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    body = orjson.dumps({"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
    result = PROTOCOL.read(MemoryReply(body, headers={}), True)
    part = result.choices[0].parts[0]
    assert part.id.startswith("call_") and part.arguments == '{"x":1}'
    native = result.native.body["choices"][0]["message"]["tool_calls"][0]
    assert (native["id"], native["function"]["arguments"]) == (part.id, '{"x":1}')


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_stream_is_the_same_in_pieces_of_any_size(size):
    pieces = [TEXT_STREAM[at : at + size] for at in range(0, len(TEXT_STREAM), size)]
    result = collect(PROTOCOL.read_stream(MemoryReply(*pieces), False))
    assert result.choices[0].parts == (Text("Grüße aus Köln."),)
    assert (result.usage.input, result.usage.output, result.upstream_id) == (20, 9, "chatcmpl-upstream")


@pytest.mark.parametrize("size", [1, 64, 10_000])
def test_three_interleaved_calls_are_put_together(size):
    pieces = [TOOLS_STREAM[at : at + size] for at in range(0, len(TOOLS_STREAM), size)]
    choice = collect(PROTOCOL.read_stream(MemoryReply(*pieces), False)).choices[0]
    assert [(part.id, part.name) for part in choice.parts] == [(f"call_{i}", f"tool_{i}") for i in range(3)]
    assert [orjson.loads(part.arguments) for part in choice.parts] == [
        {"city": "Paris", "days": [1, 2]},
        {"city": "Oslo"},
        {},
    ]


@pytest.mark.slow
@pytest.mark.parametrize("sample", [TEXT_STREAM, TOOLS_STREAM])
@pytest.mark.parametrize("relayed", [True, False])
def test_stream_cut_anywhere_never_looks_whole(sample, relayed):
    end = sample.index(b"[DONE]") + len(b"[DONE]")
    for at in range(0, sample.rindex(b"data: {")):
        assert isinstance(events(sample[:at], relayed=relayed)[-1], Failed), at
    for at in range(0, end):
        last = events(sample[:at], StreamTruncated("cut"), relayed=relayed)[-1]
        assert isinstance(last, Failed) and last.error.blame == "provider", at
    assert isinstance(events(sample[:end], relayed=relayed)[-1], Finished)


def test_missing_done_is_forgiven_only_after_finish_and_usage():
    whole = chunk({"content": "x"}) + chunk({}, "stop")
    assert isinstance(events(whole)[-1], Failed)
    assert isinstance(events(whole + chunk({}, None, choices=[], **USAGE))[-1], Finished)


def test_finish_reasons_of_other_servers_with_this_format_are_understood():
    words = {
        "stop": "stop eos eos_token end_turn abc STOP COMPLETE completed",
        "stop_sequence": "stop_sequence STOP_SEQUENCE",
        "length": "length max_tokens model_length MAX_TOKENS max_output_tokens FINISH_REASON_MAX_TOKENS incomplete"
        " model_context_window_exceeded repetition_truncation",
        "tool_calls": "tool_calls function_call tool_use TOOL_CALL",
        "content_filter": "content_filter sensitive safety SAFETY RECITATION content_filtered guardrail_intervened",
        "refusal": "refusal",
    }
    for finish, reasons in words.items():
        for reason in reasons.split():
            body = {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": reason}]}
            assert PROTOCOL.read(MemoryReply(orjson.dumps(body)), False).choices[0].finish == finish
            assert events(chunk({"content": "x"}), chunk({}, reason), DONE)[-1].reason == finish, reason


def test_a_missing_finish_reason_is_derived_from_the_content():
    call = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}
    assert events(chunk(call), DONE)[-1].reason == "tool_calls"
    assert events(chunk({"content": "x"}), DONE)[-1].reason == "stop"


@pytest.mark.parametrize("reason", ("stop", "eos", None))
def test_calls_end_with_tool_calls_whatever_the_server_says(reason):
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    pieces = events(chunk({"tool_calls": [call]}), chunk({}, reason), DONE, relayed=True)
    assert pieces[-1].reason == "tool_calls"
    assert pieces[-2].body["choices"][0]["finish_reason"] == (reason and "tool_calls")
    body = orjson.dumps({"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": reason}]})
    result = PROTOCOL.read(MemoryReply(body, headers={}), True)
    shown = result.native.body["choices"][0]["finish_reason"]
    assert (result.choices[0].finish, shown) == ("tool_calls", "tool_calls")


def test_usage_counts_wherever_it_stands_and_the_last_wins():
    later = {"usage": {"prompt_tokens": 3, "completion_tokens": 8}}
    assert events(chunk({"content": "x"}, **USAGE), chunk({}, "stop", **later), DONE)[-1].usage.output == 8
    inside = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop","usage":{"prompt_tokens":1,'
    assert events(inside + b'"completion_tokens":4}}]}\n\n', DONE)[-1].usage.output == 4


def test_error_inside_a_stream_fails_it_with_what_is_owed():
    last = events(chunk({"content": "x"}, **USAGE), b'data: {"error":{"message":"boom","code":500}}\n\n', DONE)[-1]
    assert isinstance(last, Failed) and last.usage.input == 3
    assert isinstance(events(b"event: error\ndata: {}\n\n")[-1], Failed)


@pytest.mark.parametrize("relayed", [True, False])
def test_an_error_event_without_json_keeps_the_providers_text(relayed):
    told = b"event: error\ndata: upstream pool is empty, sk-abcdefgh12345678\n\n"
    last = events(chunk({"content": "x"}), told, relayed=relayed)[-1]
    assert last.error.details["responseText"] == "upstream pool is empty, [hidden]"
    assert "not JSON" not in last.error.message


@pytest.mark.parametrize("junk", [b"data: {nonsense\n\n", b"data: 7\n\n", b'data: {"choices":[7]}\n\n', b"<html>\n\n"])
@pytest.mark.parametrize("relayed", [True, False])
def test_junk_fails_the_stream(junk, relayed):
    found = events(chunk({"content": "x"}), junk, relayed=relayed)
    assert isinstance(found[-1], Failed) and found[-1].error.blame == "provider"


@pytest.mark.parametrize("relayed", [True, False])
def test_stream_without_content_is_a_failure(relayed):
    found = events(chunk({"role": "assistant", "content": ""}), chunk({}, "stop"), DONE, relayed=relayed)
    assert isinstance(found[-1], Failed) and not any(has_content(event) for event in found)


def test_every_stream_begins_and_ends_once():
    for pieces in ([], [DONE], [TEXT_STREAM], [UpstreamTimeout("late")]):
        found = events(*pieces)
        kinds = [type(event) for event in found]
        assert kinds[0] is Started and kinds.count(Started) == 1
        assert sum(kind in (Finished, Failed) for kind in kinds) == 1 and kinds[-1] in (Finished, Failed)


def test_silence_is_reported():
    assert isinstance(events(b"", TEXT_STREAM)[0], Heartbeat)


def test_answer_that_is_no_stream_is_a_failure():
    json = {"content-type": "application/json"}
    found = list(PROTOCOL.read_stream(MemoryReply(b'{"error":{"message":"x","code":429}}', headers=json), False))
    assert found[-1][-1].error.code == "upstream_rate_limited"


def test_relayed_chunks_show_what_a_caller_sees():
    found = events(TEXT_STREAM, relayed=True)
    chunks = [event for event in found if isinstance(event, NativeChunk)]
    assert [event.content for event in chunks] == [False, True, True, False]
    assert chunks[1].body["choices"][0]["delta"]["content"] == "Grüße" and chunks[1].size == 5
    assert len(chunks[2].ready) == 2


@pytest.mark.parametrize("name", ["content", "reasoning_content", "reasoning", "refusal"])
def test_a_relayed_chunk_with_a_long_text_is_passed_on_in_pieces(name):
    """Written at once, 16 MB held the event loop for 60 ms."""
    text = "Grüße\n" * 60_000
    wire = chunk({"role": "assistant", name: text, "more": 1}, logprobs={"content": []})
    stream = [wire[at : at + 50_000] for at in range(0, len(wire), 50_000)]
    batches = list(PROTOCOL.read_stream(MemoryReply(*stream, chunk({}, "stop", **USAGE), DONE), True))
    pieces = [event for batch in batches for event in batch if type(event) is NativeChunk and event.content]
    choices = [event.body["choices"][0] for event in pieces]
    assert len(pieces) == 6 and all([event] in batches for event in pieces[:-1])
    assert "".join(choice["delta"][name] for choice in choices) == text
    assert [event.size for event in pieces] == [len(choice["delta"][name]) for choice in choices]
    assert max(event.size for event in pieces) <= TEXT_PIECE
    assert [choice["delta"].get("role") for choice in choices] == ["assistant"] + [None] * 5
    assert all(set(choice["delta"]) <= {"role", name} for choice in choices[:-1])
    assert choices[-1]["delta"]["more"] == 1 and pieces[-1].body["logprobs"] == {"content": []}


@pytest.mark.parametrize(
    ("delta", "content"),
    [
        ({"role": "assistant", "content": ""}, False),
        ({"content": "Hi"}, True),
        ({"reasoning": "Hm"}, True),
        ({"reasoning_content": "Hm"}, True),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "Hm"}]}, True),
        ({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}]}, True),
        ({"refusal": "No."}, True),
        ({"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}, True),
        ({"annotations": [{"type": "url_citation", "url_citation": {"url": "https://a.org"}}]}, True),
    ],
)
def test_anything_of_an_answer_that_a_caller_saw_binds_it_to_its_provider(delta, content):
    found = events(chunk(delta), chunk({}, "stop", **USAGE), DONE, relayed=True)
    assert [event.content for event in found if isinstance(event, NativeChunk)] == [content, False]


def test_calls_with_one_index_are_distinguished_by_id_and_name():
    first = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]}
    second = {"tool_calls": [{"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}]}
    choice = collect(PROTOCOL.read_stream(MemoryReply(chunk(first), chunk(second), DONE), False)).choices[0]
    assert [part.id for part in choice.parts] == ["a", "b"]
    relayed = [event.body for event in events(chunk(first), chunk(second), DONE, relayed=True)[1:3]]
    assert [body["choices"][0]["delta"]["tool_calls"][0]["index"] for body in relayed] == [0, 1]


def test_id_that_changes_with_every_piece_is_noise():
    pieces = [{"index": 0, "id": f"id{n}", "function": {"arguments": text}} for n, text in enumerate(('{"a"', ":1}"))]
    pieces[0]["function"]["name"] = "f"
    found = collect(PROTOCOL.read_stream(MemoryReply(*(chunk({"tool_calls": [p]}) for p in pieces), DONE), False))
    assert found.choices[0].parts == (ToolCall("id0", "f", '{"a":1}'),)


def test_pieces_of_a_call_keep_neither_id_nor_name_since_clients_join_repeated_texts():
    pieces = [{"index": 0, "id": "c", "function": {"name": "f", "arguments": text}} for text in ('{"a":', "1}")]
    relayed = [
        event.body["choices"][0]["delta"]["tool_calls"][0]
        for event in events(*(chunk({"tool_calls": [piece]}) for piece in pieces), DONE, relayed=True)
        if isinstance(event, NativeChunk)
    ]
    assert (relayed[0]["id"], relayed[0]["function"]) == ("c", {"name": "f", "arguments": '{"a":'})
    assert relayed[1] == {"index": 0, "function": {"arguments": "1}"}}


@pytest.mark.parametrize("text", ("", None))
def test_a_call_without_arguments_has_an_empty_object_since_clients_parse_them(text):
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": text}}
    custom = {"index": 1, "id": "d", "type": "custom", "custom": {"name": "g", "input": ""}}
    full = {"index": 2, "id": "e", "function": {"name": "f", "arguments": "{}"}}
    pieces = events(
        chunk({"tool_calls": [call, custom]}), chunk({"tool_calls": [full]}, "tool_calls"), DONE, relayed=True
    )
    last = [event for event in pieces if isinstance(event, NativeChunk)][-1].body["choices"][0]["delta"]
    assert [(call["index"], call["function"]["arguments"]) for call in last["tool_calls"]] == [(0, "{}")]
    body = orjson.dumps({"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "stop"}]})
    result = PROTOCOL.read(MemoryReply(body, headers={}), True)
    assert result.native.body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert result.choices[0].parts[0].arguments == "{}"


def test_calls_without_index_or_id_continue_the_last():
    pieces = [{"function": {"name": "f", "arguments": '{"a"'}}, {"function": {"arguments": ":1}"}}]
    found = collect(PROTOCOL.read_stream(MemoryReply(*(chunk({"tool_calls": [p]}) for p in pieces), DONE), False))
    (part,) = found.choices[0].parts
    assert (part.name, part.arguments, part.id[:5]) == ("f", '{"a":1}', "call_")


def test_reasoning_and_text_are_blocks_in_their_order():
    deltas = [{"reasoning_content": "a"}, {"reasoning": "b"}, {"content": "c"}, {"content": "d"}]
    found = collect(PROTOCOL.read_stream(MemoryReply(*map(chunk, deltas), DONE), False))
    assert found.choices[0].parts == (Reasoning("ab"), Text("cd"))


def test_each_choice_has_its_own_end():
    def of(index: int, delta: dict, finish=None) -> bytes:
        return chunk({}, choices=[{"index": index, "delta": delta, "finish_reason": finish}])

    last = events(of(0, {"content": "a"}), of(1, {"content": "b"}), of(1, {}, "length"), of(0, {}, "stop"), DONE)[-1]
    assert last.reasons == ("stop", "length")


@pytest.mark.parametrize("relayed", [True, False])
def test_finish_that_shows_of_a_failure_is_one_and_its_usage_is_known(relayed):
    last = events(chunk({"content": "Half"}), chunk({}, "error", **USAGE), DONE, relayed=relayed)[-1]
    assert isinstance(last, Failed) and last.usage == Usage(input=3, output=2)
    body = {"choices": [{"message": {"content": "Half"}, "finish_reason": "error"}], **USAGE}
    with pytest.raises(UpstreamFailed) as raised:
        PROTOCOL.read(MemoryReply(orjson.dumps(body), headers={}), relayed)
    assert raised.value.spent == Usage(input=3, output=2)


@pytest.mark.parametrize("pieces", [("Let me", " think"), ("Let me", "Let me think")])
def test_reasoning_in_details_alone_is_read_in_pieces_and_as_all_so_far(pieces):
    details = [chunk({"reasoning_details": [{"type": "reasoning.text", "text": piece}]}) for piece in pieces]
    result = collect([events(*details, chunk({"content": "42"}, "stop", **USAGE), DONE)])
    assert result.choices[0].parts == (Reasoning("Let me think"), Text("42"))


def test_reasoning_in_details_of_a_whole_answer_is_read():
    message = {"content": "42", "reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]}
    body = {"choices": [{"message": message, "finish_reason": "stop"}], **USAGE}
    parts = PROTOCOL.read(MemoryReply(orjson.dumps(body), headers={}), False).choices[0].parts
    assert parts == (Reasoning("Hm."), Text("42"))


SAID = {"index": 0, "delta": {"content": "x"}, "finish_reason": None}


def relayed_pieces(*wires) -> list[NativeChunk]:
    """Return the relayed events of chunks that follow a first piece of text, all in one read."""
    first = {"choices": [SAID | {"delta": {"role": "assistant", "content": "a"}}], "service_tier": "default"}
    stream = b"".join(b"data: " + orjson.dumps(wire) + b"\n\n" for wire in (first, *wires))
    return [event for event in events(stream, relayed=True) if type(event) is NativeChunk][1:]


def test_text_that_came_at_once_is_relayed_as_one_event_with_all_that_it_held():
    said = SAID | {"delta": {"role": "assistant", "content": "Gr\u00fc\n\u2028"}, "logprobs": None}
    (event,) = relayed_pieces({"choices": [SAID], "usage": None}, {"choices": [said], "service_tier": "default"})
    assert [orjson.loads(text) for text in event.ready] == [[SAID], [said]]
    assert event.content and event.size == 6 and not any(b"\n" in text for text in event.ready)


MORE = (
    {"choices": [SAID, SAID | {"index": 1}]},
    {"choices": [SAID | {"index": 1}]},
    {"choices": [SAID | {"finish_reason": "stop"}]},
    {"choices": [SAID | {"delta": {"content": [{"type": "text", "text": "x"}]}}]},
    {"choices": [SAID | {"delta": {"content": "x", "reasoning_content": "hm"}}]},
    {"choices": [SAID | {"delta": {"content": "x", "images": []}}]},
    {"choices": [SAID | {"logprobs": {"content": []}}]},
    {"choices": [SAID], "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
)
CALLED = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}


@pytest.mark.parametrize("wire", MORE)
def test_text_with_anything_beside_it_is_read_in_full(wire):
    (before, event, after) = relayed_pieces({"choices": [SAID]}, wire, {"choices": [SAID]})
    assert before.ready and not event.ready and event.body.keys() == wire.keys()
    assert orjson.loads(after.ready[0]) == [SAID] if after.ready else after.body["choices"] == [SAID]


@pytest.mark.parametrize(
    "wire",
    [
        *MORE,
        {"choices": [SAID], "service_tier": "flex"},
        {"choices": [{"index": 0, "text": "x"}]},
        {"choices": [SAID | {"delta": {"content": ""}}]},
        {"choices": [SAID | {"delta": {"content": 7}}]},
        {"choices": [SAID | {"delta": {"reasoning": "hm"}}]},
        {"choices": [SAID | {"delta": CALLED}]},
        {"choices": [SAID | {"delta": {"content": "x", **CALLED}}]},
        {"choices": [SAID], "error": {"message": "no"}},
        {"choices": []},
    ],
)
def test_text_is_the_same_to_those_who_rebuild_it_whether_it_is_read_as_pieces_or_in_full(wire):
    wires = (
        [{"choices": [SAID]}] * 3
        + [wire]
        + [{"choices": [SAID]}] * 3
        + [{"choices": [SAID | {"finish_reason": "stop"}]}]
    )
    # No piece has an error, not even one that is none.
    as_pieces, in_full = (
        events(b"".join(b"data: " + orjson.dumps(more | wire) + b"\n\n" for wire in wires), DONE)
        for more in ({}, {"error": False})
    )
    assert repr(as_pieces) == repr(in_full)


def test_streams_whose_text_is_never_plain_are_read_in_full_from_then_on():
    odd = {"choices": [SAID | {"content_filter_results": {}}]}
    found = relayed_pieces(*[odd] * 5)
    assert len(found) == 5 and not any(event.ready for event in found)


def test_first_piece_of_an_answer_is_read_in_full_and_an_error_beside_text_ends_it():
    assert not events(chunk({"content": "a"}), relayed=True)[1].ready
    broken = b"data: " + orjson.dumps({"choices": [SAID], "error": {"message": "no"}}) + b"\n\n"
    assert isinstance(events(chunk({"content": "a"}), broken, relayed=True)[-1], Failed)


def test_tier_of_a_plain_piece_counts():
    stream = chunk({"content": "a"}) + b"data: " + orjson.dumps({"choices": [SAID], "service_tier": "flex"}) + b"\n\n"
    assert events(stream, chunk({}, "stop"), DONE, relayed=True)[-1].service_tier == "flex"


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
PLAIN = [{"content": "Hi", "annotations": [], "reasoning": "Hm"}, {"content": None, "tool_calls": [CALL]}]
MESSAGES = [
    *PLAIN,
    {"content": [{"type": "text", "text": "Hi"}]},
    {"content": None, "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {"a": 1}}}]},
    {"content": None, "refusal": "No."},
    {"content": "Hi", "annotations": [{"type": "url_citation", "url_citation": {"url": "https://x.example"}}]},
    {"content": "", "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]},
]


def finish_of(message: dict) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def whole(*messages: dict, finish="", **more) -> MemoryReply:
    choices = [{"message": message, "finish_reason": finish or finish_of(message)} for message in messages]
    return MemoryReply(orjson.dumps({"id": "x", "model": "m", "choices": choices, **USAGE, **more}), headers={})


@pytest.mark.parametrize("message", MESSAGES)
def test_relayed_answer_says_the_same_as_one_that_is_read(message):
    read = PROTOCOL.read(whole(message, PLAIN[0], citations=["https://c.example"]), False)
    relayed = PROTOCOL.read(whole(message, PLAIN[0], citations=["https://c.example"]), True)
    assert relayed.finish == read.finish
    assert (relayed.choices, relayed.usage, relayed.model) == (read.choices, read.usage, read.model)


@pytest.mark.parametrize("message", PLAIN)
def test_choices_that_are_read_late_are_values_like_others(message):
    relayed = PROTOCOL.read(whole(message), True)
    changed = dataclasses.replace(relayed, warnings=("w",))
    assert changed.choices == relayed.choices == PROTOCOL.read(whole(message), False).choices
    assert (changed.finish, relayed) == (finish_of(message), PROTOCOL.read(whole(message), True))


@pytest.mark.parametrize(
    "reply",
    [
        whole({"content": ""}, usage=None),
        whole(PLAIN[0], finish="error"),
        whole({"content": "Hi", "annotations": 7}),
        whole({"content": None, "tool_calls": [7]}),
        whole(PLAIN[0], {"content": 7, "tool_calls": 7}),
        MemoryReply(b'{"choices": [7]}', headers={}),
        MemoryReply(b'{"choices": []}', headers={}),
    ],
)
def test_an_invalid_relayed_answer_is_refused_at_once(reply):
    with pytest.raises(UpstreamFailed):
        PROTOCOL.read(reply, True)


@pytest.mark.parametrize("number", [10**9, -1, 1.5, "a", [1]])
@pytest.mark.parametrize("relayed", [False, True])
def test_a_choice_of_no_possible_number_is_the_providers_fault(number: object, relayed: bool) -> None:
    """One with the number 10,000,000 held the event loop for three seconds at the end of its stream."""
    choices = [{"index": 0, "delta": {"content": "a"}}, {"index": number, "delta": {"content": "b"}}]
    sent = b"data: " + orjson.dumps({"choices": choices}) + b"\n\ndata: [DONE]\n\n"
    last = events(sent, relayed=relayed)[-1]
    assert type(last) is Failed and type(last.error) is UpstreamFailed


SIGNED = {"google": {"thought_signature": "c2ln+/=="}}
SIGNED_CALL = {
    "index": 0,
    "id": "c1",
    "type": "function",
    "function": {"name": "f", "arguments": "{}"},
    "extra_content": SIGNED,
}


def test_a_signature_beside_a_call_is_kept_from_servers_of_this_format():
    message = {"role": "assistant", "content": None, "tool_calls": [SIGNED_CALL]}
    body = {"id": "x", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    result = PROTOCOL.read(MemoryReply(orjson.dumps(body | USAGE), headers={}), False)
    pieces = chunk({"tool_calls": [SIGNED_CALL]}), chunk({}, "tool_calls"), chunk({}, **USAGE), DONE
    streamed = collect([events(*pieces)])
    for choices in (result.choices, streamed.choices):
        assert choices[0].parts == (ToolCall("c1", "f", "{}", signature="c2ln+/==", vendor="google"),)
