import orjson
import pytest
from fakes.openai_checks import Refused, check_request
from support.replies import MemoryReply

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import InvalidRequest, NotSupported
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
    Text,
    ToolCall,
    ToolResult,
    VendorPart,
    Video,
)
from gateway.providers.openai.chat import OpenAIChat
from gateway.providers.protocol import Call, Credential, Target

PROTOCOL = OpenAIChat()
MAPPING = Mapping(
    "openai", "gpt-5", "gpt-5-2026", reasoning=True, parallel_tool_calls=True, verbosity=True, web_search=True
)
PIXEL = Image(Media(media_type="image/png", data="aGVsbG8="))


def target(mapping: Mapping = MAPPING, address="https://api.openai.com/v1", secret="sk-x", **entry) -> Target:
    settings = entry.pop("settings", {})
    cap = entry.pop("output_cap", None)
    provider = Provider("openai", "OpenAI", "openai", **entry)
    return Target(provider, mapping, Credential(secret), address, settings, output_cap=cap)


def mapped(**fields) -> Mapping:
    return Mapping("openai", "gpt-5", "gpt-5-2026", **fields)


def asking(*messages: Message, stream=False, options=Options(), user="", **talk) -> ChatRequest:
    conversation = Conversation(messages or (Message("user", (Text("hi"),)),), **talk)
    return ChatRequest("gpt-5", Requirements(stream=stream), lambda: conversation, options, user=user)


def accepted(call: Call) -> dict:
    """The body, when the strict upstream would take it."""
    headers = {"authorization": call.headers["authorization"]}
    environ = {"PATH_INFO": "/v1/chat/completions", "REQUEST_METHOD": "POST", "CONTENT_TYPE": "application/json"}
    try:
        return check_request(environ, headers, call.body)
    except Refused as refused:
        pytest.fail(str(refused))


def written(*messages: Message, to: Target | None = None, **talk) -> dict:
    return accepted(PROTOCOL.write(asking(*messages, **talk), to or target()))


def test_call_goes_to_the_target_with_its_credential():
    call = PROTOCOL.write(asking(), target(headers={"OpenAI-Beta": "x"}))
    assert (call.method, call.url, call.stream) == ("POST", "https://api.openai.com/v1/chat/completions", False)
    assert call.headers["authorization"] == "Bearer sk-x" and call.headers["openai-beta"] == "x"
    assert accepted(call) == {"model": "gpt-5-2026", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("auth", "url", "header"),
    [
        ("api-key", "https://a.test/v1/chat/completions?api-version=2", ("api-key", "sk-x")),
        ("query:key", "https://a.test/v1/chat/completions?api-version=2&key=sk-x", None),
        ("none", "https://a.test/v1/chat/completions?api-version=2", None),
    ],
)
def test_credential_travels_as_the_entry_says(auth, url, header):
    to = target(address="https://a.test/v1?api-version=2", auth=auth)
    call = PROTOCOL.write(asking(), to)
    assert call.url == url
    assert "authorization" not in call.headers
    assert header is None or header in call.headers.items()


def test_version_of_the_api_comes_from_the_settings():
    to = target(settings={"api_version": "2024-05-01"}, quirks=("api_version_query",))
    assert PROTOCOL.write(asking(), to).url.endswith("/chat/completions?api-version=2024-05-01")


def test_a_stream_always_requests_usage():
    body = accepted(PROTOCOL.write(asking(stream=True), target()))
    assert body["stream"] is True and body["stream_options"] == {"include_usage": True}


def test_settings_are_carried_under_openais_names():
    sampling = Sampling(max_tokens=9, temperature=1.5, top_p=0.5, n=2, stop=("a",), verbosity="low")
    schema = ResponseFormat("json_schema", "shape", "", {"type": "object"}, True)
    body = written(sampling=sampling, response_format=schema, reasoning=ReasoningOptions(effort="high"), user="ada")
    assert (body["max_completion_tokens"], body["temperature"], body["n"], body["stop"]) == (9, 1.5, 2, ["a"])
    assert (body["reasoning_effort"], body["verbosity"], body["user"]) == ("high", "low", "ada")
    assert body["response_format"]["json_schema"] == {"name": "shape", "schema": {"type": "object"}, "strict": True}


def test_tools_and_their_results_are_carried():
    schema = {"type": "object", "$defs": {"a": {}}, "properties": {"x": {"$ref": "#/$defs/a"}}}
    body = written(
        Message("user", (Text("go"),)),
        Message("assistant", (Text("ok"), ToolCall("c1", "f", '{"x":1}'), ToolCall("c2", "g", ""))),
        Message("tool", (ToolResult("c1", (Text("one"),)), ToolResult("c2", (Text("boom"),), is_error=True))),
        tools=(FunctionTool("f", "does f", schema, strict=True), CustomTool("g")),
        tool_choice=ToolChoice("tool", "g"),
    )
    assert body["messages"][1]["tool_calls"][1]["function"]["arguments"] == "{}"
    assert [message["content"] for message in body["messages"][2:]] == ["one", "Error: boom"]
    assert body["tools"][0]["function"]["parameters"] == schema
    assert body["tool_choice"] == {"type": "custom", "custom": {"name": "g"}}


def test_a_users_name_that_is_too_long_goes_as_its_hash():
    names = {written(user=name)["user"] for name in ("a" * 64, "a" * 65, "b" * 180)}
    assert "a" * 64 in names
    assert [len(name) for name in names] == [64, 64, 64]


def test_images_of_a_result_follow_in_a_user_message_after_all_results():
    body = written(
        Message("assistant", (ToolCall("c1", "shoot", "{}"), ToolCall("c2", "shoot", "{}"))),
        Message("tool", (ToolResult("c1", (PIXEL,), name="shoot"),)),
        Message("tool", (ToolResult("c2", (Text("done"),)),)),
        Message("user", (Text("and?"),)),
    )
    assert [message["role"] for message in body["messages"]] == ["assistant", "tool", "tool", "user", "user"]
    caption, image = body["messages"][3]["content"]
    assert "c1" in caption["text"] and image["image_url"]["url"] == "data:image/png;base64,aGVsbG8="


def test_every_kind_of_media_is_carried():
    parts = (PIXEL, Audio(Media(data="QQ=="), "wav"), File(Media(media_type="application/pdf", data="QQ=="), "a.pdf"))
    image, audio, file = written(Message("user", parts))["messages"][0]["content"]
    assert image["image_url"]["url"].startswith("data:image/png")
    assert audio["input_audio"] == {"data": "QQ==", "format": "wav"}
    assert file["file"] == {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="}


@pytest.mark.parametrize(
    "part",
    [
        Video(Media(url="https://x.test/v.mp4")),
        VendorPart("anthropic", "x", {}),
        File(Media(url="https://x.test/a.pdf")),
    ],
)
def test_part_without_a_word_for_it_skips_the_target(part):
    with pytest.raises(NotSupported):
        PROTOCOL.write(asking(Message("user", (part,))), target())


def test_tool_of_another_vendor_skips_the_target():
    with pytest.raises(NotSupported):
        PROTOCOL.write(asking(tools=(VendorTool("anthropic", "bash_20250124", {}),)), target())


def test_web_search_goes_only_where_the_mapping_has_it():
    request = asking(tools=(WebSearch(context_size="low", city="Rome"),))
    options = accepted(PROTOCOL.write(request, target()))["web_search_options"]
    assert options["user_location"]["approximate"] == {"city": "Rome"}
    with pytest.raises(NotSupported):
        PROTOCOL.write(request, target(mapped()))


def test_reasoning_of_another_vendor_is_dropped_or_replayed_as_the_entry_says():
    past = Message("assistant", (Reasoning("because", signature="S", vendor="anthropic"), Text("x")))
    assert written(past)["messages"][0] == {"role": "assistant", "content": "x"}
    body = orjson.loads(PROTOCOL.write(asking(past), target(quirks=("replay_reasoning",))).body)
    assert body["messages"][0]["reasoning_content"] == "because"


def test_values_stay_within_what_the_target_allows():
    request = asking(sampling=Sampling(max_tokens=500, temperature=1.8))
    body = orjson.loads(PROTOCOL.write(request, target(mapped(max_temperature=1.0), output_cap=100)).body)
    assert (body["max_completion_tokens"], body["temperature"]) == (100, 1.0)
    assert orjson.loads(PROTOCOL.write(asking(), target(output_cap=7)).body)["max_completion_tokens"] == 7


def test_options_that_a_mapping_lacks_are_left_out_and_named():
    sampling = Sampling(temperature=1, top_k=5, presence_penalty=1, parallel_tool_calls=True)
    call = PROTOCOL.write(
        asking(sampling=sampling, tools=(FunctionTool("f"),)), target(mapped(supported_parameters=("temperature",)))
    )
    assert accepted(call).keys() == {"model", "messages", "temperature", "tools"}
    assert [warning.split()[0] for warning in call.warnings] == ["presence_penalty", "top_k"]


def test_the_first_stop_sequences_are_used_and_the_verbosity_stands_for_the_output_effort():
    sampling = Sampling(stop=tuple("abcdef"), output_effort="low", parallel_tool_calls=True)
    call = PROTOCOL.write(asking(sampling=sampling), target())
    body = accepted(call)
    assert body["stop"] == list("abcd") and "parallel_tool_calls" not in body
    assert [" ".join(warning.split()[:3]) for warning in call.warnings] == ["Only the first", "The output effort"]
    assert not PROTOCOL.write(asking(sampling=Sampling(output_effort="low", verbosity="low")), target()).warnings


@pytest.mark.parametrize(("budget", "effort"), [(4096, "low"), (16_384, "medium"), (16_385, "high")])
def test_a_budget_for_reasoning_becomes_an_effort(budget: int, effort: str):
    assert written(reasoning=ReasoningOptions(budget=budget, enabled=True))["reasoning_effort"] == effort


def test_effort_none_goes_only_to_models_that_know_it():
    request = asking(reasoning=ReasoningOptions(effort="none"))
    assert "reasoning_effort" not in accepted(PROTOCOL.write(request, target(mapped())))
    knowing = target(mapped(reasoning=True, reasoning_efforts=("none", "low")))
    assert accepted(PROTOCOL.write(request, knowing))["reasoning_effort"] == "none"


@pytest.mark.parametrize("tier", ["flex", "default", "auto"])
def test_the_tier_is_requested_where_the_provider_has_tiers(tier: str):
    request = asking(options=Options(service_tier=tier))
    assert accepted(PROTOCOL.write(request, target(service_tiers={"flex": "0.5"})))["service_tier"] == tier
    assert "service_tier" not in accepted(PROTOCOL.write(request, target()))


def test_relay_retargets_and_leaves_the_callers_body_alone():
    native = Native("openai", {"messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 9})
    request = ChatRequest("gpt-5", Requirements(stream=True), lambda: Conversation(()), native=native)
    to = target(quirks=("max_tokens_old_name", "no_stream_options"))
    body = orjson.loads(PROTOCOL.relay(native, request, to).body)
    assert body == {"model": "gpt-5-2026", "messages": native.body["messages"], "max_tokens": 9, "stream": True}
    assert native.body.keys() == {"messages", "max_completion_tokens"}


def test_failure_is_read_from_the_answer():
    body = b'{"error":{"message":"Bad.","type":"invalid_request_error","param":"n","code":null}}'
    error = PROTOCOL.failure(MemoryReply(body, headers={}, status=400), target())
    assert isinstance(error, InvalidRequest) and (error.message, error.param) == ("Bad.", "n")


def test_calls_of_one_target_share_neither_body_nor_manner():
    at = target()
    native = Native("openai", {"messages": [{"role": "user", "content": "hi"}]})
    for stream in (False, True, False):
        request = ChatRequest("gpt-5", Requirements(stream=stream), lambda: Conversation(()), native=native)
        call = PROTOCOL.relay(native, request, at)
        assert call.headers["accept"] == ("text/event-stream" if stream else "application/json")
        assert (call.stream, "stream" in orjson.loads(call.body)) == (stream, stream)
    assert set(native.body) == {"messages"}


@pytest.mark.parametrize("model", ["gemini-3-pro", "gpt-5"])
def test_a_signature_beside_a_call_returns_to_servers_of_that_vendors_models(model: str):
    call = ToolCall("c1", "f", "{}", signature="c2ln+/==", vendor="google")
    talk = Message("user", (Text("hi"),)), Message("assistant", (call,)), Message("tool", (ToolResult("c1", (), "f"),))
    mapping = Mapping("openai", "m", model)
    body = orjson.loads(PROTOCOL.write(asking(*talk, tools=(FunctionTool("f"),)), target(mapping)).body)
    extra = body["messages"][1]["tool_calls"][0].get("extra_content")
    assert extra == ({"google": {"thought_signature": "c2ln+/=="}} if model == "gemini-3-pro" else None)
