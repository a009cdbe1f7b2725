"""Streams cut at any byte: clients always raise, never see a normal end, and every call has its row."""

import time
from collections.abc import Callable
from typing import Any

import anthropic
import gevent
import httpx2
import openai
import pytest
from contract import views
from contract.cases import PLACE
from contract.contract_gateway import ContractGateway
from contract.vendors import VENDORS, Say
from fakes import bedrock

FINE = 12  # bytes at both ends of the stream that are cut one by one
STEP = 73  # between cuts elsewhere; no divisor of a frame's length, so that every place in a frame is met
PATIENCE_S = 5.0
# The last bytes of a stream, by vendor, without which it is whole all the same: the blank line behind its end.
# Google's ends with its connection alone: every byte counts.
SPARE = {"openai": 2, "responses": 2, "both": 2, "anthropic": 2, "google": 0, "bedrock": 0}
TOLD = Say("Good day to you.", tools=(("weather", '{"city": "Oslo"}'),))
TOOL: Any = {"name": "weather", "parameters": PLACE}
FUNCTION: Any = {"type": "function", "function": TOOL}


def chat(stage: ContractGateway, model: str) -> None:
    client = openai.OpenAI(base_url=stage.gateway.url, api_key=stage.gateway.key, max_retries=0)
    chunks = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Hello"}], tools=[FUNCTION], stream=True
    )
    ends = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert ends == ["tool_calls"]


def messages(stage: ContractGateway, model: str) -> None:
    tool: Any = {"name": "weather", "input_schema": PLACE}
    with httpx2.Client(trust_env=False) as http:
        client = anthropic.Anthropic(
            base_url=stage.gateway.address, api_key=stage.gateway.key, max_retries=0, http_client=http
        )
        asked: Any = [{"role": "user", "content": "Hello"}]
        with client.messages.stream(model=model, max_tokens=99, messages=asked, tools=[tool]) as stream:
            assert stream.get_final_message().stop_reason == "tool_use"


def responses(stage: ContractGateway, model: str) -> None:
    client = openai.OpenAI(base_url=stage.gateway.url, api_key=stage.gateway.key, max_retries=0)
    tool: Any = {"type": "function", "strict": False, **TOOL}
    with client.responses.stream(model=model, input="Hello", tools=[tool], store=False) as stream:
        assert stream.get_final_response().status == "completed"


class AiError(Exception):
    """A client of the AI SDK's protocol was told of an error."""


def ai(stage: ContractGateway, model: str) -> None:
    """As a client of version 2, the strictest: every part is one that it knows, or it would wait for ever."""
    prompt = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    body = {"prompt": prompt, "tools": [{"type": "function", "name": "weather", "inputSchema": PLACE}]}
    status, raw = stage.ask("ai2", body | {"model": model, "stream": True})
    if status != 200:
        raise AiError(raw)
    told = views.fold("ai2", raw)
    if "error" in told:
        raise AiError(told["error"])
    assert told["finishReason"] == "tool-calls"


CALLERS: dict[str, Callable[[ContractGateway, str], None]] = {
    "chat": chat,
    "messages": messages,
    "responses": responses,
    "ai": ai,
}


def length_of(stage: ContractGateway, vendor: str, caller: Callable[[ContractGateway, str], None]) -> int:
    """Bytes of the whole stream, which is taken as whole."""
    stage.script(vendor, TOLD)
    caller(stage, f"fake-{vendor}/{vendor}-able")
    call = stage.heard(vendor)[-1]
    if vendor == "bedrock":
        return sum(len(frame) for frame in bedrock._frames(VENDORS[vendor].script(TOLD), call.usage))
    return call.sent


def offsets(length: int, spare: int) -> list[int]:
    """Where to cut: every byte near both ends, every STEP bytes between."""
    last = length - spare
    return sorted({*range(min(FINE, last)), *range(FINE, last, STEP), *range(max(0, last - FINE), last)})


def rows(stage: ContractGateway) -> int:
    """Requests that have a usage row."""
    database = stage.gateway.services.store.database
    sql = "SELECT COUNT(DISTINCT request) FROM usage"
    return database.read(lambda: database.execute(sql).fetchone())[0]


def wait_for_rows(stage: ContractGateway, expected: int) -> None:
    """A client that raised at once may be ahead of the last row by a moment."""
    until = time.monotonic() + PATIENCE_S
    while rows(stage) != expected and time.monotonic() < until:
        gevent.sleep(0.02)
    assert rows(stage) == expected


def settled_rows(stage: ContractGateway) -> int:
    """Rows once those of earlier requests are all there."""
    known = -1
    while known != (known := rows(stage)):
        gevent.sleep(0.2)
    return known


@pytest.mark.parametrize("vendor", list(VENDORS))
@pytest.mark.parametrize("surface", list(CALLERS))
def test_a_stream_cut_at_any_byte_never_looks_whole(stage: ContractGateway, surface: str, vendor: str) -> None:
    caller = CALLERS[surface]
    cuts = offsets(length_of(stage, vendor, caller), SPARE[vendor])
    before, whole = settled_rows(stage), []
    for cut in cuts:
        stage.script(vendor, *[Say(TOLD.text, TOLD.tools, cut=cut)] * 2)
        try:
            caller(stage, f"fake-{vendor}/{vendor}-able")
        except (openai.OpenAIError, anthropic.AnthropicError, AiError):
            continue
        whole.append(cut)
    assert whole == []
    wait_for_rows(stage, before + len(cuts))
