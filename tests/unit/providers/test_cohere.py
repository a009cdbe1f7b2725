from collections.abc import Callable, Iterator

import orjson
import pytest
from fakes.cohere import KEY, Answer, FakeCohere
from support.replies import MemoryReply

from gateway.catalogue import loader
from gateway.clock import Clock
from gateway.configuration.settings import Security, Timeouts
from gateway.errors import (
    InvalidRequest,
    NotSupported,
    StreamTruncated,
    UpstreamFailed,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
    FunctionTool,
    ReasoningOptions,
    Requirements,
    ResponseFormat,
    Sampling,
    ToolChoice,
)
from gateway.neutral.events import BlockDone, Failed, TextDelta, ToolCallDelta, collect
from gateway.neutral.parts import (
    File,
    Image,
    Media,
    Message,
    Reasoning,
    Source,
    SourceRange,
    Text,
    ToolCall,
    ToolResult,
)
from gateway.neutral.usage import Usage
from gateway.providers.cohere.chat import CohereChat
from gateway.providers.protocol import Credential, Target
from gateway.providers.registry import chat_wire
from gateway.providers.upstream import Upstreams
from gateway.providers.upstream_calls import Network
from gateway.transport import Transport

CATALOGUE = loader.load()
HI = Message("user", (Text("hi"),))
TOOL = FunctionTool("look", "Looks.", {"type": "object", "properties": {"x": {"type": "integer", "minimum": 1}}})
OTHER = FunctionTool("see")
CALL = Message("assistant", (Reasoning("I will look."), ToolCall("call_1", "look", '{"x": 1}')))
RESULT = Message("tool", (ToolResult("call_1", (Text("42"),)),))
USED = Usage(input=7, cache_read=4, output=7)


@pytest.fixture
def upstream() -> Iterator[FakeCohere]:
    with FakeCohere() as server:
        yield server


@pytest.fixture
def ask(upstream) -> Iterator[Callable]:
    transport = Transport(Timeouts(5, 5, 5, 1, 2, 1), Security(True, (), ()))
    upstreams = Upstreams({"cohere": chat_wire("cohere", CohereChat())}, Network(transport), {}, 1)

    def send(*messages: Message, stream=False, secret=KEY, model="command-a-reasoning-08-2025", **talk):
        mapping = next(mapping for mapping in CATALOGUE.find(model).mappings if mapping.provider == "cohere")
        where = Target(CATALOGUE.provider("cohere"), mapping, Credential(secret), upstream.url, trusted=True)
        conversation = Conversation(messages or (HI,), **talk)
        request = ChatRequest("m", Requirements(stream=stream), lambda: conversation)
        deadline = Clock().monotonic() + 60
        if not stream:
            return upstreams.send(request, where, deadline)
        return [event for batch in upstreams.stream(request, where, deadline).batches for event in batch]

    yield send
    transport.close()


def sent(upstream: FakeCohere) -> dict:
    call = upstream.calls[-1]
    assert call.problem == ""
    return call.body


def both(ask, upstream, answer: Answer) -> list:
    """The same answer whole and streamed, as results."""
    upstream.script(answer, answer)
    return [ask(), collect([ask(stream=True)])]


def test_thinking_text_and_usage_are_read_alike_in_both_forms(ask, upstream):
    for result in both(ask, upstream, Answer("It is 42.", thinking="Let me think about it.")):
        assert result.choices[0].parts == (Reasoning("Let me think about it."), Text("It is 42."))
        assert (result.choices[0].finish, result.usage, result.upstream_id) == ("stop", USED, "c-1")


def test_plan_and_calls_are_read_alike_in_both_forms(ask, upstream):
    answer = Answer(plan="I will look.", tools=(("look", '{"x": 1}'), ("see", "{}")))
    for result in both(ask, upstream, answer):
        plan, *calls = result.choices[0].parts
        assert plan == Reasoning("I will look.") and result.choices[0].finish == "tool_calls"
        assert [(call.id, call.name, call.arguments) for call in calls] == [
            ("look_0", "look", '{"x": 1}'),
            ("see_1", "see", "{}"),
        ]


@pytest.mark.parametrize("kind", ["TEXT_CONTENT", None])
def test_citations_are_sources_with_their_places(ask, upstream, kind):
    cited = ((0, 2, {"id": "d1", "title": "Facts", "text": "…"}), (6, 8, {"url": "https://a.example/", "title": "A"}))
    for result in both(ask, upstream, Answer("It is 42.", thinking="Hm.", cited=cited, cited_as=kind)):
        assert result.choices[0].parts[1].sources == (
            Source("", "Facts", "It", 0, 2, SourceRange("result", 0, file_id="d1")),
            Source("https://a.example/", "A", "42", 6, 8),
        )


@pytest.mark.parametrize(
    ("finish", "expected"),
    [("MAX_TOKENS", "length"), ("STOP_SEQUENCE", "stop_sequence"), ("ERROR_TOXIC", "content_filter")],
)
def test_finish_reasons_are_understood(ask, upstream, finish, expected):
    for result in both(ask, upstream, Answer("Half", finish=finish)):
        assert result.choices[0].finish == expected


@pytest.mark.parametrize(("finish", "kind"), [("ERROR", UpstreamFailed), ("TIMEOUT", UpstreamTimeout)])
def test_failed_end_is_the_providers_fault_and_its_usage_known(ask, upstream, finish, kind):
    upstream.script(*[Answer("Half", finish=finish)] * 2)
    with pytest.raises(kind) as raised:
        ask()
    assert raised.value.spent == USED
    last = ask(stream=True)[-1]
    assert isinstance(last, Failed) and type(last.error) is kind and last.usage == USED


def test_the_start_of_a_block_may_hold_text_and_the_end_of_a_call_is_known():
    call = {"id": "look_0", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    frames = [
        {"type": "message-start", "id": "c-1"},
        {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "text", "text": "So"}}}},
        {"type": "content-end", "index": 0},
        {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": call}}},
        {"type": "tool-call-end", "index": 0},
    ]
    stream = b"".join(b"data: " + orjson.dumps(frame) + b"\n\n" for frame in frames)
    reply = MemoryReply(stream, headers={"content-type": "text/event-stream"})
    events = [event for batch in CohereChat().read_stream(reply, False) for event in batch]
    assert events[1:-1] == [TextDelta("So", 0), ToolCallDelta(1, "{}", "look_0", "look"), BlockDone(1)]


def test_stream_without_its_end_is_truncated(ask, upstream):
    upstream.script(Answer("Half", ends=False))
    assert isinstance(ask(stream=True)[-1].error, StreamTruncated)


def test_tool_loop_goes_back_with_its_thinking(ask, upstream):
    ask(HI, CALL, RESULT, tools=(TOOL,))
    turn, result = sent(upstream)["messages"][1:]
    assert turn["content"] == [{"type": "thinking", "thinking": "I will look."}]
    assert turn["tool_calls"][0]["id"] == result["tool_call_id"] and result["content"] == "42"


def test_a_model_without_reasoning_gets_its_tool_plan(ask, upstream):
    ask(HI, CALL, RESULT, tools=(TOOL,), model="command-a-03-2025", reasoning=ReasoningOptions(effort="high"))
    assert sent(upstream)["messages"][1]["tool_plan"] == "I will look."
    assert "thinking" not in sent(upstream)


def test_image_in_a_result_is_shown_by_the_user(ask, upstream):
    result = Message("tool", (ToolResult("call_1", (Image(Media("image/png", data="aGVsbG8=")),)),))
    ask(HI, CALL, result, tools=(TOOL,))
    assert sent(upstream)["messages"][-1]["content"][1]["image_url"]["url"] == "data:image/png;base64,aGVsbG8="


def test_first_instructions_are_one_message_and_later_ones_stay_where_they_are(ask, upstream):
    first = [Message("system", (Text("A."),)), Message("developer", (Text("B."),))]
    ask(*first, HI, Message("developer", (Text("C."),)))
    system, user, late = sent(upstream)["messages"]
    assert [block["text"] for block in system["content"]] == ["A.", "B."] and user["role"] == late["role"] == "user"
    assert late["content"][0]["text"] == "<system-reminder>\nC.\n</system-reminder>"


def test_instructions_alone_are_the_users(ask, upstream):
    ask(Message("system", (Text("Say hi."),)))
    assert [message["role"] for message in sent(upstream)["messages"]] == ["user"]


def test_all_options_together_are_accepted(ask, upstream):
    sampling = Sampling(9, 1.7, 1.0, 900, 0.5, 0.2, stop=tuple("abcdefg"), parallel_tool_calls=False, verbosity="low")
    result = ask(HI, tools=(TOOL, OTHER), tool_choice=ToolChoice("tool", "see"), sampling=sampling)
    body = sent(upstream)
    assert (body["temperature"], body["p"], body["k"], body["max_tokens"]) == (1.0, 0.99, 500, 9)
    assert body["tool_choice"] == "REQUIRED" and [tool["function"]["name"] for tool in body["tools"]] == ["see"]
    told = " ".join(result.warnings)
    assert all(told.count(word) == 1 for word in ("penalties", "stop sequences", "parallel_tool_calls", "verbosity"))
    assert body["stop_sequences"] == list("abcde")
    assert not ask(HI, sampling=Sampling(parallel_tool_calls=False)).warnings


@pytest.mark.parametrize("name", ["frequency_penalty", "presence_penalty"])
def test_a_penalty_is_kept_within_the_services_range(ask, upstream, name):
    ask(sampling=Sampling(**{name: 2.0}))
    assert sent(upstream)[name] == 1.0
    ask(sampling=Sampling(**{name: -1.0}))
    assert sent(upstream)[name] == 0.0


def test_schema_of_an_answer_is_in_the_services_grammar(ask, upstream):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"]}
    result = ask(response_format=ResponseFormat("json_schema", "n", schema=schema))
    assert sent(upstream)["response_format"]["json_schema"]["required"] == ["n"]
    assert "maximum" in result.warnings[0]


@pytest.mark.parametrize(
    ("ask_for", "expected"),
    [
        (ReasoningOptions(effort="none"), {"type": "disabled"}),
        (ReasoningOptions(effort="minimal"), {"type": "enabled", "token_budget": 512}),
        (ReasoningOptions(effort="low"), {"type": "enabled", "token_budget": 2048}),
        (ReasoningOptions(effort="medium"), {"type": "enabled", "token_budget": 8192}),
        (ReasoningOptions(effort="high"), {"type": "enabled"}),
        (ReasoningOptions(budget=300), {"type": "enabled", "token_budget": 300}),
        (ReasoningOptions(), None),
    ],
)
def test_reasoning_is_requested_in_tokens(ask, upstream, ask_for, expected):
    ask(reasoning=ask_for)
    assert sent(upstream).get("thinking") == expected


@pytest.mark.parametrize(
    "talk",
    [
        {"sampling": Sampling(n=2)},
        {"tools": (TOOL,), "response_format": ResponseFormat("json_object")},
    ],
)
def test_content_that_the_format_cannot_carry_skips_the_target(ask, upstream, talk):
    with pytest.raises(NotSupported):
        ask(**talk)
    assert not upstream.calls


def test_document_is_not_carried_silently(ask):
    with pytest.raises(NotSupported):
        ask(Message("user", (File(Media("application/pdf", data="JVBERi0x")),)))


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, InvalidRequest), (404, UpstreamRefused), (429, UpstreamRateLimited), (498, UpstreamRefused),
     (499, UpstreamTimeout), (500, UpstreamFailed)],
)  # fmt: skip
@pytest.mark.parametrize("stream", [True, False])
def test_errors_have_the_right_blame(ask, upstream, status, kind, stream):
    upstream.script(Answer(status=status, message="no such thing"))
    with pytest.raises(kind) as raised:
        ask(stream=stream)
    assert raised.value.blame == ("caller" if status == 400 else "provider")


def test_wrong_key_is_refused_without_being_shown(ask):
    with pytest.raises(UpstreamRefused) as raised:
        ask(secret="wrong-key-0123456789")
    assert "wrong-key" not in f"{raised.value} {raised.value.details}"


@pytest.mark.parametrize("last", [True, False])
def test_images_of_the_assistant_go_into_the_next_turn_of_the_user(ask, upstream, last: bool) -> None:
    picture = Image(Media(media_type="image/png", data="iVBORw0KGgo="))
    talk = [HI, Message("assistant", (Text("Here."), picture))]
    ask(*talk, *([] if last else [Message("user", (Text("Bluer."),))]), model="command-a-vision-07-2025")
    turns = upstream.calls[0].body["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert [block["type"] for block in turns[1]["content"]] == ["text"]
    assert [block["type"] for block in turns[2]["content"]] == ["text", "image_url"] + ["text"] * (not last)
