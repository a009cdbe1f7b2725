"""One estimate for one answer, whatever way it takes: relayed in its own format or translated, cut, left or killed."""

import http.client
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from fakes import anthropic, google, responses
from fakes.server import FakeServer
from support.gateways import GatewayProcess, LocalGateway
from support.shared import Share
from support.spending import query, until

Json = dict[str, Any]
WORD = "word"
TEXT = WORD * 1500  # 1,500 tokens, at four bytes each
PIECES = 400  # of the answer, each with one word: as much as a caller reads who leaves
TOLERANCE = 0.2
ROWS = "SELECT output, basis FROM usage WHERE basis = 2"  # estimated
VENDORS = {
    "anthropic": (anthropic.FakeAnthropic, "anthropic/claude-sonnet-4-5", "LLM_ANTHROPIC"),
    "google": (google.FakeGoogle, "google-ai-studio/gemini-2.5-flash-lite", "LLM_GOOGLE_AI_STUDIO"),
    "responses": (responses.FakeResponses, "openai/gpt-5.3-codex", "LLM_OPENAI"),
}


def answer_of(vendor: str, **more: Any) -> Any:
    """An answer of the vendor with the text, a word in each event."""
    if vendor == "responses":
        return responses.Answer(responses.said(TEXT), piece=len(WORD), **more)
    return {"anthropic": anthropic.Answer, "google": google.Answer}[vendor](TEXT, piece=len(WORD), **more)


def request_of(surface: str, model: str) -> tuple[str, Json]:
    """The path and the body of a streamed request."""
    said = [{"role": "user", "content": "Hello"}]
    if surface == "google":
        return f"/v1beta/models/{model}:streamGenerateContent?alt=sse", {
            "contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
            "generationConfig": {"maxOutputTokens": 4000},
        }
    if surface == "responses":
        return "/v1/responses", {"model": model, "input": "Hello", "max_output_tokens": 4000, "stream": True}
    path = {"anthropic": "/v1/messages", "chat": "/v1/chat/completions"}[surface]
    return path, {"model": model, "messages": said, "max_tokens": 4000, "stream": True}


def open_stream(gateway: LocalGateway | GatewayProcess, surface: str, model: str) -> http.client.HTTPResponse:
    path, body = request_of(surface, model)
    connection = http.client.HTTPConnection(gateway.address.removeprefix("http://"), timeout=60)
    headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    return answer


def read_words(answer: http.client.HTTPResponse, words: int) -> int:
    """Read at least so many words, or all that come; return their number."""
    read = b""
    while read.count(WORD.encode()) < words:
        try:
            piece = answer.read1(65536)
        except http.client.IncompleteRead:
            break
        if not piece:
            break
        read += piece
    return read.count(WORD.encode())


def environment_of(vendor: str, fake: FakeServer) -> dict[str, str]:
    name = VENDORS[vendor][2]
    known = {f"{name}_API_KEY": "sk-upstream", f"{name}_BASE_URL": fake.url}
    return known | {"GATEWAY_METERING_DRAIN_S": "0"}  # an answer that its caller leaves is not read on


def estimate_of(gateway: LocalGateway) -> int:
    """The output of the only answer with estimated usage."""
    database = gateway.services.store.database
    found: list[tuple[int, int]] = []

    def settled() -> bool:
        organization = bytes.fromhex(gateway.organization_id.removeprefix("org_"))
        found[:] = database.read(lambda: database.execute(f"{ROWS} AND organization = ?", (organization,)).fetchall())
        return bool(found)

    assert until(settled)
    [(output, _)] = found
    return output


def warm(gateway: LocalGateway | GatewayProcess, vendor: str) -> None:
    """Send a request, because the first one takes seconds, which an estimate takes for hidden reasoning."""
    open_stream(gateway, "chat", VENDORS[vendor][1]).read()


Start = Callable[[str], tuple[LocalGateway, Any]]


@pytest.fixture
def start(share: Share) -> Start:
    """A gateway with the strict fake of a vendor."""

    def begin(vendor: str) -> tuple[LocalGateway, Any]:
        fake = share.fake(VENDORS[vendor][0])
        gateway = share.gateway(environment_of(vendor, fake))
        warm(gateway, vendor)
        fake.calls.clear()
        return gateway, fake

    return begin


def is_close(output: int, tokens: int) -> bool:
    return abs(output - tokens) <= tokens * TOLERANCE


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("native", [True, False], ids=["native", "translated"])
def test_a_stream_that_is_cut_is_estimated_by_its_text(start: Start, vendor: str, native: bool) -> None:
    gateway, fake = start(vendor)
    fake.script(answer_of(vendor, cut=120_000))
    answer = open_stream(gateway, vendor if native else "chat", VENDORS[vendor][1])
    delivered = read_words(answer, len(TEXT))
    output = estimate_of(gateway)
    assert delivered > 100
    assert is_close(output, min(delivered, 1500)), (output, delivered)


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("native", [True, False], ids=["native", "translated"])
def test_a_stream_that_its_caller_leaves_is_estimated_by_its_text(start: Start, vendor: str, native: bool) -> None:
    gateway, fake = start(vendor)
    fake.script(answer_of(vendor, gap_s=0.02))
    answer = open_stream(gateway, vendor if native else "chat", VENDORS[vendor][1])
    read_words(answer, PIECES)
    answer.close()
    output = estimate_of(gateway)
    assert PIECES * (1 - TOLERANCE) <= output < 1500, output


@pytest.mark.extended
@pytest.mark.parametrize("native", [True, False], ids=["native", "translated"])
def test_a_stream_whose_worker_is_killed_is_estimated_by_its_text(
    process: Callable[..., GatewayProcess], native: bool
) -> None:
    with anthropic.FakeAnthropic() as fake:
        gateway = process(**environment_of("anthropic", fake))
        warm(gateway, "anthropic")
        fake.script(answer_of("anthropic", gap_s=0.005))
        answer = open_stream(gateway, "anthropic" if native else "chat", VENDORS["anthropic"][1])
        delivered = read_words(answer, 1000)
        time.sleep(0.05)
        gateway.kill()
        gateway.start()
    assert until(lambda: len(query(gateway, ROWS)) == 1)
    [(output, _)] = query(gateway, ROWS)
    assert is_close(output, delivered), (output, delivered)
