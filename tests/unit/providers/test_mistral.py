from collections.abc import Callable, Iterator

import pytest
from fakes.mistral import KEY, Answer, FakeMistral

from gateway.catalogue import loader
from gateway.clock import Clock
from gateway.configuration.settings import Security, Timeouts
from gateway.errors import InvalidRequest, UpstreamRefused
from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
    FunctionTool,
    Native,
    ReasoningOptions,
    Requirements,
    ResponseFormat,
    Sampling,
    ToolChoice,
)
from gateway.neutral.events import Finished, collect
from gateway.neutral.parts import (
    Audio,
    File,
    Image,
    Media,
    Message,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from gateway.neutral.usage import Usage
from gateway.providers.openai.chat import OpenAIChat
from gateway.providers.protocol import Credential, Target
from gateway.providers.registry import chat_wire
from gateway.providers.upstream import Upstreams
from gateway.providers.upstream_calls import Network
from gateway.transport import Transport

CATALOGUE = loader.load()
PROVIDER = CATALOGUE.provider("mistral")
HI = Message("user", (Text("hi"),))
TOOL = FunctionTool("look", "Looks.")
CALL = Message("assistant", (ToolCall("call_0a1b2c3d4e5f", "look", '{"x": 1}'),))
RESULT = Message("tool", (ToolResult("call_0a1b2c3d4e5f", (Text("42"),)),))


@pytest.fixture
def upstream() -> Iterator[FakeMistral]:
    with FakeMistral() as server:
        yield server


@pytest.fixture
def ask(upstream) -> Iterator[Callable]:
    transport = Transport(Timeouts(5, 5, 5, 1, 2, 1), Security(True, (), ()))
    upstreams = Upstreams({"openai": chat_wire("openai", OpenAIChat())}, Network(transport), {}, 1)

    def send(*messages: Message, stream=False, secret=KEY, native=None, **talk):
        model = CATALOGUE.find("magistral-medium-latest")
        mapping = next(mapping for mapping in model.mappings if mapping.provider == "mistral")
        where = Target(PROVIDER, mapping, Credential(secret), upstream.url, trusted=True)
        conversation = Conversation(messages or (HI,), **talk)
        needs = Requirements(stream=stream)
        request = ChatRequest("m", needs, lambda: conversation, native=native)
        deadline = Clock().monotonic() + 60
        if not stream:
            return upstreams.send(request, where, deadline)
        return [event for batch in upstreams.stream(request, where, deadline).batches for event in batch]

    yield send
    transport.close()


def sent(upstream: FakeMistral) -> list:
    call = upstream.calls[-1]
    assert call.problem is None, call.problem
    return call.body["messages"]


def test_ids_of_a_tool_loop_are_nine_letters_alike_in_call_and_result(ask, upstream):
    ask(HI, CALL, RESULT, tools=(TOOL,))
    messages = sent(upstream)
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"]
    assert upstream.calls[0].body["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}


def test_ids_that_the_provider_generated_are_unchanged(ask, upstream):
    ask(
        HI,
        Message("assistant", (ToolCall("callid007", "look", "{}"),)),
        Message("tool", (ToolResult("callid007", ()),)),
    )
    assert sent(upstream)[2]["tool_call_id"] == "callid007"


def test_a_user_message_behind_a_result_is_accepted(ask, upstream):
    ask(HI, CALL, RESULT, Message("user", (Text("and now?"),)), tools=(TOOL,))
    assert [message["role"] for message in sent(upstream)][-3:] == ["tool", "assistant", "user"]


def test_image_in_a_result_arrives(ask, upstream):
    image = Image(Media("image/png", data="aGVsbG8="))
    ask(HI, CALL, Message("tool", (ToolResult("call_0a1b2c3d4e5f", (image,)),)), tools=(TOOL,))
    assert b"aGVsbG8=" in str(sent(upstream)[-1]).encode() and sent(upstream)[-1]["role"] == "user"


def test_answer_to_be_continued_is_marked(ask, upstream):
    ask(HI, Message("assistant", (Text("So"),)))
    assert sent(upstream)[-1]["prefix"] is True


def test_files_and_sound_are_in_the_services_own_words(ask, upstream):
    file = File(Media("application/pdf", data="JVBERi0x"), "a.pdf")
    ask(Message("user", (file, Audio(Media(data="AAAA"), "mp3"), Text("see"))))
    parts = sent(upstream)[0]["content"]
    assert parts[0]["document_url"].startswith("data:application/pdf") and parts[0]["document_name"] == "a.pdf"
    assert parts[1] == {"type": "input_audio", "input_audio": "AAAA"}


def test_past_reasoning_goes_back_as_its_own_part_when_a_body_is_relayed(ask, upstream):
    answer = {"role": "assistant", "content": "42", "reasoning_content": "Hm.", "refusal": None, "name": "a"}
    messages = [{"role": "user", "content": "hi", "name": "ada"}, answer, {"role": "user", "content": "more"}]
    ask(native=Native("openai", {"messages": messages, "user": "u", "max_completion_tokens": 5}))
    assert sent(upstream)[1]["content"][0]["thinking"] == [{"type": "text", "text": "Hm."}]
    assert upstream.calls[0].body["max_tokens"] == 5 and "user" not in upstream.calls[0].body
    assert answer["content"] == "42"


def test_everything_at_once_is_accepted(ask, upstream):
    response_format = ResponseFormat("json_schema", "place", schema={"type": "object"}, strict=True)
    sampling = Sampling(9, 0.5, 0.9, 5, 0.1, 0.2, stop=("x",), parallel_tool_calls=True, verbosity="low")
    past = Message("assistant", (Reasoning("Hm."), Refusal("No."), Text("42")), "bot")
    ask(
        Message("developer", (Text("Rule."),)), HI, past, HI, tools=(TOOL,), tool_choice=ToolChoice("required"),
        response_format=response_format, reasoning=ReasoningOptions(effort="xhigh"), sampling=sampling,
    )  # fmt: skip
    assert sent(upstream)[0]["role"] == "system"
    body = upstream.calls[0].body
    assert (body["tool_choice"], body["max_tokens"], body["reasoning_effort"]) == ("any", 9, "high")


def test_thinking_is_read_as_reasoning_in_both_forms(ask, upstream):
    answer = Answer("It is 42.", thinking="Let me think about it.")
    upstream.script(answer, answer)
    parts = (Reasoning("Let me think about it."), Text("It is 42."))
    assert ask().choices[0].parts == parts
    assert collect([ask(stream=True)]).choices[0].parts == parts


def test_calls_are_read_in_both_forms(ask, upstream):
    upstream.script(*[Answer(tools=(("look", '{"x": 1}'), ("see", "{}")))] * 2)
    whole, streamed = ask().choices[0], collect([ask(stream=True)]).choices[0]
    assert whole == streamed and [part.name for part in whole.parts] == ["look", "see"]


def test_stream_brings_usage_unasked(ask):
    last = ask(stream=True)[-1]
    assert isinstance(last, Finished) and last.usage == Usage(input=11, output=7)


def test_shape_errors_are_the_callers_and_wrong_keys_the_gateways(ask, upstream):
    with pytest.raises(InvalidRequest) as raised:
        ask(native=Native("openai", {"messages": [{"role": "user", "content": "x"}], "nonsense": 1}))
    assert raised.value.status == 422
    with pytest.raises(UpstreamRefused):
        ask(secret="wrong-key-here")
