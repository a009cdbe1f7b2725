"""`n` at providers that give one answer a call: several calls, one request, one bill."""

from collections import defaultdict

import openai
import pytest
from fakes.anthropic import Answer, FakeAnthropic
from openai import OpenAI
from support.gateways import LocalGateway
from support.media import sdk_of
from support.shared import Share, usage_of

MODEL = "anthropic/claude-sonnet-4-5"
INPUT, OUTPUT = 3_000, 15_000  # nano-dollars a token
TALK = [{"role": "user", "content": "Name a colour."}]
COLOURS = ("Red it is.", "Blue it is.", "Green it is.")


@pytest.fixture
def vendor(share: Share) -> FakeAnthropic:
    return share.fake(FakeAnthropic)


@pytest.fixture
def gateway(share: Share, vendor: FakeAnthropic) -> LocalGateway:
    return share.gateway({"LLM_ANTHROPIC_API_KEY": "sk-ant", "LLM_ANTHROPIC_BASE_URL": vendor.url})


@pytest.fixture
def client(gateway: LocalGateway) -> OpenAI:
    return sdk_of(gateway)


def test_several_answers_come_in_their_order_and_are_billed_as_made(
    gateway: LocalGateway, client: OpenAI, vendor: FakeAnthropic
) -> None:
    vendor.script(*(Answer(text, input=100, output=10) for text in COLOURS))
    answer = client.chat.completions.create(model=MODEL, messages=TALK, n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert {choice.message.content for choice in answer.choices} == set(COLOURS)
    assert [choice.finish_reason for choice in answer.choices] == ["stop"] * 3
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (300, 30)
    (row,) = usage_of(gateway)
    assert row.cost_nusd == 300 * INPUT + 30 * OUTPUT
    assert row.details["units"] == {"calls": 3}
    assert len(vendor.calls) == 3


def test_streamed_answers_interleave_by_their_index(
    gateway: LocalGateway, client: OpenAI, vendor: FakeAnthropic
) -> None:
    vendor.script(*(Answer(text, input=100, output=10, piece=3) for text in COLOURS))
    texts: dict[int, str] = defaultdict(str)
    reasons: dict[int, str] = {}
    usage = None
    for chunk in client.chat.completions.create(model=MODEL, messages=TALK, n=3, stream=True):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                reasons[choice.index] = choice.finish_reason
    assert set(texts.values()) == set(COLOURS) and sorted(texts) == [0, 1, 2]
    assert reasons == {0: "stop", 1: "stop", 2: "stop"}
    assert (usage.prompt_tokens, usage.completion_tokens) == (300, 30)
    (row,) = usage_of(gateway)
    assert row.cost_nusd == 300 * INPUT + 30 * OUTPUT and len(vendor.calls) == 3


@pytest.mark.parametrize("stream", [False, True])
def test_one_answer_that_fails_is_a_failure_of_all_and_the_others_are_paid(
    gateway: LocalGateway, client: OpenAI, vendor: FakeAnthropic, stream: bool
) -> None:
    vendor.script(Answer("Red.", input=100, output=10), Answer(status=500))
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(model=MODEL, messages=TALK, n=2, stream=True)) if stream else (
            client.chat.completions.create(model=MODEL, messages=TALK, n=2)
        )
    (row,) = usage_of(gateway)
    assert 0 <= row.cost_nusd <= 100 * INPUT + 10 * OUTPUT


def test_more_answers_than_calls_are_made_for_are_refused(client: OpenAI, vendor: FakeAnthropic) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=TALK, n=129)
    assert caught.value.param == "n" and "<= 128" in caught.value.message and vendor.calls == []


def test_one_answer_is_one_call(client: OpenAI, vendor: FakeAnthropic) -> None:
    client.chat.completions.create(model=MODEL, messages=TALK, n=1)
    assert len(vendor.calls) == 1
