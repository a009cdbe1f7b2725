"""The Anthropic format upstream through the whole gateway: from its own surface and from OpenAI's."""

from __future__ import annotations

import json
from collections.abc import Iterator

import anthropic
import httpx2
import pytest
from fakes.anthropic import Answer, FakeAnthropic
from fakes.anthropic_checks import sign
from openai import OpenAI
from support.gateways import LocalGateway
from support.shared import Share

from gateway.accounts.projects import ProjectChange, update_project

MODEL = "anthropic/claude-sonnet-4-5"
HELLO = [{"role": "user", "content": "Hello"}]
THINKING = {"type": "enabled", "budget_tokens": 2000}
WEATHER = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
FUNCTION = {"type": "function", "function": {"name": "weather", "parameters": WEATHER["input_schema"]}}


@pytest.fixture
def vendor(share: Share) -> FakeAnthropic:
    return share.fake(FakeAnthropic)


@pytest.fixture
def installation(share: Share, vendor: FakeAnthropic) -> LocalGateway:
    """A gateway with the strict fake as its provider `anthropic`."""
    return share.gateway({"LLM_ANTHROPIC_API_KEY": "sk-ant-up", "LLM_ANTHROPIC_BASE_URL": vendor.url})


@pytest.fixture
def claude(installation: LocalGateway) -> Iterator[anthropic.Anthropic]:
    with httpx2.Client() as http:
        yield anthropic.Anthropic(
            base_url=installation.address, api_key=installation.key, max_retries=0, http_client=http
        )


@pytest.fixture
def openai(installation: LocalGateway) -> OpenAI:
    return OpenAI(base_url=installation.url, api_key=installation.key, max_retries=0)


def create_message(claude: anthropic.Anthropic, streamed: bool, **request) -> anthropic.types.Message:
    request = {"model": MODEL, "max_tokens": 4000, "messages": HELLO} | request
    if not streamed:
        return claude.messages.create(**request)
    with claude.messages.stream(**request) as stream:
        return stream.get_final_message()


@pytest.mark.parametrize("streamed", [False, True])
def test_thinking_comes_back_byte_for_byte_in_a_tool_loop(
    claude: anthropic.Anthropic, vendor: FakeAnthropic, streamed: bool
) -> None:
    vendor.script(Answer(thinking="I must look.", redacted="gAAA==", tools=(("weather", '{"city": "Oslo"}'),)))
    first = create_message(claude, streamed, thinking=THINKING, tools=[WEATHER])
    assert first.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": first.content[-1].id, "content": "Rain."}
    talk = [*HELLO, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    assert (
        create_message(claude, streamed, messages=talk, thinking=THINKING, tools=[WEATHER]).content[0].text == "Hello."
    )
    back = vendor.calls[1].body["messages"][1]["content"]
    assert back[0] == {"type": "thinking", "thinking": "I must look.", "signature": sign("I must look.")}
    assert back[1] == {"type": "redacted_thinking", "data": "gAAA=="}


def test_usage_and_price_are_those_of_the_upstream(claude: anthropic.Anthropic, vendor: FakeAnthropic) -> None:
    vendor.script(Answer("Hi", input=1000, output=100, cache_read=5000, cache_5m=200, cache_1h=300))
    usage = claude.messages.create(model=MODEL, max_tokens=50, messages=HELLO).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (1000, 5000, 500)
    # claude-sonnet-4-5: 3, 15, 0.30, 3.75 and 6 dollars a million tokens.
    assert usage.cost == pytest.approx(0.003 + 0.0015 + 0.0015 + 0.00075 + 0.0018)


def test_openai_callers_who_drop_the_thinking_go_on(openai: OpenAI, vendor: FakeAnthropic) -> None:
    vendor.script(Answer(thinking="I must look.", tools=(("weather", '{"city": "Oslo"}'),)))
    request = {"model": MODEL, "tools": [FUNCTION], "reasoning_effort": "high", "max_completion_tokens": 30_000}
    first = openai.chat.completions.create(messages=HELLO, **request).choices[0]
    assert first.finish_reason == "tool_calls" and first.message.reasoning == "I must look."
    call = first.message.tool_calls[0].model_dump()
    talk = [*HELLO, {"role": "assistant", "tool_calls": [call]}]
    talk.append({"role": "tool", "tool_call_id": call["id"], "content": "Rain."})
    again = openai.chat.completions.create(messages=talk, **request)
    assert again.choices[0].message.content == "Hello." and "thinking" in again.metadata["warnings"][0]
    assert vendor.calls[1].body["thinking"] == {"type": "disabled"}


def test_openai_callers_who_keep_the_details_think_on(openai: OpenAI, vendor: FakeAnthropic) -> None:
    vendor.script(Answer(thinking="I must look.", tools=(("weather", '{"city": "Oslo"}'),)))
    request = {"model": MODEL, "tools": [FUNCTION], "reasoning_effort": "high", "max_completion_tokens": 30_000}
    message = openai.chat.completions.create(messages=HELLO, **request).choices[0].message
    talk = [*HELLO, message.model_dump(exclude_none=True)]
    talk.append({"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Rain."})
    assert openai.chat.completions.create(messages=talk, **request).choices[0].message.content == "Hello."
    assert vendor.calls[1].body["messages"][1]["content"][0]["signature"] == sign("I must look.")


def test_openai_streams_show_reasoning_text_and_calls(openai: OpenAI, vendor: FakeAnthropic) -> None:
    vendor.script(Answer("Sunny.", thinking="hm", tools=(("weather", '{"city": "Oslo"}'),), fragment=5))
    request = {"model": MODEL, "tools": [FUNCTION], "reasoning_effort": "low", "stream": True}
    chunks = list(openai.chat.completions.create(messages=HELLO, **request))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(delta.content or "" for delta in deltas) == "Sunny."
    assert "".join(getattr(delta, "reasoning", None) or "" for delta in deltas) == "hm"
    pieces = [call.function.arguments for delta in deltas for call in delta.tool_calls or ()]
    assert "".join(pieces) == '{"city": "Oslo"}'


@pytest.mark.parametrize("cut", [200, 700, 1100, 1400])
def test_a_cut_stream_always_raises(claude: anthropic.Anthropic, vendor: FakeAnthropic, cut: int) -> None:
    vendor.script(*[Answer("A long enough answer to be cut somewhere.", cut=cut)] * 4)
    with pytest.raises(anthropic.APIError):
        create_message(claude, True)


def test_an_error_event_after_content_is_passed_on(claude: anthropic.Anthropic, vendor: FakeAnthropic) -> None:
    vendor.script(Answer("Hello there, long enough", error_at=6))
    with pytest.raises(anthropic.APIStatusError):
        create_message(claude, True)


def test_an_overloaded_upstream_is_the_providers_fault(claude: anthropic.Anthropic, vendor: FakeAnthropic) -> None:
    vendor.script(*[Answer(status=529)] * 4)
    with pytest.raises(anthropic.InternalServerError) as failed:
        create_message(claude, False)
    assert (failed.value.status_code, failed.value.body["error"]["type"]) == (529, "overloaded_error")


def test_a_refused_request_keeps_the_upstreams_words(claude: anthropic.Anthropic, vendor: FakeAnthropic) -> None:
    vendor.script(Answer(status=400))
    with pytest.raises(anthropic.BadRequestError) as failed:
        create_message(claude, False)
    assert "prompt is too long" in failed.value.body["error"]["message"]


def test_an_unknown_opt_in_does_not_reach_the_upstream(claude: anthropic.Anthropic, vendor: FakeAnthropic) -> None:
    betas = "made-up-2030-01-01,context-1m-2025-08-07"
    claude.messages.create(model=MODEL, max_tokens=9, messages=HELLO, extra_headers={"anthropic-beta": betas})
    assert vendor.calls[0].headers["anthropic-beta"] == "context-1m-2025-08-07"


def marks_of(vendor: FakeAnthropic) -> list[str]:
    body = vendor.calls[-1].body
    blocks = [block for turn in body["messages"] for block in turn["content"] if isinstance(block, dict)]
    return [block["text"][:5] for block in (*body["system"], *blocks) if "cache_control" in block]


@pytest.mark.parametrize(
    ("policy", "expected"), [("automatic", ["Rules", "Hello", "And?"]), ("client", []), ("disabled", [])]
)
def test_the_projects_policy_marks_the_prompt_for_the_vendors_cache(
    installation: LocalGateway,
    claude: anthropic.Anthropic,
    openai: OpenAI,
    vendor: FakeAnthropic,
    policy: str,
    expected: list,
) -> None:
    set_policy(installation, policy)
    rules, turns = (
        "Rules. " * 1000,
        [*HELLO, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "And?"}],
    )
    create_message(claude, False, system=[{"type": "text", "text": rules}], messages=turns)
    assert marks_of(vendor) == expected
    openai.chat.completions.create(model=MODEL, messages=[{"role": "system", "content": rules}, *turns])
    assert marks_of(vendor) == expected


def set_policy(installation: LocalGateway, policy: str) -> None:
    """As an administrator sets it for the key's project."""
    database = installation.services.store.database
    change = ProjectChange(cache_markers=policy)
    update_project(database, installation.services.store.control, installation.project_id, change, actor="test")


@pytest.mark.parametrize("stream", [False, True])
def test_a_json_object_requested_by_an_instruction_is_only_json(
    openai: OpenAI, vendor: FakeAnthropic, stream: bool
) -> None:
    vendor.script(Answer('Here you are:\n```json\n{"city": "Oslo"}\n```'))
    wish = {"type": "json_object"}
    answer = openai.chat.completions.create(model=MODEL, messages=HELLO, response_format=wish, stream=stream)
    text = "".join(c.choices[0].delta.content or "" for c in answer) if stream else answer.choices[0].message.content
    assert json.loads(text) == {"city": "Oslo"}
    assert "JSON object" in str(vendor.calls[0].body["system"])


def test_messages_answers_with_the_model_as_it_was_named(claude: anthropic.Anthropic, vendor: FakeAnthropic) -> None:
    """Coding agents drop signed thinking that another name wrote, and the provider then refuses the next turn."""
    for name in ("claude-sonnet-4-5", MODEL):
        whole = claude.messages.create(model=name, messages=HELLO, max_tokens=100)
        with claude.messages.stream(model=name, messages=HELLO, max_tokens=100) as stream:
            streamed = stream.get_final_message()
        assert (whole.model, streamed.model) == (name, name)
        assert whole.metadata["used_provider"] == "anthropic"


@pytest.mark.parametrize(
    "name", ["claude-sonnet-4-5[1m]", "claude-sonnet-4.5", "claude-sonnet-4-5-latest", "claude-sonnet-4-5-20990101"]
)
def test_another_spelling_of_a_claude_model_reaches_that_model(
    claude: anthropic.Anthropic, openai: OpenAI, vendor: FakeAnthropic, name: str
) -> None:
    claude.messages.create(model=name, max_tokens=9, messages=HELLO)
    openai.chat.completions.create(model=name, max_tokens=9, messages=HELLO)
    openai.responses.create(model=name, max_output_tokens=16, input="Hello")
    sent = [(call.body["model"], call.headers.get("anthropic-beta")) for call in vendor.calls]
    assert sent == [("claude-sonnet-4-5", "context-1m-2025-08-07" if "[1m]" in name else None)] * 3
    assert claude.messages.count_tokens(model=name, messages=HELLO).input_tokens > 0
    assert claude.models.retrieve(name).id == "claude-sonnet-4-5"
    assert openai.models.retrieve(f"anthropic/{name}").id == "anthropic/claude-sonnet-4-5"


def test_a_long_context_keeps_the_other_features_that_were_asked_for(
    claude: anthropic.Anthropic, vendor: FakeAnthropic
) -> None:
    betas = {"anthropic-beta": "interleaved-thinking-2025-05-14"}
    claude.messages.create(model="claude-sonnet-4-5[1m]", max_tokens=9, messages=HELLO, extra_headers=betas)
    assert vendor.calls[0].headers["anthropic-beta"] == "interleaved-thinking-2025-05-14,context-1m-2025-08-07"


@pytest.mark.parametrize(
    ("name", "served"),
    [
        ("claude-sonnet-99", "claude-sonnet-5-5"),
        ("claude-3-5-haiku-20241022", "claude-haiku-5-5"),
        ("claude-nobody-7", "claude-haiku-"),
    ],
)
def test_another_claude_model_serves_one_that_cannot_be_called(
    claude: anthropic.Anthropic, vendor: FakeAnthropic, name: str, served: str
) -> None:
    claude.messages.create(model=name, max_tokens=9, messages=HELLO)
    assert vendor.calls[0].body["model"].startswith(served)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_session_goes_on_without_thinking_that_the_account_refuses(
    claude: anthropic.Anthropic, vendor: FakeAnthropic, streamed: bool
) -> None:
    """Another account or platform signed the thinking, as before a change of the key."""
    foreign = {"type": "thinking", "thinking": "I must look.", "signature": "EqQBforeign"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Rain."}
    talk = [
        *HELLO,
        {"role": "assistant", "content": [foreign]},
        {"role": "user", "content": "Go on"},
        {"role": "assistant", "content": [foreign, call]},
        {"role": "user", "content": [result]},
    ]
    answer = create_message(claude, streamed, messages=talk, thinking=THINKING, tools=[WEATHER])
    assert answer.content[0].text == "Hello."
    refused, served = vendor.calls
    assert (refused.status, served.status) == (400, 200)
    kinds = [[b["type"] for b in m["content"]] if type(m["content"]) is list else "" for m in served.body["messages"]]
    assert kinds == [["text", "text"], ["tool_use"], ["tool_result"]]
    assert served.body["thinking"] == {"type": "disabled"}


def test_thinking_that_the_account_refuses_is_named_in_a_warning(openai: OpenAI, vendor: FakeAnthropic) -> None:
    vendor.script(Answer("Hi", thinking="hm"), Answer("Yes"))
    request = {"model": MODEL, "reasoning_effort": "low"}
    message = openai.chat.completions.create(messages=HELLO, **request).choices[0].message.model_dump()
    message["reasoning_details"][0]["signature"] = "EqQBforeign"
    talk = [*HELLO, message, {"role": "user", "content": "Go on"}]
    again = openai.chat.completions.create(messages=talk, **request)
    assert again.choices[0].message.content == "Yes"
    assert any("cannot read it" in warning for warning in again.metadata["warnings"])
    assert [call.status for call in vendor.calls] == [200, 400, 200]


def test_a_refusal_of_thinking_is_repeated_once(claude: anthropic.Anthropic, vendor: FakeAnthropic) -> None:
    message = "messages.1.content.0: Invalid `signature` in `thinking` block"
    refusal = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    vendor.script(*[Answer(status=400, error=refusal)] * 3)
    with pytest.raises(anthropic.BadRequestError, match="Invalid `signature`"):
        create_message(claude, False)
    assert len(vendor.calls) == 2
