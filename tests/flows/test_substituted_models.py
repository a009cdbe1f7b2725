"""Claude Code with only an address and a token, on a gateway without a key of Anthropic."""

from __future__ import annotations

import anthropic
import pytest
from fakes.openai import FakeOpenAI
from support.gateways import LocalGateway

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def sdk(gateway: LocalGateway) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=gateway.address, auth_token=gateway.key, max_retries=0)


@pytest.mark.parametrize("model", ["claude-haiku-4-5", "claude-opus-99"])
def test_a_claude_model_without_a_key_is_served_by_the_default_model(
    sdk: anthropic.Anthropic, upstream: FakeOpenAI, model: str
) -> None:
    answer = sdk.messages.with_raw_response.create(model=model, max_tokens=50, messages=HELLO)
    assert upstream.calls[0].body["model"] == "gpt-5.4"
    assert answer.headers["x-llmgateway-model"] == "openai/gpt-5.4"
    assert f"The model {model} was skipped" in answer.headers["x-llmgateway-warnings"]


def test_a_stream_is_served_by_it_too(sdk: anthropic.Anthropic, upstream: FakeOpenAI) -> None:
    with sdk.messages.stream(model="claude-sonnet-99", max_tokens=50, messages=HELLO) as stream:
        assert stream.get_final_text() == "Hello." and stream.response.headers["x-llmgateway-model"] == "openai/gpt-5.4"


def test_other_names_and_pinned_providers_are_not_replaced(sdk: anthropic.Anthropic, upstream: FakeOpenAI) -> None:
    for model in ("gpt-none", "anthropic/claude-haiku-4-5"):
        with pytest.raises(anthropic.APIStatusError):
            sdk.messages.create(model=model, max_tokens=50, messages=HELLO)
    with pytest.raises(anthropic.APIStatusError):
        headers = {"X-No-Fallback": "true"}
        sdk.messages.create(model="claude-haiku-4-5", max_tokens=50, messages=HELLO, extra_headers=headers)
    assert not upstream.calls
