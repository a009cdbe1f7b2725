"""Realtime sessions in OpenAI's format: the handshake, and the reader of the provider's events.

Source: OpenAI API reference, "Realtime server events" (general availability). `response.done` contains usage with every
status. Transcriptions of the input audio report their usage separately, in tokens or seconds.
"""

import json
from typing import Any
from urllib.parse import quote

import msgspec
import orjson

from gateway.callers.credential_sources import PLATFORM_SOURCE
from gateway.dialects import openai as dialect
from gateway.errors import NotSupported
from gateway.neutral.realtime import (
    MIN_BYTES_PER_SECOND,
    SECOND_BYTES,
    TRANSCRIPTION,
    UNLIMITED,
    RealtimeRequest,
    ServerEvent,
)
from gateway.neutral.request import Native
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import SHAPE_ERRORS, check_parts
from gateway.providers.openai.address import Tokens, address_of
from gateway.providers.openai.transcriptions import read_usage
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.upstream_calls import Dial, SessionLink
from gateway.runtime.threads import compute

PATH = "/realtime"
LARGE = 1 << 18  # characters from which an event is parsed in a thread
TEXTS = frozenset(
    (
        "response.output_text.delta",
        "response.output_audio_transcript.delta",
        "response.function_call_arguments.delta",
        "response.text.delta",
        "response.audio_transcript.delta",
    )
)
SOUNDS = frozenset(("response.output_audio.delta", "response.audio.delta"))
FINISHES = {"cancelled": "cancelled", "incomplete": "length", "failed": "error"}
# Bytes of a second by the name of the format, in the current version and in the first one.
SECONDS = {"audio/pcm": SECOND_BYTES, "pcm16": SECOND_BYTES}
SECONDS |= dict.fromkeys(("audio/pcmu", "audio/pcma", "g711_ulaw", "g711_alaw"), MIN_BYTES_PER_SECOND)
TRANSCRIPTION_PREFIX = "conversation.item.input_audio_transcription."


class RealtimeEvent(msgspec.Struct):
    """The fields of an event that are read. Raw fields are only parsed when they are needed."""

    type: str = ""
    delta: msgspec.Raw = msgspec.Raw(b'""')
    response: msgspec.Raw = msgspec.Raw(b"{}")
    session: msgspec.Raw = msgspec.Raw(b"{}")
    usage: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"{}")
    item_id: Any = ""
    response_id: Any = ""
    transcript: msgspec.Raw = msgspec.Raw(b'""')


DECODER = msgspec.json.Decoder(RealtimeEvent)


class OpenAIRealtime:
    """GET {address}/realtime, upgraded to a WebSocket. `tokens` as for OpenAIChat."""

    dialect = dialect.NAME
    waits = False
    transcribes = False

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def write(self, request: RealtimeRequest, target: Target) -> Call:
        """Return the call of the handshake."""
        url, headers = address_of(target, PATH, self._tokens)
        query = f"model={quote(target.mapping.external_id, safe='')}"
        if request.content().type == TRANSCRIPTION:
            query = "intent=transcription"
        return Call("GET", f"{url}{'&' if '?' in url else '?'}{query}", headers)

    def relay(self, native: Native, request: RealtimeRequest, target: Target) -> Call:
        """Return the call of the handshake: a session has no body to be relayed."""
        return self.write(request, target)

    def read(self, reply: UpstreamReply, relayed: bool) -> Any:
        """Raise NotSupported: a session has no single answer."""
        raise NotSupported("A realtime session is opened over a WebSocket.")

    def open(self, request: RealtimeRequest, target: Target, dial: Dial, seconds: float) -> "OpenAISession":
        """Return a session that passes events on unchanged."""
        return OpenAISession(dial(self.write(request, target), seconds), target.credential.source == PLATFORM_SOURCE)


class OpenAISession:
    """An UpstreamSession with an upstream that uses the callers' format. `discreet`: the upstream account is the
    platform's, so events about the account are hidden from the caller."""

    def __init__(self, link: SessionLink, discreet: bool) -> None:
        self._link = link
        self._discreet = discreet
        self.send = link.send
        self.ping = link.ping
        self.close = link.close
        self.abort = link.abort

    @property
    def code(self) -> int:
        return self._link.code

    @property
    def reason(self) -> str:
        return self._link.reason

    @property
    def received_count(self) -> int:
        return self._link.received_count

    def receive(self) -> ServerEvent | None:
        """Return the next event, None when the session is closed."""
        text = self._link.receive()
        if text is None:
            return None
        event = read_event(text)
        if not (self._discreet and event.kind == "account"):
            event.text = text
        return event


def read_event(text: str) -> ServerEvent:
    """Read an event; an unknown event becomes an empty ServerEvent. UpstreamFailed for an event of too many parts."""
    if len(text) < LARGE:
        return _read(text)
    raw = text.encode()
    check_parts(raw)
    return compute(_read, raw)


def _read(text: str | bytes) -> ServerEvent:
    try:
        event = DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        event = _without_lone_surrogates(text)
    if event.type in SOUNDS:
        return ServerEvent(id=_text(event.response_id), sound_bytes=len(event.delta) * 3 // 4)
    if event.type in TEXTS:
        return ServerEvent(id=_text(event.response_id), text_length=len(event.delta))
    read = READERS.get(event.type)
    if read is None:
        return ServerEvent()
    return read(event)


def _without_lone_surrogates(text: str | bytes) -> RealtimeEvent:
    """Read an event with half a surrogate pair in its texts, as after a cut in the middle of a character."""
    try:
        return DECODER.decode(json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return RealtimeEvent()


def _started(event: RealtimeEvent) -> ServerEvent:
    return ServerEvent("started", _text(_object(event.response).get("id")))


def _done(event: RealtimeEvent) -> ServerEvent:
    response = _object(event.response)
    status = _text(response.get("status"))
    details = response.get("status_details")
    fault = details.get("error") if isinstance(details, dict) else None
    return ServerEvent(
        "done",
        _text(response.get("id")),
        usage=_usage_of(response.get("usage")),
        finish=FINISHES.get(status, "stop"),
        fault=_text(fault.get("code") or fault.get("type")) if isinstance(fault, dict) else "",
    )


def _refused(event: RealtimeEvent) -> ServerEvent:
    return ServerEvent("refused", _text(_object(event.error).get("event_id")))


def _settings(event: RealtimeEvent) -> ServerEvent:
    session = _object(event.session)
    audio = session.get("audio")
    sound = audio.get("input") if isinstance(audio, dict) else None
    holder = sound if isinstance(sound, dict) else session
    turns = holder.get("turn_detection", {})
    auto_responds = turns is not None and not (isinstance(turns, dict) and turns.get("create_response") is False)
    limit = session.get("max_output_tokens", session.get("max_response_output_tokens"))
    name = "transcription" if holder is sound else "input_audio_transcription"
    spoken = audio.get("output") if isinstance(audio, dict) else None
    heard_format = holder.get("format") if holder is sound else session.get("input_audio_format")
    spoken_format = spoken.get("format") if isinstance(spoken, dict) else session.get("output_audio_format")
    return ServerEvent(
        "settings",
        auto_responds=auto_responds and session.get("type") != TRANSCRIPTION,
        most_output=_output_limit(limit),
        transcriber=_transcriber(holder, name),
        heard_second=_second_of(heard_format),
        spoken_second=_second_of(spoken_format),
    )


def _second_of(format: Any) -> int:
    """Return the bytes of a second in a format of sound; 0 for an unknown one."""
    name = format.get("type") if isinstance(format, dict) else format
    return SECONDS.get(name, 0) if isinstance(name, str) else 0


def _output_limit(limit: Any) -> int | None:
    if type(limit) is int and limit > 0:
        return limit
    if limit == "inf":
        return UNLIMITED
    return None


def _transcriber(holder: dict[str, Any], name: str) -> str | None:
    """Return the transcription model; "" when transcription is off, None when the event lacks the setting."""
    if name not in holder:
        return None
    transcription = holder[name]
    if isinstance(transcription, dict):
        return _text(transcription.get("model"))
    return ""


def _committed(event: RealtimeEvent) -> ServerEvent:
    return ServerEvent("committed", _text(event.item_id))


def _transcribed(event: RealtimeEvent) -> ServerEvent:
    try:
        usage = read_usage(_object(event.usage), None)
    except SHAPE_ERRORS:
        usage = None
    return ServerEvent("transcribed", _text(event.item_id), usage=usage, text_length=len(event.transcript))


def _transcribing(event: RealtimeEvent) -> ServerEvent:
    return ServerEvent("transcribing", _text(event.item_id), text_length=len(event.delta))


def _transcription_failed(event: RealtimeEvent) -> ServerEvent:
    return ServerEvent("transcription_failed", _text(event.item_id))


def _account(event: RealtimeEvent) -> ServerEvent:
    return ServerEvent("account")


READERS = {
    "response.created": _started,
    "response.done": _done,
    "error": _refused,
    "session.created": _settings,
    "session.updated": _settings,
    "input_audio_buffer.committed": _committed,
    "rate_limits.updated": _account,
    f"{TRANSCRIPTION_PREFIX}delta": _transcribing,
    f"{TRANSCRIPTION_PREFIX}completed": _transcribed,
    f"{TRANSCRIPTION_PREFIX}failed": _transcription_failed,
}


def _object(raw: msgspec.Raw) -> dict[str, Any]:
    try:
        body = orjson.loads(bytes(raw))
    except orjson.JSONDecodeError:
        return {}
    if isinstance(body, dict):
        return body
    return {}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value[:256]
    return ""


def _usage_of(reported: Any) -> Usage | None:
    """Return the usage as disjoint counts: cached and uncached input of each kind, and output."""
    if not isinstance(reported, dict):
        return None
    given = _part(reported, "input_token_details")
    output_details = _part(reported, "output_token_details")
    cached = _part(given, "cached_tokens_details")
    total = read_count(reported.get("input_tokens"))
    sound = read_count(given.get("audio_tokens"))
    image = read_count(given.get("image_tokens"))
    again = read_count(given.get("cached_tokens"))
    sound_again = read_count(cached.get("audio_tokens"))
    image_again = read_count(cached.get("image_tokens"))
    text_again = read_count(cached.get("text_tokens")) if cached else max(0, again - sound_again)
    written = read_count(reported.get("output_tokens"))
    spoken = min(read_count(output_details.get("audio_tokens")), written)
    heard_again = min(sound_again, sound)
    shown = max(0, image - image_again)  # cached images are billed as cached text: there is no separate price
    text = max(0, total - sound - image - text_again)
    return Usage(
        input=text,
        cache_read=min(text_again, max(0, total - sound - image)) + min(image_again, image),
        input_audio=sound - heard_again,
        input_audio_cached=heard_again,
        input_image=shown,
        output=written - spoken,
        output_audio=spoken,
    )


def _part(holder: dict[str, Any], name: str) -> dict[str, Any]:
    part = holder.get(name)
    if isinstance(part, dict):
        return part
    return {}
