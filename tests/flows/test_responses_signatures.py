"""Signatures of other vendors return to them byte for byte through the Responses surface, which does not know them."""

import pytest
from fakes import anthropic, google
from fakes.anthropic_checks import sign
from openai import OpenAI
from openai.types.responses import Response
from support.gateways import LocalGateway
from support.shared import Share

TOOL = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
ENCRYPTED = ["reasoning.encrypted_content"]
CLAUDE, GEMINI = "anthropic/claude-sonnet-4-5", "google-ai-studio/gemini-3-flash-preview"


@pytest.fixture
def claude(share: Share) -> anthropic.FakeAnthropic:
    return share.fake(anthropic.FakeAnthropic)


@pytest.fixture
def gemini(share: Share) -> google.FakeGoogle:
    return share.fake(google.FakeGoogle)


@pytest.fixture
def gateway(share: Share, claude: anthropic.FakeAnthropic, gemini: google.FakeGoogle) -> LocalGateway:
    environment = {
        "LLM_ANTHROPIC_API_KEY": "sk-ant-up",
        "LLM_ANTHROPIC_BASE_URL": claude.url,
        "LLM_GOOGLE_AI_STUDIO_API_KEY": "AIza-up",
        "LLM_GOOGLE_AI_STUDIO_BASE_URL": gemini.url,
    }
    return share.gateway(environment)


@pytest.fixture
def sdk(gateway: LocalGateway) -> OpenAI:
    return OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)


def create_response(sdk: OpenAI, streamed: bool, **fields) -> Response:
    fields = {"tools": [TOOL], "reasoning": {"effort": "low"}} | fields
    if not streamed:
        return sdk.responses.create(**fields)
    with sdk.responses.stream(**fields) as stream:
        return stream.until_done().get_final_response()


def go_on(sdk: OpenAI, model: str, streamed: bool, stored: bool) -> Response:
    """Two turns: a tool call, then its output; by the stored response, or by items sent back."""
    first = create_response(sdk, streamed, model=model, input="Go", store=stored, include=[] if stored else ENCRYPTED)
    call = next(item for item in first.output if item.type == "function_call")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    if stored:
        assert all(not getattr(item, "encrypted_content", None) for item in first.output)
        return create_response(sdk, streamed, model=model, input=[output], previous_response_id=first.id)
    sent_back = [item.to_dict(exclude_unset=True) for item in first.output]
    items = [{"role": "user", "content": "Go"}, *sent_back, output]
    return create_response(sdk, streamed, model=model, input=items, store=False)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_signed_thinking_comes_back_in_a_tool_loop(
    sdk: OpenAI, claude: anthropic.FakeAnthropic, streamed: bool, stored: bool
) -> None:
    tools = (("weather", '{"city": "Oslo"}'),)
    claude.script(anthropic.Answer(thinking="I müst look.", redacted="gAAA==", tools=tools), anthropic.Answer("Rain."))
    assert go_on(sdk, CLAUDE, streamed, stored).output_text == "Rain."
    back = claude.calls[1].body["messages"][1]["content"]
    assert back[0] == {"type": "thinking", "thinking": "I müst look.", "signature": sign("I müst look.")}
    assert back[1] == {"type": "redacted_thinking", "data": "gAAA=="}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_a_signed_call_comes_back_with_its_signature(
    sdk: OpenAI, gemini: google.FakeGoogle, streamed: bool, stored: bool
) -> None:
    tools = (("weather", {"city": "Oslo"}),)
    gemini.script(google.Answer(thoughts="Hm.", tools=tools), google.Answer("Rain."))
    assert go_on(sdk, GEMINI, streamed, stored).output_text == "Rain."
    assert "thoughtSignature" in str(gemini.calls[1].body["contents"][1])


def test_a_conversation_changes_vendors_in_mid_course(
    sdk: OpenAI, claude: anthropic.FakeAnthropic, gemini: google.FakeGoogle
) -> None:
    claude.script(anthropic.Answer(thinking="I must look.", tools=(("weather", '{"city": "Oslo"}'),)))
    first = create_response(sdk, True, model=CLAUDE, input="Go")
    output = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "rain"}
    gemini.script(google.Answer("Rain."))
    second = create_response(sdk, True, model=GEMINI, input=[output], previous_response_id=first.id)
    assert second.output_text == "Rain."
    assert (
        create_response(sdk, False, model=CLAUDE, input="Thanks", previous_response_id=second.id).output_text
        == "Hello."
    )
