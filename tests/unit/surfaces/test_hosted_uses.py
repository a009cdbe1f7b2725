"""The uses beside the model that the readers of bodies find, and their reservations."""

from base64 import b64encode
from typing import Any

import orjson
import pytest

from gateway.billing.bounds import compute_bound
from gateway.catalogue.entries import Mapping, Prices, TokenRates
from gateway.errors import InvalidRequest
from gateway.media.token_counting import counted
from gateway.neutral.chat import ChatRequest
from gateway.providers.sandbox.speech import make
from gateway.surfaces.anthropic import reader as anthropic_reader
from gateway.surfaces.anthropic import schema as anthropic_schema
from gateway.surfaces.google import reader as google_reader
from gateway.surfaces.google import schema as google_schema

CONTEXT = 200_000
MAPPING = Mapping(
    "p", "m", "x", prices=(Prices(TokenRates(prompt=10**9, completion=0)),), context_length=CONTEXT, max_output=100
)
TOKEN = 1_000  # nano-dollars


def claude(**more: Any) -> ChatRequest:
    body = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Hello"}], **more}
    return anthropic_reader.read_messages(anthropic_schema.decode(orjson.dumps(body)))


def gemini(**more: Any) -> ChatRequest:
    wire = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}], **more}
    return google_reader.read_generation("m", google_schema.decode(orjson.dumps(wire))[0], wire, stream=False)


def reserved_for(request: ChatRequest) -> int:
    return compute_bound(request, (MAPPING,), 100, 0).bound_nusd


def test_the_servers_of_mcp_reserve_a_context() -> None:
    """Eight calls at once spent $3.60 on a limit of $0.01."""
    servers = [{"type": "url", "name": "one", "url": "https://mcp.example"}]
    assert reserved_for(claude()) < 1_000 * TOKEN
    assert reserved_for(claude(mcp_servers=servers)) >= CONTEXT * TOKEN


@pytest.mark.parametrize("seconds", [600, 2400])
def test_media_of_instructions_are_counted_by_their_content(seconds: int) -> None:
    """They counted as one image: a key of $0.10 spent $4.50."""
    sound = b64encode(make("wav", float(seconds))).decode()
    part = {"inlineData": {"mimeType": "audio/wav", "data": sound}}
    request = counted(gemini(systemInstruction={"parts": [{"text": "Be brief."}, part]}))
    assert request.requirements.media_tokens >= 10 * seconds
    assert reserved_for(request) >= min(CONTEXT, 10 * seconds) * TOKEN


def test_a_plain_request_uses_nothing_beside_its_model() -> None:
    tools = [{"name": "one", "input_schema": {"type": "object"}}, {"type": "bash_20250124", "name": "bash"}]
    assert claude(tools=tools).requirements.hosted_uses == ()
    assert gemini(tools=[{"functionDeclarations": [{"name": "one"}]}]).requirements.hosted_uses == ()


def test_a_failed_search_of_an_earlier_turn_is_no_tool() -> None:
    """Its row said that a part had no price."""
    failed = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    block = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": failed}
    said = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [block]}]}]
    assert claude(messages=said).requirements.hosted_uses == ()


def test_the_uses_of_a_request_are_bounded() -> None:
    """Each candidate checks each of them."""
    same = [{"type": "web_search_20250305", "name": "web_search"}] * 5_000
    assert len(claude(tools=same).requirements.hosted_uses) == 1
    with pytest.raises(InvalidRequest, match="at most 256"):
        claude(tools=[{"type": f"tool_{number}", "name": "one"} for number in range(300)])
