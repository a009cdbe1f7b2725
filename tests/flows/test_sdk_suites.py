"""The official SDKs as test suites use them: 200 cases one after the other on one gateway with one provider that fails
now and then. Each case sees the error class for its fault, and the next one works.

Further tests show how the SDKs' own retries, in default settings, handle such a fault.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pytest
from fakes import anthropic as fake_anthropic
from fakes import openai as fake_openai
from support.gateways import LocalGateway, local_gateway

from gateway.configuration.settings import Settings

CASES = 200
HELLO = [{"role": "user", "content": "Hello"}]
LONG = "A long answer that is cut somewhere."
LIMITS = {"Retry-After": "30"}
WAITS = {429: "30", 529: "1"}


@dataclass(frozen=True)
class Fault:
    """`answer` are the arguments of the scripted answer; what SDK class and status it must show as. `within`: it comes
    after the first words of a stream, so there is no status."""

    name: str
    answer: dict[str, Any]
    kind: str
    status: int
    within: bool = False


# A refused credential is the gateway's own, so it is no authentication error of the caller; garbage has no class.
FAULTS = [
    Fault("limit", {"status": 429, "headers": LIMITS}, "RateLimitError", 429),
    Fault("credential", {"status": 401}, "InternalServerError", 502),
    Fault("not there", {"status": 404}, "InternalServerError", 502),
    Fault("broken", {"status": 500}, "InternalServerError", 502),
    Fault("overload", {"status": 529}, "InternalServerError", 529),
    Fault("callers own", {"status": 400}, "BadRequestError", 400),
    Fault("cut", {"text": LONG, "cut": 60}, "InternalServerError", 502),
    Fault("garbage", {"raw": b"<html>Sign in</html>", "content_type": "text/html"}, "InternalServerError", 502),
    Fault("cut within", {"text": LONG, "piece": 2, "cut": 1500}, "APIError", 0, within=True),
]


def ask_openai(client: openai.OpenAI, stream: bool) -> str:
    answer = client.chat.completions.create(model="gpt-4o-mini", messages=HELLO, stream=stream)
    if not stream:
        return answer.choices[0].message.content
    return "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)


def ask_anthropic(client: anthropic.Anthropic, stream: bool) -> str:
    body = {"model": "claude-haiku-4-5", "max_tokens": 100, "messages": HELLO}
    if not stream:
        return client.messages.create(**body).content[0].text
    with client.messages.stream(**body) as events:
        return "".join(events.text_stream)


@dataclass
class Suite:
    """One gateway with one provider; `sdk` the module, `client(**options)` a client of it."""

    sdk: Any
    fake: Any
    answer: Callable[..., Any]
    gateway: LocalGateway
    client: Callable[..., Any]
    call: Callable[[Any, bool], str]


@pytest.fixture(params=["openai", "anthropic"])
def suite(request: pytest.FixtureRequest, settings: Callable[..., Settings]) -> Iterator[Suite]:
    official = request.param == "openai"
    module, stand_in = (openai, fake_openai) if official else (anthropic, fake_anthropic)
    with fake_openai.FakeOpenAI() if official else fake_anthropic.FakeAnthropic() as fake:
        name = request.param.upper()
        environment = {f"LLM_{name}_API_KEY": "sk-upstream", f"LLM_{name}_BASE_URL": fake.url}
        with local_gateway(settings, **environment) as gateway:
            base = gateway.url if official else gateway.address

            def client(**options: Any) -> Any:
                return (openai.OpenAI if official else anthropic.Anthropic)(
                    base_url=base, api_key=gateway.key, **options
                )

            yield Suite(module, fake, stand_in.Answer, gateway, client, ask_openai if official else ask_anthropic)


@pytest.mark.extended
def test_each_of_200_cases_sees_its_own_fault_and_the_next_one_works(suite: Suite) -> None:
    roll, unlucky = random.Random(23), 0
    # Without retries, so that the class of the very first answer shows.
    client = suite.client(max_retries=0)
    for number in range(CASES):
        stream = roll.random() < 0.5
        if number % 2:
            assert suite.call(client, stream) == "Hello."
            continue
        fault = FAULTS[number // 2 % len(FAULTS)]
        suite.fake.script(suite.answer(**fault.answer))
        with pytest.raises(suite.sdk.APIError) as caught:
            suite.call(client, stream or fault.within)
        error = caught.value
        assert isinstance(error, getattr(suite.sdk, fault.kind)), (fault.name, error)
        assert getattr(error, "status_code", 0) == fault.status or fault.within, (fault.name, error)
        if fault.status in WAITS:
            assert error.response.headers["retry-after"] == WAITS[fault.status]
        unlucky += 1
    assert len(suite.fake.calls) == CASES and unlucky == CASES // 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fault", [{"status": 429, "headers": {"Retry-After": "1"}}, {"status": 529}, {"status": 500}, {"status": 401}]
)
def test_the_sdks_own_retries_are_enough_for_one_fault(suite: Suite, fault: dict, stream: bool) -> None:
    client = suite.client()
    suite.fake.script(suite.answer(**fault))
    assert suite.call(client, stream) == "Hello."
    assert len(suite.fake.calls) == 2
