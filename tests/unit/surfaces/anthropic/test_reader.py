from pathlib import Path

import msgspec
import orjson
import pytest
from fakes.anthropic_checks import check_body, sign
from support.steps import count_steps

from gateway.dialects.anthropic import OWN_FIELDS
from gateway.dialects.anthropic_betas import BETAS
from gateway.neutral.chat import ChatRequest, FunctionTool, ReasoningOptions, ToolChoice, VendorTool, WebSearch
from gateway.neutral.parts import (
    CacheMark,
    File,
    Image,
    Media,
    Reasoning,
    Source,
    Text,
    ToolCall,
    ToolResult,
    VendorPart,
)
from gateway.surfaces.anthropic import reader, schema
from gateway.surfaces.anthropic.opaque_tokens import CALL, NEXT, TEXT, OpaqueToken, write_token

SAMPLES = Path(__file__).parents[3] / "samples" / "anthropic"
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {}}}


def read(messages=None, betas="", **fields) -> ChatRequest:
    body = {"model": "m", "max_tokens": 9, "messages": messages or [{"role": "user", "content": "hello"}]} | fields
    return reader.read_messages(schema.decode(orjson.dumps(body)), betas)


def sent(request: ChatRequest) -> dict:
    """Return the native body as an upstream would receive it."""
    body = orjson.loads(msgspec.json.encode(request.native.body))
    check_body({"model": "m", **body})
    return body


def user(*blocks: dict) -> dict:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: dict) -> dict:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str, **more) -> dict:
    return {"type": "text", "text": words, **more}


def call(ident: str = "t1", **more) -> dict:
    return {"type": "tool_use", "id": ident, "name": "f", "input": {"a": 1}, **more}


def result(ident: str = "t1", content="done", **more) -> dict:
    return {"type": "tool_result", "tool_use_id": ident, "content": content, **more}


def sealed(what: str, vendor: str = "google", signature: str = "sig") -> dict:
    return {"type": "thinking", "thinking": "", "signature": write_token(OpaqueToken(what, vendor, signature))}


def parts_of(*messages: dict) -> list:
    return [message.parts for message in read(list(messages)).conversation().messages]


def test_a_plain_request_is_relayed_as_it_came():
    request = read(temperature=0.5, system="Be brief.", stop_sequences=["END"], metadata={"user_id": "u"})
    assert sent(request) == {
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hello"}],
        "system": "Be brief.",
        "metadata": {"user_id": "u"},
        "temperature": 0.5,
        "stop_sequences": ["END"],
    }


def test_parameters_that_the_vendor_knows_are_relayed_as_they_came():
    tool = {
        "type": "custom",
        "name": "f",
        "description": "Finds it.",
        "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
        "cache_control": {"type": "ephemeral"},
        "strict": True,
        "defer_loading": False,
        "allowed_callers": ["direct"],
        "input_examples": [{"a": 1}],
        "eager_input_streaming": True,
    }
    fields = {
        "tools": [tool],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "service_tier": "standard_only",
        "output_config": {"effort": "low"},
        "cache_control": {"type": "ephemeral"},
        "thinking": {"type": "adaptive"},
    }
    assert sent(read(**fields)) == {"max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]} | fields


def test_unknown_members_reach_no_upstream_at_any_depth():
    native = sent(read([user(text("x", mood=1)) | {"mood": 2}], frobnicate=1))
    assert native["messages"] == [user(text("x"))]
    assert "frobnicate" not in native


def test_newer_members_and_choices_of_tools_reach_their_own_vendor():
    tool, choice = TOOL | {"mood": 1}, {"type": "hologram", "size": 3}
    request = read([user(text("x"))], tools=[tool | {"parameters": {}}], tool_choice=choice)
    assert request.native is not None
    assert request.native.body["tools"] == [tool] and request.native.body["tool_choice"] == choice
    assert request.conversation().tool_choice == ToolChoice("auto", "hologram", "anthropic", choice)
    assert request.conversation().tools[0].newer == ("mood",) and not request.requirements.forced_tool


def test_a_tool_loop_with_thinking_is_relayed_byte_for_byte():
    thinking = {"type": "thinking", "thinking": "hm", "signature": sign("hm")}
    messages = [user(text("go")), assistant(thinking, call()), user(result(cache_control={"type": "ephemeral"}))]
    assert sent(read(messages, tools=[TOOL]))["messages"] == messages


@pytest.mark.parametrize(
    ("written", "role"), [("system", "system"), ("developer", "developer"), ("user", "user"), ("function", "user")]
)
def test_messages_have_the_role_that_they_name(written: str, role: str):
    assert read([{"role": written, "content": "x"}, user(text("y"))]).conversation().messages[0].role == role


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "developer", "content": "x"}, user(text("y"))],
        [user(text("y")), assistant(sealed(""), text("z")), user(text("go"))],
        [
            user(text("y")),
            assistant({"type": "thinking", "thinking": "hm", "signature": ""}, text("z")),
            user(text("g")),
        ],
        [user(text("y")), assistant(text("z", citations=[{"encrypted_index": ""}])), user(text("go"))],
        [user(text("y"), text(" "))],
        [user(text("y")), assistant({"type": "server_tool_use", "id": "ws_1", "name": "web_search", "input": {}})],
    ],
)
def test_a_body_that_the_vendor_would_reject_is_changed_in_place(messages: list[dict]):
    fields = {"context_management": {"edits": []}, "thinking": {"type": "disabled"}}
    request = read(messages, tools=[TOOL | {"eager_input_streaming": True}], **fields)
    native = orjson.loads(msgspec.json.encode(request.native.body))
    assert {name: native[name] for name in fields} == fields and native["tools"][0]["eager_input_streaming"]
    assert native["messages"] != messages and request.native.instructed == (messages[0]["role"] == "developer")
    blocks = [block for message in native["messages"] if message["content"] != "x" for block in message["content"]]
    assert all(block["type"] == "text" and block["text"].strip() and "citations" not in block for block in blocks)


def test_unreadable_blocks_leave_no_empty_messages_and_no_neighbours_of_one_role():
    unsigned = {"type": "thinking", "thinking": "hm", "signature": ""}
    native = sent(read([user(text("a")), assistant(unsigned), user(text("b")), assistant(text("c")), user(text("d"))]))
    assert native["messages"] == [user(text("a"), text("b")), assistant(text("c")), user(text("d"))]


def test_call_ids_become_valid_and_distinct_and_stay_with_their_results():
    def turn(answer: str) -> list[dict]:
        return [assistant(call(id="functions.f:0")), user(result(tool_use_id="functions.f:0", content=answer))]

    native = sent(read([user(text("go")), *turn("1"), *turn("2")]))["messages"]
    calls = [native[place]["content"][0]["id"] for place in (1, 3)]
    results = [native[place]["content"][0]["tool_use_id"] for place in (2, 4)]
    assert calls == results and len(set(calls)) == 2
    assert all(letter.isalnum() or letter in "_-" for ident in calls for letter in ident)
    shorter = sent(read([user(text("go")), *turn("1")]))["messages"]
    assert native[:3] == shorter


def test_images_of_the_assistant_are_shown_by_the_user():
    picture = {"type": "image", "source": PNG}
    native = sent(read([user(text("draw")), assistant(text("Here:"), picture), user(text("bigger"))]))["messages"]
    assert native[1] == assistant(text("Here:"))
    assert [block["type"] for block in native[2]["content"]] == ["text", "image", "text"]


@pytest.mark.parametrize("place", ["message", "result"])
def test_blocks_of_unknown_types_go_to_their_vendor_unchanged(place: str):
    hologram = {"type": "hologram", "depth": 1.5, "inner": [{"a": None}]}
    if place == "message":
        messages = [user(text("go"), hologram)]
    else:
        messages = [user(text("go")), assistant(call()), user(result(content=[hologram, text("x")]))]
    request = read(messages)
    assert msgspec.json.decode(msgspec.json.encode(request.native.body))["messages"] == messages
    assert request.requirements.own_parts == "anthropic" and not request.requirements.vendor_only
    parts = [part for message in request.conversation().messages for part in message.parts]
    if place == "result":
        parts = list(parts[-1].parts)
    assert VendorPart("anthropic", "hologram", hologram) in parts


def test_instructions_come_first_and_keep_their_marks():
    mark = {"type": "ephemeral", "ttl": "1h"}
    first = read(system=[text("A", cache_control=mark)]).conversation().messages[0]
    assert (first.role, first.parts) == ("system", (Text("A", CacheMark("1h")),))


def test_results_are_messages_of_their_own_in_order():
    picture = {"type": "image", "source": PNG}
    messages = [
        user(text("go")),
        assistant(call()),
        user(result(content=[text("see"), picture], is_error=True), text("so?")),
    ]
    talk = read(messages).conversation().messages
    assert [message.role for message in talk] == ["user", "assistant", "tool", "user"]
    shown = (Text("see"), Image(Media("image/png", data=PNG["data"])))
    assert talk[2].parts == (ToolResult("t1", shown, "f", True),)


def test_arguments_are_kept_as_they_were_written():
    raw = b'{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t",'
    raw += b'"name":"f","input":{"z": 1.0, "a":12345678901234567890123}}]}]}'
    request = reader.read_messages(schema.decode(raw))
    assert request.conversation().messages[0].parts[0].arguments == '{"z": 1.0, "a":12345678901234567890123}'
    assert b'{"z": 1.0, "a":12345678901234567890123}' in msgspec.json.encode(request.native.body)


def test_documents_are_files_or_text():
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
    note = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}, "title": "Note"}
    page = {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}, "citations": {"enabled": True}}
    request = read([user(pdf, note, page)])
    parts = request.conversation().messages[0].parts
    assert parts[0] == File(Media("application/pdf", data="JVBERi0="))
    assert parts[1] == Text("Note\n\nhi")
    assert parts[2] == File(Media(url="https://x/y.pdf"), citations=True)
    assert request.requirements.documents and request.requirements.media == 2


def test_blocks_of_server_tools_stay_whole_for_their_vendor():
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    cited = text("z", citations=[{"type": "web_search_result_location", "url": "https://a", "cited_text": "q"}])
    parts = parts_of(user(text("y")), assistant(search, found, cited))[1]
    assert parts[0].executed == "provider" and parts[0].vendor == "anthropic"
    own = VendorPart("anthropic", "web_search_tool_result", found)
    assert parts[1] == ToolResult("srvtoolu_1", (own,), executed="provider")
    assert parts[2].sources == (Source("https://a", "", "q"),)


def test_reasoning_of_other_vendors_is_unpacked():
    token = OpaqueToken("", "responses", "s", "gAAA", "rs_1", True)
    block = {"type": "thinking", "thinking": "brief", "signature": write_token(token)}
    parts = parts_of(user(text("y")), assistant(block, text("z")))[1]
    assert parts[0] == Reasoning("brief", "s", "gAAA", "responses", "rs_1", True)


def test_marks_of_calls_and_texts_go_back_to_them():
    blocks = [sealed(NEXT, signature="n"), text("z"), sealed(CALL + "t1", signature="c"), call()]
    parts = parts_of(user(text("y")), assistant(*blocks))[1]
    assert (parts[0].signature, parts[0].vendor) == ("n", "google")
    assert (parts[1].signature, parts[1].vendor) == ("c", "google") and len(parts) == 2
    late = parts_of(user(text("y")), assistant(text("z"), sealed(TEXT, signature="l")))[1]
    assert late == (Text("z", signature="l", vendor="google"),)


def test_a_seal_that_was_changed_is_dropped():
    broken = {"type": "thinking", "thinking": "x", "signature": "gw1.!!!"}
    assert parts_of(user(text("y")), assistant(broken, text("z")))[1] == (Text("z"),)


def test_tools_are_read_by_their_type():
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3, "user_location": {"city": "Oslo"}}
    finder = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    bash = {"type": "bash_20250124", "name": "bash"}
    request = read(tools=[TOOL | {"cache_control": {"type": "ephemeral"}, "defer_loading": True}, search, finder, bash])
    mine, web, find, own = request.conversation().tools
    assert mine == FunctionTool("f", schema=TOOL["input_schema"], cache=CacheMark(), deferred=True)
    assert web == WebSearch(max_uses=3, city="Oslo")
    assert (find.kind, own) == ("tool_search", VendorTool("anthropic", "bash_20250124", bash))
    assert request.requirements.web_search and request.requirements.search_offered
    assert (request.requirements.hosted, request.requirements.vendor_only) == ("anthropic", "")
    assert read(tools=[TOOL, search, finder]).requirements.hosted == ""
    forced = read(tools=[TOOL, bash], tool_choice={"type": "tool", "name": "bash"}).requirements
    assert (forced.hosted, forced.vendor_only) == ("", "anthropic")
    assert not read(
        tools=[TOOL, search], tool_choice={"type": "tool", "name": "web_search"}
    ).requirements.search_offered


@pytest.mark.parametrize(
    ("wire", "choice", "forced"),
    [
        ({"type": "any"}, ToolChoice("required"), "required"),
        ({"type": "tool", "name": "f"}, ToolChoice("tool", "f"), "tool"),
        ({"type": "none"}, ToolChoice("none"), ""),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice("auto"), ""),
    ],
)
def test_tool_choices_have_neutral_words(wire: dict, choice: ToolChoice, forced: str):
    request = read(tools=[TOOL], tool_choice=wire)
    assert (request.conversation().tool_choice, request.requirements.forced_tool) == (choice, forced)
    parallel = request.conversation().sampling.parallel_tool_calls
    assert parallel is (False if "disable_parallel_tool_use" in wire else None)


def test_thinking_of_either_form_is_an_option():
    fixed = read(thinking={"type": "enabled", "budget_tokens": 2000}, max_tokens=9000)
    assert (
        fixed.conversation().reasoning == ReasoningOptions(budget=2000, enabled=True) and fixed.requirements.reasoning
    )
    free = read(thinking={"type": "adaptive"}, output_config={"effort": "high"})
    assert free.conversation().reasoning.adaptive and free.requirements.reasoning and free.requirements.effort == "high"
    assert free.conversation().sampling.output_effort == "high"
    assert read(thinking={"type": "disabled"}).conversation().reasoning.enabled is False


def test_a_schema_for_the_answer_is_a_response_format_wherever_it_stands():
    response_format = {"type": "json_schema", "schema": {"type": "object"}}
    new, old = read(output_config={"format": response_format}), read(output_format=response_format)
    assert new.conversation().response_format == old.conversation().response_format
    assert new.requirements.json_schema and old.requirements.json_schema
    assert sent(new) == sent(old)


def test_the_session_is_the_users_or_named_inside():
    assert read(metadata={"user_id": "u1"}).options.session == "u1"
    assert read(metadata={"user_id": '{"session_id": "s9", "device": 1}'}).options.session == "s9"
    assert read(metadata={"user_id": "{broken"}).options.session == "{broken"


def test_opt_ins_are_kept_for_upstreams_that_know_them():
    assert read(betas="a-1, b-2,").options.extra == {BETAS: ("a-1", "b-2")}
    assert read().options.extra == {}


def test_the_size_of_a_prompt_counts_all_its_text():
    plain = read().requirements.prompt_bytes
    longer = read([user(text("hello"), result("t", content=[text("12345")]))], system="67890")
    assert plain == 5 and longer.requirements.prompt_bytes == 15


def test_files_that_one_vendor_has_go_to_it_alone():
    request = read([user({"type": "image", "source": {"type": "file", "file_id": "f1"}})])
    assert request.requirements.vendor_only == "anthropic" and request.requirements.vision


def test_fields_that_only_servers_of_the_format_support_reach_them():
    own = {"container": "c1", "mcp_servers": [{"type": "url", "url": "https://x.example", "name": "docs"}]}
    for name, value in own.items():
        assert read(**{name: value}).options.extra[OWN_FIELDS] == {name: value}
    assert OWN_FIELDS not in read().options.extra


def test_calls_of_mcp_servers_that_the_vendor_made_are_ordinary_calls_for_others():
    use = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "search", "server_name": "docs", "input": {}}
    found = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": []}
    listing = {"type": "mcp_tool_listing", "mcp_server_name": "docs", "tools": []}
    for block in (use, found, listing):
        assert read([user(text("y")), assistant(block)]).requirements.own_parts == "anthropic", block["type"]
    assert read([user(text("y")), assistant(text("z"))]).requirements.own_parts == ""
    parts = read([user(text("y")), assistant(use, found, listing)]).conversation().messages[1].parts
    assert [part.instead for part in parts] == [
        (ToolCall("mcptoolu_1", "search", "{}"),),
        (ToolResult("mcptoolu_1", ()),),
        (),
    ]


def test_how_thinking_is_shown_is_an_option():
    for display, show in (("summarized", "summary"), ("omitted", "omitted"), (None, "")):
        for thinking in ({"type": "enabled", "budget_tokens": 2000}, {"type": "adaptive"}):
            request = read(thinking=thinking | ({"display": display} if display else {}), max_tokens=9000)
            assert request.conversation().reasoning.show == show


def test_an_unknown_speed_or_region_is_left_out_with_an_explanation():
    (speed,) = read(speed="warp").warnings
    (region,) = read(inference_geo="mars").warnings
    assert speed == "speed was left out: it must be standard or fast."
    assert region.startswith("inference_geo was left out: it must be global or us")
    assert read(speed="fast", inference_geo="us").warnings == ()


def test_the_mark_of_the_whole_request_stands_on_its_last_part():
    talk = read([user(text("a"), text("b"))], cache_control={"type": "ephemeral"}).conversation()
    assert [part.cache for part in talk.messages[-1].parts] == [None, CacheMark("")]


def test_tolerated_roles_are_understood():
    roles = [{"role": "system", "content": "s"}, {"role": "function", "content": "f"}]
    talk = read([*roles, {"role": "tool", "tool_call_id": "t", "content": "r"}]).conversation().messages
    assert [message.role for message in talk] == ["system", "user", "tool"]


def test_an_agents_request_is_relayed_without_unknown_members_of_blocks():
    raw = (SAMPLES / "agent_request.json").read_bytes()
    request = reader.read_messages(schema.decode(raw))
    native = orjson.loads(msgspec.json.encode(request.native.body))
    known = orjson.loads(raw)
    known["messages"][2]["content"][0].pop("is_error")
    assert native == {name: value for name, value in known.items() if name not in ("model", "stream")}
    assert request.options.session == "7c1e" and request.requirements.vision and request.requirements.reasoning


def test_many_messages_of_one_role_are_joined_in_steps_by_their_number() -> None:
    def steps(count: int) -> int:
        said = [{"role": "user", "content": [{"type": "text", "text": "x"}]} for _ in range(count)]
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": " "}, *said]}
        decoded = schema.decode(orjson.dumps(body))
        return count_steps(lambda: reader.read_messages(decoded))

    assert steps(400) < 6 * steps(100)  # by the square it would be sixteen


def test_results_of_joined_messages_come_first() -> None:
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
    said = [
        {"role": "user", "content": "Hi"},
        {"role": "user", "content": " "},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": "Hurry."},
        {"role": "user", "content": [result]},
    ]
    native = reader.read_messages(schema.decode(orjson.dumps({"model": "m", "max_tokens": 9, "messages": said}))).native
    assert native is not None
    last = native.body["messages"][-1]
    assert [block.__struct_config__.tag for block in last.content] == ["tool_result", "text"]
