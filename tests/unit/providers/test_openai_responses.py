import orjson
import pytest
from fakes.responses_checks import Refused, check_request

from gateway.catalogue.entries import Mapping, Provider
from gateway.dialects import responses_vocabulary as dialect
from gateway.errors import ContentRefused, InvalidRequest, NotSupported, UpstreamFailed
from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
    CustomTool,
    FunctionTool,
    Native,
    Options,
    ReasoningOptions,
    Requirements,
    ResponseFormat,
    Sampling,
    ToolChoice,
    VendorTool,
    WebSearch,
)
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
    VendorPart,
)
from gateway.providers.openai.responses import OpenAIResponses
from gateway.providers.openai.responses_reply import has_calls
from gateway.providers.protocol import Call, Credential, Target

PROTOCOL = OpenAIResponses()
MAPPING = Mapping(
    "acme", "gpt-5", "gpt-5-2026", reasoning=True, parallel_tool_calls=True, verbosity=True, web_search=True
)
PLAIN = Mapping("acme", "gpt-4o", "gpt-4o")
PIXEL = Image(Media(media_type="image/png", data="aGVsbG8="))
SEALED = "gAAAA-1"
WEATHER = FunctionTool("weather", "The weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
HI = Message("user", (Text("Hi"),))


def target(mapping: Mapping = MAPPING, ident: str = "a", **entry) -> Target:
    cap = entry.pop("output_cap", None)
    provider = Provider("acme", "Acme", "openai-responses", **entry)
    return Target(provider, mapping, Credential("sk-x", ident=ident), "https://acme.test/v1", output_cap=cap)


def request(
    *messages: Message, needs: Requirements = Requirements(), options: Options = Options(), **fields
) -> ChatRequest:
    talk = Conversation(messages or (HI,), **fields)
    return ChatRequest("gpt-5", needs, lambda: talk, options)


def sent(call: Call, sealed: frozenset[str] = frozenset((SEALED,))) -> dict:
    """The body, when the strict service takes it."""
    environ = {"PATH_INFO": call.url.removeprefix("https://acme.test"), "REQUEST_METHOD": call.method}
    return check_request(environ, call.headers, call.body, set(sealed))


def seal(ident: str = "a") -> str:
    return dialect.write_token("responses", dialect.origin_of("acme", ident), SEALED)


def test_everything_that_a_conversation_may_have_is_accepted_by_the_strict_service() -> None:
    messages = (
        Message("system", (Text("Be brief."),)),
        Message("user", (Text("See"), PIXEL, File(Media(media_type="application/pdf", data="QUJD"), "a.pdf"))),
        Message("assistant", (Reasoning("Hm", sealed=seal(), vendor="responses", summary=True), Text("I look."))),
        Message("assistant", (ToolCall("c1", "weather", ""), ToolCall("c2", "patch", "*** Begin", custom=True))),
        Message("tool", (ToolResult("c1", (Text("rain"), PIXEL)),)),
        Message("tool", (ToolResult("c2", (Text("done"),), is_error=True),)),
        Message("assistant", (Refusal("No."),)),
        HI,
    )
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: A"}}
    tools = (WEATHER, CustomTool("patch", "Edits.", grammar), WebSearch(allowed_domains=("a.org",), city="Rome"))
    schema = ResponseFormat("json_schema", "city", schema={"type": "object"}, strict=True)
    body = sent(
        PROTOCOL.write(
            request(
                *messages,
                tools=tools,
                tool_choice=ToolChoice("tool", "weather"),
                response_format=schema,
                reasoning=ReasoningOptions("high", show="summary"),
                sampling=Sampling(max_tokens=100, top_p=0.5, parallel_tool_calls=True, verbosity="low"),
                needs=Requirements(stream=True),
                options=Options(prompt_cache_key="veiled"),
            ),
            target(),
        )
    )
    kinds = [item["type"] for item in body["input"]]
    assert kinds == [
        "message", "message", "reasoning", "message", "function_call", "custom_tool_call", "function_call_output",
        "custom_tool_call_output", "message", "message",
    ]  # fmt: skip
    assert body["input"][6]["output"][1] == {
        "type": "input_image",
        "detail": "auto",
        "image_url": "data:image/png;base64,aGVsbG8=",
    }
    assert body["input"][7]["output"] == "Error: done"
    assert body["tools"][1]["format"] == {"type": "grammar", "syntax": "lark", "definition": "start: A"}


def test_nothing_is_stored_upstream_and_encrypted_reasoning_is_requested() -> None:
    body = sent(PROTOCOL.write(request(), target()))
    assert (body["store"], body["include"]) == (False, [dialect.ENCRYPTED])


def test_reasoning_is_not_requested_from_models_without_it() -> None:
    body = sent(PROTOCOL.write(request(reasoning=ReasoningOptions("none")), target(PLAIN)))
    assert "include" not in body and "reasoning" not in body


def test_reasoning_goes_back_byte_for_byte_to_the_account_that_sealed_it_and_to_no_other() -> None:
    past = Message("assistant", (Reasoning("Hm", sealed=seal("a"), vendor="responses"), Text("x")))
    own = sent(PROTOCOL.write(request(past, HI), target(ident="a")))
    other = sent(PROTOCOL.write(request(past, HI), target(ident="b")))
    assert own["input"][0]["encrypted_content"] == SEALED
    assert "reasoning" not in [item["type"] for item in other["input"]]


def test_reasoning_of_another_vendor_is_left_out() -> None:
    past = Message("assistant", (Reasoning("Hm", signature="SIG", vendor="anthropic"), Text("x")))
    assert [item["type"] for item in sent(PROTOCOL.write(request(past, HI), target()))["input"]] == ["message"] * 2


def test_strict_is_always_said_because_left_out_it_would_mean_true() -> None:
    assert sent(PROTOCOL.write(request(tools=(WEATHER,)), target()))["tools"][0]["strict"] is False


def test_a_tool_without_arguments_takes_an_empty_object() -> None:
    tools = sent(PROTOCOL.write(request(tools=(FunctionTool("now"),)), target()))["tools"]
    assert tools[0]["parameters"] == {"type": "object", "properties": {}}


def test_a_call_id_over_the_limit_is_shortened_alike_in_call_and_output() -> None:
    long = "toolu_" + "x" * 90
    messages = (Message("assistant", (ToolCall(long, "f", "{}"),)), Message("tool", (ToolResult(long, (Text("r"),)),)))
    call, output = sent(PROTOCOL.write(request(HI, *messages), target()))["input"][1:]
    assert call["call_id"] == output["call_id"] and len(call["call_id"]) <= 64


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        ({"sampling": Sampling(n=2)}, (HI,)),
        ({"tools": (VendorTool("anthropic", "bash_20250124", {}),)}, (HI,)),
        ({}, (Message("user", (Audio(Media(data="QUJD"), "wav"),)),)),
        ({}, (Message("assistant", (VendorPart("anthropic", "server_tool_use", {}),)), HI)),
    ],
)
def test_options_without_a_field_in_the_format_skip_the_target(fields: dict, messages: tuple) -> None:
    with pytest.raises(NotSupported):
        PROTOCOL.write(request(*messages, **fields), target())


def test_a_required_search_is_refused_by_providers_without_one() -> None:
    with pytest.raises(NotSupported):
        PROTOCOL.write(request(tools=(WebSearch(),)), target(PLAIN))


def test_omitted_options_are_named() -> None:
    call = PROTOCOL.write(request(sampling=Sampling(stop=("x",), top_k=3, max_tokens=2)), target())
    assert sent(call)["max_output_tokens"] == 16
    assert [text.split()[0] for text in call.warnings] == ["top_k", "stop", "max_output_tokens"]
    effort = PROTOCOL.write(request(sampling=Sampling(output_effort="low")), target())
    assert [text.split(" has ")[0] for text in effort.warnings] == ["The output effort"]


def test_the_verbosity_stands_for_the_output_effort_and_calls_are_parallel_only_with_tools() -> None:
    sampling = Sampling(output_effort="low", verbosity="low", parallel_tool_calls=True)
    call = PROTOCOL.write(request(sampling=sampling), target())
    assert not call.warnings and "parallel_tool_calls" not in sent(call)


def test_the_budget_caps_the_output() -> None:
    asked = request(sampling=Sampling(max_tokens=9000))
    assert sent(PROTOCOL.write(asked, target(output_cap=300)))["max_output_tokens"] == 300
    assert sent(PROTOCOL.write(request(), target(output_cap=300)))["max_output_tokens"] == 300


def relay(body: dict, mapping: Mapping = MAPPING, ident: str = "a", **needs) -> Call:
    native = Native("responses", {"input": [{"type": "message", "role": "user", "content": "Hi"}], **body})
    return PROTOCOL.relay(native, request(needs=Requirements(**needs)), target(mapping, ident))


def test_a_relayed_body_opens_its_own_seals_and_drops_those_of_others() -> None:
    item = {"type": "reasoning", "summary": [], "encrypted_content": seal("a")}
    body = {"input": [item, {"type": "message", "role": "user", "content": "Hi"}]}
    assert sent(relay(body))["input"][0]["encrypted_content"] == SEALED
    assert len(sent(relay(body, ident="b"))["input"]) == 1


def test_a_compaction_that_another_account_sealed_skips_the_target() -> None:
    item = {"type": "compaction", "encrypted_content": seal("a")}
    assert sent(relay({"input": [item]}))["input"][0]["encrypted_content"] == SEALED
    with pytest.raises(NotSupported):
        relay({"input": [item]}, ident="b")


def test_a_compaction_is_opened_for_its_account_when_the_body_is_rewritten() -> None:
    item = VendorPart("responses", "compaction", {"type": "compaction", "encrypted_content": seal()})
    asked = request(Message("user", (Text("Go on."),)), Message("assistant", (item,)), Message("user", (Text("Now."),)))
    written = orjson.loads(OpenAIResponses().write(asked, target()).body)["input"]
    assert written[1] == {"type": "compaction", "encrypted_content": SEALED}
    with pytest.raises(NotSupported):
        OpenAIResponses().write(asked, target(ident="b"))


def test_an_optional_search_is_removed_for_providers_without_one() -> None:
    tools = [{"type": "web_search", "external_web_access": False}]
    call = relay({"tools": tools, "tool_choice": "auto"}, PLAIN)
    assert not {"tools", "tool_choice"} & sent(call).keys()
    assert call.warnings


def test_a_relayed_body_is_not_changed_in_place() -> None:
    body = {"reasoning": {"effort": "none"}, "text": {"verbosity": "low"}, "include": ["x"]}
    relay(body, PLAIN)
    assert body == {"reasoning": {"effort": "none"}, "text": {"verbosity": "low"}, "include": ["x"]}


def test_quirks_of_an_entry_take_their_words_out() -> None:
    mapping = Mapping("acme", "gpt-5", "gpt-5", reasoning=True, verbosity=True, quirks=("no_sampling", "no_user"))
    fields = {"temperature": 0.5, "user": "u", "text": {"verbosity": "low"}}
    assert not {"temperature", "user"} & sent(relay(fields, mapping)).keys()


@pytest.mark.parametrize(
    ("quirk", "fields", "left"),
    [
        ("tool_choice_auto", {"tool_choice": "required"}, {"tool_choice": "auto"}),
        (
            "no_reasoning_effort",
            {"reasoning": {"effort": "low", "summary": "auto"}},
            {"reasoning": {"summary": "auto"}},
        ),
        ("no_max_tool_calls", {"max_tool_calls": 3, "max_output_tokens": 50}, {"max_output_tokens": 50}),
    ],
)
def test_servers_that_lack_a_parameter_do_not_get_it(quirk: str, fields: dict, left: dict) -> None:
    body = sent(relay(fields, Mapping("acme", "gpt-5", "gpt-5", reasoning=True, quirks=(quirk,))))
    assert {name: body[name] for name in (*fields, *left) if name in body} == left


def test_terms_of_the_prompt_cache_go_to_servers_that_have_one() -> None:
    terms = Options(prompt_cache_retention="24h", extra={"prompt_cache_options": {"mode": "explicit"}})
    body = orjson.loads(PROTOCOL.write(request(options=terms), target(quirks=("sends_prompt_cache",))).body)
    assert (body["prompt_cache_retention"], body["prompt_cache_options"]) == ("24h", {"mode": "explicit"})
    assert (
        not {"prompt_cache_retention", "prompt_cache_options"}
        & sent(PROTOCOL.write(request(options=terms), target())).keys()
    )


def test_the_strict_service_refuses_the_same_as_the_real_one() -> None:
    environ = {"PATH_INFO": "/v1/responses", "REQUEST_METHOD": "POST"}
    good = {"model": "gpt-5", "store": False, "input": "x"}
    for more in ({"store": True}, {"frobnicate": 1}, {"previous_response_id": "r"}, {"max_output_tokens": 3}):
        with pytest.raises(Refused):
            check_request(environ, {"authorization": "Bearer x"}, orjson.dumps(good | more), set())


class Body:
    """An answer from memory."""

    status = 200

    def __init__(self, **wire) -> None:
        self._wire = {"id": "resp_1", "status": "completed", "model": "gpt-5", "output": []} | wire
        self.headers = {"content-type": "application/json"}

    def read_all(self) -> bytes:
        return orjson.dumps(self._wire)


SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}
CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
USED = {
    "input_tokens": 100,
    "output_tokens": 50,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    "output_tokens_details": {"reasoning_tokens": 20},
}


def test_a_whole_answer_is_read_with_disjoint_usage() -> None:
    search = {"type": "web_search_call", "id": "ws", "action": {"type": "search", "query": "q"}}
    result = PROTOCOL.read(Body(output=[search, SAID], usage=USED), False)
    usage = result.usage
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning) == (30, 60, 10, 50, 20)
    assert (usage.searches, result.choices[0].finish) == (1, "stop")


def test_tools_that_the_provider_ran_are_counted() -> None:
    ran = [{"type": "code_interpreter_call", "container_id": name} for name in ("c1", "c1", "c2")]
    items = [{"type": "file_search_call"}, {"type": "file_search_call"}, *ran, {"type": "mcp_call"}, SAID]
    usage = PROTOCOL.read(Body(output=items, usage=USED), False).usage
    assert (usage.searches, usage.file_searches, usage.code_sessions, usage.output) == (0, 2, 2, 50)


@pytest.mark.parametrize(
    ("wire", "finish"),
    [
        ({"output": [CALLED]}, "tool_calls"),
        ({"output": [SAID], "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"output": [SAID], "status": "incomplete", "incomplete_details": {"reason": "max_messages"}}, "length"),
        ({"output": [SAID], "status": "incomplete", "incomplete_details": {"reason": "steered"}}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
    ],
)
def test_the_end_of_a_whole_answer_is_understood(wire: dict, finish: str) -> None:
    assert PROTOCOL.read(Body(**wire), False).choices[0].finish == finish


@pytest.mark.parametrize(
    ("wire", "error"),
    [
        ({"status": "failed", "error": {"code": "server_error", "message": "x"}}, UpstreamFailed),
        ({"status": "failed", "error": {"code": "invalid_prompt", "message": "x"}}, InvalidRequest),
        ({"status": "failed", "error": {"code": "bio_policy", "message": "x"}}, ContentRefused),
        ({"status": "cancelled"}, UpstreamFailed),
        ({"status": "in_progress"}, UpstreamFailed),
        ({"output": []}, UpstreamFailed),
        ({"output": "x"}, UpstreamFailed),
    ],
)
def test_a_failure_inside_a_200_is_no_answer(wire: dict, error: type) -> None:
    with pytest.raises(error):
        PROTOCOL.read(Body(**wire), False)


def test_a_failure_inside_a_200_shows_what_it_cost() -> None:
    used = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    wire = {"status": "failed", "error": {"code": "server_error", "message": "x"}, "usage": used}
    with pytest.raises(UpstreamFailed) as raised:
        PROTOCOL.read(Body(**wire), False)
    assert (raised.value.spent.input, raised.value.spent.output) == (9, 4)


@pytest.mark.parametrize(
    "kind",
    [
        *("function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call"),
        *("computer_call", "mcp_approval_request"),
    ],
)
def test_an_answer_that_waits_for_the_caller_ends_with_tool_calls(kind: str) -> None:
    assert has_calls([{"type": "message"}, {"type": kind}]) and not has_calls([{"type": "mcp_call"}])
