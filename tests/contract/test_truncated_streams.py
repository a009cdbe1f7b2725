"""Streams cut at any byte: clients always raise, never see a normal end, and every call has its row."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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

from gateway.store.partitions import id_at

FINE = 12  # bytes at both ends of the stream that are cut one by one
# Between cuts elsewhere; no divisor of a frame's length, so that every place in a frame is met. Each surface begins at
# another of them: a vendor's stream is cut every 37 bytes.
STEP = 149
PATIENCE_S = 5.0
# The last bytes of a stream, by vendor, without which it is whole all the same: the blank line behind its end.
# Google's ends with its connection alone: every byte counts.
SPARE = {"openai": 2, "responses": 2, "both": 2, "anthropic": 2, "google": 0, "bedrock": 0}
TOLD = Say("Good day to you.", tools=(("weather", '{"city": "Oslo"}'),))
TOOL: Any = {"name": "weather", "parameters": PLACE}
FUNCTION: Any = {"type": "function", "function": TOOL}


@dataclass(frozen=True)
class Callers:
    """The official clients, each of which is used for every cut, as a program does."""

    stage: ContractGateway
    openai: "openai.OpenAI"
    anthropic: "anthropic.Anthropic"


def chat(callers: Callers, model: str) -> None:
    chunks = callers.openai.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Hello"}], tools=[FUNCTION], stream=True
    )
    ends = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert ends == ["tool_calls"]


def messages(callers: Callers, model: str) -> None:
    tool: Any = {"name": "weather", "input_schema": PLACE}
    messages_sent: Any = [{"role": "user", "content": "Hello"}]
    with callers.anthropic.messages.stream(model=model, max_tokens=99, messages=messages_sent, tools=[tool]) as stream:
        assert stream.get_final_message().stop_reason == "tool_use"


def responses(callers: Callers, model: str) -> None:
    tool: Any = {"type": "function", "strict": False, **TOOL}
    with callers.openai.responses.stream(model=model, input="Hello", tools=[tool], store=False) as stream:
        assert stream.get_final_response().status == "completed"


class AiError(Exception):
    """A client of the AI SDK's protocol received an error."""


def ai(callers: Callers, model: str) -> None:
    """As a client of version 2, the strictest: every part is one that it knows, or it would wait for ever."""
    prompt = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    body = {"prompt": prompt, "tools": [{"type": "function", "name": "weather", "inputSchema": PLACE}]}
    status, raw = callers.stage.send("ai2", body | {"model": model, "stream": True})
    if status != 200:
        raise AiError(raw)
    folded = views.fold("ai2", raw)
    if "error" in folded:
        raise AiError(folded["error"])
    assert folded["finishReason"] == "tool-calls"


SURFACES: dict[str, Callable[[Callers, str], None]] = {
    "chat": chat,
    "messages": messages,
    "responses": responses,
    "ai": ai,
}


@pytest.fixture(scope="module")
def callers(stage: ContractGateway) -> Iterator[Callers]:
    key = stage.gateway.key
    with (
        openai.OpenAI(base_url=stage.gateway.url, api_key=key, max_retries=0) as chatting,
        httpx2.Client() as http,
        anthropic.Anthropic(base_url=stage.gateway.address, api_key=key, max_retries=0, http_client=http) as messaging,
    ):
        yield Callers(stage, chatting, messaging)


# All surfaces share the readers of the vendors' streams.
WALKED = [pytest.param(name, marks=() if name == "chat" else pytest.mark.extended) for name in SURFACES]


def length_of(callers: Callers, vendor: str, call_model: Callable[[Callers, str], None]) -> int:
    """Bytes of the whole stream, which is taken as whole."""
    callers.stage.script(vendor, TOLD)
    call_model(callers, f"fake-{vendor}/{vendor}-able")
    call = callers.stage.calls_of(vendor)[-1]
    if vendor == "bedrock":
        return sum(len(frame) for frame in bedrock._frames(VENDORS[vendor].script(TOLD), call.usage))
    return call.sent


def offsets(length: int, spare: int, begin: int) -> list[int]:
    """Where to cut: every byte near both ends, every STEP bytes between, from `begin` on."""
    last = length - spare
    return sorted({*range(min(FINE, last)), *range(FINE + begin, last, STEP), *range(max(0, last - FINE), last)})


def rows(stage: ContractGateway, since: bytes) -> int:
    """Requests since then that have a usage row."""
    database = stage.gateway.services.store.database
    sql = "SELECT COUNT(DISTINCT request) FROM usage WHERE request >= ?"
    return database.read(lambda: database.execute(sql, (since,)).fetchone())[0]


def wait_for_rows(stage: ContractGateway, since: bytes, expected: int) -> None:
    """A client that raised at once may be ahead of the last row by a moment."""
    until = time.monotonic() + PATIENCE_S
    while rows(stage, since) != expected and time.monotonic() < until:
        gevent.sleep(0.02)
    assert rows(stage, since) == expected


@pytest.mark.parametrize("vendor", list(VENDORS))
@pytest.mark.parametrize("surface", WALKED)
def test_a_stream_cut_at_any_byte_never_looks_whole(callers: Callers, surface: str, vendor: str) -> None:
    stage, call_model = callers.stage, SURFACES[surface]
    since = id_at(stage.gateway.services.clock.now_us())
    begin = list(SURFACES).index(surface) * STEP // len(SURFACES)
    cuts = offsets(length_of(callers, vendor, call_model), SPARE[vendor], begin)
    whole = []
    for cut in cuts:
        stage.script(vendor, *[Say(TOLD.text, TOLD.tools, cut=cut)] * 2)
        try:
            call_model(callers, f"fake-{vendor}/{vendor}-able")
        except (openai.OpenAIError, anthropic.AnthropicError, AiError):
            continue
        whole.append(cut)
    assert whole == []
    wait_for_rows(stage, since, 1 + len(cuts))
