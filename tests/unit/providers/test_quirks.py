import tomllib
from pathlib import Path

import msgspec
import pytest

from gateway.errors import NotSupported
from gateway.neutral.chat import ChatRequest, Conversation, Options, ReasoningOptions, Requirements
from gateway.providers import quirks
from gateway.providers.openai import responses
from gateway.surfaces.bodies import chat_options as chat_options_module

PROVIDERS = Path(__file__).parents[3] / "config" / "catalogue" / "providers"
PLAIN = ChatRequest("m", Requirements(), lambda: Conversation(()))


class Typed(msgspec.Struct, tag_field="role", tag="developer", omit_defaults=True):
    """A message as another layer may hand it over: not a dict."""

    content: str
    name: str | None = None


def adjusted(name: str, body: dict, request: ChatRequest = PLAIN) -> dict:
    body = dict(body)
    quirks.adjust(body, request, [name])
    return body


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("max_tokens_old_name", {"max_completion_tokens": 5}, {"max_tokens": 5}),
        ("no_stream_options", {"stream_options": {}, "stream": True}, {"stream": True}),
        ("no_usage_in_stream", {"stream_options": {}}, {}),
        ("drop_penalties", {"frequency_penalty": 1, "presence_penalty": 1, "top_p": 1}, {"top_p": 1}),
        ("no_user", {"user": "ada"}, {}),
        ("no_reasoning_effort", {"reasoning_effort": "low"}, {}),
        ("none_or_high_effort", {"reasoning_effort": "low"}, {"reasoning_effort": "high"}),
        ("no_sampling", {"temperature": 1, "top_p": 1, "n": 2}, {"n": 2}),
        ("basic_reasoning_effort", {"reasoning_effort": "xhigh"}, {"reasoning_effort": "high"}),
        ("basic_reasoning_effort", {"reasoning_effort": "minimal"}, {"reasoning_effort": "low"}),
        ("basic_reasoning_effort", {"reasoning_effort": "medium"}, {"reasoning_effort": "medium"}),
        ("basic_reasoning_effort", {"reasoning_effort": "max"}, {"reasoning_effort": "high"}),
        ("basic_reasoning_effort", {"reasoning_effort": "none"}, {}),
        ("thinking_switch", {"reasoning_effort": "low"}, {"thinking": {"type": "enabled"}}),
        ("thinking_switch", {"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
        ("required_as_any", {"tool_choice": "required"}, {"tool_choice": "any"}),
        ("tool_choice_auto", {"tool_choice": {"type": "function"}}, {"tool_choice": "auto"}),
    ],
)
def test_quirk_changes_the_top_level(name, before, after):
    assert adjusted(name, before) == after


@pytest.mark.parametrize(
    "shape", ({"type": "json_object"}, {"type": "json_schema"}, chat_options_module.JsonObjectFormat())
)
def test_json_output_beside_tools_is_for_another_provider_where_it_is_refused(shape):
    with pytest.raises(NotSupported):
        adjusted("no_format_with_tools", {"tools": [{}], "response_format": shape})
    text = {"tools": [{}], "response_format": {"type": "text"}}
    for served in (text, {"tools": [{}]}, {"response_format": shape}, {"tools": [{}], "response_format": None}):
        assert adjusted("no_format_with_tools", served) == served


@pytest.mark.parametrize(
    ("effort", "sent"),
    [("minimal", "low"), ("low", "low"), ("medium", "high"), ("high", "high"), ("xhigh", "max"), ("max", "max")],
)
def test_each_effort_is_the_nearest_of_low_high_and_max(effort, sent):
    both = {"reasoning_effort": sent, "thinking": {"type": "enabled"}}
    assert adjusted("thinking_and_effort", {"reasoning_effort": effort}) == both
    request = msgspec.structs.replace(PLAIN, requirements=Requirements(effort=effort))
    assert adjusted("effort_alone", {"thinking": {"type": "enabled"}}, request) == {"reasoning_effort": sent}


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("developer_as_system", {"role": "developer", "content": "x"}, {"role": "system", "content": "x"}),
        ("system_as_user", {"role": "system", "content": "x"}, {"role": "user", "content": "x"}),
        ("no_names", {"role": "user", "name": "ada", "content": "x"}, {"role": "user", "content": "x"}),
        ("content_text_required", {"role": "assistant"}, {"role": "assistant", "content": ""}),
        (
            "content_null_required",
            {"role": "assistant", "tool_calls": [1]},
            {"role": "assistant", "tool_calls": [1], "content": None},
        ),
        (
            "text_as_string",
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "user", "content": "a\nb"},
        ),
    ],
)
def test_quirk_changes_messages_and_leaves_the_callers_alone(name, before, after):
    messages = [dict(before)]
    assert adjusted(name, {"messages": messages})["messages"] == [after]
    assert messages == [before]


def test_typed_messages_of_a_relayed_body_are_changed_too():
    messages = [Typed("x")]
    assert adjusted("compatible", {"messages": messages})["messages"] == [{"role": "system", "content": "x"}]
    assert messages == [Typed("x")]


def test_messages_without_the_role_are_not_rebuilt():
    messages = [{"role": "user", "content": "x"}]
    assert adjusted("developer_as_system", {"messages": messages})["messages"] is messages


def test_cache_breakpoints_are_removed_from_a_request():
    request = msgspec.structs.replace(PLAIN, options=Options(extra={"prompt_cache_breakpoint": True}))
    part = {"type": "text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}}
    body = adjusted("no_cache_breakpoints", {"messages": [{"role": "user", "content": [part]}]}, request)
    assert body["messages"][0]["content"] == [{"type": "text", "text": "x"}]


def test_prompt_cache_fields_are_sent_on_request_only():
    request = msgspec.structs.replace(PLAIN, options=Options(prompt_cache_key="h", prompt_cache_retention="24h"))
    assert adjusted("sends_prompt_cache", {}, request) == {"prompt_cache_key": "h", "prompt_cache_retention": "24h"}
    assert adjusted("compatible", {"messages": []}, request) == {"messages": []}


def test_budget_of_thinking_is_sent_where_the_provider_has_one():
    talk = Conversation((), reasoning=ReasoningOptions(budget=900))
    request = ChatRequest("m", Requirements(reasoning=True), lambda: talk)
    assert adjusted("enable_thinking", {}, request) == {"enable_thinking": True, "thinking_budget": 900}
    assert adjusted("enable_thinking", {}) == {}


def test_strict_is_removed_from_functions_only():
    tools = [{"type": "function", "function": {"name": "f", "strict": True}}, {"type": "custom", "custom": {}}]
    found = adjusted("no_strict", {"tools": tools})["tools"]
    assert found == [{"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {}}]


def test_every_quirk_is_described_by_its_name_or_a_line():
    assert all(name == quirk.__name__ or name == "no_usage_in_stream" for name, quirk in quirks.QUIRKS.items())


@pytest.mark.parametrize("path", sorted(PROVIDERS.glob("*.toml")), ids=lambda path: path.stem)
def test_quirks_of_the_catalogue_exist(path):
    entry = tomllib.loads(path.read_text())
    if entry["protocol"] == "openai":
        # Those of its Responses API stand in the same list; each format passes over what means nothing in it.
        # Flags that other modules read are constants of the module.
        flags = {value for value in vars(quirks).values() if isinstance(value, str)}
        assert set(entry.get("quirks", ())) <= quirks.QUIRKS.keys() | responses.QUIRKS.keys() | flags
