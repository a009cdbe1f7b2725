"""Clients that validate complete answers by the types of the OpenAI SDK, as PydanticAI does."""

from openai import OpenAI
from openai.types.chat import ChatCompletion
from support.shared import Share, Tenant

MODELS = {"sandbox/sandbox-echo": "content", "sandbox/sandbox-image": "images"}
HELLO = [{"role": "user", "content": "Hello"}]


def test_the_types_of_the_sdk_accept_every_answer_that_pydantic_ai_gets(share: Share) -> None:
    gateway: Tenant = share.gateway({})
    agent = {"User-Agent": "pydantic-ai/2.32.2"}
    for model, member in MODELS.items():
        asked = OpenAI(base_url=gateway.url, api_key=gateway.key, default_headers=agent, max_retries=0)
        answer = asked.chat.completions.create(model=model, messages=HELLO)
        ChatCompletion.model_validate(answer.to_dict())
        assert getattr(answer.choices[0].message, member) and answer.llmgateway["requested_model"] == model


def test_other_clients_get_the_routing_in_metadata(share: Share) -> None:
    gateway: Tenant = share.gateway({})
    answer = OpenAI(base_url=gateway.url, api_key=gateway.key).chat.completions.create(
        model="sandbox/sandbox-echo", messages=HELLO
    )
    assert answer.metadata["routing"] and not hasattr(answer, "llmgateway")
