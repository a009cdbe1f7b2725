import anthropic
import orjson
import pytest
from fakes.anthropic import Answer, message_of
from fakes.message_facts import MessageFacts

from gateway.neutral.chat import ChatResult, Choice, Native
from gateway.neutral.parts import Image, Media, Part, Reasoning, Refusal, Source, Text, ToolCall, VendorPart
from gateway.surfaces.anthropic import reader, schema, writer


def written(*parts: Part, finish="stop", **more) -> dict:
    body = orjson.loads(writer.reply(ChatResult((Choice(parts, finish, **more),)), MessageFacts()))
    anthropic.types.Message.model_validate(body)
    return body


def read_back(body: dict) -> tuple[Part, ...]:
    """Return the parts of a response that its client sends back."""
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": body["content"]}]
    raw = orjson.dumps({"model": "m", "max_tokens": 1, "messages": messages})
    return reader.read_messages(schema.decode(raw)).conversation().messages[1].parts


def test_a_reply_has_our_identity_and_every_fact():
    body = written(Text("Hello."))
    assert (body["id"], body["model"], body["type"], body["role"]) == (
        "msg_ours",
        "acme/model-1:eu",
        "message",
        "assistant",
    )
    assert body["content"] == [{"type": "text", "text": "Hello."}]
    assert (body["stop_reason"], body["stop_sequence"]) == ("end_turn", None)
    assert body["metadata"] == {"request_id": "r1", "routing": []}


def test_usage_has_the_uncached_part_and_the_price():
    usage = written(Text("x"))["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]) == (
        30,
        60,
        15,
    )
    assert usage["cache_creation"] == {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 10}
    assert (usage["output_tokens"], usage["output_tokens_details"]) == (50, {"thinking_tokens": 20})
    assert (usage["server_tool_use"]["web_search_requests"], usage["cost"]) == (2, 0.5)


@pytest.mark.parametrize(
    ("finish", "stop"),
    [("length", "max_tokens"), ("content_filter", "refusal"), ("refusal", "refusal"), ("pause", "pause_turn")],
)
def test_finish_reasons_have_the_formats_words(finish: str, stop: str):
    assert written(Text("x"), finish=finish)["stop_reason"] == stop


def test_calls_decide_between_end_and_tool_use():
    call = ToolCall("t1", "f", '{"a":1}')
    assert written(call, finish="stop")["stop_reason"] == "tool_use"
    assert written(Text("x"), finish="tool_calls")["stop_reason"] == "end_turn"
    stopped = written(Text("x"), finish="stop_sequence", stop_sequence="END")
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "END")


def test_calls_have_objects_as_input():
    parts = (ToolCall("a", "f", '{"x":[1]}'), ToolCall("b", "f", ""), ToolCall("c", "f", '{"x"'))
    assert [block["input"] for block in written(*parts)["content"]] == [{"x": [1]}, {}, {"input": '{"x"'}]


def test_sources_are_citations_of_the_text():
    block = written(Text("x", sources=(Source("https://a", "A", "q"),)))["content"][0]
    assert block["citations"][0]["url"] == "https://a" and block["citations"][0]["cited_text"] == "q"


def test_parts_unknown_to_the_format_become_text_or_are_hidden():
    image = Image(Media("image/png", data="aGk="))
    made = Image(Media(url="https://a/b.png"))
    hidden = ToolCall("ws", "web_search", "{}", vendor="responses", executed="provider")
    body = written(Refusal("No."), image, made, hidden, VendorPart("google", "x", {}))
    texts = [block["text"] for block in body["content"]]
    assert texts == ["No.", "![image](data:image/png;base64,aGk=)", "![image](https://a/b.png)"]


@pytest.mark.parametrize(
    "part",
    [
        Reasoning("hm", signature="EqQB==", vendor="anthropic"),
        Reasoning(sealed="gAAA==", vendor="anthropic"),
        Reasoning("summary", "", "gAAA==", "responses", "rs_1", True),
        Reasoning("plain"),
        Reasoning("seen", signature="c2ln", vendor="google"),
        Text("signed", signature="c2ln", vendor="google"),
        ToolCall("t1", "f", '{"a":1}', signature="c2ln", vendor="google"),
        ToolCall("srvtoolu_1", "web_search", '{"query":"x"}', vendor="anthropic", executed="provider"),
    ],
)
def test_opaque_vendor_data_survives_the_round_trip(part: Part):
    before, after = Text("before"), Text("after")
    assert read_back(written(before, part, after)) == (before, part, after)


def test_a_mark_without_text_comes_back_on_the_text_before():
    parts = read_back(written(Text("x"), Text("", signature="c2ln", vendor="google")))
    assert parts == (Text("x", signature="c2ln", vendor="google"),)


def test_a_relayed_reply_keeps_the_upstreams_content():
    native = message_of(Answer("Hello", thinking="hm", search="https://a"), "claude") | {"container": None}
    result = ChatResult((Choice((), "stop"),), native=Native("anthropic", native))
    body = orjson.loads(writer.reply(result, MessageFacts()))
    assert body["content"] == native["content"] and body["usage"]["input_tokens"] == 12
    assert (body["id"], body["model"], body["usage"]["cost"]) == ("msg_ours", "acme/model-1:eu", 0.5)
    assert native["id"] == "msg_upstream"
