"""Transcriptions and translations in OpenAI's format. The request is a form; the answer is complete or streamed.

Sources: OpenAI API reference, "Create transcription" and its stream events; the API references of Mistral and Groq,
which add `file_url`, `diarize` and seconds in the usage. A mapping's `formats` lists the response formats of the model;
without any, no format is requested. Keys of `extra`: `transcript_stream`: the model streams; `keywords_field` and
`languages_field`: the names of the fields for likely words and for several languages.
"""

from collections.abc import Iterator
from math import isfinite
from typing import Any

from msgspec import structs

from gateway.dialects import openai as dialect
from gateway.errors import GatewayError, NotSupported, UpstreamFailed
from gateway.neutral.events import Batch, Event, Failed, Finished, Started, TextDelta
from gateway.neutral.transcriptions import (
    MIN_AUDIO_KEY,
    SECOND_MS,
    TranscriptionInput,
    TranscriptionRequest,
    TranscriptionResult,
)
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import SHAPE_ERRORS, UNKNOWN_SHAPE, read_object
from gateway.providers.media_codecs import FormBody, UploadPart
from gateway.providers.openai.address import Tokens, address_of
from gateway.providers.openai.typed_events import TypedEvents
from gateway.providers.protocol import AnswerReader, Call, Target, UpstreamReply, WrittenCodec
from gateway.providers.sse import read_batches

STREAMS = "transcript_stream"
EVENT_STREAM = "text/event-stream"
# The upstream format for each format of a caller: subtitles are written from segments.
SOURCES = {
    "json": "json",
    "text": "json",
    "srt": "verbose_json",
    "vtt": "verbose_json",
    "verbose_json": "verbose_json",
    "diarized_json": "diarized_json",
}


class OpenAITranscriptions(WrittenCodec):
    """POST {address}/audio/transcriptions, or /audio/translations. `tokens` as for OpenAIChat."""

    dialect = dialect.NAME

    def __init__(self, path: str, tokens: Tokens | None = None) -> None:
        self._path = path
        self._tokens = tokens

    def write(self, request: TranscriptionRequest, target: Target) -> Call:
        """Return the call. NotSupported for a response format that the model does not support."""
        content: TranscriptionInput = request.content()
        warnings: list[str] = []
        streams = request.requirements.stream and bool(target.mapping.extra.get(STREAMS))
        fields = [("model", target.mapping.external_id), *_fields(content, target, streams, warnings)]
        if streams:
            fields.append(("stream", "true"))
        body = FormBody(fields, [UploadPart("file", content.filename, content.media_type, content.sound)])
        url, headers = address_of(target, self._path, self._tokens)
        headers["content-type"] = body.content_type
        if streams:
            headers["accept"] = EVENT_STREAM
        else:
            headers["accept"] = "application/json"
        min_ms = target.mapping.extra.get(MIN_AUDIO_KEY, 0) * SECOND_MS
        reader = _LengthReader(self, min_ms) if min_ms else None
        return Call("POST", url, headers, body, streams, tuple(warnings), reader=reader)

    def read(self, reply: UpstreamReply, relayed: bool) -> TranscriptionResult:
        """Return the text and its metadata. UpstreamFailed for an unexpected shape."""
        return _read(read_object(reply.read_all()))

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """Yield the text as it arrives, or all at once for a model that does not stream."""
        if EVENT_STREAM in reply.headers.get("content-type", "").lower():
            return read_batches(reply, TypedEvents(_read_event))
        return _all_at_once(self, reply, relayed)


class _LengthReader:
    """A reader that raises a reported duration to the minimum that the service bills, `min_ms`."""

    def __init__(self, codec: OpenAITranscriptions, min_ms: int) -> None:
        self._codec = codec
        self._min_ms = min_ms

    def read(self, reply: UpstreamReply, relayed: bool) -> TranscriptionResult:
        result = self._codec.read(reply, relayed)
        result.usage = self._measure(result.usage)
        return result

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        if EVENT_STREAM not in reply.headers.get("content-type", "").lower():
            yield from _all_at_once(self, reply, relayed)
            return
        for batch in self._codec.read_stream(reply, relayed):
            last = batch[-1] if batch else None
            if isinstance(last, Finished):
                batch = [*batch[:-1], structs.replace(last, usage=self._measure(last.usage))]
            yield batch

    def _measure(self, used: Usage | None) -> Usage | None:
        if used is None or not used.audio_ms:
            return used
        return structs.replace(used, audio_ms=max(used.audio_ms, self._min_ms))


def _all_at_once(codec: AnswerReader, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
    """Yield a complete answer as a stream."""
    try:
        result = codec.read(reply, relayed)
    except GatewayError as error:
        yield [Failed(error)]
        return
    yield [Started(result.model), TextDelta(result.text), Finished("stop", result.usage)]


def _source(content: TranscriptionInput, target: Target, streams: bool) -> str:
    """Return the format to request. NotSupported for a format that the model does not support."""
    offered = target.mapping.formats
    source = SOURCES[content.format]
    # The verbose format contains the same text with the duration that is billed; it has no streams and no log
    # probabilities.
    if source == "json" and "verbose_json" in offered and not ("json" in offered and (streams or content.include)):
        source = "verbose_json"
    if source not in offered:
        raise NotSupported(
            f"{target.mapping.key} does not support the format {content.format}; it supports {', '.join(offered)}.",
            param="response_format",
            code="unsupported_format",
        )
    return source


def _fields(content: TranscriptionInput, target: Target, streams: bool, warnings: list[str]) -> list[tuple[str, str]]:
    fields: list[tuple[str, str]] = []
    offered = target.mapping.formats
    if offered:
        fields.append(("response_format", _source(content, target, streams)))
    elif content.diarize or content.format == "diarized_json":
        fields.append(("diarize", "true"))
    plain = {"language": content.language, "prompt": content.prompt, "chunking_strategy": content.chunking}
    fields += [(name, value) for name, value in plain.items() if value]
    if content.temperature is not None:
        fields.append(("temperature", f"{content.temperature:g}"))
    fields += [("include[]", name) for name in content.include]
    if not offered or SOURCES[content.format] == "verbose_json" or "json" not in offered:
        fields += [("timestamp_granularities[]", name) for name in content.granularities or _granularities(content)]
    fields += _listed("keywords", content.keywords, target, warnings)
    if len(content.languages) == 1 and not content.language and not target.mapping.extra.get("languages_field"):
        fields.append(("language", content.languages[0]))
    else:
        fields += _listed("languages", content.languages, target, warnings)
    return fields


def _listed(name: str, values: tuple[str, ...], target: Target, warnings: list[str]) -> list[tuple[str, str]]:
    """Return a form field for each value, under the mapping's name of the field."""
    field = target.mapping.extra.get(f"{name}_field")
    if field:
        return [(field, value) for value in values]
    if values:
        warnings.append(f"{name} is not supported by {target.mapping.key} and was left out.")
    return []


def _granularities(content: TranscriptionInput) -> tuple[str, ...]:
    """Return the granularities that the response format needs: subtitles are written from segments."""
    if content.format in ("srt", "vtt"):
        return ("segment",)
    return ()


def _read(wire: dict[str, Any]) -> TranscriptionResult:
    try:
        text = wire["text"]
        duration = wire.get("duration")
        words = _rows(wire.get("words"))
        segments = [_timed(row) for row in _rows(wire.get("segments"))]
        result = TranscriptionResult(
            text=text,
            language=wire.get("language") or "",
            duration=float(duration) if duration is not None else None,
            words=words,
            segments=segments,
            logprobs=wire.get("logprobs") or [],
            usage=read_usage(wire.get("usage"), duration or _last_end(words, segments)),
            model=wire.get("model") or "",
        )
    except SHAPE_ERRORS:
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
    if not isinstance(text, str):
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200)
    return result


def _rows(value: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in value or []]


def _last_end(*lists: list[dict[str, Any]]) -> float | None:
    """Return the end of the last word or segment, in seconds: the audio has at least this length."""
    ends = [row.get("end") for rows in lists for row in rows[-1:]]
    return max((end for end in ends if isinstance(end, int | float) and isfinite(end)), default=None)


def _timed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a segment with its times in seconds, if it has any. ValueError for an invalid time."""
    for name in ("start", "end"):
        seconds = row.get(name)
        if seconds is None:
            row.pop(name, None)
        elif type(seconds) not in (int, float) or not isfinite(seconds):
            raise ValueError("a segment with an invalid time")
    return row


def read_usage(reported: dict[str, Any] | None, duration: float | None) -> Usage | None:
    """Return the usage in tokens or seconds. `duration`, in seconds, replaces a missing or zero length in the usage."""
    reported = reported or {}
    seconds = reported.get("seconds") or reported.get("prompt_audio_seconds") or duration
    length_ms = read_count(float(seconds) * SECOND_MS) if seconds is not None else 0
    if "input_tokens" in reported:
        # A sum without details is that of the sound: nearly all of it, and where the prices differ, the dearer part.
        details = reported.get("input_token_details") or {"audio_tokens": reported["input_tokens"]}
        return Usage(
            input=read_count(details.get("text_tokens")),
            input_audio=read_count(details.get("audio_tokens")),
            output=read_count(reported.get("output_tokens")),
            audio_ms=length_ms,
        )
    if "prompt_tokens" in reported:
        return Usage(
            input=read_count(reported["prompt_tokens"]),
            output=read_count(reported.get("completion_tokens")),
            audio_ms=length_ms,
        )
    if length_ms:
        return Usage(audio_ms=length_ms)
    return None


def _read_event(wire: dict[str, Any]) -> Event | None:
    """Read a stream event: `transcript.text.delta` contains a piece of text, `transcript.text.done` all text and the
    usage."""
    if wire["type"] in ("transcript.text.delta", "transcription.text.delta"):
        return TextDelta(wire["delta"] if "delta" in wire else wire["text"])
    if wire["type"] in ("transcript.text.done", "transcription.done"):
        return Finished("stop", read_usage(wire.get("usage"), None), native={"text": wire["text"]})
    return None
