"""Realtime sessions with Google's live models: OpenAI's SDK as caller, a strict fake of the Live API, exact books."""

import base64
import contextlib
from collections.abc import Iterator
from typing import Any

import gevent
import openai
import pytest
import websockets
from fakes.google_live import PATH, REFUSED_KEY, SOUND, USAGE_NUSD, FakeLive, Turn
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter
from support.gateways import LocalGateway
from support.shared import Share, usage_of
from support.spending import until

from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provider_keys import ProviderKeyDraft

MODEL = "gemini-3.8-live"
EVENTS = TypeAdapter(RealtimeServerEvent)
SECOND = base64.b64encode(bytes(48_000)).decode()
LOOK = {
    "type": "function",
    "name": "look",
    "description": "Looks around.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
}


@pytest.fixture
def fake(share: Share) -> Iterator[FakeLive]:
    live = share.fake(FakeLive)
    yield live
    assert live.problems == []


@pytest.fixture
def gateway(share: Share, fake: FakeLive) -> LocalGateway:
    return share.gateway({"LLM_GOOGLE_AI_STUDIO_API_KEY": "AIza-upstream", "LLM_GOOGLE_AI_STUDIO_BASE_URL": fake.url})


class Caller:
    """A session of the official SDK that accepts only events that the SDK knows."""

    def __init__(self, connection: Any) -> None:
        self.session = connection

    def next(self) -> Any:
        event = self.session.recv()
        return EVENTS.validate_python(event.model_dump(exclude_unset=True))

    def until(self, kind: str) -> list[Any]:
        """The events up to the first of a kind, which is the last."""
        events = [self.next()]
        while events[-1].type != kind:
            assert events[-1].type != "error", events[-1]
            events.append(self.next())
        return events

    def refused(self) -> str:
        """The code of the next event, which is an error."""
        event = self.next()
        assert event.type == "error", event
        return event.error.code

    def say(self, text: str) -> None:
        content = [{"type": "input_text", "text": text}]
        self.session.conversation.item.create(item={"type": "message", "role": "user", "content": content})

    def send_text(self, text: str, **response: Any) -> list[Any]:
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


def test_text_is_answered_in_sound_with_its_transcript_and_billed_by_the_providers_count(gateway, fake) -> None:
    fake.turns = [Turn("Blue.")]
    with talk(gateway) as caller:
        events = caller.send_text("What color is the sky?")
        done = events[-1].response
        assert usage_of(gateway)[0].cost_nusd == USAGE_NUSD
    assert kinds(events)[2:] == [
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
    assert events[6].delta == SOUND and done.output[0].content[0].transcript == "Blue."
    assert (done.status, done.usage.input_tokens, done.usage.output_token_details.audio_tokens) == (
        "completed",
        230,
        70,
    )
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
        events = caller.send_text("Hello", output_modalities=["text"], metadata={"topic": "greeting"})
        assert "response.output_audio.delta" not in kinds(events)
        assert next(event.delta for event in events if event.type == "response.output_text.delta") == "Hello there."
        assert events[-1].response.metadata == {"topic": "greeting"}
        assert events[-1].response.output[0].content[0].text == "Hello there."
    assert usage_of(gateway)[0].cost_nusd == USAGE_NUSD


def test_speech_is_transcribed_and_answered_without_a_request_for_a_response(gateway, fake) -> None:
    fake.turns = [Turn("Hi Ada.", transcript="I am Ada.")]
    with talk(gateway) as caller:
        caller.session.session.update(
            session={"type": "realtime", "audio": {"input": {"transcription": {"model": MODEL}}}}
        )
        assert caller.next().session.audio.input.transcription.model == MODEL
        for _ in range(2):
            caller.session.input_audio_buffer.append(audio=base64.b64encode(bytes(24_000)).decode())
        events = caller.until("conversation.item.input_audio_transcription.completed")
    assert kinds(events)[:7] == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.delta",
        "response.created",
    ]
    assert kinds(events)[-2:] == ["response.done", "conversation.item.input_audio_transcription.completed"]
    assert events[-1].transcript == "I am Ada." and events[-1].item_id == events[2].item_id
    assert [row.cost_nusd for row in usage_of(gateway)] == [USAGE_NUSD]
    connection = fake.last
    assert connection.setup["inputAudioTranscription"] == {} and connection.setup["outputAudioTranscription"] == {}
    assert [one["mimeType"] for one in connection.inputs("audio")] == ["audio/pcm;rate=24000"] * 2


def test_speech_during_a_response_interrupts_it_and_both_turns_are_billed(gateway, fake) -> None:
    fake.turns = [Turn("Once upon a time", holds=True), Turn("Yes?")]
    with talk(gateway) as caller:
        caller.say("Tell a story.")
        caller.session.response.create()
        caller.until("response.output_audio_transcript.delta")
        caller.session.input_audio_buffer.append(audio=SECOND)
        interrupted = caller.until("response.done")
        answered = caller.until("response.done")
    assert interrupted[0].type == "input_audio_buffer.speech_started"
    details = interrupted[-1].response.status_details
    assert (interrupted[-1].response.status, details.reason) == ("cancelled", "turn_detected")
    assert answered[-1].response.status == "completed"
    assert sorted((row.finish, row.cost_nusd) for row in usage_of(gateway)) == [
        ("cancelled", USAGE_NUSD),
        ("stop", USAGE_NUSD),
    ]


def test_push_to_talk_is_answered_on_request(gateway, fake) -> None:
    with talk(gateway) as caller:
        caller.session.session.update(session={"type": "realtime", "audio": {"input": {"turn_detection": None}}})
        caller.until("session.updated")
        caller.session.input_audio_buffer.clear()
        caller.until("input_audio_buffer.cleared")
        caller.session.input_audio_buffer.commit()
        assert caller.refused() == "input_audio_buffer_commit_empty"
        caller.session.input_audio_buffer.append(audio=SECOND)
        caller.session.input_audio_buffer.commit()
        assert kinds(caller.until("conversation.item.done"))[0] == "input_audio_buffer.committed"
        assert usage_of(gateway) == []
        caller.session.response.create()
        assert caller.until("response.done")[-1].response.status == "completed"
        caller.session.input_audio_buffer.append(audio=SECOND)
        caller.session.input_audio_buffer.clear()
        assert caller.refused() == "unsupported_event"
        caller.session.response.create()  # which commits what was said
        assert "input_audio_buffer.committed" in kinds(caller.until("response.done"))
    assert fake.last.setup["realtimeInputConfig"]["automaticActivityDetection"] == {"disabled": True}
    assert len(fake.last.inputs("activityStart")) == len(fake.last.inputs("activityEnd")) == 2
    assert [row.cost_nusd for row in usage_of(gateway)] == [USAGE_NUSD] * 2


def call_of(events: list[Any]) -> Any:
    return next(event for event in events if event.type == "response.function_call_arguments.done")


@pytest.mark.parametrize("counted", [True, False], ids=["counted with the call", "counted with the answer"])
def test_a_tool_is_called_and_its_result_is_spoken_of(gateway, fake, counted) -> None:
    """The provider counts a turn, and each count is paid once, regardless of the responses that report the turn."""
    fake.turns = [
        Turn("", calls=(("look", {"at": "sky"}), ("look", {"at": "sea"})), counted=counted),
        Turn("Both blue."),
    ]
    with talk(gateway) as caller:
        caller.session.session.update(session={"type": "realtime", "tools": [LOOK], "instructions": "Look first."})
        caller.until("session.updated")
        called = caller.send_text("What color are sky and sea?")
        items = called[-1].response.output
        assert [(item.type, item.name, item.arguments) for item in items] == [
            ("function_call", "look", '{"at":"sky"}'),
            ("function_call", "look", '{"at":"sea"}'),
        ]
        assert call_of(called).call_id == items[0].call_id and called[-1].response.status == "completed"
        assert len(usage_of(gateway)) == counted
        for item, output in zip(items, ('{"color":"blue"}', "blue too"), strict=True):
            answer = {"type": "function_call_output", "call_id": item.call_id, "output": output}
            caller.session.conversation.item.create(item=answer)
        caller.session.response.create()
        assert caller.until("response.done")[-1].response.output[0].content[0].transcript == "Both blue."
        caller.session.conversation.item.create(item=answer)
        assert caller.refused() == "tool_call_unknown"
    (response,) = fake.last.named("toolResponse")
    assert [result["response"] for result in response["functionResponses"]] == [
        {"color": "blue"},
        {"output": "blue too"},
    ]
    (tools,) = fake.last.setup["tools"]
    assert tools["functionDeclarations"][0]["behavior"] == "BLOCKING"
    assert fake.last.setup["systemInstruction"] == {"parts": [{"text": "Look first."}]}
    assert [row.cost_nusd for row in usage_of(gateway)] == [USAGE_NUSD] * (1 + counted)


def test_a_cancelled_response_ends_at_once_and_is_paid_when_the_provider_has_counted_it(gateway, fake) -> None:
    fake.turns = [Turn("Once upon a time", holds=True), Turn("Fine.")]
    with talk(gateway) as caller:
        caller.session.response.cancel()
        assert caller.refused() == "response_cancel_not_active"
        caller.say("Tell a story.")
        caller.session.response.create()
        caller.until("response.output_audio_transcript.delta")
        caller.session.response.create()
        assert caller.refused() == "conversation_already_has_active_response"
        caller.session.response.cancel()
        ended = caller.until("response.done")[-1].response
        assert (ended.status, ended.status_details.reason, ended.usage) == ("cancelled", "client_cancelled", None)
        answered = caller.send_text("Stop.")
        assert answered[-1].response.output[0].content[0].transcript == "Fine."
    assert sorted((row.finish, row.cost_nusd) for row in usage_of(gateway)) == [
        ("cancelled", USAGE_NUSD),
        ("stop", USAGE_NUSD),
    ]


@pytest.mark.parametrize("turn", [Turn(apart=True), Turn(usage=None)], ids=["counted apart", "never counted"])
def test_counts_that_come_late_or_never_are_waited_for_and_then_estimated(gateway, fake, turn) -> None:
    fake.turns = [turn]
    with talk(gateway) as caller:
        assert caller.send_text("Hello")[-1].response.status == "completed"
        (row,) = usage_of(gateway)
        assert (row.basis, row.cost_nusd == USAGE_NUSD) == ((0, True) if turn.apart else (2, False))
        assert row.cost_nusd > 0
        caller.send_text("Hello again")
    assert usage_of(gateway)[1].cost_nusd == USAGE_NUSD


def test_settings_become_those_of_the_provider(gateway, fake) -> None:
    session = {
        "type": "realtime",
        "instructions": "Be brief.",
        "max_output_tokens": 500,
        "truncation": "disabled",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "transcription": {"model": f"google-ai-studio/{MODEL}", "language": "de"},
                "turn_detection": {
                    "type": "server_vad",
                    "threshold": 0.8,
                    "silence_duration_ms": 700,
                    "interrupt_response": False,
                },
            },
            "output": {"voice": "puck"},
        },
    }
    with talk(gateway, model=f"google-ai-studio/{MODEL}") as caller:
        caller.session.session.update(session=session)
        updated = caller.next()
        assert (updated.type, updated.session.audio.output.voice) == ("session.updated", "Puck")
        caller.send_text("Hello")
        first, second = fake.connections
        caller.session.session.update(session={"type": "realtime", "instructions": "Be long.", "tools": [LOOK]})
        caller.until("session.updated")
        caller.send_text("Hello", instructions="Whisper.")
        caller.session.session.update(session={"type": "realtime", "audio": {"output": {"voice": "Kore"}}})
        caller.until("session.updated")
        caller.send_text("Hello")
    assert first.setup["contextWindowCompression"] == {"slidingWindow": {}} and first.named("clientContent") == []
    setup = second.setup
    assert "contextWindowCompression" not in setup and setup["inputAudioTranscription"] == {"languageCodes": ["de"]}
    assert setup["generationConfig"] == {
        "responseModalities": ["AUDIO"],
        "speechConfig": {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Puck"}}},
        "maxOutputTokens": 500,
    }
    assert setup["realtimeInputConfig"] == {
        "automaticActivityDetection": {"startOfSpeechSensitivity": "START_SENSITIVITY_LOW", "silenceDurationMs": 700},
        "activityHandling": "NO_INTERRUPTION",
    }
    texts = [one["systemInstruction"]["parts"][0]["text"] for one in second.named("contextUpdate")]
    assert texts == ["Be long.", "Whisper.", "Be long."]
    third = fake.connections[2]  # the conversation continues with another voice
    assert third.setup["sessionResumption"]["handle"].startswith("handle-")
    assert third.setup["generationConfig"]["speechConfig"]["voiceConfig"]["prebuiltVoiceConfig"]["voiceName"] == "Kore"
    assert len(third.named("clientContent")) == 1 and len(usage_of(gateway)) == 3


@pytest.mark.parametrize(
    ("session", "param"),
    [
        ({"temperature": 1}, "session.temperature"),
        ({"tool_choice": "required"}, "session.tool_choice"),
        ({"parallel_tool_calls": False}, "session.parallel_tool_calls"),
        ({"truncation": {"type": "retention_ratio", "retention_ratio": 0.5}}, "session.truncation"),
        ({"audio": {"input": {"format": {"type": "audio/pcmu"}}}}, "session.audio.input.format"),
        ({"audio": {"input": {"noise_reduction": {"type": "near_field"}}}}, "session.audio.input.noise_reduction"),
        (
            {"audio": {"input": {"turn_detection": {"type": "server_vad", "create_response": False}}}},
            "session.audio.input.turn_detection.create_response",
        ),
        ({"audio": {"output": {"speed": 1.5}}}, "session.audio.output.speed"),
        ({"audio": {"output": {"voice": "marin"}}}, "session.audio.output.voice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_options_without_counterpart_are_named_and_change_nothing(gateway, fake, session, param) -> None:
    with talk(gateway) as caller:
        caller.session.session.update(session={"type": "realtime", "instructions": "Be brief.", **session})
        event = caller.next()
        assert (event.type, event.error.param) == ("error", param)
        assert event.error.code in ("unsupported_parameter", "voice_not_supported")
        assert caller.send_text("Hello")[-1].response.status == "completed"
    assert len(fake.connections) == 1


def test_events_and_items_without_a_counterpart_are_named(gateway, fake) -> None:
    picture = {"type": "input_image", "image_url": "https://example.com/a.png"}
    with talk(gateway) as caller:
        conversation = caller.session.conversation.item
        conversation.truncate(item_id="item", content_index=0, audio_end_ms=5)
        assert caller.refused() == "unsupported_event"
        system = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be kind."}]}
        for item in (system, {"type": "message", "role": "user", "content": [picture]}):
            conversation.create(item=item)
            assert caller.refused() == "unsupported_item"
        conversation.create(previous_item_id="elsewhere", item={**system, "role": "user"})
        assert caller.refused() == "unsupported_item"
        for options in ({"conversation": "none"}, {"max_output_tokens": 5}, {"tool_choice": "required"}):
            caller.session.response.create(response=options)
            assert caller.refused() == "unsupported_parameter"
        caller.say("Not this.")
        item = caller.until("conversation.item.done")[-1].item.id
        conversation.delete(item_id=item)
        caller.until("conversation.item.deleted")
        conversation.delete(item_id=item)
        assert caller.refused() == "unsupported_event"
        data = {"type": "input_image", "image_url": f"data:image/png;base64,{SOUND}"}
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Show me."}]}
        conversation.create(item=said)
        conversation.create(item={"type": "message", "role": "user", "content": [data]})
        caller.session.response.create()
        caller.until("response.done")
    (content,) = fake.last.named("clientContent")
    assert content["turns"] == [
        {"role": "model", "parts": [{"text": "Show me."}]},
        {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": SOUND}}]},
    ]
    assert [row.cost_nusd for row in usage_of(gateway)] == [USAGE_NUSD]


def test_a_model_that_is_told_to_speak_first_does(gateway, fake) -> None:
    with talk(gateway) as caller:
        caller.session.response.create(response={"instructions": "Greet the caller."})
        caller.until("response.done")
    (content,) = fake.last.named("clientContent")
    assert content["turnComplete"] and content["turns"]
    assert len(usage_of(gateway)) == 1


@pytest.mark.parametrize("goes", ["away", "end"])
def test_a_connection_that_the_provider_ends_is_followed_by_one_that_goes_on(gateway, fake, goes) -> None:
    fake.goes = goes
    with talk(gateway) as caller:
        for _ in range(2):
            assert caller.send_text("Hello")[-1].response.status == "completed"
    first, second = fake.connections
    assert second.setup["sessionResumption"]["handle"].startswith("handle-") and first.setup["sessionResumption"] == {}
    assert [row.cost_nusd for row in usage_of(gateway)] == [USAGE_NUSD] * 2


def test_a_turn_that_is_cut_off_ends_the_session_and_is_billed_by_the_received_part(gateway, fake) -> None:
    fake.turns = [Turn(cuts=True)]
    with talk(gateway) as caller:
        caller.say("Hello")
        caller.session.response.create()
        with pytest.raises(websockets.ConnectionClosed) as ended:
            while (event := caller.next()).type != "error":
                continue
            assert event.error.code == "stream_truncated"
            caller.next()
        assert ended.value.rcvd.code == 1011
    (row,) = usage_of(gateway)
    assert row.cost_nusd > 0 and row.basis == 2


@pytest.mark.parametrize(
    ("reason", "status"), [("MALFORMED_FUNCTION_CALL", "failed"), ("GENERATED_AUDIO_SAFETY", "incomplete")]
)
def test_a_turn_that_ended_badly_says_so(gateway, fake, reason, status) -> None:
    fake.turns = [Turn(reason=reason)]
    with talk(gateway) as caller:
        assert caller.send_text("Hello")[-1].response.status == status
        assert caller.send_text("Hello")[-1].response.status == "completed"
    assert [row.cost_nusd for row in usage_of(gateway)] == [USAGE_NUSD] * 2


def test_a_provider_that_takes_no_session_is_known_before_the_handshake_is_answered(gateway, fake) -> None:
    for end, status in (((1011, "You exceeded your current quota."), 429), ((1008, "Model is not found."), 502)):
        fake.ends = [end]
        with pytest.raises(websockets.InvalidStatus) as caught, talk(gateway):
            raise AssertionError("a session was opened")
        assert caught.value.response.status_code == status
    assert usage_of(gateway) == [] or {row.cost_nusd for row in usage_of(gateway)} == {0}


def test_a_session_for_transcripts_alone_is_refused_by_name(gateway, fake) -> None:
    with pytest.raises(websockets.InvalidStatus) as caught, talk(gateway, extra_query={"intent": "transcription"}):
        raise AssertionError("a session was opened")
    assert caught.value.response.status_code == 400


def test_a_client_secret_settles_instructions_and_voice_of_a_live_model_too(gateway, fake) -> None:
    client = openai.OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    audio = {"output": {"voice": "Puck"}, "input": {"transcription": {"model": "whisper-1"}}}
    session = {"type": "realtime", "model": MODEL, "instructions": "Be brief.", "audio": audio}
    with pytest.raises(openai.BadRequestError) as caught:
        client.realtime.client_secrets.create(session=session)
    assert caught.value.code == "transcription_model_not_supported"
    audio["input"]["transcription"]["model"] = MODEL
    secret = client.realtime.client_secrets.create(session=session).value
    with openai.OpenAI(base_url=gateway.url, api_key=secret).realtime.connect(model=MODEL) as connection:
        caller = Caller(connection)
        caller.until("session.updated")
        caller.send_text("Hello")
    assert fake.last.setup["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert fake.last.setup["inputAudioTranscription"] == {}


def test_invalid_base64_never_reaches_the_provider(gateway, fake) -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "no base64"}]}
    with talk(gateway) as caller:
        caller.session.input_audio_buffer.append(audio="no base64")
        assert caller.refused() == "invalid_event"
        caller.session.conversation.item.create(item=item)
        assert caller.refused() == "invalid_event"
        assert caller.send_text("Hello")[-1].response.status == "completed"
    assert fake.last.inputs("audio") == []


def test_settings_that_the_provider_refuses_leave_the_session_as_it_was(gateway, fake) -> None:
    with talk(gateway) as caller:
        fake.ends = [(1007, "Invalid language.")]
        input_settings = {"transcription": {"model": MODEL, "language": "tlh"}}
        caller.session.session.update(session={"type": "realtime", "audio": {"input": input_settings}})
        event = caller.next()
        assert event.type == "error" and "Invalid language" in event.error.message
        caller.session.session.update(session={"type": "realtime", "instructions": "Be brief."})
        assert caller.next().session.audio.input.transcription is None
        assert caller.send_text("Hello")[-1].response.status == "completed"


def test_a_key_that_is_refused_when_the_session_is_set_up_is_followed_by_the_next(gateway, fake) -> None:
    stores = gateway.services.store.database, gateway.services.store.control
    for secret in (REFUSED_KEY, "AIza-own"):
        draft = ProviderKeyDraft("google-ai-studio", secret, secret, base_url=fake.url)
        gateway.services.management.provider_keys.add(gateway.organization_id, draft, actor="operator")
    update_project(*stores, gateway.project_id, ProjectChange(mode="api-keys"), actor="operator")
    for _ in range(2):  # whichever comes first in turn
        with talk(gateway) as caller:
            assert caller.send_text("Hello")[-1].response.status == "completed"
    assert {
        connection.headers["x-goog-api-key"] for connection in fake.connections if connection.named("clientContent")
    } == {"AIza-own"}
    assert [row.cost_nusd for row in usage_of(gateway) if row.cost_nusd] == [USAGE_NUSD] * 2


def test_a_call_is_reported_in_time_while_the_microphone_is_open(gateway, fake) -> None:
    fake.turns = [Turn("", calls=(("look", {}),))]
    with talk(gateway) as caller:
        caller.session.session.update(session={"type": "realtime", "tools": [LOOK]})
        caller.until("session.updated")
        caller.say("Look!")
        caller.session.response.create()

        def stream() -> None:
            for _ in range(400):
                caller.session.input_audio_buffer.append(audio="AAAA")
                gevent.sleep(0.005)

        microphone = gevent.spawn(stream)
        assert call_of(caller.until("response.done")).name == "look" and not microphone.dead
        microphone.kill()


def test_the_result_of_a_removed_call_is_refused_by_name(gateway, fake) -> None:
    fake.turns = [Turn("", calls=(("look", {}),)), Turn("Yes?")]
    with talk(gateway) as caller:
        caller.session.session.update(session={"type": "realtime", "tools": [LOOK]})
        caller.until("session.updated")
        output = {"type": "function_call_output", "call_id": call_of(caller.send_text("Look!")).call_id, "output": "{}"}
        caller.session.conversation.item.create(item=output)
        caller.until("conversation.item.done")
        caller.session.input_audio_buffer.append(audio=SECOND)
        assert caller.next().type == "input_audio_buffer.speech_started"
        assert caller.refused() == "tool_call_unknown"
        assert caller.until("response.done")[-1].response.status == "completed"
    assert [row.cost_nusd for row in usage_of(gateway)] == [USAGE_NUSD]


def test_speech_with_a_later_request_gets_a_single_response(gateway, fake) -> None:
    fake.quick = True
    with talk(gateway) as caller:
        caller.session.input_audio_buffer.append(audio=SOUND)
        assert caller.next().type == "input_audio_buffer.speech_started"
        caller.session.input_audio_buffer.commit()
        caller.session.response.create()
        events = caller.until("response.done")
        assert events[-1].response.status == "completed" and kinds(events).count("response.created") == 1
    assert fake.last.named("clientContent") == [] and len(fake.last.inputs("audioStreamEnd")) == 1
    assert [row.cost_nusd for row in usage_of(gateway)] == [USAGE_NUSD]


def test_a_call_is_left_for_what_is_said_instead(gateway, fake) -> None:
    fake.turns = [Turn("", calls=(("look", {}),)), Turn("Never mind then.")]
    with talk(gateway) as caller:
        caller.session.session.update(session={"type": "realtime", "tools": [LOOK]})
        caller.until("session.updated")
        call = call_of(caller.send_text("Look!")).call_id
        answered = caller.send_text("Never mind.")
        assert answered[-1].response.output[0].content[0].transcript == "Never mind then."
        output = {"type": "function_call_output", "call_id": call, "output": "{}"}
        caller.session.conversation.item.create(item=output)
        assert caller.refused() == "tool_call_unknown"
    assert [row.cost_nusd for row in usage_of(gateway)] == [USAGE_NUSD]


def test_a_disconnection_during_a_response_is_billed_by_the_providers_usage(gateway, fake) -> None:
    fake.turns = [Turn("Once upon a time", waits=True)]
    with talk(gateway) as caller:
        caller.say("Tell a story.")
        caller.session.response.create()
        caller.until("response.output_audio_transcript.delta")
    fake.end.set()
    assert until(lambda: usage_of(gateway) != [])
    (row,) = usage_of(gateway)
    assert (row.finish, row.cost_nusd) == ("cancelled", USAGE_NUSD)


def test_speech_without_a_response_is_billed(gateway, fake) -> None:
    fake.turns = [Turn("", reason="NEED_MORE_INPUT"), Turn("Now I see.")]
    with talk(gateway) as caller:
        for _ in range(2):
            caller.session.input_audio_buffer.append(audio=SECOND)
        assert caller.until("response.done")[-1].response.output[0].content[0].transcript == "Now I see."
    assert [row.cost_nusd for row in usage_of(gateway)] == [USAGE_NUSD] * 2
