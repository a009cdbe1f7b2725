"""A prompt that is too long for the first model of a list goes to the next one, also where only the provider knows."""

from typing import Any

import pytest
from contract.contract_gateway import ContractGateway
from contract.vendors import Say
from fakes import anthropic, bedrock, cohere, google, openai, responses
from sessions.agents import AGENTS
from sessions.session import TOOLS, named

SURFACES = [agent.surface for agent in AGENTS.values() if not agent.name]
LIMIT = "This model's maximum context length is 8192 tokens."
CODED = {"error": {"message": LIMIT, "type": "invalid_request_error", "param": "messages", "code": "x"}}
EVENT = b"""event: error
data: {"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}

"""
IN_STREAM = b'data: {"error": {"message": "The input is too long.", "type": "invalid_request_error", "code": 400}}\n\n'
# How each vendor says that a prompt is too long, before the answer or as the first event of a stream.
REFUSALS: dict[str, Any] = {
    "openai": openai.Answer(status=400, error={"error": CODED["error"] | {"code": "context_length_exceeded"}}),
    "responses": responses.Answer(status=400, code="context_length_exceeded"),
    "anthropic": anthropic.Answer(status=400),
    "google": google.Answer(
        status=400,
        error={
            "error": {
                "code": 400,
                "status": "INVALID_ARGUMENT",
                "message": "The input token count (9) exceeds the maximum number of tokens allowed (8).",
            }
        },
    ),
    "bedrock": bedrock.Answer(
        status=400, error="ValidationException", message="Input is too long for requested model."
    ),
    "cohere": cohere.Answer(
        status=400, message="too many tokens: total number of tokens in the prompt cannot exceed 8"
    ),
}
LATE: dict[str, Any] = {
    "openai": openai.Answer(raw=IN_STREAM, content_type="text/event-stream"),
    "responses": responses.Answer(failed="context_length_exceeded"),
    "anthropic": anthropic.Answer(raw=EVENT, content_type="text/event-stream"),
}


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("stream", [False, True])
def test_the_next_model_answers_where_a_provider_finds_the_prompt_too_long(
    stage: ContractGateway, surface: str, stream: bool
) -> None:
    for vendor, refusal in REFUSALS.items():
        assert_next_answers(stage, surface, stream, vendor, refusal)


@pytest.mark.parametrize("surface", SURFACES)
def test_the_next_model_answers_where_an_answer_is_that_error(stage: ContractGateway, surface: str) -> None:
    for vendor, refusal in LATE.items():
        assert_next_answers(stage, surface, True, vendor, refusal)
    assert_next_answers(stage, surface, False, "responses", LATE["responses"])  # an answer that failed, in one piece


def assert_next_answers(stage: ContractGateway, surface: str, stream: bool, vendor: str, refusal: Any) -> None:
    other = "google" if vendor == "anthropic" else "anthropic"
    stage.script(vendor)
    stage.fakes[vendor].script(refusal)
    stage.script(other, Say("It rains."))
    agent = AGENTS[surface]("text", TOOLS)
    body = {**agent.body, "model": named(vendor), **({"stream": True} if stream else {})}
    headers = {"x-llmgateway-models": named(other)}
    status, raw = stage.send(surface, body, described=False, **headers)
    assert status == 200, f"{vendor}: {raw!r}"
    assert "It rains." in str(agent.fold(raw)), f"{vendor}: {raw!r}"
    assert [len(stage.calls_of(each)) for each in (vendor, other)] == [1, 1]
