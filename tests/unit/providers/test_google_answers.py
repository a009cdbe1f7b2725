from pathlib import Path

import orjson
import pytest
from support.replies import MemoryReply

from gateway.errors import StreamTruncated, UpstreamFailed, UpstreamRateLimited, UpstreamRefused, UpstreamTimeout
from gateway.neutral.events import Failed, Finished, Heartbeat, Started, collect
from gateway.neutral.parts import Image, Media, Reasoning, Source, Text, ToolCall, VendorPart
from gateway.neutral.usage import Usage
from gateway.providers.google.generate import GoogleGenerate

SAMPLES = Path(__file__).parents[2] / "samples" / "google"
TEXT_REPLY = (SAMPLES / "text_reply.json").read_bytes()
SEARCH_REPLY = (SAMPLES / "search_reply.json").read_bytes()
TOOLS_STREAM = (SAMPLES / "tools_stream.sse").read_bytes()
PROTOCOL = GoogleGenerate(lambda secret: secret)
SSE = {"content-type": "text/event-stream"}
SIGNATURE = "+++//wABCg=="
USAGE = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}


def events(*pieces: bytes | Exception) -> list:
    return [event for batch in PROTOCOL.read_stream(MemoryReply(*pieces), False) for event in batch]


def answer(*parts: dict, finish="STOP", **more) -> dict:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate | more], "usageMetadata": USAGE, "modelVersion": "gemini-3-flash"}


def chunk(*parts: dict, finish=None, **more) -> bytes:
    return b"data: " + orjson.dumps(answer(*parts, finish=finish, **more)) + b"\r\n\r\n"


def read(body: dict):
    return PROTOCOL.read(MemoryReply(orjson.dumps(body), headers={}), False)


def test_an_error_event_without_json_keeps_the_providers_text():
    last = events(chunk({"text": "x"}), b"event: error\r\ndata: overrun\r\n\r\n")[-1]
    assert type(last) is Failed and last.error.details["responseText"] == "overrun"


def test_whole_answer_is_read_into_disjoint_counts():
    result = PROTOCOL.read(MemoryReply(TEXT_REPLY, headers={}), False)
    usage = Usage(
        input=25, cache_read=52, input_audio=12, input_audio_cached=8, input_image=10, output=46, reasoning=30
    )
    assert result.usage == usage
    assert usage.input_total + usage.output_total == 153
    assert (result.model, result.upstream_id) == ("gemini-3-flash", "resp-1")


TEXTS = [{"text": "a"}, {"text": "b"}]
ODD_CHUNKS = (
    answer({"text": "c"}, finish=None),
    answer({"text": ""}, finish=None),
    answer({"text": "c", "thought": True}, finish=None),
    answer({"text": "c", "thoughtSignature": SIGNATURE}, finish=None),
    answer({"text": "c"}, {"text": "d"}, finish=None),
    answer({"functionCall": {"id": "1", "name": "f"}}, finish=None),
    answer({"text": 7}, finish=None),
    answer({"text": "c"}, finish="STOP"),
    answer({"text": "c"}, finish="NO_IMAGE"),
    answer({"text": "c"}, finish=None, index=1),
    answer({"text": "c"}, finish=None, index=None),
    answer({"text": "c"}, finish=None, groundingMetadata={"webSearchQueries": ["q"]}),
    answer({"text": "c"}, finish=None) | {"promptFeedback": {"blockReason": "OTHER"}},
    answer({"text": "c"}, finish=None) | {"usageMetadata": None},
    answer({"text": "c"}, finish=None) | {"usageMetadata": {"promptTokenCount": 9}},
    answer({"text": "c"}, finish=None) | {"error": {"code": 500}},
    answer(finish=None) | {"candidates": []},
)


@pytest.mark.parametrize("odd", ODD_CHUNKS)
def test_chunks_bring_the_same_whether_they_are_read_as_pieces_or_in_full(odd: dict):
    wires = [*(answer(part, finish=None) for part in TEXTS), odd, answer({"text": "e"}, finish=None)]
    wires.append(answer({"text": "f"}))
    # No piece has an error, not even one that is none.
    as_pieces, in_full = (
        events(b"".join(b"data: %b\n\n" % orjson.dumps(more | wire) for wire in wires))
        for more in ({}, {"error": False})
    )
    assert repr(as_pieces) == repr(in_full)


def test_signature_stays_on_the_part_that_it_came_with():
    parts = PROTOCOL.read(MemoryReply(TEXT_REPLY, headers={}), False).choices[0].parts
    assert parts == (
        Reasoning("**Greeting**\n\nThe user says hello.", vendor="google", summary=True),
        Text("Hello there.", signature=SIGNATURE, vendor="google"),
    )


def test_text_after_a_signature_is_a_separate_part():
    parts = read(answer({"text": "a", "thoughtSignature": SIGNATURE}, {"text": "b"})).choices[0].parts
    assert parts == (Text("a", signature=SIGNATURE, vendor="google"), Text("b"))


def test_sources_are_cited_by_characters_of_the_text():
    result = PROTOCOL.read(MemoryReply(SEARCH_REPLY, headers={}), False)
    text = result.choices[0].parts[0]
    assert [(source.url[-1], text.text[source.start : source.end]) for source in text.sources[:3]] == [
        ("a", "Zürich is in Switzerland."),
        ("b", "Zürich is in Switzerland."),
        ("b", "It has a lake."),
    ]
    assert text.sources[3] == Source("https://example.com/c", "c.example")
    assert result.usage.searches == 2


def test_older_models_pay_one_search_an_answer():
    body = orjson.loads(SEARCH_REPLY) | {"modelVersion": "gemini-2.5-flash"}
    assert read(body).usage.searches == 1


def test_streamed_search_equals_the_whole_one():
    body = orjson.loads(SEARCH_REPLY)
    grounding = body["candidates"][0].pop("groundingMetadata")
    text = body["candidates"][0]["content"]["parts"][0]["text"]
    pieces = [chunk({"text": text[:9]}), chunk({"text": text[9:]}), chunk(finish="STOP", groundingMetadata=grounding)]
    streamed = collect([events(*pieces)])
    assert streamed.choices == PROTOCOL.read(MemoryReply(SEARCH_REPLY, headers={}), False).choices
    assert streamed.usage.searches == 2


def test_image_foreign_parts_and_drafts():
    draft = {"inlineData": {"mimeType": "image/png", "data": "AA=="}, "thought": True}
    image = {"inlineData": {"mimeType": "image/png", "data": "AQ=="}, "thoughtSignature": SIGNATURE}
    foreign = {
        "executableCode": {"language": "PYTHON", "code": "1+1"},
        "codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"},
        "toolCall": {"id": "t1", "toolType": "URL_CONTEXT", "args": {}},
        "toolResponse": {"id": "t1", "toolType": "URL_CONTEXT", "response": {}},
    }
    parts = read(answer(draft, *({kind: body} for kind, body in foreign.items()), image)).choices[0].parts
    known = [VendorPart("google", kind, {kind: body}) for kind, body in foreign.items()]
    assert parts == (*known, Image(Media("image/png", data="AQ==")))


@pytest.mark.parametrize(
    "reason", ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "MODEL_ARMOR"]
)
def test_refusing_finish_is_a_content_filter_even_without_content(reason):
    assert read(answer(finish=reason)).choices[0].finish == "content_filter"
    assert events(chunk(finish=reason))[-1].reason == "content_filter"


def test_blocked_prompt_is_a_content_filter():
    body = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3}}
    result = read(body)
    assert (result.choices[0].finish, result.choices[0].parts, result.usage.input) == ("content_filter", (), 3)
    last = events(b"data: " + orjson.dumps(body) + b"\n\n")[-1]
    assert (last.reason, last.usage.input) == ("content_filter", 3)


@pytest.mark.parametrize(
    "reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "NO_IMAGE", "MALFORMED_RESPONSE"]
)
def test_failed_finish_is_the_providers_failure(reason):
    with pytest.raises(UpstreamFailed) as raised:
        read(answer({"text": "x"}, finish=reason, finishMessage="print(look())"))
    assert raised.value.details == {"responseText": f"{reason}: print(look())"}
    last = events(chunk({"text": "x"}), chunk(finish=reason))[-1]
    assert type(last.error) is UpstreamFailed and last.usage.output == 2


def test_limited_account_is_refused_there():
    with pytest.raises(UpstreamRefused):
        read(answer(finish="PUP_LIMITED_DISABLED"))


def test_length_and_calls_are_reported():
    assert read(answer({"text": "x"}, finish="MAX_TOKENS")).choices[0].finish == "length"
    assert read(answer({"functionCall": {"name": "f"}})).choices[0].finish == "tool_calls"


def test_call_without_id_and_arguments_gets_both():
    call = read(answer({"functionCall": {"name": "f"}})).choices[0].parts[0]
    assert call.id.startswith("call_") and len(call.id) == 37 and call.arguments == "{}"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"7", b"{}", b'{"candidates":[]}', b'{"candidates":[7]}'])
def test_answer_of_another_shape_is_the_providers_failure(body):
    with pytest.raises(UpstreamFailed):
        PROTOCOL.read(MemoryReply(body, headers={}), False)


def test_end_without_content_or_tokens_is_a_failure():
    empty = answer({"text": ""}) | {"usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3}}
    with pytest.raises(UpstreamFailed):
        read(empty)
    assert isinstance(events(b"data: " + orjson.dumps(empty) + b"\n\n")[-1].error, UpstreamFailed)


@pytest.mark.parametrize("size", [1, 3, 100, 10_000])
def test_parallel_calls_in_fragments_keep_their_arguments_and_the_signature(size):
    pieces = [TOOLS_STREAM[at : at + size] for at in range(0, len(TOOLS_STREAM), size)]
    result = collect([events(*pieces)])
    thought, first, second = result.choices[0].parts
    assert thought == Reasoning("I will look.", vendor="google", summary=True)
    assert first == ToolCall("a1", "look", '{"at":"sky","n":1}', SIGNATURE, "google")
    assert second.id.startswith("call_") and orjson.loads(second.arguments) == {"at": "sea ü"}
    assert (result.choices[0].finish, result.usage.output, result.usage.reasoning) == ("tool_calls", 34, 12)


def test_stream_cut_at_any_byte_never_looks_complete():
    for at in range(len(TOOLS_STREAM) - len(b"\r\n\r\n")):
        if TOOLS_STREAM[:at].count(b'"finishReason"') and TOOLS_STREAM[:at].endswith(b"}"):
            continue
        last = events(TOOLS_STREAM[:at])[-1]
        assert isinstance(last, Failed) and isinstance(last.error, StreamTruncated), at


def test_stream_broken_by_the_transport_shows_what_is_owed():
    last = events(chunk({"text": "x"}), UpstreamTimeout("slow"))[-1]
    assert type(last.error) is UpstreamTimeout and last.usage == Usage(input=3, output=2)


def test_error_inside_a_stream_ends_it():
    error = {"error": {"code": 429, "message": "Resource exhausted", "status": "RESOURCE_EXHAUSTED"}}
    found = events(chunk({"text": "x"}), b"data: " + orjson.dumps(error) + b"\n\n", chunk({"text": "y"}, finish="STOP"))
    assert type(found[-1].error) is UpstreamRateLimited
    assert [type(event) for event in found].count(Failed) == 1


def test_answer_that_is_no_stream_fails():
    reply = MemoryReply(b'{"error":{"code":503,"message":"overloaded"}}', headers={"content-type": "application/json"})
    first, last = next(iter(PROTOCOL.read_stream(reply, False)))
    assert type(first) is Started and type(last.error) is UpstreamFailed


def test_silence_is_passed_on_and_the_last_reported_usage_counts():
    found = events(chunk({"text": "a"}), b"", chunk({"text": "b"}, finish="STOP"))
    assert any(isinstance(event, Heartbeat) for event in found)
    assert isinstance(found[-1], Finished) and found[-1].usage == Usage(input=3, output=2)


@pytest.mark.parametrize(
    ("usage", "headers", "tier"),
    [
        ({"trafficType": "ON_DEMAND_PRIORITY"}, {}, "priority"),
        ({"serviceTier": "flex"}, {}, "flex"),
        ({}, {"x-gemini-service-tier": "standard"}, "default"),
        ({"trafficType": "PROVISIONED_THROUGHPUT"}, {}, ""),
    ],
)
def test_served_tier_is_read(usage, headers, tier):
    body = answer({"text": "x"}) | {"usageMetadata": USAGE | usage}
    assert PROTOCOL.read(MemoryReply(orjson.dumps(body), headers=headers), False).service_tier == tier


def test_made_images_have_a_count_of_their_own():
    usage = USAGE | {
        "candidatesTokenCount": 1300,
        "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1290}],
        "thoughtsTokenCount": 5,
    }
    found = read(answer({"text": "x"}) | {"usageMetadata": usage}).usage
    assert (found.output, found.output_image, found.reasoning) == (15, 1290, 5)


@pytest.mark.parametrize("number", [10**9, -1, 1.5, "a", [1]])
def test_a_choice_of_no_possible_number_is_the_providers_fault(number: object) -> None:
    candidate = {"index": number, "content": {"parts": [{"text": "a"}]}}
    last = events(b"data: " + orjson.dumps({"candidates": [candidate]}) + b"\r\n\r\n")[-1]
    assert type(last) is Failed and type(last.error) is UpstreamFailed


@pytest.mark.parametrize(
    "more",
    [
        {"modelVersion": -1},
        {"usageMetadata": {**USAGE, "promptTokensDetails": -1}},
        {"candidates": [{**answer({"text": "a"})["candidates"][0], "groundingMetadata": {"webSearchQueries": 7}}]},
    ],
)
def test_odd_words_beside_the_answer_break_no_stream(more: dict) -> None:
    """They ended it as a fault of the gateway's own."""
    sent = {**answer({"text": "a"}), "usageMetadata": USAGE, **more}
    assert type(events(b"data: " + orjson.dumps(sent) + b"\r\n\r\n")[-1]) is Finished
