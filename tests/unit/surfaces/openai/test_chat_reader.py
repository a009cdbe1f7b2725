from functools import partial
from pathlib import Path

import msgspec
import orjson
import pytest

from gateway.errors import InvalidRequest
from gateway.neutral.chat import ChatRequest, ToolChoice, VendorTool, WebSearch
from gateway.neutral.parts import Audio, CacheMark, File, Image, Reasoning, Text, ToolCall, ToolResult
from gateway.surfaces.openai import chat_reader, chat_schema

SAMPLES = Path(__file__).parents[3] / "samples" / "openai"
PIXEL = "data:image/png;base64,aGVsbG8="


def read(messages=None, **fields) -> ChatRequest:
    body = {"model": "m", "messages": messages or [{"role": "user", "content": "hello"}]} | fields
    raw = orjson.dumps(body)
    return chat_reader.read_chat(chat_schema.decode(raw), raw)


def sent(request: ChatRequest) -> dict:
    """Return the native body as an upstream would receive it."""
    return orjson.loads(msgspec.json.encode(request.native.body))


def user(*parts) -> list[dict]:
    return [{"role": "user", "content": list(parts)}]


def test_plain_request_is_relayed_as_it_came():
    request = read(temperature=0.5, max_tokens=9)
    assert sent(request) == {
        "messages": [{"role": "user", "content": "hello"}],
        "temperature": 0.5,
        "max_completion_tokens": 9,
    }


@pytest.mark.parametrize("role", ["system", "developer", "user"])
def test_a_request_of_usual_fields_takes_the_short_way(role: str) -> None:
    usual = {"stream": True, "temperature": 0.5, "max_tokens": 9, "max_completion_tokens": 9}
    request = read([{"role": role, "content": "hello"}], **usual)
    assert isinstance(request.decode, partial)


def test_parameters_that_openai_knows_are_relayed_as_they_came():
    fields = {
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "response_format": {"type": "json_object"},
        "reasoning_effort": "low",
        "verbosity": "high",
        "top_p": 0.5,
        "frequency_penalty": 1.0,
        "presence_penalty": -1.0,
        "n": 2,
        "user": "u",
    }
    assert sent(read(**fields)) == {"messages": [{"role": "user", "content": "hello"}]} | fields


@pytest.mark.parametrize(
    "fields", [{}, {"temperature": 0}, {"max_tokens": 7}, {"max_tokens": 7, "max_completion_tokens": 8, "stream": True}]
)
def test_a_plain_request_reads_as_one_with_something_rare_that_says_nothing(fields):
    messages = [{"role": "system", "content": "kürz"}, {"role": "user", "content": "hello"}]
    messages.append({"role": "assistant", "content": "yes"})
    plain = read(messages, **fields)
    other = read(messages, parallel_tool_calls=False, **fields)
    assert plain.requirements == other.requirements and plain.requirements.prompt_bytes == 13
    assert plain.options is other.options and sent(plain) == sent(other)
    assert plain.conversation() == other.conversation()


@pytest.mark.parametrize("member", ["reasoning", "reasoning_content", "refusal"])
def test_assistant_members_besides_text_are_read(member):
    said = {"role": "assistant", "content": "yes", member: "more"}
    request = read([{"role": "user", "content": "hello"}, said])
    assert (request.native is None) is (member != "refusal") and len(request.conversation().messages[1].parts) == 2


def test_unknown_members_reach_no_upstream_at_any_depth():
    raw = (SAMPLES / "tools_request.json").read_bytes()
    native = sent(chat_reader.read_chat(chat_schema.decode(raw), raw))
    known = orjson.loads(raw)
    assert native["messages"] == known["messages"]
    assert native["tools"] == known["tools"]
    assert not {"stop", "seed", "logit_bias", "frobnicate", "model"} & native.keys()
    message = {"role": "user", "content": [{"type": "text", "text": "x", "mood": 1}], "mood": 2}
    assert sent(read([message]))["messages"] == [{"role": "user", "content": [{"type": "text", "text": "x"}]}]


def test_tool_schema_is_relayed_byte_for_byte():
    raw = b'{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":'
    raw += b'{"name":"f","parameters":{"z": 1.0, "a":12345678901234567890123}}}]}'
    request = chat_reader.read_chat(chat_schema.decode(raw), raw)
    assert b'{"z": 1.0, "a":12345678901234567890123}' in msgspec.json.encode(request.native.body)


def test_empty_lists_count_as_absent():
    assistant = {"role": "assistant", "content": "x", "tool_calls": []}
    native = sent(read([assistant], tools=[], tool_choice="auto", parallel_tool_calls=True))
    assert native == {"messages": [{"role": "assistant", "content": "x"}]}


def test_an_empty_list_of_parts_is_relayed_as_empty_text():
    assert sent(read([{"role": "user", "content": []}]))["messages"][0]["content"] == ""


def test_an_answer_of_nothing_may_be_sent_back():
    for answer in ({"role": "assistant", "content": None}, {"role": "assistant"}):
        assert sent(read([answer]))["messages"][0]["content"] == ""


@pytest.mark.parametrize(
    ("messages", "fields"),
    [
        ([{"role": "assistant", "content": "x", "reasoning": "because"}], {}),
        ([{"role": "assistant", "content": "x", "reasoning_content": "because"}], {}),
        (user({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}), {}),
        ([{"role": "tool", "tool_call_id": "c", "content": "x", "tool_result_cache_control": {}}], {}),
        ([{"role": "tool", "tool_call_id": "c", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}], {}),
        (None, {"web_search": True}),
        (None, {"tools": [{"type": "web_search"}]}),
        (None, {"tools": [{"type": "function", "function": {"name": "f"}, "defer_loading": True}]}),
        (None, {"reasoning": {"max_tokens": 2000}}),
        (None, {"effort": "low"}),
    ],
)
def test_a_body_that_openai_would_reject_is_rebuilt(messages, fields):
    assert read(messages, **fields).native is None


def test_word_of_an_extension_in_a_text_does_not_cost_the_relay():
    assert read([{"role": "user", "content": 'say "reasoning and "cache_control"'}], reasoning_effort="low").native


def test_needs_are_known_without_decoding():
    raw = (SAMPLES / "tools_request.json").read_bytes()
    needs = chat_reader.read_chat(chat_schema.decode(raw), raw).requirements
    assert (needs.tools, needs.vision, needs.parameters, needs.reasoning) == (True, True, {"parallel tools"}, True)
    assert (needs.messages, needs.media, needs.max_tokens, needs.forced_tool) == (5, 1, 500, "tool")
    assert 150 < needs.prompt_bytes < 450


@pytest.mark.parametrize(
    ("fields", "requirement", "value"),
    [
        ({"reasoning_effort": "low"}, "effort", "low"),
        ({"n": 2}, "n", 2),
        ({"verbosity": "low"}, "parameters", {"verbosity"}),
    ],
)
def test_a_field_states_its_requirement_without_any_other_field(fields, requirement, value):
    assert getattr(read(**fields).requirements, requirement) == value


def test_text_is_counted_in_bytes_and_media_not_at_all():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "a" * 9999}}
    assert read(user({"type": "text", "text": "größe"}, picture)).requirements.prompt_bytes == 7


def test_conversation_holds_all_parts_of_a_message():
    parts = (
        {"type": "text", "text": "see", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "image_url", "image_url": {"url": PIXEL, "detail": "high"}},
        {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QUJD"}},
        {"type": "file", "file": {"file_id": "file-1"}},
    )
    text, image, audio, file, stored = read(user(*parts)).conversation().messages[0].parts
    assert text == Text("see", cache=CacheMark("1h"))
    assert isinstance(image, Image) and (image.media.data, image.detail) == ("aGVsbG8=", "high")
    assert isinstance(audio, Audio) and (audio.media.data, audio.format) == ("QUJD", "mp3")
    assert isinstance(file, File) and file.media.media_type == "application/pdf"
    assert stored.media.file_id == "file-1"


def test_tool_result_knows_the_name_of_its_tool():
    raw = (SAMPLES / "tools_request.json").read_bytes()
    talk = chat_reader.read_chat(chat_schema.decode(raw), raw).conversation()
    assert talk.messages[2].parts[0] == ToolCall("call_p", "get_weather", '{"city":"Paris"}')
    assert talk.messages[3].parts[0] == ToolResult("call_p", (Text("18 °C"),), name="get_weather")
    assert talk.tools[0].schema["required"] == ["city"]
    assert talk.tool_choice == ToolChoice("tool", "get_weather")


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "image_url", "image_url": {"url": "ftp://x"}}, "messages.0.content.0.image_url.url"),
        ({"type": "image_url", "image_url": {"url": "data:image/png,raw"}}, "messages.0.content.0.image_url.url"),
        ({"type": "file", "file": {"filename": "x"}}, "messages.0.content.0.file"),
    ],
)
def test_part_that_cannot_be_decoded_is_named(part, param):
    with pytest.raises(InvalidRequest) as caught:
        read(user(part)).conversation()
    assert caught.value.param == param


def test_signed_reasoning_comes_back_as_one_block():
    form = "anthropic-claude-v1"
    pieces = [
        {"type": "reasoning.text", "text": "I th", "format": form, "index": 0},
        {"type": "reasoning.text", "text": "ink", "format": form, "index": 0},
        {"type": "reasoning.text", "text": "", "signature": "SIG==", "format": form, "index": 0},
        {"type": "reasoning.encrypted", "data": "SEALED", "format": form, "index": 1},
    ]
    message = {"role": "assistant", "content": "x", "reasoning": "I think", "reasoning_details": pieces}
    parts = read([message]).conversation().messages[0].parts
    assert parts[:2] == (
        Reasoning("I think", signature="SIG==", vendor="anthropic"),
        Reasoning(sealed="SEALED", vendor="anthropic"),
    )


def test_seal_of_a_tool_call_comes_back_on_the_call():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    seal = {"type": "reasoning.encrypted", "data": "THOUGHT", "id": "c1", "format": "google-gemini-v1"}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_details": [seal]}
    assert read([message]).conversation().messages[0].parts == (
        ToolCall("c1", "f", "{}", signature="THOUGHT", vendor="google"),
    )


def test_unknown_kind_of_reasoning_is_refused_by_place():
    message = {"role": "assistant", "content": "x", "reasoning_details": [{"type": "guess"}]}
    with pytest.raises(InvalidRequest) as caught:
        read([message]).conversation()
    assert caught.value.param == "messages.0.reasoning_details.0.type"


def test_every_web_search_option_becomes_a_tool():
    assert read(web_search=True).conversation().tools == (WebSearch(),)
    where = {"city": "Rome", "country": "IT"}
    tool = {"type": "web_search", "user_location": where, "max_uses": 2, "search_context_size": "low"}
    request = read(tools=[tool, {"type": "tool_search"}], web_search=True)
    assert request.requirements.web_search
    search, deferred = request.conversation().tools
    assert search == WebSearch(max_uses=2, context_size="low", city="Rome", country="IT")
    assert isinstance(deferred, VendorTool)


def test_options_are_the_gateways_own():
    options = read(
        routing="price", service_tier="flex", plugins=[{"id": "response-healing"}], user="u", prompt_cache_key="k"
    ).options
    assert (options.routing, options.service_tier, options.heal, options.session) == ("price", "flex", True, "k")
    assert read(user="u").options.session == "u"


def test_a_search_or_images_alone_are_requirements_of_a_request():
    assert read(web_search_options={}).requirements.web_search
    assert read(image_config={"image_size": "1K"}).requirements.image_output


def test_one_choice_is_not_asked_of_the_provider():
    assert "n" not in sent(read(n=1)) and sent(read(n=2))["n"] == 2


def test_the_service_tier_fast_is_the_priority_tier():
    assert read(service_tier="fast").options == read(service_tier="priority").options


def test_no_option_leaks_into_the_relayed_body():
    request = read(
        routing="price", service_tier="flex", prompt_cache_key="k", free_models_only=True, plugins=[], onboarding=True
    )
    assert sent(request).keys() == {"messages"}


def test_allowed_tools_hide_the_others():
    tools = [{"type": "function", "function": {"name": name}} for name in ("a", "b")]
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "b"}}]}
    request = read(tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert [tool.name for tool in request.conversation().tools] == ["b"]
    assert request.conversation().tool_choice == ToolChoice("required")


def test_a_conversation_of_texts_alone_says_so_until_it_is_changed():
    hello = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    made = chat_reader.read_chat(chat_schema.decode(orjson.dumps(hello)), orjson.dumps(hello))
    assert made.plain and not made.with_conversation(made.conversation).plain
    called = {**hello, "messages": [*hello["messages"], {"role": "tool", "tool_call_id": "c", "content": "r"}]}
    assert not chat_reader.read_chat(chat_schema.decode(orjson.dumps(called)), orjson.dumps(called)).plain
