"""Messages through the whole gateway, with the official SDK: the sandbox and a strict fake of another format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anthropic
import httpx2
import orjson
import pytest
from fakes.openai import Answer, FakeOpenAI
from support.gateways import LocalGateway

SAMPLES = Path(__file__).parents[1] / "samples" / "anthropic"
HELLO = [{"role": "user", "content": "Hello"}]
OPENAI = "openai/gpt-4o-mini"
WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture
def claude(gateway: LocalGateway) -> Iterator[anthropic.Anthropic]:
    """The official SDK, pointed at the gateway."""
    with httpx2.Client() as http:
        yield anthropic.Anthropic(base_url=gateway.address, api_key=gateway.key, max_retries=0, http_client=http)


def test_an_answer_of_another_format_is_a_message(claude: anthropic.Anthropic, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Good day.", prompt=1000, completion=500, cached=400))
    raw = claude.messages.with_raw_response.create(model=OPENAI, max_tokens=50, messages=HELLO, system="Be brief.")
    answer = raw.parse()
    assert (answer.content[0].text, answer.stop_reason, answer.model) == ("Good day.", "end_turn", OPENAI)
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens) == (600, 400)
    assert answer.usage.cost > 0 and answer.metadata["used_provider"] == "openai"
    assert raw.headers["request-id"] == answer.metadata["request_id"] and answer.id.startswith("msg_")
    assert [message["role"] for message in upstream.calls[0].body["messages"]] == ["system", "user"]


def test_a_stream_of_another_format_is_a_streamed_message(claude: anthropic.Anthropic, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Good day to you.", fragment=3))
    with claude.messages.stream(model=OPENAI, max_tokens=50, messages=HELLO) as stream:
        start = next(iter(stream))
        assert start.type == "message_start" and 0 < start.message.usage.input_tokens < 20
        assert "".join(stream.text_stream) == "Good day to you."
        last = stream.get_final_message()
    assert last.stop_reason == "end_turn" and last.usage.output_tokens > 0


@pytest.mark.parametrize("streamed", [False, True])
def test_the_tool_runner_of_the_sdk_sends_the_whole_conversation(
    claude: anthropic.Anthropic, upstream: FakeOpenAI, streamed: bool
) -> None:
    @anthropic.beta_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"Rain in {city}."

    upstream.script(Answer(tools=(("weather", '{"city": "Oslo"}'),)), Answer("It rains."))
    body = {"model": OPENAI, "max_tokens": 50, "tools": [weather], "messages": HELLO}
    last = claude.beta.messages.tool_runner(**body, stream=streamed).until_done()
    assert last.content[0].text == "It rains."
    assert [message["role"] for message in upstream.calls[1].body["messages"]] == ["user", "assistant", "tool"]
    assert upstream.calls[1].body["messages"][2]["content"] == "Rain in Oslo."


def test_a_message_thread_is_refused_with_the_details_that_sdks_read(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude.beta.messages.thread(model=OPENAI, max_tokens=50).send({"role": "user", "content": "Hello"})
    error = caught.value.body["error"]
    assert (error["param"], error["code"]) == ("thread", "thread_unsupported_request")
    assert error["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_loop_runs_over_another_format(
    claude: anthropic.Anthropic, upstream: FakeOpenAI, streamed: bool
) -> None:
    upstream.script(Answer(tools=(("weather", '{"city": "Oslo"}'), ("weather", '{"city": "Bergen"}'))))
    body = {"model": OPENAI, "max_tokens": 50, "tools": [WEATHER]}
    if streamed:
        with claude.messages.stream(messages=HELLO, **body) as stream:
            first = stream.get_final_message()
    else:
        first = claude.messages.create(messages=HELLO, **body)
    assert first.stop_reason == "tool_use"
    assert [block.input["city"] for block in first.content] == ["Oslo", "Bergen"]
    results = [{"type": "tool_result", "tool_use_id": block.id, "content": "Rain."} for block in first.content]
    talk = [*HELLO, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    assert claude.messages.create(messages=talk, **body).content[0].text == "Hello."
    assert [message["role"] for message in upstream.calls[1].body["messages"]] == ["user", "assistant", "tool", "tool"]


def test_the_sandbox_reasons_in_thinking_blocks(claude: anthropic.Anthropic) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    body = {"model": "sandbox-reasoning", "max_tokens": 2000, "messages": HELLO, "thinking": thinking}
    answer = claude.messages.create(**body)
    assert answer.content[0].type == "thinking" and answer.content[-1].type == "text"
    with claude.messages.stream(**body) as stream:
        assert stream.get_final_message().content[0].thinking
    talk = [*HELLO, {"role": "assistant", "content": answer.content}, {"role": "user", "content": "And?"}]
    assert claude.messages.create(**(body | {"messages": talk})).content


def test_errors_have_the_formats_types(claude: anthropic.Anthropic, gateway: LocalGateway) -> None:
    with pytest.raises(anthropic.BadRequestError) as unknown:
        claude.messages.create(model="no-such-model", max_tokens=5, messages=HELLO)
    assert unknown.value.body["error"]["type"] == "invalid_request_error"
    assert unknown.value.body["error"]["code"] == "model_not_found"
    stranger = claude.with_options(api_key="llmgtwy_nobody")
    with pytest.raises(anthropic.AuthenticationError) as denied:
        stranger.messages.create(model=OPENAI, max_tokens=5, messages=HELLO)
    assert denied.value.body["error"]["type"] == "authentication_error" and denied.value.request_id


def test_a_failure_upstream_is_an_error_and_a_cut_stream_raises(
    claude: anthropic.Anthropic, upstream: FakeOpenAI
) -> None:
    upstream.script(Answer(status=500), Answer(status=500), Answer(status=500))
    with pytest.raises(anthropic.InternalServerError) as failed:
        claude.messages.create(model=OPENAI, max_tokens=5, messages=HELLO)
    assert failed.value.body["error"]["type"] == "api_error"
    upstream.script(*[Answer("A long enough answer to be cut.", cut=900)] * 3)
    with (
        pytest.raises(anthropic.APIError),
        claude.messages.stream(model=OPENAI, max_tokens=50, messages=HELLO) as stream,
    ):
        stream.get_final_message()


def test_a_body_of_the_other_format_is_shown_the_way(gateway: LocalGateway) -> None:
    image = [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": image}]}
    headers = {"x-api-key": gateway.key, "content-type": "application/json"}
    with httpx2.Client() as http:
        reply = http.post(f"{gateway.url}/messages", content=orjson.dumps(body), headers=headers)
    assert reply.status_code == 400 and "/v1/chat/completions" in reply.json()["error"]["message"]


def test_an_agents_session_runs_over_another_format(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    body = (SAMPLES / "agent_request.json").read_bytes().replace(b"MODEL", OPENAI.encode()).replace(b"32000", b"9000")
    headers = {"authorization": f"Bearer {gateway.key}", "content-type": "application/json", "anthropic-beta": "new-1"}
    with httpx2.Client() as http:
        reply = http.post(f"{gateway.url}/messages?beta=true", content=body, headers=headers)
    assert reply.status_code == 200 and b"event: message_stop" in reply.content, reply.text
    sent = upstream.calls[0].body
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["Read", "Search"]
    assert "iVBORw0KGgo=" in str(sent["messages"])


def test_tokens_are_counted_without_any_upstream(claude: anthropic.Anthropic, upstream: FakeOpenAI) -> None:
    short = claude.messages.count_tokens(model=OPENAI, messages=HELLO).input_tokens
    longer = [{"role": "user", "content": "Hello " * 500}]
    assert 1 <= short < 20 < 500 < claude.messages.count_tokens(model=OPENAI, messages=longer).input_tokens < 1500
    assert claude.messages.count_tokens(model=OPENAI, messages=HELLO, tools=[WEATHER]).input_tokens > short + 300
    assert upstream.calls == []


def test_the_root_answers_head(gateway: LocalGateway) -> None:
    with httpx2.Client() as http:
        assert http.head(gateway.address + "/").status_code == 200
