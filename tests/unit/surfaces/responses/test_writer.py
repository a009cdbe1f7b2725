from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from fakes.published_types import PublishedUnion
from msgspec.structs import replace
from openai.types.responses import Response, ResponseStreamEvent

from gateway.dialects import responses_vocabulary as dialect
from gateway.errors import StreamTruncated, Unavailable
from gateway.neutral.chat import ChatResult, Choice, Native
from gateway.neutral.events import (
    BlockDone,
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
from gateway.neutral.parts import Image, Media, Reasoning, Source, SourceRange, Text, ToolCall
from gateway.neutral.usage import Usage
from gateway.surfaces.responses import assembler, items, reader, response_creation, schema, writer

EVENT = PublishedUnion(ResponseStreamEvent)
HEX = "0" * 32


class Facts:
    answer_id = f"resp_{HEX}"
    created = 1_767_225_600
    requested_model = "acme/model-1:eu"
    usage = Usage(input=30, cache_read=60, cache_write_1h=10, output=50, reasoning=20)
    service_tier = "on_demand"
    serving = SimpleNamespace(
        target=SimpleNamespace(provider=SimpleNamespace(id="acme"), credential=SimpleNamespace(ident="k")),
        at_us=1_767_225_600_200_000,
        duration_ms=1900,
    )

    def cost(self) -> dict[str, Any]:
        return {"cost": 0.5, "is_byok": False, "cost_details": {"total_cost": 0.5}}

    def metadata(self) -> dict[str, Any]:
        return {"request_id": "r1", "routing": []}


def turn(**fields) -> reader.ResponseTurn:
    body = schema.decode(orjson.dumps({"model": "m", "input": "Hi"} | fields))
    return reader.read_response(body, [], [items.user_text("Hi")])


SEALED = turn(include=[dialect.ENCRYPTED])
FINISHED = Finished("stop", Facts.usage)
# Members of a response that are the caller's own, as its request said them, or that follow from how the answer ended.
DETERMINED = {
    *("instructions", "conversation", "max_output_tokens", "previous_response_id", "prompt", "prompt_cache_key"),
    *("prompt_cache_retention", "safety_identifier", "user", "error", "incomplete_details"),
}
ANSWER = ChatResult((Choice((Text("Hi"),), "stop"),), Facts.usage), SEALED, Facts(), bool


def write(*events, of: reader.ResponseTurn = SEALED, keep=lambda response: True) -> list[dict]:
    """Return the events that a client receives, validated against the published types and numbered without a gap."""
    sent = b"".join(
        response_creation.stream_frames(iter([[Started()], *([event] for event in events)]), of, Facts(), keep)
    )
    frames = [frame for frame in sent.split(b"\n\n") if frame and not frame.startswith(b":")]
    read_events = [orjson.loads(frame.partition(b"\ndata: ")[2]) for frame in frames]
    assert [frame.split(b"\n")[0][7:].decode() for frame in frames] == [event["type"] for event in read_events]
    assert [event["sequence_number"] for event in read_events] == list(range(len(read_events)))
    for event in read_events:
        EVENT.check(event)
    return read_events


def kinds(events: list[dict]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def test_a_text_comes_in_the_order_that_clients_rely_on() -> None:
    events = write(TextDelta("Hel"), TextDelta("lo"), FINISHED)
    assert kinds(events) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    final = Response.model_validate(events[-1]["response"])
    assert final.output_text == "Hello"
    assert len({event["item_id"] for event in events if "item_id" in event}) == 1


def test_reasoning_then_calls_side_by_side_in_the_order_that_clients_rely_on() -> None:
    events = write(
        ReasoningDelta("Hm", vendor="anthropic"),
        ReasoningDelta(signature="SIG", vendor="anthropic"),
        BlockDone(0),
        ToolCallDelta(1, id="a", name="f"),
        ToolCallDelta(2, id="b", name="g"),
        ToolCallDelta(1, '{"x":'),
        ToolCallDelta(2, "{}"),
        ToolCallDelta(1, "1}"),
        Finished("tool_calls", Facts.usage),
    )
    assert kinds(events)[2:9] == [
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done", "output_item.added",
    ]  # fmt: skip
    thought, first, second = events[-1]["response"]["output"]
    assert (first["arguments"], second["arguments"]) == ('{"x":1}', "{}")
    token = dialect.read_token(thought["encrypted_content"])
    assert token.vendor == "anthropic"


def test_a_call_without_arguments_gets_an_empty_object() -> None:
    events = write(ToolCallDelta(0, id="a", name="f"), Finished("tool_calls"))
    assert [e["delta"] for e in events if e["type"].endswith("arguments.delta")] == ["{}"]
    assert events[-1]["response"]["output"][0]["arguments"] == "{}"


def test_a_tool_of_a_namespace_is_called_by_both_its_names() -> None:
    tools = [
        {"type": "namespace", "name": "mcp__git", "description": "", "tools": [{"type": "function", "name": "log"}]}
    ]
    events = write(ToolCallDelta(0, id="a", name="mcp__git__log"), Finished("tool_calls"), of=turn(tools=tools))
    item = events[-1]["response"]["output"][0]
    assert (item["namespace"], item["name"]) == ("mcp__git", "log")


def test_a_custom_call_streams_its_input() -> None:
    events = write(ToolCallDelta(0, "*** Begin", "a", "patch", custom=True), Finished("tool_calls"))
    assert "custom_tool_call_input.delta" in kinds(events)
    assert events[-1]["response"]["output"][0]["input"] == "*** Begin"


def test_blocks_of_text_and_refusal_are_parts_of_one_message() -> None:
    events = write(TextDelta("a", 0), TextDelta("b", 1), RefusalDelta("No.", 2), FINISHED)
    (message,) = events[-1]["response"]["output"]
    assert [part.get("text") or part.get("refusal") for part in message["content"]] == ["a", "b", "No."]
    assert "refusal.done" in kinds(events)


def test_sources_are_annotations_wherever_they_come() -> None:
    source = Source("https://a.org", "A", start=0, end=2)
    events = write(TextDelta("Hello"), SourceFound(source, 0), ToolCallDelta(1, id="c", name="f"), SourceFound(source))
    assert kinds(events).count("output_text.annotation.added") == 2
    events = write(TextDelta("Hello"), SourceFound(Source("https://a.org")), FINISHED)
    (note,) = events[-1]["response"]["output"][0]["content"][0]["annotations"]
    assert (note["start_index"], note["end_index"]) == (0, 5)


def test_a_servers_search_and_a_picture_are_items() -> None:
    events = write(
        ToolCallDelta(0, '{"query": "oslo"}', "s", "web_search", executed="provider"),
        PartFound(Image(Media("image/png", data="QUJD")), 1),
        FINISHED,
    )
    search, image = events[-1]["response"]["output"]
    assert (search["action"]["query"], image["result"]) == ("oslo", "QUJD")
    assert "web_search_call.completed" in kinds(events)


def test_encrypted_content_is_shown_on_request_and_always_stored() -> None:
    stored: list[dict] = []
    events = (
        ReasoningDelta("Hm", "SIG", vendor="anthropic"),
        TextDelta("x", 1, signature="T", vendor="google"),
        FINISHED,
    )
    read_events = write(*events, of=turn(reasoning={}), keep=lambda response: bool(stored.append(response)) or True)
    assert "gw1." not in str(read_events)
    assert [item["type"] for item in read_events[-1]["response"]["output"]] == ["reasoning", "message"]
    assert [item["type"] for item in stored[0]["output"]] == ["reasoning", "message", "reasoning"]


@pytest.mark.parametrize(
    ("reason", "status", "why"),
    [("length", "incomplete", "max_output_tokens"), ("content_filter", "incomplete", "content_filter"),
     ("refusal", "incomplete", "content_filter"), ("stop_sequence", "completed", None)],
)  # fmt: skip
def test_every_end_has_its_status(reason, status, why) -> None:
    events = write(TextDelta("x"), Finished(reason, Facts.usage))
    response = events[-1]["response"]
    assert (events[-1]["type"], response["status"]) == (f"response.{status}", status)
    assert (response["incomplete_details"] or {}).get("reason") == why
    assert response["output"][0]["status"] == status
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == 20


def test_a_broken_answer_never_looks_whole() -> None:
    events = write(TextDelta("Hel"), Failed(StreamTruncated("Cut."), Facts.usage))
    assert kinds(events)[-1] == "failed" and "error" not in kinds(events)
    response = events[-1]["response"]
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert response["usage"]["output_tokens"] == 50
    assert events[-1]["error"]["code"] == "stream_truncated"


def test_a_failure_before_any_content_is_reported_in_order_too() -> None:
    assert kinds(write(Heartbeat(), Failed(StreamTruncated("Cut.")))) == ["created", "in_progress", "failed"]


def test_an_error_out_of_the_engine_ends_the_stream_as_failed() -> None:
    def batches():
        yield [TextDelta("x")]
        raise Unavailable()

    sent = b"".join(response_creation.stream_frames(batches(), SEALED, Facts(), lambda response: True))
    assert b"event: response.failed" in sent and b"response.completed" not in sent


def test_silence_is_a_comment() -> None:
    assert list(response_creation.stream_frames(iter([[Heartbeat()]]), SEALED, Facts(), lambda response: True)) == [
        b": keep-alive\n\n"
    ]


def test_a_stream_begins_with_its_first_content() -> None:
    """Until then another provider may answer."""
    batches = iter([[Started()], [Notice("A parameter was left out.")], [TextDelta("Hello")], [FINISHED]])
    first = next(response_creation.stream_frames(batches, SEALED, Facts(), lambda response: True))
    assert first.startswith(b"event: response.created\n") and list(batches) == [[FINISHED]]


def test_a_response_that_could_not_be_stored_reports_it() -> None:
    events = write(TextDelta("x"), FINISHED, keep=lambda response: False)
    assert events[-1]["response"]["store"] is False


def relayed(kind: str, **members) -> NativeChunk:
    return NativeChunk("responses", {"type": f"response.{kind}", "sequence_number": 77, **members}, True)


def test_relayed_events_come_under_our_ids_numbers_and_seals() -> None:
    item = {"type": "reasoning", "id": "rs_theirs", "summary": []}
    events = write(
        relayed("output_item.added", output_index=0, item=item),
        relayed("reasoning_summary_text.delta", output_index=0, item_id="rs_theirs", summary_index=0, delta="Hm"),
        relayed("output_item.done", output_index=0, item={**item, "encrypted_content": "gAAAA"}),
        FINISHED,
    )
    assert events[3]["item_id"] == events[2]["item"]["id"] == f"rs_{HEX}_0"
    token = dialect.read_token(events[-1]["response"]["output"][0]["encrypted_content"])
    assert (token.payload, token.origin) == ("gAAAA", dialect.origin_of("acme", "k"))


PARTS = (
    Reasoning("Hm", "SIG", vendor="anthropic"),
    Text("Hello", sources=(Source("https://a.org", "A", start=0, end=1),)),
    ToolCall("a", "f", '{"x":1}'),
)


def test_a_complete_response_equals_its_stream() -> None:
    whole = writer.reply(ChatResult((Choice(PARTS, "tool_calls"),), Facts.usage), SEALED, Facts(), lambda r: True)
    streamed = write(
        ReasoningDelta("Hm", "SIG", vendor="anthropic"),
        BlockDone(0),
        TextDelta("Hello", 1),
        SourceFound(PARTS[1].sources[0], 1),
        ToolCallDelta(2, '{"x":1}', "a", "f"),
        Finished("tool_calls", Facts.usage),
    )[-1]["response"]
    assert whole == streamed
    Response.model_validate(whole, strict=True)


def test_only_a_complete_response_has_the_time_of_its_end() -> None:
    cut = ChatResult((Choice((Text("x"),), "length"),), Facts.usage)
    assert [writer.reply(one, *ANSWER[1:])["completed_at"] for one in (ANSWER[0], cut)] == [1_767_225_602, None]


def test_a_relayed_whole_answer_keeps_the_upstreams_items_and_nothing_else_of_it() -> None:
    item = {"type": "message", "id": "msg_theirs", "role": "assistant", "status": "completed",
            "phase": "final_answer", "content": [{"type": "output_text", "text": "Hi", "annotations": []}]}  # fmt: skip
    body = {"id": "resp_theirs", "model": "secret", "output": [item], "metadata": {"theirs": "x"}}
    result = ChatResult((Choice((Text("Hi"),), "stop"),), Facts.usage, native=Native("responses", body))
    whole = writer.reply(result, SEALED, Facts(), lambda response: True)
    assert whole["output"] == [{**item, "id": f"msg_{HEX}_0"}]
    assert (whole["model"], whole["metadata"]) == ("acme/model-1:eu", {})
    assert "theirs" not in str(whole).replace("msg_theirs", "theirs")


@pytest.mark.parametrize(
    "name",
    [name for name in Response.model_fields if name not in DETERMINED and writer.reply(*ANSWER).get(name) is None],
)
def test_a_relayed_answer_keeps_what_only_the_provider_knows(name: str) -> None:
    body = {"output": [], name: "theirs"}
    result = ChatResult((Choice((Text("Hi"),), "stop"),), Facts.usage, native=Native("responses", body))
    assert writer.reply(result, *ANSWER[1:])[name] == "theirs"


@pytest.mark.parametrize("tier", ["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"])
def test_a_tier_that_openai_knows_is_shown(tier: str) -> None:
    facts = Facts()
    facts.service_tier = tier
    whole = writer.reply(ANSWER[0], SEALED, facts, ANSWER[3])
    assert Response.model_validate(whole, strict=True).service_tier == tier


def test_the_response_repeats_its_request() -> None:
    asked = turn(
        instructions="Be brief.", tools=[{"type": "function", "name": "f", "parameters": {}}], tool_choice="required",
        text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}, metadata={"a": "b"},
        reasoning={"effort": "low"}, temperature=0.5, max_output_tokens=99,
    )  # fmt: skip
    whole = writer.reply(ChatResult((Choice((Text("x"),), "stop"),)), asked, Facts(), lambda response: True)
    answer = Response.model_validate(whole)
    assert (answer.instructions, answer.tool_choice, answer.metadata) == ("Be brief.", "required", {"a": "b"})
    assert (answer.text.format.name, answer.reasoning.effort, answer.max_output_tokens) == ("n", "low", 99)
    assert answer.service_tier == "default"  # a tier with a name from another dialect


def test_a_response_has_the_penalties_that_the_open_specification_requires() -> None:
    """https://www.openresponses.org/specification: a response states each, also where the request did not."""
    whole = writer.reply(*ANSWER)
    assert (whole["frequency_penalty"], whole["presence_penalty"]) == (0.0, 0.0)


def test_facts_of_ours_stand_where_sdks_let_them() -> None:
    whole = writer.reply(ChatResult((Choice((Text("x"),), "stop"),)), replace(SEALED), Facts(), lambda response: True)
    answer = Response.model_validate(whole)
    assert (answer.usage.cost, answer.llmgateway["request_id"]) == (0.5, "r1")
    assert answer.usage.input_tokens == 100


def test_citation_of_a_document_names_the_file_and_its_number() -> None:
    source = Source("", "Facts", "x", place=SourceRange("pages", 2, 1, 2, file_id="f1"))
    events = write(TextDelta("x"), SourceFound(source), FINISHED)
    (added,) = [event["annotation"] for event in events if event["type"].endswith("annotation.added")]
    assert added == {"type": "file_citation", "file_id": "f1", "filename": "Facts", "index": 2}


def test_a_long_text_and_one_of_many_pieces_end_as_they_were_sent(monkeypatch) -> None:
    in_thread = []
    monkeypatch.setattr(assembler, "compute_if", lambda large, work, *args: in_thread.append(large) or work(*args))
    long = write(*[TextDelta("word " * 1000)] * 300, FINISHED)[-1]["response"]
    many = write(*[TextDelta("w")] * 20_000, FINISHED)[-1]["response"]
    assert Response.model_validate(long).output_text == "word " * 300_000
    assert Response.model_validate(many).output_text == "w" * 20_000
    assert all(in_thread)
