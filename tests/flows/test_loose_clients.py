"""Older clients and loose ones, through the whole gateway."""

import warnings
from typing import Any

import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import OpenAI
from support.gateways import LocalGateway

MODEL = "openai/gpt-4o-mini"
SPEC = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
TALK = [{"role": "user", "content": "2 + 3?"}]
warnings.filterwarnings("ignore", category=DeprecationWarning)


def test_a_client_of_the_older_form_calls_and_goes_on(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer(tools=(("add", '{"a":2}'),)), Answer("5"))
    first = client.chat.completions.create(model=MODEL, messages=TALK, functions=[SPEC], function_call="auto")
    choice = first.choices[0]
    assert choice.finish_reason == "function_call" and choice.message.tool_calls is None
    assert (choice.message.function_call.name, choice.message.function_call.arguments) == ("add", '{"a":2}')
    turns = [*TALK, choice.message.model_dump(), {"role": "function", "name": "add", "content": "5"}]
    second = client.chat.completions.create(model=MODEL, messages=turns, functions=[SPEC])
    assert second.choices[0].message.content == "5"
    sent = upstream.calls[-1].body
    assert sent["messages"][1]["tool_calls"][0]["id"] == sent["messages"][2]["tool_call_id"]
    assert "functions" not in sent and sent["tools"][0]["function"]["name"] == "add"


def test_a_stream_of_the_older_form(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer(tools=(("add", '{"a":2222222222222222222222}'),)))
    name = arguments = reason = ""
    for chunk in client.chat.completions.create(model=MODEL, messages=TALK, functions=[SPEC], stream=True):
        for choice in chunk.choices:
            call = choice.delta.function_call
            if call is not None:
                name, arguments = name + (call.name or ""), arguments + (call.arguments or "")
            assert choice.delta.tool_calls is None
            reason = choice.finish_reason or reason
    assert (name, arguments, reason) == ("add", '{"a":2222222222222222222222}', "function_call")


def test_loose_bodies_reach_the_provider_in_their_exact_form(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    image = {"type": "image_url", "image_url": "https://example.com/a.png"}
    body = {
        "model": MODEL,
        "max_tokens": 100.0,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "?"}, image]}],
        "tools": [{"type": "function", "name": "add", "parameters": None}],
        "tool_choice": {"type": "auto"},
    }
    http = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)._client
    answer = http.post(f"{gateway.url}/chat/completions", json=body, headers={"Authorization": f"Bearer {gateway.key}"})
    assert answer.status_code == 200
    sent = upstream.calls[-1].body
    assert sent["messages"][0]["content"][1]["image_url"] == {"url": "https://example.com/a.png"}
    assert sent["tools"] == [{"type": "function", "function": {"name": "add"}}]
    assert (sent["tool_choice"], sent["max_completion_tokens"]) == ("auto", 100)


@pytest.mark.parametrize("name", ["schema", "value"])
def test_a_schema_of_json_objects_is_a_schema_of_the_answer(client: OpenAI, upstream: FakeOpenAI, name: str) -> None:
    """Clients of Together AI, Fireworks and llama.cpp name it `schema`, `huggingface_hub` `value`."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    shape: dict[str, Any] = {"type": "json_object", name: schema}
    client.chat.completions.create(model=MODEL, messages=TALK, response_format=shape)
    sent = upstream.calls[-1].body["response_format"]
    assert (sent["type"], sent["json_schema"]["schema"]) == ("json_schema", schema)
    client.chat.completions.create(model=MODEL, messages=TALK, response_format=shape | {name: None})
    assert upstream.calls[-1].body["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize("inner", [True, False])
def test_a_schema_without_a_name_gets_one(client: OpenAI, upstream: FakeOpenAI, inner: bool) -> None:
    """Perplexity's clients send `json_schema: {schema}`, those of Together AI and llama.cpp `schema` alone."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    shape: Any = {"type": "json_schema"} | ({"json_schema": {"schema": schema}} if inner else {"schema": schema})
    client.chat.completions.create(model=MODEL, messages=TALK, response_format=shape)
    sent = upstream.calls[-1].body["response_format"]
    assert sent == {"type": "json_schema", "json_schema": {"name": "response", "schema": schema}}


@pytest.mark.parametrize(("asked", "sent"), [("on_demand", "default"), ("performance", "priority")])
def test_service_tiers_of_another_vendor_are_known(client: OpenAI, upstream: FakeOpenAI, asked: str, sent: str) -> None:
    client.chat.completions.create(model=MODEL, messages=TALK, extra_body={"service_tier": asked})
    assert upstream.calls[-1].body["service_tier"] == sent


def test_auto_is_read_in_any_case(client: OpenAI) -> None:
    for name in ("AUTO", "Auto"):
        assert client.chat.completions.create(model=name, messages=TALK).choices[0].message.content


def test_whole_numbers_may_have_a_fraction_of_zero_in_every_dialect(
    gateway: LocalGateway, upstream: FakeOpenAI
) -> None:
    http = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)._client
    bodies = {
        "messages": {"model": MODEL, "messages": TALK, "max_tokens": 100.0},
        "responses": {"model": MODEL, "input": "Hi", "max_output_tokens": 100.0},
    }
    for path, body in bodies.items():
        answer = http.post(f"{gateway.url}/{path}", json=body, headers={"x-api-key": gateway.key})
        assert answer.status_code == 200, answer.text
        assert upstream.calls[-1].body["max_completion_tokens"] == 100


def test_allowed_tools_shorten_the_list_and_are_never_sent(client: OpenAI, upstream: FakeOpenAI) -> None:
    tools = [{"type": "function", "function": {**SPEC, "name": name}} for name in ("add", "sub")]
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "sub"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    upstream.script(Answer(tools=(("sub", "{}"),)))
    client.chat.completions.create(model=MODEL, messages=TALK, tools=tools, tool_choice=choice)
    sent = upstream.calls[-1].body
    assert sent["tool_choice"] == "required" and [tool["function"]["name"] for tool in sent["tools"]] == ["sub"]


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ("REQUIRED", "required"),
        ({"type": "function", "function": {"name": "add"}}, {"type": "function", "function": {"name": "add"}}),
        ({"type": "tool", "name": "add"}, {"type": "function", "function": {"name": "add"}}),
    ],
)
@pytest.mark.parametrize("nested", [{"type": "function", "function": SPEC}, SPEC, {"function": SPEC}])
def test_responses_bodies_in_words_of_chat_mean_the_same(
    gateway: LocalGateway, upstream: FakeOpenAI, choice: Any, meant: Any, nested: dict
) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}
    body = {
        "model": MODEL,
        "input": [{"role": "User", "content": [{"type": "text", "text": "?"}, image, "!"]}],
        "tools": [nested],
        "tool_choice": choice,
    }
    http = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)._client
    answer = http.post(f"{gateway.url}/responses", json=body, headers={"Authorization": f"Bearer {gateway.key}"})
    assert answer.status_code == 200, answer.text
    sent = upstream.calls[-1].body
    assert sent["messages"][0]["content"][1]["image_url"] == {"url": "https://example.com/a.png", "detail": "low"}
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["add"]
    assert sent["tool_choice"] == meant


def test_values_without_a_known_spelling_are_refused_with_their_path(
    gateway: LocalGateway, upstream: FakeOpenAI
) -> None:
    http = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)._client
    for more, param in (
        ({"tools": [{"type": "function"}]}, "tools.0.name"),
        ({"tool_choice": {"type": 5}}, "tool_choice.type"),
        ({"input": [{"role": "nobody", "content": "x"}]}, "input.0.role"),
    ):
        body = {"model": MODEL, "input": "Hi", **more}
        answer = http.post(f"{gateway.url}/responses", json=body, headers={"x-api-key": gateway.key})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    assert not upstream.calls
