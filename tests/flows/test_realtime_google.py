"""Realtime sessions with Google's live models: OpenAI's SDK as caller, a strict fake of the Live API, exact books."""

import base64
import contextlib
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import websockets
from fakes.google_live import PATH, SOUND, USAGE_NUSD, FakeLive, Turn
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter
from support.gateways import LocalGateway
from support.shared import Share, usage_of

MODEL = "gemini-3.8-live"
EVENTS = TypeAdapter(RealtimeServerEvent)
SECOND = base64.b64encode(bytes(48_000)).decode()
LOOK = {
    "type": "function",
    "name": "look",
    "description": "Looks around.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
}


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeLive]:
    with FakeLive() as fake:
        yield fake


@pytest.fixture
def fake(provider: FakeLive) -> Iterator[FakeLive]:
    provider.reset()
    yield provider
    assert provider.problems == []


@pytest.fixture
def gateway(share: Share, fake: FakeLive) -> LocalGateway:
    return share.gateway({"LLM_GOOGLE_AI_STUDIO_API_KEY": "AIza-upstream", "LLM_GOOGLE_AI_STUDIO_BASE_URL": fake.url})


class Caller:
    """A session by the official SDK, each of whose events is one that the SDK knows."""

    def __init__(self, connection: Any) -> None:
        self.session = connection

    def next(self) -> Any:
        event = self.session.recv()
        return EVENTS.validate_python(event.model_dump(exclude_unset=True))

    def until(self, kind: str) -> list[Any]:
        """The events up to the first of a kind, which is the last."""
        seen = [self.next()]
        while seen[-1].type != kind:
            assert seen[-1].type != "error", seen[-1]
            seen.append(self.next())
        return seen

    def refused(self) -> str:
        """The code of the next event, which is an error."""
        event = self.next()
        assert event.type == "error", event
        return event.error.code

    def say(self, text: str) -> None:
        content = [{"type": "input_text", "text": text}]
        self.session.conversation.item.create(item={"type": "message", "role": "user", "content": content})

    def ask(self, text: str, **response: Any) -> list[Any]:
        """One turn of text to its end."""
        self.say(text)
        self.session.response.create(**({"response": response} if response else {}))
        return self.until("response.done")


@contextlib.contextmanager
def talk(gateway: LocalGateway, **query: Any) -> Iterator[Caller]:
    client = openai.OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    with client.realtime.connect(**{"model": MODEL} | query) as connection:
        caller = Caller(connection)
        assert caller.next().type == "session.created"
        yield caller


def kinds(events: list[Any]) -> list[str]:
    return [event.type for event in events]


def test_text_is_answered_in_sound_with_its_transcript_and_paid_by_what_the_provider_counts(gateway, fake) -> None:
    fake.turns = [Turn("Blue.")]
    with talk(gateway) as caller:
        seen = caller.ask("What color is the sky?")
        done = seen[-1].response
        assert usage_of(gateway)[0].cost_nusd == USAGE_NUSD
    assert kinds(seen)[2:] == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio.delta",
        "response.output_audio_transcript.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
    ]
    assert seen[6].delta == SOUND and done.output[0].content[0].transcript == "Blue."
    assert (done.status, done.usage.input_tokens, done.usage.output_token_details.audio_tokens) == ("completed", 230, 70)
    assert done.usage.input_token_details.image_tokens == 10
    connection = fake.last
    assert connection.path == PATH and connection.headers["x-goog-api-key"] == "AIza-upstream"
    assert gateway.key not in str(connection.headers)
    (content,) = connection.named("clientContent")
    turns = [{"role": "user", "parts": [{"text": "What color is the sky?"}]}]
    assert content == {"turns": turns, "turnComplete": True}
    (row,) = usage_of(gateway)
    assert (row.operation, row.served, row.finish, row.basis) == ("realtime", MODEL, "stop", 0)


def test_a_caller_who_wants_text_gets_the_transcript_alone(gateway, fake) -> None:
    with talk(gateway) as caller:
        seen = caller.ask("Hello", output_modalities=["text"], metadata={"topic": "greeting"})
        assert "response.output_audio.delta" not in kinds(seen)
        assert next(event.delta for event in seen if event.type == "response.output_text.delta") == "Hello there."
        assert seen[-1].response.metadata == {"topic": "greeting"}
        assert seen[-1].response.output[0].content[0].text == "Hello there."
    assert usage_of(gateway)[0].cost_nusd == USAGE_NUSD
