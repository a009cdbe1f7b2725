from dataclasses import replace

import orjson
import pytest
from fakes.bedrock_checks import Refused, check_body, check_credential
from support.clock import FakeClock

from gateway.catalogue.entries import Mapping, Provider
from gateway.dialects.anthropic_betas import BETAS
from gateway.errors import NotSupported
from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
    FunctionTool,
    Options,
    ReasoningOptions,
    Requirements,
    ResponseFormat,
    Sampling,
    ToolChoice,
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
    Video,
)
from gateway.providers.bedrock.converse import BedrockConverse, region_of
from gateway.providers.protocol import Call, Credential, Target

CLAUDE = "eu.anthropic.claude-haiku-4-5-20251001-v1:0"
ADAPTIVE = "global.anthropic.claude-opus-4-7"
NOVA_2 = "amazon.nova-2-lite-v1:0"
SHOWN = {"thinking": {"type": "adaptive", "display": "summarized"}}
HIDDEN = {"thinking": {"type": "adaptive", "display": "omitted"}}
LEVEL = {"type": "enabled"}
SONNET_4 = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/claude-sonnet-4"
LLAMA = "us.meta.llama3-3-70b-instruct-v1:0"
HI = Message("user", (Text("hi"),))
PIXEL = Image(Media(media_type="image/png", data="iVBORw0KGgo="))
PDF = "JVBERi0x"
TOOL = FunctionTool("look", "Looks.", {"type": "object", "properties": {"x": {"type": "string"}}})
CALL = Message("assistant", (ToolCall("call_1", "look", '{"x": "y"}'),))
SIGNED = Reasoning("Hm.", "c2lnbmF0dXJl+/=", vendor="anthropic")


def target(model=CLAUDE, secret="ABSK-key", **fields) -> Target:
    settings = {"region": fields.pop("region", "eu-west-1")}
    entry = {"service_tiers": fields.pop("tiers", {}), "auth": "sigv4"}
    cap, address = (
        fields.pop("output_cap", None),
        fields.pop("address", "https://bedrock-runtime.eu-west-1.amazonaws.com"),
    )
    provider = Provider("aws-bedrock", "Amazon Bedrock", "bedrock", **entry)
    mapping = Mapping("aws-bedrock", "m", model, **{"reasoning": True, "json_output_schema": True, **fields})
    return Target(provider, mapping, Credential(secret), address, settings, output_cap=cap)


def asking(*messages: Message, stream=False, options=Options(), **talk) -> ChatRequest:
    conversation = Conversation(messages or (HI,), **talk)
    return ChatRequest("m", Requirements(stream=stream), lambda: conversation, options)


def call(request: ChatRequest, where: Target | None = None) -> Call:
    return BedrockConverse(FakeClock()).write(request, where or target())


def body(request: ChatRequest, where: Target | None = None) -> dict:
    """The body, when the strict upstream would take it."""
    made = call(request, where)
    try:
        return check_body(made.url.partition(".com")[2], made.body)
    except Refused as refused:
        raise AssertionError(f"{refused}: {made.body!r}") from None


def blocks(*parts, role="user", where=None) -> list:
    return body(asking(Message(role, parts)), where)["messages"][0]["content"]


def result(*parts, **more) -> Message:
    return Message("tool", (ToolResult("call_1", parts, **more),))


def test_plain_request_is_exactly_this():
    request = asking(
        Message("system", (Text("Be brief."),)), HI, sampling=Sampling(max_tokens=9, temperature=0.5, stop=("END",))
    )
    assert body(request) == {
        "system": [{"text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"text": "hi"}]}],
        "inferenceConfig": {"maxTokens": 9, "temperature": 0.5, "stopSequences": ["END"]},
        "additionalModelResponseFieldPaths": ["/stop_sequence"],
    }


def test_model_is_one_segment_of_the_path_and_the_verb_shows_of_streams():
    base = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/"
    assert call(asking()).url == base + "eu.anthropic.claude-haiku-4-5-20251001-v1%3A0/converse"
    streamed = call(asking(stream=True), target("arn:aws:bedrock:eu-west-1:123456789012:inference-profile/x"))
    assert (
        streamed.url == base + "arn%3Aaws%3Abedrock%3Aeu-west-1%3A123456789012%3Ainference-profile%2Fx/converse-stream"
    )
    assert streamed.headers["accept"] == "application/vnd.amazon.eventstream" and streamed.stream


def test_api_key_travels_as_bearer_and_access_key_as_signature():
    assert call(asking()).headers["authorization"] == "Bearer ABSK-key"
    made = call(asking(), target(secret="AKIAFAKEFAKEFAKEFAKE:fake/secret+key:session/token=="))
    host = {"host": "bedrock-runtime.eu-west-1.amazonaws.com"}
    check_credential("POST", made.url, made.headers | host, made.body)
    assert "/eu-west-1/bedrock/aws4_request" in made.headers["authorization"]


@pytest.mark.parametrize(
    ("address", "setting", "region"),
    [
        ("https://bedrock-runtime.ap-southeast-2.amazonaws.com", "au", "ap-southeast-2"),
        ("https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com", "", "us-gov-west-1"),
        ("https://vpce-1.bedrock-runtime.eu-central-1.vpce.amazonaws.com", "eu-west-1", "eu-central-1"),
        ("http://127.0.0.1:9", "eu-west-3", "eu-west-3"),
        ("http://127.0.0.1:9", "us", "us-east-1"),
    ],
)
def test_signature_is_for_the_region_of_the_host_or_of_the_settings(address, setting, region):
    assert region_of(address + "/model/m/converse", target(address=address, region=setting)) == region


def test_later_instructions_stay_where_they_are_and_turns_alternate():
    rule = Message("developer", (Text("Rule."),))
    found = body(asking(Message("system", (Text("First."),)), HI, rule, Message("user", (Text("more"),))))
    assert found["system"] == [{"text": "First."}]
    marked = {"text": "<system-reminder>\nRule.\n</system-reminder>"}
    assert found["messages"] == [{"role": "user", "content": [{"text": "hi"}, marked, {"text": "more"}]}]
    last = body(asking(HI, Message("assistant", (Text("yes"),)), rule))["messages"]
    assert last[-1] == {"role": "user", "content": [marked]}


def test_a_conversation_that_begins_with_an_answer_or_has_no_message_is_accepted():
    assert body(asking(Message("assistant", (Text("So "),))))["messages"][1]["content"] == [{"text": "So"}]
    assert body(asking(Message("system", (Text("x"),))))["messages"] == [{"role": "user", "content": [{"text": "x"}]}]
    assert body(asking(Message("user", (Text(" "),))))["messages"][0]["content"] == [{"text": "(no message)"}]


def test_images_documents_and_files_of_text_are_blocks_of_their_format():
    note = File(Media("text/markdown", data="IyBI"), "notes.md", context="Old.", citations=True)
    found = blocks(PIXEL, File(Media(data=PDF), "a_b (1).pdf"), note, Text("see"))
    assert found[0] == {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}
    assert found[1] == {"document": {"format": "pdf", "name": "a b (1)", "source": {"bytes": PDF}}}
    assert found[2]["document"]["format"] == "md" and found[2]["document"]["citations"] == {"enabled": True}


def test_image_is_named_by_its_bytes_when_its_type_is_wrong():
    assert blocks(Image(Media("image/png", data="/9j/AAAA")))[0]["image"]["format"] == "jpeg"


def test_documents_get_names_of_their_own_and_a_text_beside_them():
    file = File(Media("application/pdf", data=PDF), "same.pdf")
    found = blocks(file, file)
    assert [block["document"]["name"] for block in found[:2]] == ["same", "same 2"]
    assert found[2] == {"text": "See the attached document."}


def test_sound_and_film_are_blocks_too():
    found = blocks(Audio(Media(data="AAAA"), "mp3"), Video(Media("video/quicktime", data="AAAA")))
    assert [block[kind]["format"] for block, kind in zip(found, ("audio", "video"), strict=True)] == ["mp3", "mov"]


@pytest.mark.parametrize(
    "part",
    [
        Image(Media(url="https://x.example/a.png")),
        File(Media(file_id="file_1")),
        Image(Media("image/tiff", data="AAAA")),
        File(Media("application/zip", data="AAAA"), "a.zip"),
        VendorPart("anthropic", "mcp_tool_use", {}),
        Audio(Media("audio/midi", data="AAAA")),
    ],
)
def test_content_that_the_format_cannot_carry_is_refused_not_dropped(part):
    with pytest.raises(NotSupported):
        call(asking(Message("user", (part,))))


def test_content_in_the_services_own_storage_is_named_by_its_address():
    found = blocks(Image(Media(url="s3://bucket-a/cat.jpg")))
    assert found[0]["image"] == {"format": "jpeg", "source": {"s3Location": {"uri": "s3://bucket-a/cat.jpg"}}}


def test_tool_loop_goes_out_with_the_result_first():
    found = body(asking(HI, CALL, Message("tool", (Text("note"), ToolResult("call_1", (Text("42"),)))), tools=(TOOL,)))
    assert found["messages"][1]["content"] == [
        {"toolUse": {"toolUseId": "call_1", "name": "look", "input": {"x": "y"}}}
    ]
    assert found["messages"][2]["content"][0] == {"toolResult": {"toolUseId": "call_1", "content": [{"text": "42"}]}}
    assert found["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"]["json"]["properties"] == {"x": {"type": "string"}}


def test_images_in_a_result_stay_in_it_or_follow_it():
    request = asking(HI, CALL, result(PIXEL, Text("see"), is_error=True), tools=(TOOL,))
    inside = body(request)["messages"][2]["content"][0]["toolResult"]
    assert inside["content"][0].keys() == {"image"} and inside["status"] == "error"
    moved = body(request, target(LLAMA))["messages"][2]["content"]
    assert moved[0]["toolResult"]["content"] == [{"text": "Error: see"}] and moved[1].keys() == {"image"}


def test_ids_that_the_format_refuses_are_changed_alike_in_call_and_result():
    odd = "call|ü" * 20
    talk = (HI, Message("assistant", (ToolCall(odd, "look", ""),)), Message("tool", (ToolResult(odd, ()),)))
    found = body(asking(*talk, tools=(TOOL,)))["messages"]
    assert found[1]["content"][0]["toolUse"]["toolUseId"] == found[2]["content"][0]["toolResult"]["toolUseId"]


def test_past_calls_bring_a_declaration_when_the_request_has_no_tools():
    found = body(asking(HI, CALL, result(Text("42")), tool_choice=ToolChoice("none")))
    assert [tool["toolSpec"]["name"] for tool in found["toolConfig"]["tools"]] == ["look"]


@pytest.mark.parametrize(
    ("model", "choice", "written"),
    [
        (CLAUDE, ToolChoice("auto"), {"auto": {}}),
        (CLAUDE, ToolChoice("required"), {"any": {}}),
        (CLAUDE, ToolChoice("tool", "look"), {"tool": {"name": "look"}}),
        (LLAMA, ToolChoice("required"), None),
        ("mistral.mistral-large-2402-v1:0", ToolChoice("required"), {"any": {}}),
        ("mistral.mistral-large-2402-v1:0", ToolChoice("tool", "look"), None),
    ],
)
def test_calls_are_forced_where_the_model_can_be(model, choice, written):
    made = asking(tools=(TOOL,), tool_choice=choice)
    if written is None:
        with pytest.raises(NotSupported) as caught:
            body(made, target(model))
        assert caught.value.param == "tool_choice"
        return
    assert body(made, target(model))["toolConfig"]["toolChoice"] == written


def test_tools_are_left_out_when_none_may_be_called():
    assert "toolConfig" not in body(asking(tools=(TOOL,), tool_choice=ToolChoice("none")))


def test_searches_and_answers_to_a_schema_that_cannot_be_held_are_refused():
    with pytest.raises(NotSupported, match="no tool of type web_search"):
        call(asking(tools=(WebSearch(),)))
    with pytest.raises(NotSupported):
        call(asking(response_format=ResponseFormat("json_schema", schema={})), target(json_output_schema=False))


def test_schema_of_the_answer_is_sent_as_closed_text():
    response_format = ResponseFormat(
        "json_schema", "place", "A place.", {"type": "object", "properties": {"x": {"type": "string"}}}
    )
    found = body(asking(response_format=response_format))["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert found["name"] == "place" and found["description"] == "A place."
    assert orjson.loads(found["schema"])["additionalProperties"] is False


def test_bare_json_is_requested_in_the_instructions():
    assert "JSON object" in body(asking(response_format=ResponseFormat("json_object")))["system"][0]["text"]


def test_cache_points_stand_behind_what_was_marked():
    mark = CacheMark("1h")
    tool = FunctionTool("look", schema=TOOL.schema, cache=mark)
    talk = (Message("system", (Text("s", cache=mark),)), Message("user", (Text("a", cache=CacheMark()), Text("b"))))
    found = body(asking(*talk, tools=(tool,)))
    point = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert found["system"][1] == point and found["toolConfig"]["tools"][1] == point
    assert found["messages"][0]["content"] == [{"text": "a"}, {"cachePoint": {"type": "default"}}, {"text": "b"}]


def test_mark_inside_a_tools_result_stands_behind_the_result():
    found = body(asking(HI, CALL, result(Text("42", cache=CacheMark())), tools=(TOOL,)))["messages"][2]["content"]
    assert [next(iter(block)) for block in found] == ["toolResult", "cachePoint"]


def test_cache_points_go_where_the_model_takes_them_only():
    tool = FunctionTool("look", schema=TOOL.schema, cache=CacheMark("1h"))
    marked = (Text("a", cache=CacheMark("1h")),)
    request = asking(Message("system", marked), Message("user", marked), tools=(tool,))
    nova = body(request, target("amazon.nova-pro-v1:0"))
    assert len(nova["toolConfig"]["tools"]) == 1
    assert nova["system"][1] == nova["messages"][0]["content"][1] == {"cachePoint": {"type": "default"}}
    assert b"cachePoint" not in call(request, target(LLAMA)).body


def test_only_the_last_four_cache_points_stay_and_hours_come_first():
    parts = [Text(letter, cache=CacheMark("" if letter == "c" else "1h")) for letter in "abcdef"]
    made = asking(Message("user", tuple(parts)))
    points = [block["cachePoint"] for block in body(made)["messages"][0]["content"] if "cachePoint" in block]
    assert points == [{"type": "default"}] * 4 and len(call(made).warnings) == 4


def test_reasoning_goes_back_byte_for_byte_to_its_vendor():
    sealed = Reasoning(sealed="gAEC/+8=", vendor="bedrock")
    answer = Message("assistant", (SIGNED, sealed, *CALL.parts))
    request = asking(HI, answer, result(Text("42")), tools=(TOOL,), reasoning=ReasoningOptions(effort="high"))
    content = body(request)["messages"][1]["content"]
    assert content[0]["reasoningContent"] == {"reasoningText": {"text": "Hm.", "signature": "c2lnbmF0dXJl+/="}}
    assert content[1]["reasoningContent"] == {"redactedContent": "gAEC/+8="}


def test_reasoning_of_other_vendors_and_unsigned_text_stay_behind():
    answer = Message("assistant", (Reasoning("x", "sig", vendor="google"), Reasoning("y"), Text("42")))
    request = asking(HI, answer, HI, reasoning=ReasoningOptions(effort="high"))
    assert body(request)["messages"][1]["content"] == [{"text": "42"}]
    plain = asking(HI, Message("assistant", (SIGNED, Text("42"))), HI)
    assert body(plain, target(LLAMA))["messages"][1]["content"] == [{"text": "42"}]


def test_answer_without_thinking_brings_none_along():
    request = asking(HI, Message("assistant", (SIGNED, Text("42"))), HI)
    assert body(request)["messages"][1]["content"] == [{"text": "42"}]
    only = asking(HI, Message("assistant", (SIGNED,)), Message("user", (Text("more"),)))
    assert body(only)["messages"] == [{"role": "user", "content": [{"text": "hi"}, {"text": "more"}]}]


@pytest.mark.parametrize(
    ("model", "ask", "extra"),
    [
        (CLAUDE, ReasoningOptions(effort="low"), {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        (CLAUDE, ReasoningOptions(effort="minimal"), {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        (CLAUDE, ReasoningOptions(effort="medium"), {"thinking": {"type": "enabled", "budget_tokens": 8192}}),
        (CLAUDE, ReasoningOptions(effort="high"), {"thinking": {"type": "enabled", "budget_tokens": 16_384}}),
        (CLAUDE, ReasoningOptions(effort="max"), {"thinking": {"type": "enabled", "budget_tokens": 25_600}}),
        (CLAUDE, ReasoningOptions(budget=5000), {"thinking": {"type": "enabled", "budget_tokens": 5000}}),
        (SONNET_4, ReasoningOptions(budget=5000), {"thinking": {"type": "enabled", "budget_tokens": 5000}}),
        (CLAUDE, ReasoningOptions(effort="none"), None),
        (ADAPTIVE, ReasoningOptions(effort="high"), SHOWN),
        (ADAPTIVE, ReasoningOptions(adaptive=True, show="omitted"), HIDDEN),
        (NOVA_2, ReasoningOptions(effort="low"), {"reasoningConfig": LEVEL | {"maxReasoningEffort": "low"}}),
        (NOVA_2, ReasoningOptions(budget=9000), {"reasoningConfig": LEVEL | {"maxReasoningEffort": "medium"}}),
        (NOVA_2, ReasoningOptions(effort="xhigh"), {"reasoningConfig": LEVEL | {"maxReasoningEffort": "high"}}),
        ("openai.gpt-oss-120b-1:0", ReasoningOptions(effort="xhigh"), {"reasoning_effort": "high"}),
        (LLAMA, ReasoningOptions(effort="high"), None),
    ],
)  # fmt: skip
def test_each_family_gets_its_fields_for_reasoning(model, ask, extra):
    assert body(asking(reasoning=ask), target(model, max_output=32_000)).get("additionalModelRequestFields") == extra


def test_effort_of_adaptive_models_is_the_nearest_they_know():
    found = body(
        asking(reasoning=ReasoningOptions(effort="xhigh")), target(ADAPTIVE, reasoning_efforts=("low", "high"))
    )
    assert found["outputConfig"] == {"effort": "high"}


def test_budget_stays_below_the_limit_and_sampling_gives_way():
    sampling = Sampling(max_tokens=2000, temperature=0.3, top_k=5)
    found = body(asking(reasoning=ReasoningOptions(effort="max"), sampling=sampling))
    assert found["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": 1600}}
    assert found["inferenceConfig"] == {"maxTokens": 2000}


@pytest.mark.parametrize(
    "talk",
    [
        {"sampling": Sampling(max_tokens=900)},
        {"tools": (TOOL,), "tool_choice": ToolChoice("required")},
    ],
)
def test_thinking_that_cannot_be_is_left_out_with_a_warning(talk):
    request = asking(reasoning=ReasoningOptions(effort="high"), **talk)
    assert "additionalModelRequestFields" not in body(request)
    assert "Extended thinking was disabled" in call(request).warnings[0]


def test_highest_level_goes_with_no_limit_so_a_limit_lowers_it():
    ask, nova = ReasoningOptions(effort="high"), target(NOVA_2)
    limited = body(asking(reasoning=ask, sampling=Sampling(max_tokens=50)), nova)
    assert limited["additionalModelRequestFields"]["reasoningConfig"]["maxReasoningEffort"] == "medium"
    free = body(asking(reasoning=ask, sampling=Sampling(temperature=0.2)), nova)
    assert free["additionalModelRequestFields"]["reasoningConfig"]["maxReasoningEffort"] == "high"
    assert "inferenceConfig" not in free


def test_sampling_is_clamped_and_unsupported_parameters_are_reported():
    sampling = Sampling(temperature=1.7, top_p=0.5, top_k=3, presence_penalty=1.0, n=2, parallel_tool_calls=False)
    found = body(asking(sampling=sampling))
    assert found["inferenceConfig"] == {"temperature": 1.0}
    assert found["additionalModelRequestFields"] == {"top_k": 3}
    assert len(call(asking(sampling=sampling)).warnings) == 3
    nova = body(asking(sampling=sampling), target("amazon.nova-lite-v1:0"))
    assert (
        nova["additionalModelRequestFields"] == {"inferenceConfig": {"topK": 3}} and "topP" in nova["inferenceConfig"]
    )


def test_an_output_effort_is_the_nearest_of_the_model_or_left_out():
    sampling = Sampling(output_effort="high")
    careful = target(ADAPTIVE, reasoning_efforts=("low", "medium"))
    assert body(asking(sampling=sampling), careful)["outputConfig"] == {"effort": "medium"}
    other = call(asking(sampling=sampling))
    assert b"outputConfig" not in other.body and [text.split()[0] for text in other.warnings] == ["effort"]


def test_models_of_fixed_sampling_get_none():
    made = call(asking(sampling=Sampling(temperature=0.5)), target(ADAPTIVE, quirks=("no_sampling",)))
    assert b"temperature" not in made.body and "is fixed" in made.warnings[0]


def test_budget_of_the_caller_caps_the_output():
    assert body(asking(), target(output_cap=300))["inferenceConfig"] == {"maxTokens": 300}
    assert body(asking(sampling=Sampling(max_tokens=9)), target(output_cap=300))["inferenceConfig"] == {"maxTokens": 9}


def test_the_service_tier_is_requested_where_it_is_offered():
    for tier in ("flex", "priority", "reserved"):
        request = asking(options=Options(service_tier=tier))
        assert body(request, target(tiers={tier: "0.5"}))["serviceTier"] == {"type": tier}
        assert "serviceTier" not in body(request)
    assert body(asking(options=Options(service_tier="default")))["serviceTier"] == {"type": "default"}


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        (CLAUDE, ["interleaved-thinking-2025-05-14", "fine-grained-tool-streaming-2025-05-14"]),
        (
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            ["interleaved-thinking-2025-05-14", "context-1m-2025-08-07", "fine-grained-tool-streaming-2025-05-14"],
        ),
        (ADAPTIVE, ["fine-grained-tool-streaming-2025-05-14"]),
        (LLAMA, None),
    ],
)
def test_beta_features_reach_the_models_that_have_them(model: str, sent: list[str] | None) -> None:
    asked = ("interleaved-thinking-2025-05-14", "context-1m-2025-08-07", "fine-grained-tool-streaming-2025-05-14")
    options = Options(extra={BETAS: (*asked, "files-api-2025-04-14", "made-up-2030-01-01")})
    extra = body(asking(options=options), target(model)).get("additionalModelRequestFields", {})
    assert extra.get("anthropic_beta") == sent


def test_a_model_with_the_mark_of_a_long_context_asks_for_it() -> None:
    conversation = Conversation((HI,))
    request = ChatRequest("claude-sonnet-4-5[1m]", Requirements(), lambda: conversation)
    wanted = {"anthropic_beta": ["context-1m-2025-08-07"]}
    where = target("us.anthropic.claude-sonnet-4-5-20250929-v1:0")
    assert body(request, where)["additionalModelRequestFields"] == wanted


def test_reasoning_that_the_account_refused_is_left_out():
    talk = (HI, Message("assistant", (SIGNED, *CALL.parts)), Message("tool", (ToolResult("call_1", (Text("ok"),)),)))
    request = asking(*talk, tools=(TOOL,), reasoning=ReasoningOptions(effort="low"))
    assert "reasoningContent" in body(request)["messages"][1]["content"][0]
    where = replace(target(), unseals=False)
    assert "toolUse" in body(request, where)["messages"][1]["content"][0]
    assert any("cannot read it" in warning for warning in call(request, where).warnings)


def test_a_model_that_continues_no_answer_is_asked_to_continue():
    unfinished = asking(HI, Message("assistant", (Text("One, two "),)))
    newer = target("anthropic.claude-opus-4-8-v1:0")
    assert body(unfinished, newer)["messages"][-1] == {"role": "user", "content": [{"text": "Continue."}]}
    assert any("continue" in warning for warning in call(unfinished, newer).warnings)
    assert body(unfinished)["messages"][-1] == {"role": "assistant", "content": [{"text": "One, two"}]}
