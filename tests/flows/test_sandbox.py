"""The sandbox provider through the whole gateway, with the official SDK: no key, no network."""

import json

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel
from support.gateways import LocalGateway
from support.shared import Share


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture
def bare(share: Share) -> LocalGateway:
    """A gateway without any provider's key."""
    return share.gateway({}, name="bare")


@pytest.fixture
def sandboxed(bare: LocalGateway) -> OpenAI:
    return OpenAI(base_url=bare.url, api_key=bare.key, max_retries=0)


def messages_of(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def test_the_first_request_of_a_newcomer_works(sandboxed: OpenAI) -> None:
    answer = sandboxed.chat.completions.create(model="auto", messages=messages_of("Hello!"))
    assert answer.choices[0].message.content == "Hello!"
    assert answer.metadata["used_provider"] == "sandbox"
    assert answer.usage.cost > 0


def test_streams_tools_and_structured_answers_work_offline(sandboxed: OpenAI) -> None:
    chunks = sandboxed.chat.completions.create(model="sandbox-template", messages=messages_of("A story"), stream=True)
    assert len("".join(c.choices[0].delta.content or "" for c in chunks)) > 40
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    called = sandboxed.chat.completions.create(model="sandbox-tools", messages=messages_of("add"), tools=[tool])
    assert called.choices[0].message.tool_calls[0].function.name == "add"
    parsed = sandboxed.chat.completions.parse(model="sandbox-json", messages=messages_of("x"), response_format=Person)
    assert isinstance(parsed.choices[0].message.parsed, Person)


FAULTS = [
    ("sandbox-fail-401", 502, "all_providers_failed"),
    ("sandbox-fail-429", 429, "upstream_rate_limited"),
    ("sandbox-fail-500", 502, "all_providers_failed"),
    ("sandbox-fail-503", 529, "overloaded"),
    ("sandbox-fail-timeout", 504, "timeout"),
    ("sandbox-fail-refused", 502, "all_providers_failed"),
    ("sandbox-empty", 502, "all_providers_failed"),
    ("sandbox-malformed", 502, "all_providers_failed"),
    ("sandbox-cut", 502, "all_providers_failed"),
]


@pytest.mark.parametrize(("model", "status", "code"), FAULTS)
def test_every_fault_is_a_clear_error_and_no_row_charges_it(
    sandboxed: OpenAI, bare: LocalGateway, model: str, status: int, code: str
) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        sandboxed.chat.completions.create(model=model, messages=messages_of("x"))
    assert (caught.value.status_code, caught.value.code) == (status, code)


def test_the_sandbox_never_cools_down(sandboxed: OpenAI, bare: LocalGateway) -> None:
    for _ in range(2):
        for model, _, code in FAULTS:
            with pytest.raises(openai.APIStatusError) as caught:
                sandboxed.chat.completions.create(model=model, messages=messages_of("x"))
            assert caught.value.code == code
    health = bare.services.routing.health
    assert not health.cooldowns.providers and not health.windows


@pytest.mark.parametrize("fault", ["cut=4", "close=4", "malformed=4", "error_event=4"])
def test_a_broken_stream_raises_in_the_sdk(sandboxed: OpenAI, fault: str) -> None:
    messages = messages_of(f"[[sandbox: tokens=30 {fault}]]")
    with pytest.raises(openai.APIError):
        list(sandboxed.chat.completions.create(model="sandbox-template", messages=messages, stream=True))


def test_an_error_about_the_callers_request_is_passed_through(sandboxed: OpenAI) -> None:
    messages = messages_of("[[sandbox: status=400 code=context_length_exceeded]]")
    with pytest.raises(openai.BadRequestError) as caught:
        sandboxed.chat.completions.create(model="sandbox-echo", messages=messages)
    assert json.loads(json.dumps(caught.value.body))["message"]


@pytest.mark.parametrize("model", ["sandbox-fail-refused", "sandbox-fail-503"])
def test_a_fault_of_the_sandbox_logs_no_traceback(
    sandboxed: OpenAI, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    with pytest.raises(openai.APIStatusError):
        sandboxed.chat.completions.create(model=model, messages=[{"role": "user", "content": "Hello"}])
    assert "Traceback" not in capsys.readouterr().err
