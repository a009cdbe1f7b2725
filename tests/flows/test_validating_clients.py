"""Clients that compare complete answers with the types of the OpenAI SDK for Python: PydanticAI, which refuses other
values, and the SDK itself, which warns when it serializes them."""

import warnings

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


def test_answers_of_the_sdk_are_serialized_without_a_warning(sdk: OpenAI) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in MODELS:
            answer = sdk.chat.completions.create(model=model, messages=HELLO)
            assert (
                answer.llmgateway["routing"] and answer.model_dump()["metadata"]["log_id"] == answer.metadata["log_id"]
            )
        parsed = sdk.chat.completions.parse(model="sandbox/sandbox-json", messages=HELLO, response_format=Reply)
        assert parsed.choices[0].message.parsed.reply and parsed.llmgateway["routing"]
        for chunk in sdk.chat.completions.create(model="sandbox/sandbox-echo", messages=HELLO, stream=True):
            chunk.model_dump()
        assert chunk.metadata["routing"]


def test_other_clients_get_the_routing_in_metadata(sdk: OpenAI) -> None:
    for language in ("js", ""):
        headers = {"X-Stainless-Lang": language}
        answer = sdk.chat.completions.create(model="sandbox/sandbox-echo", messages=HELLO, extra_headers=headers)
        assert answer.metadata["routing"] and not hasattr(answer, "llmgateway")
