"""Emoji that were cut in two, as programs with UTF-16 strings do: the conversation continues with them, and the halves
in two pieces of a stream are joined again."""

import json
from typing import Any

import pytest
from contract.contract_gateway import ContractGateway
from contract.vendors import Say
from fakes.bedrock import encode_frame
from support.replies import MemoryReply

from gateway.neutral.events import Failed, Finished, TextDelta
from gateway.providers.anthropic.stream import AnthropicStreamReader
from gateway.providers.bedrock.converse import BedrockStreamReader
from gateway.providers.cohere.reply import CohereStreamReader
from gateway.providers.google.stream import GoogleStreamReader
from gateway.providers.openai.responses_stream import ResponsesStreamReader
from gateway.providers.openai.stream import ChatStreamReader
from gateway.providers.sse import WireStream

HALF = "Cut \ud83d"
PIECES = ("Hi \ud83d", "\ude00 there")
Json = dict[str, Any]


@pytest.mark.parametrize(
    ("surface", "body"),
    [
        ("chat", {"messages": [{"role": "user", "content": HALF}]}),
        ("messages", {"max_tokens": 50, "messages": [{"role": "user", "content": HALF}]}),
        ("responses", {"input": HALF}),
        ("ai4", {"prompt": [{"role": "user", "content": [{"type": "text", "text": HALF}]}]}),
    ],
)
def test_half_a_character_in_a_conversation_refuses_none_of_its_requests(
    stage: ContractGateway, surface: str, body: Json
) -> None:
    stage.script("openai", Say("Hello."))
    status, answer = stage.send(surface, {**body, "model": "fake-openai/openai-able"})
    assert status == 200, answer
    assert "Cut \ufffd" in str(stage.calls_of("openai")[0].body)


CALL = {"type": "tool_use", "id": "t1", "name": "write", "input": {"text": HALF}}
DONE = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
WRITE = {"name": "write", "input_schema": {"type": "object"}}


@pytest.mark.parametrize("vendor", ["anthropic", "openai"])
def test_half_a_character_in_the_arguments_of_a_call_reaches_no_vendor(stage: ContractGateway, vendor: str) -> None:
    stage.script(vendor, Say("Hello."))
    said = [{"role": "assistant", "content": [CALL]}, {"role": "user", "content": [DONE]}]
    body = {"max_tokens": 50, "messages": [{"role": "user", "content": "Write."}, *said], "tools": [WRITE]}
    status, answer = stage.send("messages", {**body, "model": f"fake-{vendor}/{vendor}-able"})
    assert status == 200, answer
    sent = json.dumps(stage.calls_of(vendor)[0].body)
    assert "ufffd" in sent and "ud83d" not in sent


def test_half_a_character_in_the_schema_of_a_tool_refuses_no_request(stage: ContractGateway) -> None:
    stage.script("anthropic", Say("Hello."))
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "description": HALF}}}
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": [tool]}
    status, answer = stage.send("chat", {**body, "model": "fake-anthropic/anthropic-able"})
    assert status == 200, answer


def test_a_body_that_is_no_json_is_refused_as_ever(stage: ContractGateway) -> None:
    stage.script("openai", Say("Hello."))
    status, answer = stage.send("chat", {"model": "fake-openai/openai-able", "messages": HALF})
    assert status == 400 and b"messages" in answer


def sse(*events: Json) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


def delta_of(text: str) -> Json:
    return {"delta": {"message": {"content": {"text": text}}}, "type": "content-delta", "index": 0}


USAGE = {"prompt_tokens": 3, "completion_tokens": 2}
ENDED = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": USAGE}
RESPONSE = {"status": "completed", "output": [], "usage": {"input_tokens": 3, "output_tokens": 2}}
STREAMS = {
    "openai": (
        ChatStreamReader(False),
        sse(*({"choices": [{"index": 0, "delta": {"content": text}}]} for text in PIECES), ENDED),
    ),
    "anthropic": (
        AnthropicStreamReader(False),
        sse(
            {"type": "message_start", "message": {"usage": {"input_tokens": 3}}},
            *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}} for t in PIECES),
            {"type": "message_stop"},
        ),
    ),
    "google": (
        GoogleStreamReader(),
        sse(
            *({"candidates": [{"content": {"parts": [{"text": text}]}}]} for text in PIECES),
            {"candidates": [{"finishReason": "STOP"}]},
        ),
    ),
    "cohere": (CohereStreamReader(), sse(*map(delta_of, PIECES), {"type": "message-end", "delta": {}})),
    "responses": (
        ResponsesStreamReader(False),
        sse(
            *({"type": "response.output_text.delta", "output_index": 0, "delta": text} for text in PIECES),
            {"type": "response.completed", "response": RESPONSE},
        ),
    ),
}


@pytest.mark.parametrize(("reader", "wire"), STREAMS.values(), ids=STREAMS)
def test_a_character_cut_between_two_pieces_is_whole_again(reader: WireStream, wire: bytes) -> None:
    events = [event for batch in reader.read(MemoryReply(wire)) for event in batch]
    assert "".join(event.text for event in events if type(event) is TextDelta) == "Hi 😀 there"
    assert type(events[-1]) is Finished


def test_a_character_cut_between_two_frames_is_whole_again() -> None:
    frames = [encode_frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": text}}) for text in PIECES]
    wire = b"".join((*frames, encode_frame("messageStop", {"stopReason": "end_turn"})))
    reply = MemoryReply(wire, headers={"content-type": "application/vnd.amazon.eventstream"})
    events = [event for batch in BedrockStreamReader().read(reply) for event in batch]
    assert "".join(event.text for event in events if type(event) is TextDelta) == "Hi 😀 there"


def test_a_stream_cut_within_a_piece_counts_as_unfinished() -> None:
    wire = sse({"choices": [{"index": 0, "delta": {"content": PIECES[0]}}]})
    events = [event for batch in ChatStreamReader(False).read(MemoryReply(wire[:-6])) for event in batch]
    assert type(events[-1]) is Failed
