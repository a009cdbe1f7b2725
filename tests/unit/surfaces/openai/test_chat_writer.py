import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion_message import Annotation as ChatAnnotation

from gateway.errors import StreamTruncated, Unavailable
from gateway.neutral.chat import ChatResult, Choice, Native
from gateway.neutral.events import (
    Failed,
    Finished,
    Heartbeat,
    NativeChunk,
    Notice,
    PartFound,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Image, Media, Reasoning, Refusal, Source, SourceRange, Text, ToolCall
from gateway.neutral.usage import Usage
from gateway.surfaces.openai import chat_writer
from gateway.surfaces.openai.chat import find_adapt
from gateway.surfaces.openai.reasoning_details import ReasoningMarks, read_details

SAMPLES = Path(__file__).parents[3] / "samples" / "openai"
DONE = b"data: [DONE]\n\n"


class Facts:
    answer_id = "chatcmpl-ours"
    created = 1_767_225_600
    served = "acme/model-1:eu"
    usage = Usage(input=30, cache_read=60, cache_write_1h=10, output=50, reasoning=20)
    service_tier = "flex"
    adapt = None

    def cost(self) -> dict[str, Any]:
        return {"cost": 0.5, "is_byok": False, "cost_details": {"total_cost": 0.5}}

    def metadata(self) -> dict[str, Any]:
        return {"request_id": "r1", "routing": []}


def written(*parts, finish="stop") -> dict:
    return orjson.loads(chat_writer.reply(ChatResult((Choice(parts, finish),)), Facts()))


def frames(*batches, facts=None) -> list[bytes]:
    return list(chat_writer.frames(iter(batches), facts or Facts()))


def chunks(*batches) -> list[dict]:
    """Return every data object of a stream, validated against the published type."""
    events = b"".join(frames(*batches)).split(b"\n\n")
    bodies = [orjson.loads(event[6:]) for event in events if event[:7] == b"data: {"]
    for body in bodies:
        ChatCompletionChunk.model_validate(body)
    return bodies


def deltas(*events) -> list[dict]:
    return [body["choices"][0]["delta"] for body in chunks(list(events))]


def test_reply_has_our_identity_and_every_fact():
    body = written(Text("Hello."))
    ChatCompletion.model_validate({**body, "metadata": None})  # the gateway's; OpenAI's own holds texts only
    assert (body["id"], body["model"], body["service_tier"]) == ("chatcmpl-ours", "acme/model-1:eu", "flex")
    assert body["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
    ]
    assert body["metadata"] == {"request_id": "r1", "routing": []}


def test_usage_adds_up_and_shows_its_parts():
    usage = written(Text("x"))["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (100, 50, 150)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 60
    assert usage["prompt_tokens_details"]["cache_creation"]["ephemeral_1h_input_tokens"] == 10
    assert usage["completion_tokens_details"]["reasoning_tokens"] == usage["reasoning_tokens"] == 20
    assert usage["cost"] == 0.5


def test_prompt_is_never_zero_tokens():
    facts = Facts()
    facts.usage = Usage()
    assert orjson.loads(chat_writer.reply(ChatResult((Choice((), "stop"),)), facts))["usage"]["prompt_tokens"] == 1


def test_reply_shows_every_kind_of_part():
    message = written(
        Reasoning("hm", signature="S", vendor="anthropic"),
        Text("a", sources=(Source("https://x.test", "X", start=0, end=1),)),
        Text("b"),
        Image(Media(media_type="image/webp", data="QQ==")),
        ToolCall("c1", "f", "", signature="T", vendor="google"),
        ToolCall("c2", "search", "{}", executed="provider"),
        finish="tool_calls",
    )["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == ("ab", "hm")
    assert [call["id"] for call in message["tool_calls"]] == ["c1"]
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"
    assert message["images"][0]["image_url"]["url"] == "data:image/webp;base64,QQ=="
    assert message["annotations"][0]["url_citation"]["end_index"] == 1
    assert [item.get("signature") or item["data"] for item in message["reasoning_details"]] == ["S", "T"]


def test_reasoning_without_a_vendor_has_an_item_for_clients_that_read_no_other_member():
    """The AI SDK's provider of this service reads `reasoning_details` alone in complete answers."""
    message = written(Reasoning("hm"), Text("a"))["choices"][0]["message"]
    (item,) = message["reasoning_details"]
    assert (item["type"], item["text"], item["format"]) == ("reasoning.text", "hm", "unknown")
    assert read_details(message["reasoning_details"], message["reasoning"], (), "")[0] == [Reasoning("hm")]


def test_citations_have_positions_in_the_whole_content():
    cited = Text("Cited. ", sources=(Source("https://a.test", "A"), Source("https://b.test", start=0, end=5)))
    message = written(Text("Plain. "), cited)["choices"][0]["message"]
    citations = [ChatAnnotation.model_validate(annotation).url_citation for annotation in message["annotations"]]
    assert [message["content"][citation.start_index : citation.end_index] for citation in citations] == [
        "Cited. ",
        "Cited",
    ]


def test_a_streamed_citation_without_a_position_is_one_that_clients_accept():
    (*_, chunk, _, _) = chunks([TextDelta("x"), SourceFound(Source("https://x.test")), Finished("stop")])
    (annotation,) = chunk["choices"][0]["delta"]["annotations"]
    assert ChatAnnotation.model_validate(annotation).url_citation.url == "https://x.test"


@pytest.mark.parametrize(
    ("finish", "word"),
    [("stop_sequence", "stop"), ("pause", "stop"), ("refusal", "content_filter"), ("length", "length")],
)
def test_finish_reason_is_one_that_clients_know(finish, word):
    assert written(Text("x"), finish=finish)["choices"][0]["finish_reason"] == word


def test_refusal_leaves_no_content():
    message = written(Refusal("No."))["choices"][0]["message"]
    assert (message["content"], message["refusal"]) == (None, "No.")


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_has_both_names_that_clients_read(name):
    wire = orjson.loads((SAMPLES / "text_reply.json").read_bytes())
    wire["choices"][0]["message"][name] = "thought"
    relayed = orjson.loads(chat_writer.reply(ChatResult((), native=Native("openai", wire)), Facts()))
    own = written(Reasoning("thought"), Text("x"))
    piece = {"index": 0, "delta": {"role": "assistant", name: "thought"}, "finish_reason": None}
    streamed = chunks([Started(), NativeChunk("openai", {"choices": [piece]}, True)], [Finished("stop")])[0]
    for message in (relayed["choices"][0]["message"], own["choices"][0]["message"], streamed["choices"][0]["delta"]):
        assert message["reasoning"] == message["reasoning_content"] == "thought"
    assert [(d["reasoning"], d["reasoning_content"]) for d in deltas(ReasoningDelta("a"))] == [("a", "a")]


def test_relayed_reply_keeps_only_the_choices():
    wire = orjson.loads((SAMPLES / "text_reply.json").read_bytes())
    wire["choices"][0]["message"]["reasoning_content"] = "thought"
    wire["choices"][0]["finish_reason"] = "eos"
    body = orjson.loads(chat_writer.reply(ChatResult((), native=Native("openai", wire)), Facts()))
    assert (body["id"], body["model"]) == ("chatcmpl-ours", "acme/model-1:eu")
    assert body["system_fingerprint"] == chat_writer.FINGERPRINT
    assert body["choices"][0]["message"]["reasoning"] == "thought"
    assert [item["text"] for item in body["choices"][0]["message"]["reasoning_details"]] == ["thought"]
    assert body["choices"][0]["finish_reason"] == "stop"
    assert "reasoning" not in wire["choices"][0]["message"]


def test_one_batch_is_one_send():
    sent = frames([Started(), TextDelta("a"), TextDelta("b")], [TextDelta("c")], [Finished("stop")])
    assert [piece.count(b"data: ") for piece in sent] == [2, 1, 3]


def test_whole_stream_ends_in_finish_usage_and_done():
    bodies = chunks([Started(), TextDelta("Hi")], [Finished("stop")])
    assert [body["choices"][0]["finish_reason"] for body in bodies] == [None, "stop", None]
    assert bodies[-1]["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}]
    assert bodies[-1]["usage"]["cost"] == 0.5 and bodies[-1]["metadata"]["request_id"] == "r1"
    assert {(body["id"], body["model"], body["created"]) for body in bodies} == {
        ("chatcmpl-ours", "acme/model-1:eu", 1_767_225_600)
    }
    assert frames([Started(), Finished("stop")])[-1].endswith(DONE)


def test_broken_stream_ends_in_an_error_and_never_in_done():
    sent = b"".join(frames([TextDelta("Hi")], [Failed(StreamTruncated("It broke."))]))
    assert DONE not in sent
    last = sent.split(b"\n\n")[-2]
    assert last.startswith(b"event: error\ndata: ")
    error = orjson.loads(last.partition(b"data: ")[2])["error"]
    assert error == {"message": "It broke.", "type": "upstream_error", "param": "", "code": "stream_truncated"}


def test_error_raised_inside_a_stream_is_reported_too():
    def breaking() -> Iterator[list]:
        yield [TextDelta("Hi")]
        raise Unavailable()

    sent = list(chat_writer.frames(breaking(), Facts()))
    assert b'"code":"service_unavailable"' in sent[-1] and DONE not in sent[-1]


def test_closing_the_frames_closes_the_stream():
    closed = []

    def batches() -> Iterator[list]:
        try:
            yield [TextDelta("Hi")]
            yield [TextDelta("there")]
        finally:
            closed.append(True)

    stream = chat_writer.frames(batches(), Facts())
    next(stream)
    stream.close()
    assert closed == [True]


def test_silence_is_a_comment():
    assert frames([Heartbeat()]) == [b": keep-alive\n\n"]


def test_role_comes_once_a_choice():
    found = deltas(TextDelta("a"), TextDelta("b"), TextDelta("z", choice=1), TextDelta("c"))
    assert found[0] == {"role": "assistant", "content": "a"}
    assert found[1:] == [{"content": "b"}, {"role": "assistant", "content": "z"}, {"content": "c"}]


def test_calls_are_numbered_in_their_order_whatever_their_blocks():
    found = deltas(
        TextDelta("x"),
        ToolCallDelta(4, id="a", name="f"),
        ToolCallDelta(7, id="b", name="g"),
        ToolCallDelta(7, arguments="{}"),
        ToolCallDelta(4, arguments='{"q":1}'),
    )
    calls = [delta["tool_calls"][0] for delta in found[1:]]
    assert [(call["index"], call.get("id")) for call in calls] == [(0, "a"), (1, "b"), (1, None), (0, None)]
    assert calls[0]["function"] == {"name": "f", "arguments": ""}


def test_call_without_arguments_ends_with_an_empty_object():
    bodies = chunks([ToolCallDelta(0, id="a", name="f")], [Finished("tool_calls")])
    assert bodies[1]["choices"][0]["delta"]["tool_calls"][0]["function"] == {"arguments": "{}"}


def test_call_that_the_provider_ran_is_not_shown():
    assert deltas(ToolCallDelta(0, id="a", name="search", executed="provider")) == []


def test_reasoning_pieces_of_one_block_share_an_index():
    found = deltas(
        ReasoningDelta("a", vendor="anthropic"),
        ReasoningDelta(signature="S", vendor="anthropic"),
        ReasoningDelta(sealed="X", vendor="anthropic", block=1),
    )
    assert found[0]["reasoning"] == "a"
    items = [item for delta in found for item in delta["reasoning_details"]]
    form = "anthropic-claude-v1"
    assert [(item["index"], item.get("format")) for item in items] == [(0, form), (0, None), (1, form)]
    assert (items[1]["signature"], items[2]["data"]) == ("S", "X")


def joined(*events) -> dict[str, Any]:
    """Return the message that the stream helper of OpenAI's SDK makes of events."""
    state: Any = ChatCompletionStreamState()
    for body in chunks(list(events), [Finished("stop")]):
        state.handle_chunk(ChatCompletionChunk.model_validate(body))
    return state.get_final_completion().choices[0].message.model_dump(exclude_unset=True)


def test_the_stream_helper_of_openais_sdk_joins_every_list() -> None:
    pages = [Source(f"https://{name}.test") for name in "abc"]
    relayed = {
        "index": 0,
        "delta": {"annotations": [{"type": "url_citation", "url_citation": {"url": "https://d.test"}}]},
    }
    message = joined(
        ReasoningDelta("Hm", vendor="responses", ident="rs_1", summary=True),
        ReasoningDelta(", yes", sealed="SEAL", vendor="responses", ident="rs_1", summary=True),
        ReasoningDelta(sealed="NEXT", vendor="responses", ident="rs_2", block=1),
        *[SourceFound(page) for page in pages],
        NativeChunk("openai", {"choices": [relayed]}, True),
        PartFound(Image(Media(url="https://x.test/1.png"))),
        PartFound(Image(Media(url="https://x.test/2.png"))),
        ToolCallDelta(2, id="a", name="f", arguments="{}", signature="S1", vendor="google"),
        ToolCallDelta(3, id="b", name="g", arguments="{}", signature="S2", vendor="google"),
        TextDelta("Done.", signature="S3", vendor="google"),
    )
    assert [annotation["url_citation"]["url"] for annotation in message["annotations"]] == [
        f"https://{name}.test" for name in "abcd"
    ]
    assert [image["image_url"]["url"] for image in message["images"]] == [
        "https://x.test/1.png",
        "https://x.test/2.png",
    ]
    blocks, marks = read_details(message["reasoning_details"], message["reasoning"], {"a", "b"}, "")
    assert blocks == [
        Reasoning("Hm, yes", "", "SEAL", "responses", "rs_1", True),
        Reasoning("", "", "NEXT", "responses", "rs_2"),
    ]
    assert marks == ReasoningMarks(("S3", "google"), {"a": ("S1", "google"), "b": ("S2", "google")})


def test_other_parts_have_their_deltas():
    found = deltas(
        RefusalDelta("No."), SourceFound(Source("https://x.test")), PartFound(Image(Media(url="https://x.test/i.png")))
    )
    assert [sorted(delta.keys() - {"role"}) for delta in found] == [["refusal"], ["annotations"], ["images"]]


def test_relayed_chunk_gets_our_identity_and_loses_the_rest():
    body = {"id": "up", "model": "up-1", "system_fingerprint": "f", "usage": {"prompt_tokens": 1}, "x_extra": 1}
    body["choices"] = [{"index": 0, "delta": {"reasoning_content": "hm"}, "finish_reason": None}]
    (found, *_) = chunks([NativeChunk("openai", body, True)])
    assert found.keys() == {"id", "object", "created", "model", "system_fingerprint", "choices"}
    assert found["system_fingerprint"] == chat_writer.FINGERPRINT
    assert found["choices"][0]["delta"] == {"reasoning_content": "hm", "reasoning": "hm"}


@pytest.mark.parametrize("name", ["annotations", "images"])
def test_relayed_items_are_numbered_over_all_chunks(name):
    bodies = [{"choices": [{"index": 0, "delta": {name: [{"type": "x"}]}, "finish_reason": None}]} for _ in range(2)]
    first, second, *_ = chunks([NativeChunk("openai", body, True) for body in bodies])
    assert [body["choices"][0]["delta"][name][0]["index"] for body in (first, second)] == [0, 1]


def test_relayed_finish_is_not_repeated_and_a_missing_one_is_made():
    ending = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
    spoken = {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}]}
    relayed = chunks([NativeChunk("openai", spoken, True), NativeChunk("openai", ending, False)], [Finished("length")])
    assert [body["choices"][0]["finish_reason"] for body in relayed] == [None, "length", None]
    made = chunks([NativeChunk("openai", spoken, True)], [Finished("tool_calls")])
    assert [body["choices"][0]["finish_reason"] for body in made] == [None, "tool_calls", None]


def test_pieces_that_are_ready_go_out_one_by_one_under_our_identity():
    choices = [[{"index": 0, "delta": {"content": text}, "finish_reason": None}] for text in ("x", "y")]
    ready = [orjson.dumps(choice) for choice in choices]
    first, second, *_ = chunks([NativeChunk("openai", {}, True, 2, ready=ready)])
    assert [first["choices"], second["choices"]] == choices
    assert first["id"] == second["id"] and first["object"] == "chat.completion.chunk"


def test_warnings_are_reported_in_the_last_chunk():
    assert chunks([Started(), Notice("top_k was left out.")], [Finished("stop")])[-1]["metadata"]["warnings"] == [
        "top_k was left out."
    ]


def test_citation_of_a_document_is_reported_as_left_out_and_never_as_a_page():
    source = Source("", "Facts", "x", place=SourceRange("pages", 0, 1, 2))
    body = written(Text("x", sources=(source, Source("https://a.example"))))
    assert len(body["choices"][0]["message"]["annotations"]) == 1
    assert body["metadata"]["warnings"] == [chat_writer.UNCITED]
    sent = b"".join(chat_writer.frames(iter([[TextDelta("x"), SourceFound(source)], [Finished("stop")]]), Facts()))
    assert b"annotations" not in sent and chat_writer.UNCITED.encode() in sent


class Wire(dict[str, Any]):
    """A dictionary that can have weak references."""


def test_a_large_result_is_released_by_the_thread_that_writes_it() -> None:
    message = {"role": "assistant", "content": "Hi"}
    wire = Wire(choices=[{"index": 0, "message": message, "finish_reason": "stop"}])
    results = [ChatResult((), native=Native("openai", wire))]
    released = weakref.ref(wire)
    del wire
    alone = chat_writer.reply(results[0], Facts())
    assert chat_writer.reply_last(results, Facts()) == alone
    assert results == [] and released() is None


def test_a_client_that_validates_answers_finds_only_texts_in_metadata():
    facts = Facts()
    facts.adapt = find_adapt({"user-agent": "pydantic-ai/2.3"})
    body = orjson.loads(chat_writer.reply(ChatResult((Choice((Text("Hello."),), "stop"),)), facts))
    assert ChatCompletion.model_validate(body).metadata == {"request_id": "r1"}
    assert body["llmgateway"] == {"request_id": "r1", "routing": []}
