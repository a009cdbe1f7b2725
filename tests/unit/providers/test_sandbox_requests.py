"""The sandbox refuses the same requests as the owner of its wire format, so that leaks show up here first."""

import pytest

from gateway.errors import InvalidRequest
from gateway.providers.sandbox.requests import check_chat

USER = {"role": "user", "content": "hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ASSISTANT = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "1"}
TOOL = {"type": "function", "function": {"name": "f"}}


def refusal(**body):
    with pytest.raises(InvalidRequest) as caught:
        check_chat({"model": "echo", "messages": [USER], **body})
    return caught.value


def test_full_request_passes():
    check_chat(
        {
            "model": "echo",
            "messages": [{"role": "system", "content": "s"}, USER, ASSISTANT, RESULT],
            "temperature": 1,
            "stream": True,
            "stream_options": {"include_usage": True},
            "tools": [TOOL],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "stop": None,
            "metadata": {"a": "b"},
        }
    )


def test_messages_of_each_role_may_have_parts():
    text = {"type": "text", "text": "x"}
    image = {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}
    sound = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}
    film = {"type": "video_url", "video_url": {"url": "https://a.example/b.mp4"}}
    files = [{"type": "file", "file": {name: "x"}} for name in ("file_data", "file_id", "file_url")]
    check_chat(
        {
            "model": "echo",
            "messages": [
                {"role": "system", "content": [text]},
                {"role": "developer", "content": [text]},
                {"role": "user", "content": [text, image, sound, film, *files]},
                {"role": "assistant", "content": [text, {"type": "refusal", "refusal": "No."}]},
                {"role": "function", "name": "f", "content": [text]},
                {**ASSISTANT},
                {**RESULT, "content": [text, image]},
            ],
        }
    )


def test_tools_may_be_chosen_in_each_way():
    for choice in ("none", "auto", "required"):
        check_chat({"model": "echo", "messages": [USER], "tools": [TOOL], "tool_choice": choice})


def test_unknown_field_is_refused_by_name():
    assert refusal(top_k=4).message == "Unrecognized request argument supplied: top_k"
    assert refusal(top_k=4, plugins=[]).message == "Unrecognized request arguments supplied: top_k, plugins"


def test_missing_messages_are_named():
    error = refusal(messages=None)
    assert (error.param, error.code) == ("messages", "missing_required_parameter")


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("hi", "messages[0]"),
        ({"content": "hi"}, "messages[0].role"),
        ({"role": "bot", "content": "hi"}, "messages[0].role"),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "smell"}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "messages[0].content[0].image_url.url"),
        ({"role": "system", "content": [{"type": "image_url"}]}, "messages[0].content[0].type"),
        ({"role": "assistant", "content": None}, "messages[0].content"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "messages[0].tool_calls"),
        ({"role": "tool", "content": "1"}, "messages[0].tool_call_id"),
        ({"role": "user", "content": "x", "tool_calls": [CALL]}, "messages[0].tool_calls"),
    ],
)
def test_wrong_message_is_refused_at_its_place(message, param):
    assert refusal(messages=[message]).param == param


def test_tool_message_without_a_call_is_refused():
    assert "preceding message with 'tool_calls'" in refusal(messages=[USER, RESULT]).message
    assert refusal(messages=[USER, ASSISTANT, {**RESULT, "tool_call_id": "other"}]).param == "messages.[2].role"


def test_unanswered_call_is_refused():
    assert "call_1" in refusal(messages=[USER, ASSISTANT]).message
    assert "call_1" in refusal(messages=[USER, ASSISTANT, USER]).message


def test_late_tool_message_is_refused():
    assert refusal(messages=[USER, ASSISTANT, RESULT, USER, RESULT]).param == "messages.[4].role"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 2.1),
        ("temperature", "1"),
        ("top_p", -0.1),
        ("n", 0),
        ("n", 129),
        ("n", True),
        ("max_tokens", 0),
        ("max_completion_tokens", 1.5),
        ("stream", "yes"),
        ("stop", ["a", "b", "c", "d", "e"]),
        ("reasoning_effort", "extreme"),
        ("service_tier", "gold"),
        ("response_format", {"type": "xml"}),
        ("response_format", {"type": "json_schema"}),
        ("tools", []),
        ("tools", [{"type": "function"}]),
        ("tools", [{"type": "function", "function": {"name": "no spaces"}}]),
        ("tools", [{"type": "web_search"}]),
        ("metadata", {"a": 1}),
        ("stream_options", {"include_usage": True}),
        ("tool_choice", "auto"),
        ("parallel_tool_calls", True),
    ],
)
def test_wrong_value_is_refused_under_its_field(name, value):
    assert refusal(**{name: value}).param.startswith(name)


def test_both_token_limits_at_once_are_refused():
    assert refusal(max_tokens=1, max_completion_tokens=1).param == "max_tokens"


def test_choice_of_a_missing_tool_is_refused():
    choice = {"type": "function", "function": {"name": "g"}}
    assert "'g' not found" in refusal(tools=[TOOL], tool_choice=choice).message


def test_unknown_stream_option_is_refused():
    assert refusal(stream=True, stream_options={"chunk_size": 1}).code == "unknown_parameter"
