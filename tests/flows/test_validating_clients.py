"""Clients that compare answers with types: PydanticAI, which refuses other values than those of the OpenAI SDK for
Python, the SDK itself, which warns when it serializes them, and the SDK of Mistral."""

import warnings

import mistralai.client
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion
from pydantic import BaseModel
from support.shared import Share, Tenant

MODELS = {"sandbox/sandbox-echo": "content", "sandbox/sandbox-image": "images"}
HELLO = [{"role": "user", "content": "Hello"}]


class Reply(BaseModel):
    reply: str


@pytest.fixture
def sdk(share: Share) -> OpenAI:
    gateway: Tenant = share.gateway({})
    return OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)


@pytest.mark.parametrize("agent", ("pydantic-ai/2.32.2", "OpenAI/Python 3.3.0"))
def test_the_types_of_the_sdk_accept_answers_of_frameworks(sdk: OpenAI, agent: str) -> None:
    for model, member in MODELS.items():
        raw = sdk.chat.completions.with_raw_response.create(
            model=model, messages=HELLO, extra_headers={"User-Agent": agent}
        )
        answer = raw.parse()
        ChatCompletion.model_validate(answer.to_dict())
        assert getattr(answer.choices[0].message, member) and answer.llmgateway["requested_model"] == model
        assert answer.llmgateway["routing"] and answer.metadata["log_id"] == answer.llmgateway["log_id"]


def test_answers_that_the_sdk_parses_cause_no_warning(sdk: OpenAI) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = sdk.chat.completions.parse(model="sandbox/sandbox-json", messages=HELLO, response_format=Reply)
    assert answer.choices[0].message.parsed.reply and answer.llmgateway["routing"]


def test_other_clients_get_the_routing_in_metadata(sdk: OpenAI) -> None:
    headers = {"X-Stainless-Lang": "js", "X-Stainless-Helper-Method": "chat.completions.parse"}
    for more in ({}, headers):
        answer = sdk.chat.completions.create(model="sandbox/sandbox-echo", messages=HELLO, extra_headers=more)
        assert answer.metadata["routing"] and not hasattr(answer, "llmgateway")


def test_the_sdk_of_mistral_reads_models_and_streamed_calls(share: Share) -> None:
    gateway: Tenant = share.gateway({})
    client = mistralai.client.Mistral(api_key=gateway.key, server_url=gateway.address)
    assert {type(card).__name__ for card in client.models.list().data} == {"BaseModelCard"}
    assert client.models.retrieve(model_id="sandbox-echo").capabilities.completion_chat
    look = {"name": "look", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    tools = [{"type": "function", "function": look}]
    events = client.chat.stream(model="sandbox/sandbox-tools", messages=HELLO, tools=tools)
    calls = [call for event in events for call in event.data.choices[0].delta.tool_calls or ()]
    assert [(call.function.name, "city" in call.function.arguments) for call in calls] == [("look", True)]
