"""Speech through the whole gateway, with the official SDK: every vendor and format, exact money, nothing cut short."""

import io
import json
from base64 import b64decode
from typing import Any

import httpx
import openai
import pytest
import soundfile
from fakes.speech_services import TOKENS_IN, TOKENS_OUT, FakeSpeechServices, sound_of
from openai import OpenAI
from support.gateways import LocalGateway
from support.media import providers_at, row_of, sdk_of
from support.shared import Share

from gateway.limits.budgets import Limits
from gateway.metering.models import OVERRUN
from gateway.providers.sandbox import speech

TEXT = "The quick brown fox jumps over the lazy dog, said Zoë."
SANDBOX = "sandbox/sandbox-speak"
# Model → cost of TEXT in nano-dollars: 12 tokens in and 250 of sound, or its characters.
COSTS = {
    "openai/gpt-4o-mini-tts": 12 * 600 + 250 * 12_000,
    "openai/tts-1": len(TEXT) * 15_000,
    "openai/tts-1-hd": len(TEXT) * 30_000,
    "google-ai-studio/gemini-3.8-flash-tts": 12 * 500 + 250 * 9_000,
    "elevenlabs/eleven-multilingual-v2": len(TEXT) * 80_000,
    "elevenlabs/eleven-flash-v2.5": len(TEXT) * 40_000,
    SANDBOX: len(TEXT) * 15_000,
}
PATHS = {"OPENAI": "/v1", "GOOGLE_AI_STUDIO": "/v1beta", "ELEVENLABS": "/eleven/v1"}
STREAMED = ("openai/gpt-4o-mini-tts", "openai/tts-1")


@pytest.fixture
def upstream(share: Share) -> FakeSpeechServices:
    return share.fake(FakeSpeechServices)


@pytest.fixture
def gateway(share: Share, upstream: FakeSpeechServices) -> LocalGateway:
    return share.gateway(providers_at(upstream, PATHS))


@pytest.fixture
def sdk(gateway: LocalGateway) -> OpenAI:
    return sdk_of(gateway)


def post(gateway: LocalGateway, **body: Any) -> httpx.Response:
    with httpx.Client(timeout=20) as http:
        return http.post(
            f"{gateway.url}/audio/speech",
            json={"model": "openai/tts-1", "input": TEXT} | body,
            headers={"Authorization": f"Bearer {gateway.key}"},
        )


@pytest.mark.parametrize("model", COSTS)
def test_every_vendor_speaks_and_is_billed_to_the_nano_dollar(gateway, sdk, model):
    sent = sdk.audio.speech.with_raw_response.create(model=model, input=TEXT, voice="", response_format="wav")
    sound = sent.content
    assert sound.endswith(sound_of(TEXT)) or model == SANDBOX
    row = row_of(gateway, sent.headers["x-request-id"])
    assert (row.cost_nusd, row.operation, row.usage_basis) == (
        COSTS[model],
        "speech",
        "estimated" if "tts-1" in model or "eleven" in model or model == SANDBOX else "provider",
    )


@pytest.mark.parametrize("model", [cost for cost in COSTS if cost not in STREAMED[:1]])
def test_a_known_cost_is_in_the_headers(gateway, model):
    answer = post(gateway, model=model, response_format="pcm")
    assert float(answer.headers["x-llmgateway-cost"]) * 10**9 == pytest.approx(COSTS[model])


@pytest.mark.parametrize("format", ["mp3", "opus", "flac", "wav"])
def test_files_of_the_sandbox_are_real_and_as_long_as_the_text(sdk, format):
    sound = sdk.audio.speech.create(model=SANDBOX, input=TEXT, voice="calm", response_format=format)
    samples, rate = soundfile.read(io.BytesIO(sound.content))
    assert len(samples) / rate == pytest.approx(len(TEXT) / 15, abs=0.06)
    assert sound.response.headers["content-type"].startswith("audio/")


@pytest.mark.parametrize(
    ("model", "format", "kind", "begin"),
    [
        ("openai/tts-1", None, "audio/mpeg", b"The"),
        ("openai/tts-1", "opus", "audio/opus", b"The"),
        ("google-ai-studio/gemini-3.8-flash-tts", None, "audio/wav", b"RIFF"),
        ("google-ai-studio/gemini-3.8-flash-tts", "pcm", "audio/pcm", b"The"),
        ("elevenlabs/eleven-flash-v2.5", None, "audio/mpeg", b"The"),
        (SANDBOX, "aac", "audio/aac", b"\xff\xf1"),
    ],
)
def test_each_vendor_has_its_usual_format_and_the_head_names_it(gateway, model, format, kind, begin):
    answer = post(gateway, model=model, **({"response_format": format} if format else {}))
    assert answer.headers["content-type"] == kind and answer.content.startswith(begin)


@pytest.mark.parametrize("model", [*STREAMED, SANDBOX, "google-ai-studio/gemini-3.8-flash-tts"])
def test_events_bring_the_same_sound_and_the_usage(gateway, sdk, model):
    whole = post(gateway, model=model, response_format="pcm").content
    sound, done = b"", None
    answer = post(gateway, model=model, response_format="pcm", stream_format="sse")
    for block in answer.text.split("\n\n"):
        event = json.loads(block[6:]) if block.startswith("data: ") else {}
        if event.get("type") == "speech.audio.delta":
            sound += b64decode(event["audio"])
        elif event:
            done = event
    assert sound == whole and done["type"] == "speech.audio.done"
    assert done["usage"]["cost"] * 10**9 == pytest.approx(COSTS[model])
    if model == STREAMED[0]:
        assert (done["usage"]["input_tokens"], done["usage"]["output_tokens"]) == (TOKENS_IN, TOKENS_OUT)


@pytest.mark.parametrize("usage", [{}, {"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 3}])
@pytest.mark.parametrize(("format", "seconds"), [("mp3", 218.0), ("opus", 218.0), ("aac", 218.0), ("wav", 60.0)])
def test_sound_without_a_usage_is_billed_by_its_length(gateway, upstream, monkeypatch, usage, format, seconds):
    monkeypatch.setattr(upstream, "usage", usage or None)
    monkeypatch.setattr(upstream, "silent", not usage)
    monkeypatch.setattr(upstream, "sound", speech.make(format, seconds))
    text = "Breathe in for 218 seconds"
    answer = post(gateway, model=STREAMED[0], input="A", instructions=text, response_format=format)
    assert answer.content == upstream.sound
    row = row_of(gateway, answer.headers["x-request-id"])
    assert row.usage_basis == "estimated" and not row.flags & OVERRUN
    assert row.details["units"]["output_audio"] == pytest.approx(seconds * 20, rel=0.001)


def test_sound_ends_with_the_budget_that_pays_for_it(gateway, upstream, monkeypatch):
    limit_nusd = 10_000_000  # some 41 seconds
    monkeypatch.setattr(upstream, "silent", True)
    monkeypatch.setattr(upstream, "sound", speech.make("mp3", 218.0))
    budgets = gateway.services.billing.budgets
    caller = gateway.services.accounts.authentication.caller(gateway.key)
    budgets.set_limits("key", caller.key_id, Limits(total_nusd=limit_nusd))
    answer = post(gateway, model=STREAMED[0], input="A", stream_format="sse")
    assert "budget_exhausted_mid_stream" in answer.text and "speech.audio.done" not in answer.text
    row = row_of(gateway, answer.headers["x-request-id"])
    assert 0.5 * limit_nusd < row.cost_nusd <= limit_nusd


@pytest.mark.parametrize("model", STREAMED)
def test_a_broken_answer_never_looks_whole(gateway, upstream, monkeypatch, model):
    monkeypatch.setattr(upstream, "broken", True)
    try:
        assert post(gateway, model=model).status_code == 502  # nothing had left yet
    except httpx.RemoteProtocolError:
        pass  # the connection ended in the middle of the file
    streamed = post(gateway, model=model, stream_format="sse").text
    assert "event: error" in streamed and "speech.audio.done" not in streamed


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"voice": "nobody"}, "voice", "unsupported_voice"),
        ({"model": "google-ai-studio/gemini-3.8-flash-tts", "response_format": "mp3"}, "response_format", ""),
        ({"response_format": "ogg"}, "response_format", "invalid_parameters"),
        ({"speed": 9}, "speed", "invalid_parameters"),
        ({"input": ""}, "input", "invalid_parameters"),
        ({"model": "openai/gpt-5.6-luna"}, "", "model_not_supported"),
    ],
)
def test_unsupported_options_are_refused_by_name_before_any_call(gateway, upstream, body, param, code):
    before = len(upstream.calls)
    answer = post(gateway, **body)
    error = answer.json()["error"]
    assert answer.status_code == 400 and len(upstream.calls) == before
    assert error["param"] == param or not param
    assert error["code"] == code or not code


def test_a_failing_provider_is_the_providers_failure(gateway, sdk, upstream):
    upstream.script(500, 500)
    with pytest.raises(openai.APIStatusError) as caught:
        sdk.audio.speech.create(model="openai/tts-1", input=TEXT, voice="alloy")
    assert caught.value.status_code == 502


def test_a_model_without_events_warns_of_left_out_fields(gateway):
    answer = post(gateway, model="elevenlabs/eleven-flash-v2.5", instructions="whisper", speed=3)
    assert "instructions" in answer.headers["x-llmgateway-warnings"]
    assert "speed was changed to 1.2" in answer.headers["x-llmgateway-warnings"]


def test_a_voice_of_the_account_is_refused_for_the_platforms_keys(gateway, upstream):
    listed = "21m00Tcm4TlvDq8ikWAM"
    own = "abcdefghij0123456789"
    before = len(upstream.calls)
    for model, voice in (
        ("openai/gpt-4o-mini-tts", {"id": "voice_1234"}),
        ("elevenlabs/eleven-flash-v2.5", {"id": own}),
        ("elevenlabs/eleven-flash-v2.5", own),
    ):
        error = post(gateway, model=model, voice=voice).json()["error"]
        assert error["code"] == "unpriced_use" and "routing.provider_objects" in error["message"], error
    assert len(upstream.calls) == before
    assert post(gateway, model="elevenlabs/eleven-flash-v2.5", voice=listed).status_code == 200
    assert listed in upstream.calls[-1].path


def test_a_voice_of_the_account_reaches_the_provider_where_the_operator_allows_it(share, upstream):
    sdk = sdk_of(share.gateway({**providers_at(upstream, PATHS), "GATEWAY_ROUTING_PROVIDER_OBJECTS": "true"}))
    sdk.audio.speech.create(model="openai/gpt-4o-mini-tts", input=TEXT, voice={"id": "voice_1234"})
    assert upstream.calls[-1].body["voice"] == {"id": "voice_1234"}
    own = "abcdefghij0123456789"
    sdk.audio.speech.create(model="elevenlabs/eleven-flash-v2.5", input=TEXT, voice={"id": own})
    assert own in upstream.calls[-1].path
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.audio.speech.create(model="google-ai-studio/gemini-3.8-flash-tts", input=TEXT, voice={"id": "voice_1234"})
    assert (caught.value.param, caught.value.code) == ("voice", "unsupported_voice")
