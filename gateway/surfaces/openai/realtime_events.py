"""The caller's side of a realtime session in OpenAI's format: validated client events, and errors as events.

Source: OpenAI Realtime API reference (general availability), "Client events". Only known events are forwarded, each
serialized anew, so that the provider reads exactly what was validated.
"""

import re
from collections.abc import Callable
from typing import Any, Literal

import orjson

from gateway.catalogue.entries import Mapping
from gateway.configuration.settings import LimitSettings
from gateway.dialects.openai import error_body
from gateway.errors import GatewayError, InvalidRequest, NotSupported
from gateway.ids import new_hex
from gateway.neutral.file_types import decode_base64, type_of
from gateway.neutral.hosted_uses import is_stored
from gateway.neutral.realtime import MAX_IMAGE_TOKENS, TRANSCRIPTION, UNLIMITED, ClientEvent, SessionLock, size_of
from gateway.runtime.threads import compute_if
from gateway.surfaces.web import caps as caps_module

Json = dict[str, Any]
# Events by their possible effect.
SOUND = "input_audio_buffer.append"
BEGINS: dict[str, Literal["", "response", "sound"]] = {
    "session.update": "",
    "transcription_session.update": "",
    "input_audio_buffer.append": "sound",
    "input_audio_buffer.commit": "sound",
    "input_audio_buffer.clear": "",
    "output_audio_buffer.clear": "",
    "conversation.item.create": "",
    "conversation.item.retrieve": "",
    "conversation.item.truncate": "",
    "conversation.item.delete": "",
    "response.create": "response",
    "response.cancel": "",
}
MAX_ID_LENGTH = 256
LARGE = 1 << 18  # bytes; a longer event is written in a thread
FUNCTION = "function"
# Content that the gateway can measure; anything else counts as the model's whole context.
MEASURED = ("input_text", "output_text", "text", "input_audio", "output_audio", "audio", "input_image")
DATA_URL = re.compile(r"data:[^,]{0,100};base64,", re.IGNORECASE)
IMAGE_HEAD = 32  # characters of base64 that show the type of an image
# Fields reserved for the owner of the provider's account: they refer to objects stored or shown there.
OWNERS = ("prompt", "tracing")
# With these fields a response reads something else than the current conversation.
OWN_CONTEXT = frozenset(("input", "conversation", "instructions", "tools"))
MESSAGE_ROLES = (None, "user", "assistant")  # roles of items without instructions; function calls have none
INSTRUCTIONS_LOCKED = "The client secret fixes the instructions of this session."
NOT_OURS = (
    "{} names an object of the account at the provider, which is the platform's; only a provider key of the "
    "organization may be used with its own objects; the operator can allow it for the platform's keys with "
    "routing.provider_objects"
)
FILE_ID = "file_id"
ADDRESSES = ("url", "uri")  # ends of the names of members with an address
OUTPUT_LIMITS = ("max_output_tokens", "max_response_output_tokens")


class OpenAIEvents:
    """Reads the events of one session. `names` are the names that the caller may use for its model, `transcribe`
    returns the provider's name of a transcription model, or raises; `lock` holds the settings that a client secret
    fixes, `limits` the limits of an event, as for the body of a request. `objects`: items may name files that the
    provider stores for its account."""

    def __init__(
        self,
        kind: Literal["realtime", "transcription"],
        names: frozenset[str],
        transcribe: Callable[[str], str],
        lock: SessionLock,
        limits: LimitSettings,
        objects: bool = False,
    ) -> None:
        self._kind = kind
        self._objects = objects
        self._names = names
        self._transcribe = transcribe
        self._lock = lock
        self._limits = limits
        self.transcription_model = ""  # the transcription model, as the caller wrote it

    def read(self, text: str) -> ClientEvent:
        """Return a validated event with an id. Raises InvalidRequest and others, with the id in `details`."""
        raw = text.encode()
        wire = caps_module.read(self._limits, raw, _decode, raw)
        given = wire.get("event_id")
        ident = given if isinstance(given, str) and 0 < len(given) <= MAX_ID_LENGTH else f"event_{new_hex()}"
        try:
            return self._read(wire, ident, len(raw))
        except GatewayError as error:
            error.details = {"event_id": given if isinstance(given, str) else ""}
            raise

    def error(self, error: GatewayError, event: str) -> str:
        """Return the event that reports an error."""
        body = error_body(error, "")["error"] | {"event_id": event or None}
        body.pop("details", None)
        return orjson.dumps({"type": "error", "event_id": f"event_{new_hex()}", "error": body}).decode()

    def cancel(self, response: str) -> str:
        """Return the event that cancels a response."""
        return orjson.dumps({"type": "response.cancel", "response_id": response}).decode()

    def opening(self) -> tuple[ClientEvent, ...]:
        """Return the first upstream events: the settings that the secret fixes, and the model of a transcription
        session."""
        lock = self._lock
        session: Json = {}
        audio: Json = {}
        if lock.instructions:
            session["instructions"] = lock.instructions
        if lock.voice:
            audio["output"] = {"voice": lock.voice}
        transcription = self.transcription_model or lock.transcription
        if transcription:
            self.transcription_model = transcription
            audio["input"] = {"transcription": {"model": self._transcribe(transcription)}}
        if audio:
            session["audio"] = audio
        if not session:
            return ()
        ident = f"event_{new_hex()}"
        wire = {"type": "session.update", "event_id": ident, "session": {"type": self._kind, **session}}
        text = orjson.dumps(wire).decode()
        return (ClientEvent(text, ident, text_bytes=len(text), updates=True),)

    def _read(self, wire: Json, ident: str, size: int) -> ClientEvent:
        kind = wire.get("type")
        if not isinstance(kind, str) or kind not in BEGINS:
            raise _refuse("type", "unknown_event", f"Unknown event type {str(kind)[:100]!r}.")
        wire["event_id"] = ident
        event = ClientEvent("", ident, BEGINS[kind], text_bytes=size)
        if kind == SOUND:
            event.text_bytes, event.sound_bytes = 0, size_of(wire.get("audio")) * 3 // 4
        elif kind in ("session.update", "transcription_session.update"):
            event.updates = True
            self._check_session(_object(wire, "session"), event)
        elif kind == "conversation.item.create":
            self._check_item(wire.get("item"), "item")
            _weigh(wire.get("item"), event)
        elif kind == "response.create":
            response = _object(wire, "response")
            self._check_response(response, event)
            event.apart = not OWN_CONTEXT.isdisjoint(response)
            given = response.get("input")
            for item in given if isinstance(given, list) else []:
                self._check_item(item, "response.input")
                _weigh(item, event)
        if event.begins == "sound" and self._kind == TRANSCRIPTION and not self.transcription_model:
            raise _refuse(
                "session.audio.input.transcription",
                "transcription_model_required",
                "Set session.audio.input.transcription.model before you send audio.",
            )
        event.text = compute_if(size > LARGE, _encode, wire)
        return event

    def _check_session(self, session: Json, event: ClientEvent) -> None:
        if session.get("type") not in (None, self._kind):
            raise _refuse("session.type", "session_type_locked", f"This session has the type {self._kind}.")
        self._check_model(session, "session.model")
        self._check_shared(session, "session")
        event.most_output = _limit(session)
        event.auto_responds = _may_listen(session)
        self._check_transcription(session)

    def _check_response(self, response: Json, event: ClientEvent) -> None:
        if self._kind == TRANSCRIPTION:
            raise _refuse("type", "response_not_supported", "A transcription session creates no responses.")
        self._check_model(response, "response.model")
        self._check_shared(response, "response")
        event.most_output = _limit(response)

    def _check_model(self, holder: Json, param: str) -> None:
        model = holder.pop("model", None)
        if model is not None and (not isinstance(model, str) or model not in self._names):
            raise _refuse(param, "model_locked", "The model of a session cannot be changed; open another session.")

    def _check_shared(self, holder: Json, place: str) -> None:
        """Check the fields that a session and a response share."""
        for name in OWNERS:
            holder.pop(name, None)
        # A null would reset a locked field to the provider's default.
        if self._lock.instructions and holder.pop("instructions", None) is not None:
            raise _refuse(f"{place}.instructions", "instructions_locked", INSTRUCTIONS_LOCKED)
        _check_tools(holder, place)
        sound = _object(_object(holder, "audio", keep=False), "output", keep=False)
        if not self._objects and any(isinstance(settings.get("voice"), dict) for settings in (sound, holder)):
            raise _refuse(f"{place}.audio.output.voice", "unpriced_use", NOT_OURS.format("voice.id"))
        if self._lock.voice and any(
            settings.pop("voice", None) not in (None, self._lock.voice) for settings in (sound, holder)
        ):
            raise _refuse(f"{place}.audio.output.voice", "voice_locked", "The client secret fixes the voice.")

    def _check_item(self, item: Any, place: str) -> None:
        """Reject items that instruct the model where a client secret fixes the instructions, and files of an account
        that is everybody's."""
        role = item.get("role") if isinstance(item, dict) else None
        named = "" if self._objects else _named_object(item)
        if named:
            raise _refuse(f"{place}.{named}", "unpriced_use", NOT_OURS.format(named))
        if self._lock.instructions and role not in MESSAGE_ROLES:
            raise _refuse(f"{place}.role", "instructions_locked", INSTRUCTIONS_LOCKED)

    def _check_transcription(self, session: Json) -> None:
        sound = _object(_object(session, "audio", keep=False), "input", keep=False)
        for holder, name in ((sound, "transcription"), (session, "input_audio_transcription")):
            if name not in holder:
                continue
            transcription = holder[name]
            model = transcription.get("model") if isinstance(transcription, dict) else None
            model = model if isinstance(model, str) else ""
            if isinstance(transcription, dict) and not model and self.transcription_model:
                transcription["model"] = model = self.transcription_model
            self._check_transcriber(transcription, model)
            if isinstance(transcription, dict):
                transcription["model"] = self._transcribe(model)
            self.transcription_model = model

    def _check_transcriber(self, transcription: Any, model: str) -> None:
        locked = self._lock.transcription
        param = "session.audio.input.transcription"
        if locked is not None and model != locked:
            raise _refuse(param, "transcription_model_locked", "The client secret fixes the transcription settings.")
        if transcription is not None and not model:
            text = "Set the transcription model in session.audio.input.transcription.model."
            raise _refuse(f"{param}.model", "transcription_model_required", text)
        if self._kind == TRANSCRIPTION and self.transcription_model and model != self.transcription_model:
            text = "The model of a transcription session cannot be changed; open another session."
            raise _refuse(f"{param}.model", "transcription_model_locked", text)


def _check_tools(holder: Json, place: str) -> None:
    """Accept functions only; a provider may take a tool without a type for a provider tool."""
    tools = holder.get("tools")
    if tools is None:
        return
    if not isinstance(tools, list) or not all(
        isinstance(tool, dict) and tool.get("type") == FUNCTION for tool in tools
    ):
        text = "Tools of a session must have the type 'function'; provider tools are not supported."
        raise _refuse(f"{place}.tools", "tool_type_not_supported", text)


def names_of(mapping: Mapping, model: str) -> frozenset[str]:
    """Return the names that the caller of a session may use for its model."""
    return frozenset((model, mapping.model, mapping.external_id, mapping.key, f"{mapping.provider}/{mapping.model}"))


def own_transcriber(mapping: Mapping, names: frozenset[str], model: str) -> str:
    """Return the provider's name of a session model that transcribes audio itself; no other model may."""
    if model in names:
        return mapping.external_id
    text = f"{mapping.key} transcribes audio itself: use it instead of {model[:100]!r}."
    param = "session.audio.input.transcription.model"
    raise NotSupported(text, param=param, code="transcription_model_not_supported")


def _decode(raw: bytes) -> Json:
    try:
        wire = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The event is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(wire, dict):
        raise InvalidRequest("An event must be a JSON object.", code="invalid_json")
    return wire


def _encode(wire: Json) -> str:
    try:
        return orjson.dumps(wire).decode()
    except orjson.JSONEncodeError as error:
        raise InvalidRequest(f"The event cannot be forwarded: {error}.", code="invalid_event") from None


def _object(holder: Json, name: str, keep: bool = True) -> Json:
    """Return the object under a name; an empty one where it is absent, stored in `holder` if `keep`."""
    member = holder.get(name)
    if isinstance(member, dict):
        return member
    made: Json = {}
    if keep and member is None:
        holder[name] = made
    elif member is not None:
        raise _refuse(name, "invalid_event", f"'{name}' must be an object.")
    return made


def _named_object(item: Any) -> str:
    """Return the member, anywhere in an item, that names a file which the provider stores for its account; "" if none
    does."""
    left = [item]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        if not isinstance(value, dict):
            continue
        for name, inner in value.items():
            stored = name.endswith(ADDRESSES) and isinstance(inner, str) and is_stored(inner)
            if stored or (name == FILE_ID and inner):
                return str(name)
            left.append(inner)
    return ""


def _limit(holder: Json) -> int | None:
    """Return the output limit: UNLIMITED for "inf" and any other text, None for none."""
    given = [holder[name] for name in OUTPUT_LIMITS if name in holder]
    if not given:
        return None
    limited = all(type(value) is int and value > 0 for value in given)
    if limited:
        highest: int = max(given)
        return highest
    return UNLIMITED


def _weigh(item: Any, event: ClientEvent) -> None:
    """Count audio and images of an item as media, not as the text that encodes them. Content that only the provider can
    measure (a file, an image that is no image) makes the event `unseen`."""
    parts: Any = None
    if isinstance(item, dict):
        parts = item.get("content")
        event.unseen = event.unseen or isinstance(item.get("output"), list)
    for part in parts if isinstance(parts, list) else []:
        if isinstance(part, dict):
            sound = size_of(part.get("audio"))
            image = size_of(part.get("image_url"))
            event.sound_bytes += sound * 3 // 4
            event.text_bytes += (MAX_IMAGE_TOKENS if image else 0) - sound - image
            event.unseen = event.unseen or not _is_measured(part)


def _is_measured(part: Json) -> bool:
    """Return whether a content part is text, audio or the bytes of an image, whatever media type it tells."""
    if part.get("type") not in MEASURED:
        return False
    url = part.get("image_url")
    if url is None:
        return True
    if not isinstance(url, str):
        return False
    match = DATA_URL.match(url)
    if match is None:
        return False
    try:
        head = decode_base64(url[match.end() : match.end() + IMAGE_HEAD])
    except ValueError:
        return False
    return type_of(head).startswith("image/")


def _may_listen(session: Json) -> bool:
    """Return whether the provider may start responses automatically with these settings."""
    sound = _object(_object(session, "audio", keep=False), "input", keep=False)
    return any(holder.get("turn_detection") is not None for holder in (sound, session))


def _refuse(param: str, code: str, message: str) -> InvalidRequest:
    return InvalidRequest(message, param=param, code=code)
