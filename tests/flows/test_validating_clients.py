"""The OpenAI SDK for Python, which warns when it serializes a complete answer with values of other types than its own,
and PydanticAI, which uses this SDK and refuses such answers."""

import httpx
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
def gateway(share: Share) -> Tenant:
    return share.gateway({})


@pytest.fixture
def sdk(gateway: Tenant) -> OpenAI:
    return OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("model", MODELS)
def test_complete_answers_have_the_types_of_the_python_sdk(sdk: OpenAI, model: str) -> None:
    answer = sdk.chat.completions.create(model=model, messages=HELLO)
    ChatCompletion.model_validate(answer.model_dump())
    assert getattr(answer.choices[0].message, MODELS[model]) and answer.llmgateway["requested_model"] == model
    assert answer.llmgateway["routing"] and answer.metadata["log_id"] == answer.llmgateway["log_id"]


@pytest.mark.filterwarnings("error")
def test_answers_that_the_python_sdk_parses_cause_no_warning(sdk: OpenAI) -> None:
    answer = sdk.chat.completions.parse(model="sandbox/sandbox-json", messages=HELLO, response_format=Reply)
    assert answer.choices[0].message.parsed.reply


def test_other_clients_get_the_routing_in_metadata(gateway: Tenant) -> None:
    headers = {"Authorization": f"Bearer {gateway.key}", "X-Stainless-Lang": "js"}
    body = {"model": "sandbox/sandbox-echo", "messages": HELLO}
    answer = httpx.post(f"{gateway.url}/chat/completions", json=body, headers=headers).json()
    assert answer["metadata"]["routing"] and "llmgateway" not in answer
