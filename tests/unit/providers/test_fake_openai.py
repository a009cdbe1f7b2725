from collections.abc import Iterator

import openai
import pytest
from fakes.openai import Answer, FakeOpenAI

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def upstream() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture
def client(upstream: FakeOpenAI) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=upstream.url, api_key="sk-test", max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, **fields):
    return client.chat.completions.create(**{"model": "gpt-5", "messages": HELLO, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"extra_body": {"frobnicate": 1}},
        {"messages": [{"role": "user", "content": "x", "mood": 1}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {}}]}]},
        {"messages": [{"role": "assistant", "content": "x", "reasoning": "y"}]},
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": "c"}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {}}]}]},
        {"messages": [{"role": "assistant"}]},
        {"tools": [{"type": "web_search"}]},
        {"tools": []},
        {"tool_choice": "auto"},
        {"max_tokens": 5},
        {"temperature": 3},
        {"extra_body": {"stream_options": {"include_usage": True}}},
        {"reasoning_effort": "extreme"},
    ],
)
def test_requests_that_the_real_service_refuses_are_refused(upstream, client, fields):
    with pytest.raises(openai.BadRequestError):
        ask(client, **fields)
    assert upstream.calls[0].problem and upstream.calls[0].usage is None


def test_key_and_model_are_checked(upstream, client):
    with pytest.raises(openai.AuthenticationError):
        ask(client.with_options(api_key="sk-revoked"))
    with pytest.raises(openai.NotFoundError):
        ask(client, model="gpt-none")


def test_script_is_followed_in_order(upstream, client):
    upstream.script(Answer("one"), Answer(status=503, headers={"retry-after": "2"}))
    assert ask(client).choices[0].message.content == "one"
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client)
    assert caught.value.response.headers["retry-after"] == "2"
    assert ask(client).choices[0].message.content == "Hello."
    assert [call.status for call in upstream.calls] == [200, 503, 200]


@pytest.mark.parametrize("fragment", [0, 1, 50])
def test_streamed_calls_arrive_in_any_fragments(upstream, client, fragment):
    upstream.script(Answer(tools=(("f", '{"a":[1,2,3,4]}'), ("g", "{}")), fragment=fragment))
    with client.chat.completions.stream(model="gpt-5", messages=HELLO) as stream:
        calls = stream.get_final_completion().choices[0].message.tool_calls
    assert [(call.function.name, call.function.arguments) for call in calls] == [("f", '{"a":[1,2,3,4]}'), ("g", "{}")]


@pytest.mark.parametrize("stream", [True, False])
def test_cut_answer_breaks_the_connection(upstream, client, stream):
    upstream.script(Answer("a long text " * 20, cut=400))
    with pytest.raises(openai.APIConnectionError):
        list(ask(client, stream=stream))
    assert upstream.calls[0].sent == 400 and not upstream.calls[0].whole


def test_the_providers_log_has_the_billed_usage(upstream, client):
    upstream.script(Answer("x", prompt=10, completion=7, cached=4))
    ask(client)
    assert upstream.calls[0].usage["total_tokens"] == 17
    assert upstream.calls[0].body["messages"] == HELLO
