from pathlib import Path

import msgspec
import orjson
import pytest
from fakes.responses_checks import check_request
from openai.types.responses import CustomToolParam, FunctionToolParam

from gateway.dialects import responses_vocabulary as dialect
from gateway.errors import InvalidRequest
from gateway.neutral.chat import CustomTool, FunctionTool, ToolChoice, VendorTool, WebSearch
from gateway.neutral.parts import File, Image, Reasoning, Text, ToolCall, ToolResult, VendorPart
from gateway.surfaces.responses import items, reader, schema
from gateway.surfaces.responses.opaque_tokens import SealedMarks, seal_marks, seal_reasoning, seal_summary

AGENT = (Path(__file__).parents[3] / "samples" / "responses" / "agent_request.json").read_bytes()


def turn(raw: bytes | None = None, history: list | None = None, **fields) -> reader.ResponseTurn:
    body = schema.decode(raw or orjson.dumps({"model": "m", "input": "Hi"} | fields))
    own = [items.user_text(body.input)] if isinstance(body.input, str) else body.input or []
    return reader.read_response(body, history or [], own)


def talk(*own: dict, **fields):
    return turn(input=list(own), **fields).request.conversation()


def native(made: reader.ResponseTurn) -> dict:
    return orjson.loads(msgspec.json.encode(made.request.native.body))


def test_a_recorded_agents_request_is_decoded_whole() -> None:
    messages = turn(AGENT).request.conversation().messages
    roles = [message.role for message in messages]
    assert roles == ["system", "developer", "user", "assistant", "tool", "assistant", "tool", "assistant", "user"]
    assert messages[3].parts == (
        Reasoning("I look.", sealed="gAAAA-old", vendor="responses", summary=True),
        ToolCall("call_1", "exec_command", '{"cmd":"ls"}'),
    )
    result = messages[4].parts[0]
    assert result.name == "exec_command" and isinstance(result.parts[1], Image)
    assert messages[5].parts == (ToolCall("call_2", "apply_patch", "*** Begin Patch", custom=True),)
    assert messages[6].parts == (ToolResult("call_2", (Text("Done"),), name="apply_patch"),)


def test_the_tools_of_a_recorded_agent_work_for_every_model() -> None:
    talk = turn(AGENT).request.conversation()
    command, patch, search = talk.tools
    assert isinstance(command, FunctionTool) and command.strict is False
    assert isinstance(patch, CustomTool) and patch.format["grammar"]["syntax"] == "lark"
    assert search.name == "mcp__github__search"
    assert turn(AGENT).names == {"mcp__github__search": ("mcp__github", "search")}
    assert turn(AGENT).request.requirements.vendor_only == ""


def test_needs_are_known_without_decoding() -> None:
    needs = turn(AGENT).request.requirements
    assert (needs.stream, needs.tools, needs.vision, needs.reasoning, needs.effort) == (True, True, True, True, "high")
    assert (needs.media, needs.messages, needs.web_search, needs.parameters) == (
        2,
        10,
        False,
        {"verbosity", "parallel tools"},
    )
    assert needs.prompt_bytes > len("You are a coding agent.")


def test_a_relayed_request_is_accepted_by_the_strict_service() -> None:
    body = native(turn(AGENT)) | {"model": "gpt-5", "store": False, "stream": True}
    environ = {"PATH_INFO": "/v1/responses", "REQUEST_METHOD": "POST"}
    body = check_request(environ, {"authorization": "Bearer x"}, orjson.dumps(body), {"gAAAA-old"})
    assert not any("id" in item for item in body["input"])
    assert "prompt_cache_key" not in body and "client_metadata" not in body
    assert body["input"][8]["phase"] == "final_answer"


def test_newer_members_and_choices_of_tools_reach_their_own_vendor() -> None:
    tool = {"type": "function", "name": "f", "mood": 1}
    choice = {"type": "hologram", "size": 3}
    made = turn(tools=[tool | {"cache_control": {"type": "ephemeral"}}], tool_choice=choice)
    relayed = native(made)
    assert relayed["tools"] == [tool | {"parameters": None, "strict": None}] and relayed["tool_choice"] == choice
    conversation = made.request.conversation()
    assert conversation.tool_choice == ToolChoice("auto", "hologram", "responses", choice)
    assert conversation.tools[0].newer == ("mood",) and not made.request.requirements.forced_tool


def test_parameters_that_the_dialect_knows_are_relayed_as_they_came_and_echoed() -> None:
    echoed = {
        "instructions": "Be brief.",
        "max_tool_calls": 3,
        "safety_identifier": "u-1",
        "top_logprobs": 2,
        "user": "u",
        "temperature": 0.5,
        "top_p": 0.9,
    }
    others = {
        "access_programs": {"a": 1},
        "context_management": [{"type": "compaction", "compact_threshold": 1000}],
        "image": {"a": 1},
        "moderation": {"a": 1},
        "stream_options": {"include_obfuscation": False},
        "truncation": "auto",
    }
    own = {"previous_response_id": "resp_1", "prompt_cache_key": "k", "prompt_cache_retention": "24h"}
    made = turn(**echoed, **others, **own)
    sent = native(made)
    assert {name: sent.get(name) for name in echoed | others} == echoed | others
    assert {name: made.echo.get(name) for name in echoed | own} == echoed | own


def test_tools_are_relayed_with_each_published_member_and_no_other() -> None:
    """Servers of this dialect refuse members that they do not know."""
    for kind, published in (("function", FunctionToolParam), ("custom", CustomToolParam)):
        members = {name: "x" for name in published.__annotations__} | {"type": kind}
        members |= {"defer_loading": True, "async": True, "allowed_callers": ["direct"]}
        members |= {"parameters": {}, "strict": True} if kind == "function" else {"format": {"type": "text"}}
        (relayed,) = native(turn(tools=[members | {"cache_control": {"type": "ephemeral"}}]))["tools"]
        assert relayed.keys() == published.__annotations__.keys()


def test_each_kind_of_function_requires_a_model_with_tools() -> None:
    function = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    grouped = {"type": "namespace", "name": "n", "description": "d", "tools": [function]}
    for tool in (function, {"type": "custom", "name": "c"}, grouped):
        assert turn(tools=[tool]).request.requirements.tools, tool["type"]
    assert not turn(tools=[{"type": "web_search"}]).request.requirements.tools


def test_text_is_counted_in_bytes() -> None:
    assert turn(input="größe").request.requirements.prompt_bytes == 7


@pytest.mark.parametrize(
    ("tool", "foreign"),
    [
        ({"type": "shell", "environment": {"type": "container_auto"}}, "responses"),
        ({"type": "hologram"}, "responses"),
        ({"type": "local_shell"}, ""),
        ({"type": "apply_patch"}, ""),
        ({"type": "mcp", "server_label": "x"}, "responses"),
        ({"type": "tool_search"}, ""),
        ({"type": "function", "name": "f"}, ""),
    ],
)
def test_a_tool_that_only_this_dialect_has_says_so(tool: dict, foreign: str) -> None:
    made = turn(tools=[tool])
    assert (made.request.requirements.hosted, made.request.requirements.vendor_only) == (foreign, "")
    if foreign:
        forced = turn(tools=[tool], tool_choice="required").request.requirements
        assert (forced.hosted, forced.vendor_only) == ("", foreign)
    assert native(made)["tools"][0].items() >= tool.items()


@pytest.mark.parametrize("kind", ["local_shell", "shell", "apply_patch"])
def test_a_tool_that_the_caller_runs_is_a_function_of_another_name_than_its_own(kind: str) -> None:
    made = turn(tools=[{"type": kind}, {"type": "function", "name": kind}], tool_choice={"type": kind})
    tool, function = made.request.conversation().tools
    assert tool.instead[0].name == f"{kind}_tool" != function.name and made.own == {f"{kind}_tool": kind}
    assert made.request.conversation().tool_choice == ToolChoice("tool", f"{kind}_tool")
    needs = made.request.requirements
    assert (needs.vendor_only, needs.hosted, needs.own_parts, needs.tools) == ("", "", "responses", True)


def test_a_choice_of_a_newer_tool_is_for_its_own_servers() -> None:
    made = turn(tools=[{"type": "hologram"}], tool_choice={"type": "hologram"})
    assert native(made)["tool_choice"] == {"type": "hologram"}
    assert made.request.requirements.vendor_only == "responses"


def test_a_part_of_a_newer_type_is_kept_whole_for_its_servers() -> None:
    parts = [{"type": "input_text", "text": "See:"}, {"type": "input_hologram", "shape": {"x": 1}}]
    made = turn(input=[{"role": "user", "content": parts}])
    assert native(made)["input"][0]["content"] == parts == made.items[0]["content"]
    assert made.request.requirements.own_parts == "responses"
    assert turn(input="y", history=[made.items[0] | {"id": "msg_1"}]).request.conversation().messages[0].parts[1].body


def test_a_message_between_a_call_and_its_result_comes_behind_the_result() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "Sunny."}
    user, said = {"role": "user", "content": "Hurry."}, {"role": "assistant", "content": "I look."}
    messages = talk(call, user, said, result, user).messages
    assert [message.role for message in messages] == ["assistant", "tool", "user", "assistant", "user"]
    assert messages[0].parts == (ToolCall("c", "f", "{}"),) and messages[3].parts == (Text("I look."),)
    assert [message.role for message in talk(call, user).messages] == ["assistant", "user"]  # no result


def test_a_foreign_item_is_kept_whole_for_its_servers() -> None:
    item = {"type": "shell_call", "id": "sh_1", "call_id": "c", "action": {"commands": ["ls"]}}
    made = turn(input=[item, {"role": "user", "content": "x"}])
    assert made.request.requirements.own_parts == "responses"
    part = made.request.conversation().messages[0].parts[0]
    assert isinstance(part, VendorPart) and part.body == {k: v for k, v in item.items() if k != "id"}


def test_a_live_search_is_required_and_one_of_stored_pages_is_optional() -> None:
    wanted = turn(tools=[{"type": "web_search", "filters": {"allowed_domains": ["a.org"]}}])
    assert wanted.request.requirements.web_search
    assert wanted.request.conversation().tools == (WebSearch(allowed_domains=("a.org",)),)
    offered = turn(tools=[{"type": "web_search", "external_web_access": False}])
    assert not offered.request.requirements.web_search and not offered.request.conversation().tools


def test_reasoning_of_another_vendor_comes_back_byte_for_byte() -> None:
    past = Reasoning("I thïnk", signature="SIG+/==", vendor="anthropic")
    item = {"type": "reasoning", "summary": [], "encrypted_content": seal_reasoning(past, "")}
    made = turn(input=[item, {"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}])
    assert made.request.conversation().messages[0].parts[0] == past
    assert [one["type"] for one in native(made)["input"]] == ["message", "message"]


def test_marks_come_back_on_the_parts_that_they_belong_to() -> None:
    marks = seal_marks(SealedMarks("google", "TEXT", {"c": "CALL"}))
    made = talk(
        {"role": "assistant", "content": "x"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "reasoning", "summary": [], "encrypted_content": marks},
        {"type": "function_call_output", "call_id": "c", "output": "r"},
    )
    text, call = made.messages[0].parts
    assert (text.signature, text.vendor, call.signature, call.vendor) == ("TEXT", "google", "CALL", "google")


def test_a_gateway_summary_is_sent_to_every_model() -> None:
    item = {"type": "compaction", "encrypted_content": seal_summary("Long story.")}
    made = turn(input=[item, {"role": "user", "content": "y"}])
    assert made.request.conversation().messages[0].parts[0].text.endswith("Long story.")
    assert native(made)["input"][0]["role"] == "developer"
    assert made.request.requirements.vendor_only == ""


def test_a_compaction_of_a_server_is_a_part_of_its_own() -> None:
    made = turn(input=[{"type": "compaction", "encrypted_content": "gAAAA"}])
    assert made.request.requirements.own_parts == "responses"


def test_a_seal_that_was_changed_on_its_way_is_refused_by_place() -> None:
    item = {"type": "reasoning", "summary": [], "encrypted_content": dialect.write_token("anthropic", "", "!!")}
    with pytest.raises(InvalidRequest) as caught:
        talk(item)
    assert caught.value.param == "input.0.encrypted_content"


def test_the_earlier_conversation_comes_first_and_is_stored_separately() -> None:
    made = turn(history=[{"id": "msg_1", "type": "message", "role": "user", "content": "One"}], input="Two")
    texts = [message.parts[0].text for message in made.request.conversation().messages]
    assert texts == ["One", "Two"]
    assert [item["content"][0]["text"] for item in made.items] == ["Two"]


@pytest.mark.parametrize(
    ("choice", "expected", "forced"),
    [
        ("required", ToolChoice("required"), "required"),
        ("none", ToolChoice("none"), ""),
        ("auto", ToolChoice("auto"), ""),
        ({"type": "function", "name": "f"}, ToolChoice("tool", "f"), "tool"),
        ({"type": "custom", "name": "f"}, ToolChoice("tool", "f"), "tool"),
        ({"type": "web_search"}, ToolChoice("web_search"), "web_search"),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"name": "f"}]}, ToolChoice("auto"), ""),
    ],
)
def test_every_tool_choice_is_understood(choice, expected: ToolChoice, forced: str) -> None:
    tools = [{"type": "function", "name": "f"}, {"type": "function", "name": "g"}]
    made = turn(tools=tools, tool_choice=choice)
    assert (made.request.conversation().tool_choice, made.request.requirements.forced_tool) == (expected, forced)


def test_files_and_pictures_are_decoded() -> None:
    content = [
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,QUJD"},
        {"type": "input_file", "file_url": "https://a.org/b.pdf"},
        {"type": "input_image", "image_url": "https://a.org/c.png", "detail": "high"},
    ]
    data, url, image = talk({"role": "user", "content": content}).messages[0].parts
    assert isinstance(data, File) and (data.media.data, data.filename) == ("QUJD", "a.pdf")
    assert (url.media.url, image.media.url, image.detail) == ("https://a.org/b.pdf", "https://a.org/c.png", "high")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input.0.arguments"),
        ({"input": [{"role": "user", "content": [{"type": 7, "text": "x"}]}]}, "input.0.content.0"),
        ({"input": [{"role": "user", "content": 7}]}, "input.0.content"),
        ({"input": [{"type": "message"}]}, "input.0.role"),
        ({"input": [{}]}, "input.0.type"),
        ({"tools": [{"type": 7}]}, "tools.0.type"),
        ({"tools": [{"type": "function", "name": "f", "parameters": "x"}]}, "tools.0.parameters"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"tool_choice": {"type": 5}}, "tool_choice.type"),
        ({"temperature": 3}, "temperature"),
        ({"reasoning": {"effort": "most"}}, "reasoning.effort"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"prompt": {"id": "p"}}, "prompt"),
    ],
)
def test_the_invalid_field_is_named(fields: dict, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        turn(**fields)
    assert caught.value.param.startswith(param)
    assert len(caught.value.message) > 15


@pytest.mark.parametrize("image", ["ftp://x", "data:image/png,raw", ""])
def test_an_invalid_picture_is_named(image: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        talk({"role": "user", "content": [{"type": "input_image", "image_url": image}]})
    assert caught.value.param.startswith("input.0.content.0")


def test_tool_search_is_left_to_models_that_have_it() -> None:
    tools = turn(tools=[{"type": "tool_search"}, {"type": "function", "name": "f", "defer_loading": True}])
    search, function = tools.request.conversation().tools
    assert isinstance(search, VendorTool) and function.deferred
