import orjson
import pytest
from fakes.anthropic_checks import Refused, check_body, sign
from support.replies import json_reply

from gateway.catalogue.entries import Mapping, Provider
from gateway.dialects.anthropic_betas import BETAS
from gateway.errors import (
    ContentRefused,
    GatewayError,
    InvalidRequest,
    NotSupported,
    UpstreamFailed,
    UpstreamOverloaded,
    UpstreamRefused,
)
from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
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
    CacheMark,
    File,
    Image,
    Media,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    VendorPart,
)
from gateway.providers.anthropic.messages import AnthropicMessages
from gateway.providers.protocol import Call, Credential, Target
from gateway.surfaces.anthropic.schema import EnabledThinking

PROTOCOL = AnthropicMessages()
FIELDS = {"reasoning": True, "max_output": 64_000, "web_search": True, "json_output_schema": True}
OLD = Mapping("anthropic", "claude-sonnet-4-5", "claude-sonnet-4-5", **FIELDS)
NEW = Mapping("anthropic", "claude-opus-5", "claude-opus-5", reasoning_efforts=("low", "medium", "high"), **FIELDS)
PNG = "iVBORw0KGgoAAAANSUhEUg=="
WEATHER = FunctionTool("weather", schema={"type": "object", "properties": {"city": {"type": "string"}}})
RAW_ADDRESS = "https://aiplatform.googleapis.com/v1/projects/p/locations/us-east5/publishers/anthropic"


def target(mapping: Mapping = OLD, address="https://api.anthropic.com/v1", secret="sk-ant-x", **entry) -> Target:
    settings, cap = entry.pop("settings", {}), entry.pop("output_cap", None)
    provider = Provider("anthropic", "Anthropic", "anthropic", **({"auth": "x-api-key"} | entry))
    return Target(provider, mapping, Credential(secret), address, settings, output_cap=cap)


def raw_target(secret: str, region: str) -> Target:
    quirks = {"quirks": ("vertex_raw_predict",), "auth": "google-oauth"}
    return target(address=RAW_ADDRESS, secret=secret, settings={"region": region}, **quirks)


def user(*parts) -> Message:
    return Message("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def assistant(*parts) -> Message:
    return Message("assistant", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def results(*calls: str) -> Message:
    return Message("tool", tuple(ToolResult(call, (Text(f"result of {call}"),)) for call in calls))


def asking(*messages: Message, stream=False, options=Options(), user_id="", **talk) -> ChatRequest:
    conversation = Conversation(messages or (user("hi"),), **talk)
    return ChatRequest("claude", Requirements(stream=stream), lambda: conversation, options, user=user_id)


def written(*messages: Message, to: Target | None = None, **talk) -> dict:
    """The body, when the strict upstream would take it."""
    return accepted(PROTOCOL.write(asking(*messages, **talk), to or target()))


def accepted(call: Call) -> dict:
    try:
        return check_body(orjson.loads(call.body))
    except Refused as refused:
        raise AssertionError(str(refused)) from None


def warned(*messages: Message, to: Target | None = None, **talk) -> str:
    return " ".join(PROTOCOL.write(asking(*messages, **talk), to or target()).warnings)


def loop(*thoughts: Reasoning) -> tuple[Message, ...]:
    """A question, an answer that calls a tool after `thoughts`, and the tool's result."""
    return user("weather?"), assistant(*thoughts, ToolCall("t1", "weather", '{"city":"Oslo"}')), results("t1")


def thought(text: str = "hm") -> Reasoning:
    return Reasoning(text, signature=sign(text), vendor="anthropic")


# The conversation.


def says(role: str, text: str) -> Message:
    return Message(role, (Text(text),))


REMINDER = "<system-reminder>\nB\n</system-reminder>"


def test_later_instructions_stay_where_they_are():
    talk = (
        says("system", "A"),
        says("developer", "A2"),
        user("hi"),
        says("developer", "B"),
        assistant("yes"),
        user("go"),
    )
    body = written(*talk)
    assert [block["text"] for block in body["system"]] == ["A", "A2"]
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    assert [block["text"] for block in body["messages"][0]["content"]] == ["hi", REMINDER]
    newest = written(*talk, to=target(NEW))
    assert [turn["role"] for turn in newest["messages"]] == ["user", "system", "assistant", "user"]
    assert newest["messages"][1]["content"] == [{"type": "text", "text": "B"}]


@pytest.mark.parametrize("mapping", [OLD, NEW])
def test_instructions_behind_an_answer_leave_a_turn_of_the_user_last(mapping: Mapping):
    turns = written(user("hi"), assistant("yes"), says("system", "B"), to=target(mapping))["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[2]["content"] == [{"type": "text", "text": REMINDER}]
    between = written(user("hi"), says("system", "B"), user("go"), to=target(mapping))["messages"]
    assert [block["text"] for turn in between for block in turn["content"]] == ["hi", REMINDER, "go"]


@pytest.mark.parametrize("mapping", [OLD, NEW])
def test_turns_of_a_conversation_with_reminders_keep_their_beginning(mapping: Mapping):
    talk: list[Message] = [says("system", "A")]
    before: list[dict] = []
    for number in range(4):
        talk += [user(f"ask {number}"), says("system", f"reminder {number}")]
        body = written(*talk, to=target(mapping))
        assert [block["text"] for block in body["system"]] == ["A"]
        assert body["messages"][: len(before)] == before
        before = body["messages"]
        talk.append(assistant(f"answer {number}"))


def test_images_of_the_assistant_go_into_the_next_turn_of_the_user():
    picture = Image(Media("image/png", data=PNG))
    turns = written(user("draw"), assistant("Here:", picture), user("bigger"))["messages"]
    assert [block["type"] for block in turns[1]["content"]] == ["text"]
    assert [block["type"] for block in turns[2]["content"]] == ["text", "image", "text"]
    call = ToolCall("c", "f", "{}")
    turns = written(user("draw"), Message("assistant", (picture, call)), results("c"), user("so?"))["messages"]
    assert [block["type"] for block in turns[2]["content"]] == ["tool_result", "text", "image", "text"]


def test_instructions_alone_are_sent_as_the_users_message():
    body = written(Message("system", (Text("Say hi."),)))
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Say hi."}]}]
    assert "system" not in body


def test_turns_of_one_role_are_merged_and_blank_text_is_left_out():
    body = written(user("a"), user("  "), user("b"), assistant("c"), assistant("d"), user("e"))
    assert [len(turn["content"]) for turn in body["messages"]] == [2, 2, 1]


def test_a_conversation_that_begins_with_an_answer_gets_a_user_turn():
    assert written(assistant("I said"), user("and?"))["messages"][0]["role"] == "user"


def test_results_stand_first_in_the_turn_behind_parallel_calls():
    calls = assistant(ToolCall("t1", "a", "{}"), ToolCall("t2", "b", ""))
    body = written(user("go"), calls, results("t1"), user("and now?"), results("t2"))
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "tool_result", "text"]
    assert body["messages"][1]["content"][1]["input"] == {}


def test_a_call_id_of_another_vendor_is_made_fit_and_stays_one():
    body = written(user("go"), assistant(ToolCall("call|1.x", "a", "{}")), results("call|1.x"))
    ident = body["messages"][1]["content"][0]["id"]
    assert body["messages"][2]["content"][0]["tool_use_id"] == ident
    other = written(user("go"), assistant(ToolCall("call_1|x", "a", "{}")), results("call_1|x"))
    assert other["messages"][1]["content"][0]["id"] != ident


def test_arguments_other_than_objects_are_passed_on():
    body = written(user("go"), assistant(ToolCall("t1", "a", '{"x": ')), results("t1"))
    assert body["messages"][1]["content"][0]["input"] == {"input": '{"x": '}


def test_an_image_in_a_result_arrives_with_its_true_type():
    result = ToolResult("t1", (Text("see"), Image(Media("image/jpeg", data=PNG))), is_error=True)
    body = written(user("go"), assistant(ToolCall("t1", "a", "{}")), Message("tool", (result,)))
    block = body["messages"][2]["content"][0]
    assert block["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": PNG}
    assert block["is_error"] is True


def test_files_go_as_documents_by_bytes_by_address_or_as_text():
    pdf, page = File(Media("application/pdf", data="JVBERi0x"), "a.pdf"), File(Media(url="https://x/y.pdf"))
    note = File(Media("text/plain", data="aGk="), title="Note", context="old", citations=True)
    blocks = written(user(pdf, page, note, "read"))["messages"][0]["content"]
    assert blocks[0]["source"]["type"] == "base64" and blocks[0]["title"] == "a.pdf"
    assert blocks[1]["source"] == {"type": "url", "url": "https://x/y.pdf"}
    assert blocks[2]["source"] == {"type": "text", "media_type": "text/plain", "data": "hi"}
    assert blocks[2]["citations"] == {"enabled": True} and blocks[2]["context"] == "old"


@pytest.mark.parametrize(
    "part",
    [
        Audio(Media(data="aGk="), "wav"),
        Image(Media("image/bmp", data="Qk0=")),
        Image(Media(file_id="file-1")),
        File(Media("application/msword", data="aGk="), "a.doc"),
        VendorPart("google", "executable_code", {}),
    ],
)
def test_options_without_a_field_in_the_format_are_not_supported(part):
    with pytest.raises(NotSupported):
        PROTOCOL.write(asking(user(part)), target())


def test_past_calls_of_another_vendors_server_tools_are_left_out_with_a_warning():
    call = ToolCall("ws_1", "web_search", "{}", executed="provider")
    body = written(user("news?"), assistant(call, "Some."), user("more"))
    assert body["messages"][1]["content"] == [{"type": "text", "text": "Some."}]
    assert "server tools" in warned(user("news?"), assistant(call, "Some."), user("more"))


def test_a_server_tools_result_goes_back_as_it_came():
    own = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    result = ToolResult("srvtoolu_1", (VendorPart("anthropic", own["type"], own),), executed="provider")
    call = ToolCall("srvtoolu_1", "web_search", '{"query":"x"}', vendor="anthropic", executed="provider")
    body = written(user("news?"), assistant(call, result, "Some."), user("more"))
    assert [block["type"] for block in body["messages"][1]["content"]][:2] == ["server_tool_use", own["type"]]


# Cache marks.


def test_marks_stay_where_they_are_and_the_last_four_count():
    marked = [Text(str(n), CacheMark("1h" if n == 0 else "")) for n in range(3)]
    tool = FunctionTool("f", cache=CacheMark())
    body = written(Message("system", (Text("s", CacheMark("1h")),)), user(*marked), tools=(tool,))
    assert "cache_control" not in body["tools"][0]
    assert body["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert [block["cache_control"].get("ttl") for block in body["messages"][0]["content"]] == ["1h", None, None]


def test_an_hours_mark_behind_one_of_five_minutes_is_shortened():
    body = written(user(Text("a", CacheMark("5m")), Text("b", CacheMark("1h"))))
    assert body["messages"][0]["content"][1]["cache_control"]["ttl"] == "5m"


# Thinking.


def test_thinking_goes_back_byte_for_byte_and_other_vendors_is_dropped():
    sealed = Reasoning(sealed="gAAA==", vendor="anthropic")
    foreign, unsigned = Reasoning("secret", signature="x", vendor="google"), Reasoning("plain")
    body = written(*loop(thought("I must look."), sealed, foreign, unsigned), reasoning=ReasoningOptions(effort="high"))
    kinds = [block["type"] for block in body["messages"][1]["content"]]
    assert kinds == ["thinking", "redacted_thinking", "tool_use"]
    assert body["messages"][1]["content"][0]["signature"] == sign("I must look.")


def test_a_tool_loop_whose_thinking_was_dropped_goes_on_without():
    ask = ReasoningOptions(effort="high")
    assert written(*loop(), reasoning=ask)["thinking"] == {"type": "disabled"}
    assert "without the thinking that precedes" in warned(*loop(), reasoning=ask)
    assert written(*loop(), to=target(NEW), reasoning=ask)["thinking"]["type"] == "adaptive"


def test_without_thinking_the_last_answer_holds_none():
    body = written(*loop(thought()), reasoning=ReasoningOptions(effort="none"))
    assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]


@pytest.mark.parametrize(
    ("ask", "limit", "budget"),
    [
        (ReasoningOptions(effort="low"), None, 2048),
        (ReasoningOptions(effort="max"), None, 51_200),
        (ReasoningOptions(budget=500), None, 1024),
        (ReasoningOptions(budget=500_000), None, 63_999),
        (ReasoningOptions(effort="high"), 2000, 1600),
        (ReasoningOptions(enabled=True), 20_000, 8192),
    ],
)
def test_budget_is_clamped_and_below_the_limit(ask: ReasoningOptions, limit: int | None, budget: int):
    body = written(reasoning=ask, sampling=Sampling(max_tokens=limit))
    assert body["thinking"] == {"type": "enabled", "budget_tokens": budget}


def test_a_limit_without_room_for_thinking_turns_it_off():
    body = written(reasoning=ReasoningOptions(effort="high"), sampling=Sampling(max_tokens=1024))
    assert body["thinking"] == {"type": "disabled"} and body["max_tokens"] == 1024


def test_models_with_levels_think_adaptively_at_the_nearest():
    body = written(to=target(NEW), reasoning=ReasoningOptions(effort="xhigh"))
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": "high"}
    assert written(to=target(NEW), reasoning=ReasoningOptions(budget=3000))["output_config"] == {"effort": "low"}


def test_an_entry_may_say_that_its_model_takes_both_forms():
    both = Mapping("anthropic", "m", "claude-x", reasoning_efforts=("low",), extra={"thinking": "both"}, **FIELDS)
    assert written(to=target(both), reasoning=ReasoningOptions(budget=2000))["thinking"]["budget_tokens"] == 2000
    assert written(to=target(both), reasoning=ReasoningOptions(effort="low"))["thinking"]["type"] == "adaptive"


def test_a_forced_call_goes_before_thinking():
    body = written(tools=(WEATHER,), tool_choice=ToolChoice("required"), reasoning=ReasoningOptions(effort="high"))
    assert body["thinking"] == {"type": "disabled"} and body["tool_choice"] == {"type": "any"}


def test_a_model_that_always_thinks_gets_no_disabled_thinking():
    """Amazon's guide to Claude, "Adaptive thinking": Claude Fable 5 and Mythos 5 answer it with 400."""
    always = Mapping("anthropic", "m", "x", reasoning_efforts=("low", "high"), extra={"thinking": "always"}, **FIELDS)
    forced = {"tools": (WEATHER,), "tool_choice": ToolChoice("required"), "reasoning": ReasoningOptions(effort="high")}
    for more in (
        forced,
        {"reasoning": ReasoningOptions(effort="none")},
        {"reasoning": ReasoningOptions(enabled=False)},
    ):
        body = written(to=target(always), **more)
        assert "thinking" not in body and body["output_config"] == {"effort": "low"}


def test_sampling_gives_way_to_thinking_with_warnings():
    sampling = Sampling(temperature=0.2, top_k=4)
    body = written(reasoning=ReasoningOptions(effort="low"), sampling=sampling)
    assert not {"temperature", "top_k"} & body.keys()
    assert "temperature" in warned(reasoning=ReasoningOptions(effort="low"), sampling=sampling)


# Settings.


def test_sampling_is_clamped_and_unsupported_parameters_are_reported():
    sampling = Sampling(temperature=1.7, top_p=0.5, top_k=3, presence_penalty=1.0, stop=("END", " "))
    body = written(sampling=sampling)
    assert (body["temperature"], body["top_k"], body["stop_sequences"]) == (1.0, 3, ["END"])
    assert "top_p" not in body
    assert all(word in warned(sampling=sampling) for word in ("top_p", "presence_penalty"))


def test_an_output_effort_is_the_nearest_of_the_model_or_left_out():
    sampling = Sampling(output_effort="high")
    careful = Mapping("anthropic", "m", "m", reasoning_efforts=("low", "medium"), **FIELDS)
    assert written(to=target(careful), sampling=sampling)["output_config"] == {"effort": "medium"}
    assert "output_config" not in written(sampling=sampling)
    assert warned(sampling=sampling).count("effort") == 1


def test_models_with_fixed_sampling_get_none():
    fixed = Mapping("anthropic", "m", "m", quirks=("no_sampling",))
    for mapping in (fixed, NEW):
        assert "temperature" not in written(to=target(mapping), sampling=Sampling(temperature=0.5))


def test_thinking_is_left_out_of_the_answer_on_request():
    thinking = written(to=target(NEW), reasoning=ReasoningOptions(effort="low", show="omitted"))["thinking"]
    assert thinking == {"type": "adaptive", "display": "omitted"}


def test_a_free_choice_of_tools_is_stated():
    assert written(tools=(WEATHER,), tool_choice=ToolChoice("auto"))["tool_choice"] == {"type": "auto"}


@pytest.mark.parametrize(
    ("data", "kind"), [("/9j/4AAQ", "jpeg"), (PNG, "png"), ("R0lGODlh", "gif"), ("UklGRiQA", "webp")]
)
def test_an_image_has_the_type_that_its_data_shows(data: str, kind: str):
    """The API refuses an image if its data has another type than it says."""
    (block,) = written(user(Image(Media(media_type="image/bmp", data=data))))["messages"][0]["content"]
    assert block["source"]["media_type"] == f"image/{kind}"


@pytest.mark.parametrize(("asked", "sent"), [("auto", "auto"), ("priority", "auto"), ("default", "standard_only")])
def test_priority_is_used_where_the_caller_allows_it(asked: str, sent: str):
    tiered = target(Mapping("anthropic", "m", "m", service_tiers={"priority": "1"}))
    assert accepted(PROTOCOL.write(asking(options=Options(service_tier=asked)), tiered))["service_tier"] == sent


@pytest.mark.parametrize(("asked", "cap", "sent"), [(None, None, 64_000), (100, None, 100), (100, 50, 50), (9, 50, 9)])
def test_the_limit_is_the_callers_the_models_or_the_budgets(asked, cap, sent):
    assert written(to=target(output_cap=cap), sampling=Sampling(max_tokens=asked))["max_tokens"] == sent


def test_the_user_and_the_tier_are_reported():
    tiered = Mapping("anthropic", "m", "m", service_tiers={"priority": "1"})
    call = PROTOCOL.write(asking(options=Options(service_tier="default"), user_id="u1"), target(tiered))
    body = accepted(call)
    assert (body["metadata"], body["service_tier"]) == ({"user_id": "u1"}, "standard_only")


def test_tools_and_choices_have_the_formats_words():
    tools = (WEATHER, FunctionTool("bare", "does", deferred=True))
    sampling = Sampling(parallel_tool_calls=False)
    body = written(tools=tools, tool_choice=ToolChoice("tool", "weather"), sampling=sampling)
    assert body["tools"][1] == {
        "name": "bare",
        "description": "does",
        "input_schema": {"type": "object", "properties": {}},
    }
    assert body["tool_choice"] == {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
    assert written(tools=tools, tool_choice=ToolChoice("none"), sampling=sampling)["tool_choice"] == {"type": "none"}


def test_alternatives_at_the_root_of_a_tools_schema_are_rewritten():
    either = {"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}]}
    schema = written(tools=(FunctionTool("f", schema=either),))["tools"][0]["input_schema"]
    assert schema["type"] == "object" and "a" in schema["properties"]


def test_a_strict_tool_is_closed_where_the_model_holds_to_schemas():
    strict = FunctionTool(
        "f", schema={"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}}, strict=True
    )
    tool = written(tools=(strict,))["tools"][0]
    assert tool["strict"] is True and tool["input_schema"]["additionalProperties"] is False
    assert "minimum" in warned(tools=(strict,))


def test_web_search_goes_as_the_formats_own_tool():
    search = WebSearch(max_uses=2, allowed_domains=("a.org",), blocked_domains=("b.org",), city="Oslo")
    tool = written(tools=(search,), tool_choice=ToolChoice("web_search"))["tools"][0]
    assert (tool["type"], tool["max_uses"], tool["allowed_domains"]) == ("web_search_20250305", 2, ["a.org"])
    assert tool["user_location"] == {"type": "approximate", "city": "Oslo"} and "blocked_domains" not in tool


def test_tools_of_other_vendors_are_not_supported():
    with pytest.raises(NotSupported):
        PROTOCOL.write(asking(tools=(VendorTool("openai", "computer", {}),)), target())
    with pytest.raises(NotSupported):
        PROTOCOL.write(asking(tools=(WebSearch(),)), target(Mapping("p", "m", "m")))


def test_own_tools_go_as_they_came_and_search_over_tools_only_when_some_wait():
    bash = {"type": "bash_20250124", "name": "bash"}
    search = VendorTool("responses", "tool_search", {})
    assert written(tools=(VendorTool("anthropic", "bash_20250124", bash), search))["tools"] == [bash]
    body = written(tools=(search, FunctionTool("late", deferred=True)))
    assert body["tools"][0]["type"].startswith("tool_search") and body["tools"][1]["defer_loading"] is True


def test_a_schema_of_the_answer_is_native_and_closed_or_not_supported():
    response_format = ResponseFormat("json_schema", "r", schema={"type": "object", "properties": {"n": {"minimum": 1}}})
    schema = written(response_format=response_format)["output_config"]["format"]["schema"]
    assert schema["additionalProperties"] is False and "minimum" in warned(response_format=response_format)
    bare = written(response_format=ResponseFormat("json_schema", "r"))["output_config"]["format"]["schema"]
    assert bare == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    with pytest.raises(NotSupported):
        PROTOCOL.write(asking(response_format=response_format), target(Mapping("p", "m", "m")))


def test_a_bare_json_answer_is_requested_by_an_instruction():
    assert "JSON" in written(response_format=ResponseFormat("json_object"))["system"][-1]["text"]


# Hosts.


def test_the_key_travels_where_the_entry_says_and_the_version_with_it():
    call = PROTOCOL.write(asking(stream=True), target())
    assert call.url == "https://api.anthropic.com/v1/messages"
    assert (call.headers["x-api-key"], call.headers["anthropic-version"]) == ("sk-ant-x", "2023-06-01")
    assert call.headers["accept"] == "text/event-stream" and accepted(call)["stream"] is True
    assert PROTOCOL.write(asking(), target(auth="bearer")).headers["authorization"] == "Bearer sk-ant-x"


def test_raw_predict_has_the_model_in_the_path_and_a_token_of_the_account():
    made: list[str] = []
    protocol = AnthropicMessages(lambda account: made.append(account) or "ya29.token")
    call = protocol.write(asking(stream=True), raw_target('{"type": "service_account"}', "us-east5"))
    assert call.url.startswith("https://us-east5-aiplatform.googleapis.com/v1/projects/p/")
    assert call.url.endswith("/models/claude-sonnet-4-5:streamRawPredict")
    body = orjson.loads(call.body)
    assert body["anthropic_version"] == "vertex-2023-10-16" and "model" not in body
    assert call.headers["authorization"] == "Bearer ya29.token" and made == ['{"type": "service_account"}']


def test_raw_predict_loads_nothing_by_address_and_needs_a_vendor_of_tokens():
    with pytest.raises(NotSupported):
        PROTOCOL.write(asking(), raw_target('{"type": "service_account"}', "global"))
    with pytest.raises(NotSupported):
        PROTOCOL.write(asking(user(Image(Media(url="https://x/y.png")))), raw_target("ya29.x", "global"))


@pytest.mark.parametrize("region", ["us", "eu"])
def test_a_multi_region_has_its_own_host(region: str):
    call = PROTOCOL.write(asking(), raw_target("ya29.x", region))
    assert call.url.startswith(f"https://aiplatform.{region}.rep.googleapis.com/")


def test_only_listed_opt_ins_go_on():
    asked = ("context-1m-2025-08-07", "oauth-2025-04-20", "files-api-2025-04-14", "made-up-2030-01-01")
    request = asking(options=Options(extra={BETAS: asked}))
    own = PROTOCOL.write(request, target()).headers["anthropic-beta"]
    assert own == "context-1m-2025-08-07,files-api-2025-04-14"
    plain = PROTOCOL.write(request, target(quirks=("plain_tools",))).headers["anthropic-beta"]
    assert plain == "context-1m-2025-08-07"
    listed = Mapping("p", "m", "m", extra={"betas": []})
    assert "anthropic-beta" not in PROTOCOL.write(request, target(listed)).headers


@pytest.mark.parametrize(
    "features",
    [
        "prompt-caching-2024-07-31,extended-cache-ttl-2025-04-11",
        "pdfs-2024-09-25,files-api-2025-04-14,skills-2025-10-02",
        "model-context-window-exceeded-2025-08-26,compact-2026-01-12",
        "output-300k-2026-03-24,task-budgets-2026-03-13,structured-outputs-2025-11-13",
        "computer-use-2025-01-24,computer-use-2025-11-24",
        "code-execution-2025-05-22,code-execution-2025-08-25",
        "web-fetch-2025-09-10,advisor-tool-2026-03-01",
        "mcp-client-2025-04-04,mcp-client-2025-11-20,mcp-client-2026-09-15",
        "thinking-display-updates-2026-08-18,thinking-token-count-2026-05-13",
        "fast-mode-2026-02-01",
    ],
)
def test_claude_gets_the_opt_ins_of_its_tools_and_fields(features: str):
    """Tools, blocks and fields of these features are passed on, and refused or ignored without the opt-in."""
    request = asking(options=Options(extra={BETAS: features.split(",")}))
    assert PROTOCOL.write(request, target()).headers["anthropic-beta"] == features


def test_the_tool_search_of_another_cloud_has_its_own_opt_in():
    request = asking(options=Options(extra={BETAS: ("advanced-tool-use-2025-11-20",)}))
    sent = PROTOCOL.write(request, target(quirks=("vertex_raw_predict",))).headers["anthropic-beta"]
    assert sent == "tool-search-tool-2025-10-19"


@pytest.mark.parametrize("quirk", ["vertex_raw_predict", "plain_tools"])
def test_clouds_that_host_claude_get_the_opt_ins_that_they_have(quirk: str):
    common = (
        "interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14,token-efficient-tools-2025-02-19,"
        "output-128k-2025-02-19,context-1m-2025-08-07,context-management-2025-06-27"
    )
    request = asking(options=Options(extra={BETAS: ("skills-2025-10-02", *common.split(","))}))
    assert PROTOCOL.write(request, target(quirks=(quirk,))).headers["anthropic-beta"] == common


def test_where_a_targets_calls_go_is_made_once_but_neither_opt_ins_nor_passing_tokens_are_kept():
    to, opting = target(), asking(options=Options(extra={BETAS: ("context-1m-2025-08-07",)}))
    first, opted, again, streamed = (
        PROTOCOL.write(one, to) for one in (asking(), opting, asking(), asking(stream=True))
    )
    assert (
        again.endpoint is first.endpoint and "anthropic-beta" in opted.headers and "anthropic-beta" not in again.headers
    )
    assert streamed.headers["accept"] == "text/event-stream" and first.headers["accept"] == "application/json"
    passing = iter(("one", "two"))
    protocol, account = AnthropicMessages(lambda secret: next(passing)), raw_target('{"type": "service_account"}', "eu")
    sent = [protocol.write(asking(), account).headers["authorization"] for _ in range(2)]
    assert sent == ["Bearer one", "Bearer two"]


# The relay.


def test_a_native_body_goes_on_as_it_is_with_model_and_stream():
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "temperature": 0.5}
    call = PROTOCOL.relay(Native("anthropic", body), asking(stream=True), target())
    assert accepted(call) == {"model": "claude-sonnet-4-5", **body, "stream": True}
    assert "model" not in body


def test_the_budgets_cap_lowers_limit_and_thinking():
    body = {"max_tokens": 9000, "messages": [{"role": "user", "content": "hi"}], "thinking": EnabledThinking(8000)}
    sent = accepted(PROTOCOL.relay(Native("anthropic", body), asking(), target(output_cap=2000)))
    assert (sent["max_tokens"], sent["thinking"]["budget_tokens"]) == (2000, 1999)
    sent = accepted(PROTOCOL.relay(Native("anthropic", body), asking(), target(output_cap=500)))
    assert sent["thinking"] == {"type": "disabled"}


def test_newer_members_of_tools_stay_away_from_hosts_that_lack_them():
    tool = {"type": "custom", "name": "f", "description": "Finds.", "input_schema": {"type": "object"}}
    tool |= {"cache_control": {"type": "ephemeral"}}
    newer = {"eager_input_streaming": True, "strict": True}
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "tools": [tool | newer]}
    call = PROTOCOL.relay(Native("anthropic", body), asking(), target(quirks=("plain_tools",)))
    assert orjson.loads(call.body)["tools"] == [tool]


@pytest.mark.parametrize(
    "more", [{"thinking": EnabledThinking(2000)}, {"temperature": 0.5}, {"top_k": 3}], ids=lambda more: next(iter(more))
)
def test_a_native_body_that_the_model_would_refuse_is_rewritten(more: dict):
    body = {"max_tokens": 9000, "messages": [{"role": "user", "content": "hi"}], **more}
    sampling = Sampling(9000, more.get("temperature"), top_k=more.get("top_k"))
    request = asking(sampling=sampling, reasoning=ReasoningOptions(budget=2000 if "thinking" in more else None))
    sent = accepted(PROTOCOL.relay(Native("anthropic", body), request, target(NEW)))
    assert not {"temperature", "top_k"} & sent.keys()
    assert sent.get("thinking", {}).get("type") == ("adaptive" if "thinking" in more else None)


# Refusals.


@pytest.mark.parametrize(
    ("status", "kind", "message", "expected", "blame"),
    [
        (529, "overloaded_error", "Overloaded", UpstreamOverloaded, "provider"),
        (500, "api_error", "Internal server error", UpstreamFailed, "provider"),
        (429, "rate_limit_error", "slow down", UpstreamFailed, "provider"),
        (401, "authentication_error", "invalid x-api-key", UpstreamRefused, "provider"),
        (404, "not_found_error", "model: claude-9", UpstreamRefused, "provider"),
        (400, "invalid_request_error", "Your credit balance is too low to access", UpstreamRefused, "provider"),
        (400, "invalid_request_error", "This organization has been disabled.", UpstreamRefused, "provider"),
        (
            400,
            "invalid_request_error",
            "You have reached your specified API usage limits.",
            UpstreamRefused,
            "provider",
        ),
        (400, "invalid_request_error", "prompt is too long: 2 > 1 maximum", InvalidRequest, "caller"),
        (400, "invalid_request_error", "Output blocked by content filtering policy", ContentRefused, "caller"),
        (413, "request_too_large", "Request exceeds the maximum size", InvalidRequest, "caller"),
    ],
)
def test_a_refusal_has_the_right_blame(status, kind, message, expected, blame):
    error: GatewayError = PROTOCOL.failure(
        json_reply({"type": "error", "error": {"type": kind, "message": message}}, status), target()
    )
    assert isinstance(error, expected) and error.blame == blame
    assert error.status in (status, 502)
