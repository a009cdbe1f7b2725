"""Cohere's own format through the whole gateway, from two surfaces."""

import anthropic
import httpx2
import pytest
from fakes.cohere import KEY, Answer, FakeCohere
from openai import OpenAI
from support.gateways import LocalGateway
from support.shared import Share

from gateway.metering.usage_table import find

MODEL = "cohere/command-a-reasoning-08-2025"
HELLO = [{"role": "user", "content": "Hello"}]
ANSWER = Answer("It is 42.", thinking="Hm.", cited=((6, 8, {"id": "d1", "title": "Facts"}),))


@pytest.fixture
def service(share: Share) -> FakeCohere:
    return share.fake(FakeCohere)


@pytest.fixture
def gateway(share: Share, service: FakeCohere) -> LocalGateway:
    return share.gateway({"LLM_COHERE_API_KEY": KEY, "LLM_COHERE_BASE_URL": service.url})


@pytest.mark.parametrize("streamed", [False, True])
def test_citations_reach_a_messages_client_as_search_results(
    gateway: LocalGateway, service: FakeCohere, streamed: bool
) -> None:
    service.script(ANSWER)
    thinking = {"type": "enabled", "budget_tokens": 1024}
    body = {"model": MODEL, "max_tokens": 2000, "messages": HELLO, "thinking": thinking}
    with httpx2.Client() as http:
        claude = anthropic.Anthropic(base_url=gateway.address, api_key=gateway.key, max_retries=0, http_client=http)
        if streamed:
            with claude.messages.stream(**body) as stream:
                answer = stream.get_final_message()
        else:
            answer = claude.messages.create(**body)
    thought, text = answer.content
    assert (thought.thinking, text.text) == ("Hm.", "It is 42.")
    assert (text.citations[0].type, text.citations[0].title) == ("search_result_location", "Facts")


def test_calls_and_usage_reach_a_chat_client(gateway: LocalGateway, service: FakeCohere) -> None:
    service.script(Answer(plan="I will look.", tools=(("look", '{"x": 1}'),)))
    openai = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    answer = openai.chat.completions.create(model=MODEL, messages=HELLO, tools=[tool])
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.tool_calls[0].function.arguments) == ("tool_calls", '{"x": 1}')
    (row,) = find(gateway.services.store.database, answer.metadata["log_id"])
    assert (row.input, row.cache_read, row.output) == (7, 4, 7)
