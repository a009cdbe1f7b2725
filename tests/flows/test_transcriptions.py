"""Sound to text through the whole gateway, with the official SDK: forms, formats, events, exact money, bad files."""

import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import mistralai.client
import openai
import pytest
from fakes.transcription_services import HEARD, SECONDS, FakeTranscriptionServices
from openai import OpenAI
from openai.types.audio import TranscriptionTextDoneEvent, TranscriptionVerbose
from support.gateways import LocalGateway
from support.media import providers_at, row_of, sdk_of
from support.shared import Share

from gateway.providers.sandbox import speech

# Three seconds of ten tokens each, and six tokens of 23 characters.
ESTIMATED_NUSD = 30 * 6_000 + 6 * 10_000
SOUND = speech.make("wav", SECONDS)
SANDBOX = "sandbox/sandbox-transcribe"
# Model → nano-dollars of three seconds: 4 and 30 tokens in and 7 out, or $0.36 and $0.21 an hour.
COSTS = {
    "openai/gpt-4o-transcribe": 4 * 2_500 + 30 * 6_000 + 7 * 10_000,
    "openai/whisper-1": 300_000,
    "mistral/voxtral-mini-transcribe-3-0": 175_000,
    # Billed as ten seconds at the least: $0.111 and $0.04 an hour.
    "groq/whisper-large-v3": 308_333,
    "groq/whisper-large-v3-turbo": 111_111,
}
TOKENS, WHISPER, MISTRAL, GROQ, TURBO = COSTS


@pytest.fixture
def upstream(share: Share) -> Iterator[FakeTranscriptionServices]:
    fake = share.fake(FakeTranscriptionServices)
    yield fake
    fake.reported, fake.duration = None, SECONDS


@pytest.fixture
def gateway(share: Share, upstream: FakeTranscriptionServices) -> LocalGateway:
    paths = {"OPENAI": "/v1", "MISTRAL": "/v1", "GROQ": "/groq/openai/v1"}
    return share.gateway(providers_at(upstream, paths))


@pytest.fixture
def sdk(gateway: LocalGateway) -> OpenAI:
    return sdk_of(gateway)


def post(
    gateway: LocalGateway, file: bytes | None = SOUND, path: str = "transcriptions", **fields: Any
) -> httpx.Response:
    files = {"file": ("a.wav", file, "text/html")} if file is not None else {"nothing": (None, "")}
    with httpx.Client(timeout=20) as http:
        return http.post(
            f"{gateway.url}/audio/transcriptions",
            data={"model": TOKENS} | fields,
            files=files,
            headers={"Authorization": f"Bearer {gateway.key}"},
        )


@pytest.mark.parametrize("model", COSTS)
def test_every_vendor_gets_sound_and_is_billed_to_the_nano_dollar(gateway, sdk, upstream, model):
    answer = sdk.audio.transcriptions.create(model=model, file=("talk.bin", SOUND))
    assert answer.text == HEARD
    call = upstream.calls[-1]
    # Named by what it is, not by what the caller says.
    assert (call.file, call.filename, call.media_type) == (SOUND, "sound.wav", "audio/wav")
    row = row_of(gateway, answer.metadata["log_id"])
    assert (row.cost_nusd, row.operation, row.usage_basis) == (COSTS[model], "transcriptions", "provider")


def test_a_transcript_without_usage_is_billed_by_the_length_of_its_sound_and_its_text(gateway, sdk, upstream):
    upstream.reported = {}
    row = row_of(gateway, sdk.audio.transcriptions.create(model=TOKENS, file=("a.wav", SOUND)).metadata["log_id"])
    assert (row.usage_basis, row.cost_nusd) == ("estimated", ESTIMATED_NUSD)


@pytest.mark.parametrize(
    ("reported", "nusd"),
    [
        ({"type": "duration", "seconds": 90}, 900 * 6_000 + 6 * 10_000),
        ({"type": "tokens", "input_tokens": 0, "output_tokens": 0, "total_tokens": 0}, ESTIMATED_NUSD),
        ({"type": "tokens", "input_tokens": 34, "output_tokens": 0, "total_tokens": 34}, 34 * 6_000 + 6 * 10_000),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_transcript_billed_by_tokens_is_never_free(gateway, upstream, reported, nusd, streamed):
    upstream.reported = {"usage": reported}
    answer = post(gateway, stream=str(streamed).lower())
    assert answer.status_code == 200, answer.text
    row = row_of(gateway, answer.headers["x-request-id"])
    assert (row.usage_basis, row.cost_nusd) == ("estimated", nusd)


@pytest.mark.parametrize("format", ["json", "text", "verbose_json"])
def test_whisper_is_requested_to_report_the_billed_duration(gateway, upstream, format):
    """A container says what its sender likes: this one says three seconds, and the provider heard four hours."""
    upstream.reported, upstream.duration = {}, 4 * 3600.0
    answer = post(gateway, model=WHISPER, response_format=format)
    assert dict(upstream.calls[-1].fields)["response_format"] == "verbose_json"
    assert answer.text.strip() == HEARD if format == "text" else answer.json()["text"] == HEARD
    row = row_of(gateway, answer.headers["x-request-id"])
    assert (row.usage_basis, row.cost_nusd) == ("provider", 4 * 360_000_000)


def test_every_format_of_the_reference_comes_from_a_model_that_has_it(gateway, sdk):
    create = sdk.audio.transcriptions.create
    file = ("talk.wav", SOUND)
    verbose = create(
        model=WHISPER, file=file, response_format="verbose_json", timestamp_granularities=["word", "segment"]
    )
    assert (verbose.text, verbose.duration, verbose.words[0].word) == (HEARD, SECONDS, "Mary")
    assert create(model=WHISPER, file=file, response_format="text").strip() == HEARD
    assert create(model=WHISPER, file=file, response_format="srt") == f"1\n00:00:00,000 --> 00:00:03,000\n{HEARD}\n\n"
    assert create(model=WHISPER, file=file, response_format="vtt").startswith("WEBVTT\n\n00:00:00.000 --> ")
    assert create(model=GROQ, file=file, response_format="srt").startswith("1\n00:00:00,000 --> ")
    with pytest.raises(openai.BadRequestError) as caught:
        create(model=TOKENS, file=file, response_format="srt")
    assert (caught.value.param, caught.value.code) == ("response_format", "unsupported_format")


@pytest.mark.parametrize("model", [TOKENS, WHISPER, GROQ, SANDBOX])
def test_events_bring_the_text_and_the_usage(gateway, sdk, model):
    events = list(sdk.audio.transcriptions.create(model=model, file=("talk.wav", SOUND), stream=True))
    text = "".join(event.delta for event in events if event.type == "transcript.text.delta")
    assert text == events[-1].text == (HEARD if model != SANDBOX else f"A sound of {len(SOUND)} bytes.")
    end = events[-1]
    TranscriptionTextDoneEvent.model_validate(end.model_dump(warnings=False), strict=True)
    seconds = {TOKENS: None, WHISPER: 3.0, GROQ: 10.0, SANDBOX: 1.53}[model]
    assert (getattr(end.usage, "seconds", None), end.usage.input_tokens > 0) == (seconds, model == TOKENS)
    assert end.usage.cost > 0


@pytest.mark.parametrize(("model", "path"), [(WHISPER, "/v1"), (GROQ, "/groq/openai/v1")])
def test_a_sound_is_translated(gateway, sdk, upstream, model, path):
    answer = sdk.audio.translations.create(model=model, file=("talk.wav", SOUND))
    assert answer.text == HEARD and upstream.calls[-1].path == f"{path}/audio/translations"


def test_a_model_without_translation_is_refused_before_any_call(gateway, sdk, upstream):
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.audio.translations.create(model=TURBO, file=("talk.wav", SOUND))
    assert caught.value.code == "model_not_supported" and upstream.calls == []


@pytest.mark.parametrize("format", speech.ENCODERS)
def test_the_sandbox_accepts_its_own_speech(gateway, sdk, format):
    said = sdk.audio.speech.create(
        model="sandbox/sandbox-speak", input="Say it again, Zoë!", voice="calm", response_format=format
    )
    if format == "pcm":
        return  # it has no container that would identify its format
    transcription = sdk.audio.transcriptions.create(
        model=SANDBOX, file=("x", io.BytesIO(said.content)), response_format="verbose_json"
    )
    assert transcription.text == f"A sound of {len(said.content)} bytes." == transcription.segments[0].text.strip()
    TranscriptionVerbose.model_validate(transcription.to_dict())


@pytest.mark.parametrize(
    ("file", "fields", "status", "param", "code"),
    [
        (b"", {}, 400, "file", "empty_file"),
        (b"<html>no sound</html>", {}, 400, "file", "unsupported_media"),
        (b"%PDF-1.7 no sound", {}, 400, "file", "unsupported_media"),
        (None, {}, 400, "file", "invalid_parameters"),
        (SOUND, {"model": ""}, 400, "model", "invalid_parameters"),
        (SOUND, {"response_format": "xml"}, 400, "response_format", "invalid_parameters"),
        (SOUND, {"temperature": "hot"}, 400, "temperature", "invalid_parameters"),
        (SOUND, {"stream": "perhaps"}, 400, "stream", "invalid_parameters"),
        (SOUND, {"timestamp_granularities[]": "letter"}, 400, "timestamp_granularities[]", "invalid_parameters"),
        (SOUND, {"url": "https://example.com/a.wav"}, 400, "url", "invalid_parameters"),
        (None, {"url": "http://127.0.0.1:1/a.wav"}, 400, "url", "media_not_loaded"),
        (None, {"url": "file:///etc/passwd"}, 400, "url", "media_not_loaded"),
        (SOUND, {"model": "openai/gpt-5.6-luna"}, 400, "model", "model_not_supported"),
        (SOUND, {f"f{n}": "x" for n in range(200)}, 400, "", "too_many_parts"),
    ],
)
def test_each_invalid_input_has_its_error_and_reaches_no_provider(gateway, upstream, file, fields, status, param, code):
    before = len(upstream.calls)
    answer = post(gateway, file, **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code), error
    assert error["param"] == param or code == "model_not_supported"
    assert len(upstream.calls) == before


def test_errors_of_form_fields_read_as_those_of_json(gateway):
    messages = [
        post(gateway, SOUND, **fields).json()["error"]["message"]
        for fields in ({"model": ""}, {"response_format": "xml"})
    ]
    assert messages == [
        "The required field 'model' is missing; add it.",
        "Invalid value for 'response_format': 'xml' is not one of json, text, srt, verbose_json, vtt or diarized_json.",
    ]


def test_json_instead_of_a_form_is_refused(gateway):
    with httpx.Client(timeout=60) as http:
        headers = {"Authorization": f"Bearer {gateway.key}"}
        answer = http.post(f"{gateway.url}/audio/transcriptions", json={"model": TOKENS}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_content_type")


def test_a_large_sound_goes_through_whole_and_again_at_the_next_try(gateway, upstream):
    large = speech.make("wav", 100.0)  # three megabytes: it lies on the disk
    assert post(gateway, large, model=WHISPER).status_code == 200
    assert upstream.calls[-1].file == large
    upstream.script(500)
    assert post(gateway, large, model=TOKENS).status_code in (200, 502)


def test_form_fields_written_as_lists_and_objects_reach_the_provider(sdk, upstream):
    strategy = {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 200}
    sdk.audio.transcriptions.create(model=TOKENS, file=("a.wav", SOUND), chunking_strategy=strategy)
    assert json.loads(upstream.calls[-1].get("chunking_strategy")) == strategy
    fields = {"keywords": ["Zoë", "Oslo"], "languages": ["en", "no"]}
    sdk.audio.transcriptions.create(model="openai/gpt-transcribe", file=("a.wav", SOUND), **fields)
    sent = upstream.calls[-1].fields
    assert [value for name, value in sent if name == "keywords[]"] == fields["keywords"]
    assert [value for name, value in sent if name == "languages[]"] == fields["languages"]
    sdk.audio.transcriptions.create(model=MISTRAL, file=("a.wav", SOUND), keywords=["Zoë"], languages=["en"])
    assert (upstream.calls[-1].get("context_bias"), upstream.calls[-1].get("language")) == ("Zoë", "en")


def test_unsupported_fields_are_left_out_with_a_warning(sdk, upstream):
    raw = sdk.audio.transcriptions.with_raw_response
    answer = raw.create(model=WHISPER, file=("a.wav", SOUND), keywords=["Oslo"], languages=["en", "no"])
    warnings = answer.headers["x-llmgateway-warnings"]
    assert "keywords is not supported" in warnings and "languages is not supported" in warnings


@pytest.mark.parametrize("streamed", [False, True])
def test_a_price_by_the_hour_is_billed_where_the_provider_tells_tokens_alone(gateway, sdk, upstream, streamed):
    upstream.counted = True
    answer = sdk.audio.transcriptions.create(model=MISTRAL, file=("a.wav", SOUND), stream=streamed)
    last = list(answer)[-1] if streamed else answer
    assert last.usage.cost == COSTS[MISTRAL] / 1e9


@pytest.mark.parametrize("model", [MISTRAL, TOKENS])
def test_mistrals_client_reads_the_answer(gateway, model):
    with (
        httpx.Client(timeout=60) as http,
        mistralai.client.Mistral(api_key=gateway.key, server_url=gateway.address, client=http) as own,
    ):
        file = {"content": SOUND, "file_name": "a.wav"}
        assert own.audio.transcriptions.complete(model=model, file=file).text == HEARD
