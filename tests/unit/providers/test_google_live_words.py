"""Sessions of the callers' format in the words of Google's Live API, and its ends in theirs."""

from typing import Any

import pytest

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import InvalidRequest
from gateway.providers.google.live.commands import LiveCommands, turn_of
from gateway.providers.google.live.model_output import ModelOutput
from gateway.providers.google.live.session_setup import LiveSettings
from gateway.providers.google.live.state import LiveState
from gateway.providers.google.live.upstream_connection import refusal
from gateway.providers.protocol import Credential, Target

PCM = {"type": "audio/pcm", "rate": 24_000}
WEATHER = {"type": "function", "name": "weather", "description": "The weather.", "parameters": {"type": "object"}}
COMPLETE = {
    "type": "realtime",
    "output_modalities": ["audio"],
    "instructions": "Be brief.",
    "tools": [WEATHER],
    "tool_choice": "auto",
    "max_output_tokens": 500,
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "audio": {
        "input": {
            "format": PCM,
            "transcription": {"model": "whisper-1", "language": "en"},
            "noise_reduction": None,
            "turn_detection": {
                "type": "semantic_vad",
                "create_response": True,
                "interrupt_response": False,
                "threshold": 0.8,
                "prefix_padding_ms": 300,
                "silence_duration_ms": 500,
                "eagerness": "high",
            },
        },
        "output": {"format": PCM, "voice": "kore", "speed": 1.0},
    },
}


def settings() -> LiveSettings:
    mapping = Mapping("google", "live", "gemini-3.8-live", operations=("realtime",), voices=("Puck", "Kore"))
    target = Target(Provider("google", "Google", "google"), mapping, Credential("AIza-x"), "https://fake.example", {})
    return LiveSettings(target, "sess_1")


def test_each_setting_of_a_session_has_its_counterpart() -> None:
    setup = settings().changed(COMPLETE).setup("models/gemini-3.8-live", None)
    (functions,) = setup.pop("tools")
    assert [function["name"] for function in functions["functionDeclarations"]] == ["weather"]
    assert setup == {
        "model": "models/gemini-3.8-live",
        "generationConfig": {
            "responseModalities": ["AUDIO"],
            "speechConfig": {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Kore"}}},
            "maxOutputTokens": 500,
        },
        "outputAudioTranscription": {},
        "inputAudioTranscription": {"languageCodes": ["en"]},
        "sessionResumption": {},
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "realtimeInputConfig": {
            "automaticActivityDetection": {
                "startOfSpeechSensitivity": "START_SENSITIVITY_LOW",
                "endOfSpeechSensitivity": "END_SENSITIVITY_HIGH",
                "prefixPaddingMs": 300,
                "silenceDurationMs": 500,
            },
            "activityHandling": "NO_INTERRUPTION",
        },
    }


def test_a_session_without_changes_has_the_usual_settings_of_the_callers_format() -> None:
    session = settings().session
    assert session["audio"]["input"] == {
        "format": PCM,
        "transcription": None,
        "noise_reduction": None,
        "turn_detection": {"type": "server_vad", "create_response": True, "interrupt_response": True},
    }
    assert session["audio"]["output"] == {"format": PCM, "voice": "Puck", "speed": 1.0}


@pytest.mark.parametrize(
    ("eagerness", "sensitivity"),
    [("low", "END_SENSITIVITY_LOW"), ("medium", None), ("auto", None), ("high", "END_SENSITIVITY_HIGH")],
)
def test_eagerness_is_the_sensitivity_for_the_end_of_speech(eagerness: str, sensitivity: str | None) -> None:
    turns = {"turn_detection": {"type": "semantic_vad", "eagerness": eagerness}}
    setup = settings().changed({"audio": {"input": turns}}).setup("m", None)
    detection = setup["realtimeInputConfig"]["automaticActivityDetection"]
    assert detection.get("endOfSpeechSensitivity") == sensitivity


@pytest.mark.parametrize(
    "more", [{"conversation": "auto"}, {"tool_choice": "auto"}, {"parallel_tool_calls": True}, {"input": []}]
)
def test_a_response_may_name_options_that_change_nothing(more: dict[str, Any]) -> None:
    state = LiveState(settings())
    sent: list[dict[str, Any]] = []
    LiveCommands(state, sent.append, lambda changed: None).take({"type": "response.create", "response": more})
    assert sent and state.turns


@pytest.mark.parametrize(
    "more", [{"conversation": "none"}, {"tool_choice": "required"}, {"input": [{"type": "message"}]}]
)
def test_a_response_with_options_of_its_own_is_refused(more: dict[str, Any]) -> None:
    commands = LiveCommands(LiveState(settings()), lambda message: None, lambda changed: None)
    with pytest.raises(InvalidRequest):
        commands.take({"type": "response.create", "response": more})


LOOK = {"type": "function", "name": "look"}
DECLARED = [{"functionDeclarations": [{"name": "look", "behavior": "BLOCKING"}]}]


@pytest.mark.parametrize(
    ("change", "update"),
    [
        ({"instructions": "Be brief."}, {"systemInstruction": {"parts": [{"text": "Be brief."}]}}),
        ({"tools": [LOOK]}, {"tools": {"tools": DECLARED}}),
        ({"tool_choice": "none"}, {"tools": {"tools": []}}),
    ],
)
def test_instructions_and_tools_change_in_a_running_session(change: dict[str, Any], update: dict[str, Any]) -> None:
    state = LiveState(settings())
    state.said = True
    sent: list[dict[str, Any]] = []
    LiveCommands(state, sent.append, lambda changed: None).take({"type": "session.update", "session": change})
    assert sent == [{"contextUpdate": update}]


def test_speech_is_cleared_before_it_was_sent_and_committed_after() -> None:
    state = LiveState(settings())
    sent: list[dict[str, Any]] = []
    commands = LiveCommands(state, sent.append, lambda changed: None)
    commands.take({"type": "input_audio_buffer.clear"})
    assert "input_audio_buffer.cleared" in state.out[-1].text and not sent
    commands.take({"type": "input_audio_buffer.append", "audio": "AAAA"})
    commands.take({"type": "input_audio_buffer.commit"})
    assert sent[-1] == {"realtimeInput": {"audioStreamEnd": True}}


@pytest.mark.parametrize(("role", "theirs"), [("user", "user"), ("assistant", "model")])
def test_messages_of_a_conversation_keep_their_role(role: str, theirs: str) -> None:
    kind = "input_text" if role == "user" else "output_text"
    turn = turn_of({"type": "message", "role": role, "content": [{"type": kind, "text": "Hi"}]})
    assert turn == {"role": theirs, "parts": [{"text": "Hi"}]}


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("", "stop"),
        ("TURN_COMPLETE_REASON_UNSPECIFIED", "stop"),
        ("NEED_MORE_INPUT", "stop"),
        ("MALFORMED_FUNCTION_CALL", "error"),
        ("RESPONSE_REJECTED", "error"),
        ("MAX_REGENERATION_REACHED", "error"),
        ("PROHIBITED_INPUT_CONTENT", "content_filter"),
        ("INPUT_IMAGE_CELEBRITY", "content_filter"),
    ],
)
def test_the_reason_for_the_end_of_a_turn_is_that_of_its_response(reason: str, finish: str) -> None:
    state = LiveState(settings())
    output = ModelOutput(state)
    output.take({"serverContent": {"outputTranscription": {"text": "Hi"}}})
    output.take({"serverContent": {"turnComplete": True, "turnCompleteReason": reason}})
    output.take({"usageMetadata": {"promptTokenCount": 1, "responseTokenCount": 1, "totalTokenCount": 2}})
    (done,) = [event for event in state.out if event.kind == "done"]
    assert (done.finish, done.fault) == (finish, reason.lower() if finish == "error" else "")


def test_an_interrupted_turn_ends_as_cancelled() -> None:
    state = LiveState(settings())
    output = ModelOutput(state)
    output.take({"serverContent": {"outputTranscription": {"text": "Hi"}}})
    output.take({"serverContent": {"interrupted": True, "turnComplete": True}})
    output.take({"usageMetadata": {"promptTokenCount": 1, "responseTokenCount": 1, "totalTokenCount": 2}})
    assert [event.finish for event in state.out if event.kind == "done"] == ["cancelled"]


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("You exceeded your current quota, please check your plan.", 429),
        ("RESOURCE_EXHAUSTED: limit reached", 429),
        ("Too many concurrent sessions.", 429),
        ("models/gemini-9 is not found for API version v1beta.", 404),
        ("API key not valid. Please pass a valid API key.", 401),
        ("Internal error encountered.", 500),
    ],
)
def test_the_reason_for_the_end_of_a_connection_has_a_status(reason: str, status: int) -> None:
    assert refusal(1011, reason).status == status
