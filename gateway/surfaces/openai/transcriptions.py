"""POST /v1/audio/transcriptions and /v1/audio/translations."""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Literal, NotRequired, TypedDict

import orjson

from gateway.billing.context import RequestContext
from gateway.engine.executor import StreamedAnswer
from gateway.errors import GatewayError, InvalidRequest
from gateway.money import read_decimal
from gateway.neutral.events import Batch, Failed, Finished, TextDelta
from gateway.neutral.request import STRATEGIES, Options, Requirements
from gateway.neutral.transcriptions import (
    TranscriptionInput,
    TranscriptionRequest,
    TranscriptionResult,
    TranslationRequest,
    units_of,
)
from gateway.runtime.large_files import StoredFile
from gateway.runtime.threads import compute_if
from gateway.surfaces.bodies import uploads as uploads_module
from gateway.surfaces.bodies.preference_checks import read_preferences
from gateway.surfaces.bodies.validation_errors import either, invalid, missing
from gateway.surfaces.openai.chat_writer import KEEP_ALIVE, error_frame
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.answer_structs import JsonObject, StreamFailure
from gateway.surfaces.web.facts import AnswerCost, Facts, RoutingMetadata, headers_of
from gateway.surfaces.web.forms import FILE, Form, FormLimits, describe_form, read_form, require_form
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.worker.services import Services

# Writes subtitles from segments: SubRip (srt) and WebVTT (vtt).

SUBTITLES = ("srt", "vtt")
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
SECOND_MS = 1000
MAX_TIME_S = 3_599_999.999  # the largest time with three digits of hours


def write_subtitles(kind: str, segments: Iterable[dict[str, Any]]) -> str:
    """Return subtitles; `kind` is one of SUBTITLES. A segment has start and end in seconds, and text."""
    mark = "," if kind == "srt" else "."
    blocks = []
    for number, one in enumerate(segments, 1):
        start = _time(one.get("start", 0), mark)
        end = _time(one.get("end", 0), mark)
        head = f"{number}\n" if kind == "srt" else ""
        blocks.append(f"{head}{start} --> {end}\n{str(one.get('text', '')).strip()}\n\n")
    return ("" if kind == "srt" else "WEBVTT\n\n") + "".join(blocks)


def _time(seconds: float, mark: str) -> str:
    rest = round(min(max(0.0, float(seconds)), MAX_TIME_S) * SECOND_MS)
    hours, rest = divmod(rest, HOUR_MS)
    minutes, rest = divmod(rest, MINUTE_MS)
    whole, thousandths = divmod(rest, SECOND_MS)
    return f"{hours:02}:{minutes:02}:{whole:02}{mark}{thousandths:03}"


ID_PREFIX = "transcript-"
MANY_SEGMENTS = 1_000  # segments; subtitles with more are written in a thread
SHOWN_CHARACTERS = 32  # characters of a value that an error repeats
RESPONSE_FORMATS = ("json", "text", "srt", "verbose_json", "vtt", "diarized_json")
GRANULARITIES = ("word", "segment")
LIMITS = FormLimits(parts=128, files=1, field_bytes=64 << 10)
FETCH_BYTES = 25 << 20
FETCH_TIMEOUT_S = 30.0
TRUE = ("true", "1")
TEXT_CONTENT_TYPE = ("Content-Type", "text/plain; charset=utf-8")
CHUNKING = re.compile(r"chunking_strategy\[(type|threshold|prefix_padding_ms|silence_duration_ms)\]")
BOOLEAN = (*TRUE, "false", "0", "")
# Members of a segment of verbose_json that clients require, if the provider does not report them: values that count as
# speech by Whisper's own thresholds.
UNREPORTED: dict[str, Any] = {
    "seek": 0,
    "tokens": [],
    "temperature": 0.0,
    "avg_logprob": 0.0,
    "compression_ratio": 1.0,
    "no_speech_prob": 0.0,
}


class SoundTokens(TypedDict):
    text_tokens: int
    audio_tokens: int


class SoundSeconds(TypedDict):
    """The usage of a provider that counts no tokens."""

    type: Literal["duration"]
    seconds: float


class SoundTokenUsage(TypedDict):
    type: Literal["tokens"]
    input_tokens: int
    input_token_details: SoundTokens
    output_tokens: int
    total_tokens: int


class PricedSoundSeconds(SoundSeconds, AnswerCost): ...


class PricedSoundTokens(SoundTokenUsage, AnswerCost): ...


TranscriptionUsage = PricedSoundSeconds | PricedSoundTokens


class StreamedSoundUsage(PricedSoundTokens):
    """The usage at the end of a stream, which OpenAI's type counts in tokens; `seconds` is a reported duration."""

    seconds: NotRequired[float]


class Transcription(TypedDict):
    text: str
    task: NotRequired[Literal["transcribe", "translate"]]
    language: str | None
    duration: NotRequired[float | None]
    segments: NotRequired[list[JsonObject]]
    words: NotRequired[list[JsonObject]]
    logprobs: NotRequired[list[Any]]
    model: str
    usage: TranscriptionUsage
    metadata: RoutingMetadata


class TranscriptionDelta(TypedDict):
    type: Literal["transcript.text.delta"]
    delta: str


class TranscriptionEnd(TypedDict):
    type: Literal["transcript.text.done"]
    text: str
    usage: StreamedSoundUsage


def transcribe(services: Services, inbound: Inbound, kind: type[TranscriptionRequest]) -> Outbound:
    """Transcribe an audio file, in the requested format or as a stream of events."""
    context = auth_module.admit(services, inbound, kind.operation, form=True)
    require_form(inbound)
    form = read_form(inbound, LIMITS, services.settings.spool_dir)
    if inbound.payload is not None:
        inbound.payload.send_instead(describe_form(form))
    content, request = read_transcription(services, inbound, form, kind)
    if request.requirements.stream:
        return _stream(services, context, request)
    answer = services.engine.executor.generate(context, request)
    facts = Facts(context, answer.outcome, ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    return _reply(answer.result, content.format, facts, headers)


def read_transcription(
    services: Services, inbound: Inbound, form: Form, kind: type[TranscriptionRequest]
) -> tuple[TranscriptionInput, TranscriptionRequest]:
    """Return the neutral request. Raises InvalidRequest with `param` set."""
    model = form.text("model")
    if not model:
        raise missing("model")
    chosen = form.text("response_format") or "json"
    if chosen not in RESPONSE_FORMATS:
        raise invalid("response_format", f"'{chosen[:SHOWN_CHARACTERS]}' is not one of {either(RESPONSE_FORMATS)}")
    file, param = _file_of(services, inbound, form)
    sound = uploads_module.detect_sound(file, param)
    content = TranscriptionInput(
        file,
        sound.media_type,
        sound.filename,
        form.text("language"),
        form.text("prompt"),
        chosen,
        _temperature(form),
        _granularities(form),
        tuple(form.texts("include[]") + form.texts("include")),
        _flag(form, "diarize"),
        _chunking(form),
        _words(form, "keyterm", "keywords", "context_bias"),
        _words(form, "languages"),
    )
    needs = Requirements(
        stream=_flag(form, "stream"),
        max_tokens=0,
        prompt_bytes=content.text_bytes,
        messages=1,
        units=units_of(content, *sound.length),
    )
    return content, kind(
        model, needs, lambda: content, Options(**read_preferences(routing=form.text("routing") or None))
    )


def _file_of(services: Services, inbound: Inbound, form: Form) -> tuple[StoredFile, str]:
    """Return the audio, and the name of the field that held it."""
    url = form.text("url") or form.text("file_url")
    if form.files and url:
        raise invalid("url", "send a file or a url, not both")
    if form.files:
        return form.files[0].data, form.files[0].name[:64]
    if not url and (ident := form.text("file_id")):
        return _load_stored(services, inbound, ident), "file_id"
    if not url:
        raise invalid("file", "send the audio in file, url or file_id")
    try:
        fetched = services.routing.transport.fetch(url, FETCH_BYTES, timeout_s=FETCH_TIMEOUT_S)
    except GatewayError as error:
        raise _not_loaded(error.code) from None
    if fetched.status != 200:
        raise _not_loaded(f"status {fetched.status}")
    file = inbound.new_file(services.settings.spool_dir)
    file.write(fetched.body)
    return file, "url"


def _load_stored(services: Services, inbound: Inbound, ident: str) -> StoredFile:
    """Return the content of a file that the caller stored earlier. NotFound."""
    stored = services.engine.files.find(auth_module.caller_of(services, inbound), ident, "file_id")
    if stored.size > LIMITS.file_bytes:
        raise invalid("file_id", f"the file is larger than {LIMITS.file_bytes} bytes")
    file = inbound.new_file(services.settings.spool_dir)
    for piece in services.engine.files.open(stored):
        file.write(piece)
    return file


def _not_loaded(why: str) -> InvalidRequest:
    return InvalidRequest(f"The audio could not be downloaded ({why}).", param="url", code="media_not_loaded")


def _temperature(form: Form) -> float | None:
    text = form.text("temperature")
    if not text:
        return None
    try:
        value = float(read_decimal(text))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise invalid("temperature", "expected a number from 0 to 1")
    return value


def _granularities(form: Form) -> tuple[str, ...]:
    granularities = tuple(form.texts("timestamp_granularities[]") + form.texts("timestamp_granularities"))
    if any(granularity not in GRANULARITIES for granularity in granularities):
        raise invalid("timestamp_granularities[]", f"expected any of {', '.join(GRANULARITIES)}")
    return granularities


def _chunking(form: Form) -> str:
    """Return the strategy: a word, or JSON, also where a client sends its members separately
    (`chunking_strategy[type]`)."""
    members = {match[1]: value for name, value in form.fields if (match := CHUNKING.fullmatch(name))}
    if not members:
        return form.text("chunking_strategy")
    return orjson.dumps({name: _number(value) for name, value in members.items()}).decode()


def _number(text: str) -> str | float:
    try:
        value = float(read_decimal(text))
    except ValueError:
        return text
    if value.is_integer():
        return int(value)
    return value


def _words(form: Form, *names: str) -> tuple[str, ...]:
    """Return the values of all fields with these names, including the list spelling of clients (`name[]`)."""
    return tuple(value for name in names for field in (name, f"{name}[]") for value in form.texts(field) if value)


def _flag(form: Form, name: str) -> bool:
    text = form.text(name).lower()
    if text not in BOOLEAN:
        raise invalid(name, "expected true or false")
    return text in TRUE


def _reply(result: TranscriptionResult, chosen: str, facts: Facts, headers: list[tuple[str, str]]) -> Outbound:
    return compute_if(result.large, _write, result, chosen, facts, headers)


def _write(result: TranscriptionResult, chosen: str, facts: Facts, headers: list[tuple[str, str]]) -> Outbound:
    shown_id = facts.context.shown_id
    if chosen == "text" or chosen in SUBTITLES:
        body = result.text + "\n"
        if chosen != "text":
            body = compute_if(len(result.segments) > MANY_SEGMENTS, write_subtitles, chosen, result.segments)
        named = [TEXT_CONTENT_TYPE, *http_responses_module.PRIVATE, ("x-request-id", shown_id), *headers]
        return Outbound(200, named, body.encode("utf-8", "replace"))
    written: Transcription = {
        "text": result.text,
        "language": result.language or None,  # some clients require it
        "model": facts.served,
        "usage": _usage(facts),
        "metadata": facts.metadata(),
    }
    if result.duration or chosen != "json":
        written["duration"] = result.duration
    if chosen != "json":
        translated = facts.context.operation == TranslationRequest.operation
        written["task"] = "translate" if translated else "transcribe"
        written["language"] = result.language
        written["segments"] = result.segments
    if chosen == "verbose_json":
        written["segments"] = [UNREPORTED | {"id": number} | segment for number, segment in enumerate(result.segments)]
    if result.words:
        written["words"] = [{"text": word.get("word", word.get("text", "")), **word} for word in result.words]
    if result.logprobs:
        written["logprobs"] = result.logprobs
    return http_responses_module.json_reply(written, shown_id, headers=headers)


def _usage(facts: Facts) -> TranscriptionUsage:
    """Return tokens where the provider counts them, else seconds."""
    used = facts.usage
    if not used.input_total and not used.output_total:
        return {"type": "duration", "seconds": used.audio_ms / uploads_module.SECOND_MS, **facts.cost()}
    return _write_tokens(facts)


def _write_streamed_usage(facts: Facts) -> StreamedSoundUsage:
    usage: StreamedSoundUsage = {**_write_tokens(facts)}
    if facts.usage.audio_ms:
        usage["seconds"] = facts.usage.audio_ms / uploads_module.SECOND_MS
    return usage


def _write_tokens(facts: Facts) -> PricedSoundTokens:
    used = facts.usage
    return {
        "type": "tokens",
        "input_tokens": used.input_total,
        "input_token_details": {"text_tokens": used.input, "audio_tokens": used.input_audio},
        "output_tokens": used.output_total,
        "total_tokens": used.input_total + used.output_total,
        **facts.cost(),
    }


def _stream(services: Services, context: RequestContext, request: TranscriptionRequest) -> Outbound:
    stream = services.engine.executor.stream(context, request)
    facts = Facts(context, stream.outcome, ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=True)
    return http_responses_module.stream_reply(_frames(stream, facts), context.shown_id, headers)


def _frames(stream: StreamedAnswer, facts: Facts) -> Iterator[bytes]:
    return http_responses_module.write_frames(stream, partial(_write_events, facts, []), error_frame)


def _write_events(facts: Facts, texts: list[str], batch: Batch) -> bytes:
    sent = []
    for event in batch:
        if type(event) is TextDelta:
            texts.append(event.text)
            piece: TranscriptionDelta = {"type": "transcript.text.delta", "delta": event.text}
            sent.append(http_responses_module.write_event(piece))
        elif type(event) is Failed:
            sent.append(error_frame(event.error))
        elif type(event) is Finished:
            text = event.native.get("text", "".join(texts))
            usage = _write_streamed_usage(facts)
            done: TranscriptionEnd = {"type": "transcript.text.done", "text": text, "usage": usage}
            sent.append(http_responses_module.write_event(done))
    return b"".join(sent) or KEEP_ALIVE


FIELD = {"type": "string"}
FIELDS = {"type": "array", "items": FIELD}
FORM_FIELDS = {
    "type": "object",
    "required": ["model"],
    # Exactly one of them.
    "oneOf": [{"required": ["file"]}, {"required": ["url"]}, {"required": ["file_id"]}],
    "properties": {
        "model": {**FIELD, "minLength": 1},
        "file": FILE,
        "url": {**FIELD, "pattern": "^https?://", "description": "URL of the audio, instead of a file."},
        "file_id": {**FIELD, "pattern": "^file_[0-9a-f]{32}$", "description": "The id of a stored file."},
        "language": FIELD,
        "prompt": FIELD,
        "response_format": {"enum": RESPONSE_FORMATS},
        "temperature": {"type": "number", "minimum": 0, "maximum": 1},
        "stream": {"type": "boolean"},
        "timestamp_granularities[]": {"type": "array", "items": {"enum": GRANULARITIES}},
        "include[]": FIELDS,
        "diarize": {"type": "boolean"},
        "chunking_strategy": FIELD,
        "keywords[]": FIELDS,
        "keyterm": FIELDS,
        "languages[]": FIELDS,
        "routing": {"enum": STRATEGIES},
    },
}
OPERATIONS = tuple(
    Operation(
        "POST",
        f"/v1/audio/{kind.operation}",
        partial(transcribe, kind=kind),
        body="form",
        paid=True,
        about=About(
            summary,
            form=FORM_FIELDS,
            answer=Transcription,
            also=("text/plain",),
            events=TranscriptionDelta | TranscriptionEnd | StreamFailure,
        ),
    )
    for kind, summary in (
        (TranscriptionRequest, "Transcribe an audio file"),
        (TranslationRequest, "Translate an audio file into English text"),
    )
)
