"""A session's settings in the callers' format, and the equivalent setup message of the Live API."""

import copy
from collections.abc import Callable
from typing import Any

import orjson

from gateway.errors import InvalidRequest
from gateway.providers.google.request import write_schema
from gateway.providers.google.traits import traits_of
from gateway.providers.protocol import Target
from gateway.providers.tool_names import GOOGLE
from gateway.runtime.threads import compute_if

Json = dict[str, Any]
RATE = 24_000  # Hz of callers' audio; the API's output has the same rate, and its input may have any declared rate
PCM = {"type": "audio/pcm", "rate": RATE}
DEFAULT_VAD = {"type": "server_vad", "create_response": True, "interrupt_response": True}
MIDDLE = 0.5  # default threshold of callers, for which the API's default sensitivity is used
EAGERNESS = {"low": "END_SENSITIVITY_LOW", "high": "END_SENSITIVITY_HIGH", "medium": "", "auto": ""}
# Members that only change how the gateway passes events on.
LOCAL_MEMBERS = frozenset(("output_modalities",))
# Members that a context update can change at any time.
CONTEXT = frozenset(("instructions", "tools", "tool_choice"))
AUDIO_ONLY = ["audio"]
WRITTEN = ["text"]
LARGE = 1 << 18  # bytes from which tools are written in a thread
ADDED_LEVELS = 16  # levels of nesting that a message may add around the caller's value


def unsupported(param: str, reason: str, code: str = "unsupported_parameter") -> InvalidRequest:
    """Return the error for a parameter that the model's provider does not support."""
    return InvalidRequest(reason, param=param, code=code)


class LiveSettings:
    """The settings of a session. `session` is the complete session object of the callers' format."""

    def __init__(self, target: Target, ident: str) -> None:
        self._target = target
        self._large = False  # whether the tools are LARGE
        self.session: Json = {
            "type": "realtime",
            "object": "realtime.session",
            "id": ident,
            "model": target.mapping.model,
            "output_modalities": AUDIO_ONLY,
            "instructions": "",
            "tools": [],
            "tool_choice": "auto",
            "max_output_tokens": "inf",
            "truncation": "auto",
            "tracing": None,
            "audio": {
                "input": {
                    "format": PCM,
                    "transcription": None,
                    "noise_reduction": None,
                    "turn_detection": dict(DEFAULT_VAD),
                },
                "output": {"format": PCM, "voice": _default_voice(target), "speed": 1.0},
            },
        }

    def changed(self, given: Json) -> "LiveSettings":
        """Return the settings with the changes of a `session.update`. InvalidRequest for an unsupported member."""
        changed = copy.copy(self)
        # A shallow copy suffices, since values are replaced and never changed; a deep one would copy large tools.
        changed.session = {**self.session, "audio": {side: {**part} for side, part in self.session["audio"].items()}}
        for name, value in given.items():
            change = CHANGES.get(name)
            if change is None:
                raise unsupported(f"session.{name}", f"This model's provider has no counterpart of '{name}'.")
            change(changed, value)
        return changed

    def differs(self, other: "LiveSettings") -> frozenset[str]:
        """Return the names of the members that differ."""
        return frozenset(name for name, value in self.session.items() if other.session[name] != value)

    @property
    def detects(self) -> bool:
        """Whether the provider detects the caller's speech."""
        return self.session["audio"]["input"]["turn_detection"] is not None

    @property
    def transcribes(self) -> bool:
        return self.session["audio"]["input"]["transcription"] is not None

    @property
    def spoken(self) -> bool:
        """Whether the caller gets audio, and not only its transcript."""
        speaks: bool = self.session["output_modalities"] == AUDIO_ONLY
        return speaks

    def instructions(self, text: str | None = None) -> Json:
        """Return `text`, or the session's instructions, as a system instruction."""
        if text is None:
            text = self.session["instructions"]
        return {"parts": [{"text": text}]}

    def tools(self) -> list[Json]:
        """Return the function declarations, for which the model waits for results as callers of this format expect."""
        if self.session["tool_choice"] == "none" or not self.session["tools"]:
            return []
        return [{"functionDeclarations": compute_if(self._large, self._declare_all)}]

    def _declare_all(self) -> list[Json]:
        return [self._declare(tool) for tool in self.session["tools"]]

    def caller_name(self, name: str) -> str:
        """Return the caller's name of a function."""
        return next((tool["name"] for tool in self.session["tools"] if GOOGLE.plain(tool["name"]) == name), name)

    def setup(self, model: str, handle: str | None) -> Json:
        """Return a BidiGenerateContentSetup; `handle` resumes a session."""
        session = self.session
        sound = self.session["audio"]
        generation: Json = {"responseModalities": ["AUDIO"]}  # the only modality; text comes as a transcript
        if sound["output"]["voice"]:
            voice = {"prebuiltVoiceConfig": {"voiceName": sound["output"]["voice"]}}
            generation["speechConfig"] = {"voiceConfig": voice}
        if session["max_output_tokens"] != "inf":
            generation["maxOutputTokens"] = session["max_output_tokens"]
        setup: Json = {
            "model": model,
            "generationConfig": generation,
            "outputAudioTranscription": {},
            "realtimeInputConfig": self._input(),
            "sessionResumption": {"handle": handle} if handle else {},
        }
        if session["instructions"]:
            setup["systemInstruction"] = self.instructions()
        if tools := self.tools():
            setup["tools"] = tools
        if self.transcribes:
            language = sound["input"]["transcription"].get("language")
            if language:
                setup["inputAudioTranscription"] = {"languageCodes": [language]}
            else:
                setup["inputAudioTranscription"] = {}
        if session["truncation"] == "auto":
            setup["contextWindowCompression"] = {"slidingWindow": {}}
        return setup

    def _input(self) -> Json:
        detection = self.session["audio"]["input"]["turn_detection"]
        if detection is None:
            return {"automaticActivityDetection": {"disabled": True}, "activityHandling": "NO_INTERRUPTION"}
        automatic: Json = {}
        threshold = detection.get("threshold")
        if threshold is not None and threshold != MIDDLE:
            automatic["startOfSpeechSensitivity"] = f"START_SENSITIVITY_{'HIGH' if threshold < MIDDLE else 'LOW'}"
        if end := EAGERNESS.get(detection.get("eagerness", "auto")):
            automatic["endOfSpeechSensitivity"] = end
        for ours, theirs in (("prefix_padding_ms", "prefixPaddingMs"), ("silence_duration_ms", "silenceDurationMs")):
            if detection.get(ours) is not None:
                automatic[theirs] = detection[ours]
        interrupts = detection.get("interrupt_response") is not False
        handling = "START_OF_ACTIVITY_INTERRUPTS" if interrupts else "NO_INTERRUPTION"
        return {"automaticActivityDetection": automatic, "activityHandling": handling}

    def _declare(self, tool: Json) -> Json:
        declared: Json = {"name": GOOGLE.plain(tool["name"]), "behavior": "BLOCKING"}
        if tool.get("description"):
            declared["description"] = tool["description"]
        if tool.get("parameters"):
            traits = traits_of(self._target)
            schema, _ = write_schema(tool["parameters"], traits, tool=True)
            declared["parametersJsonSchema" if traits.json_schema else "parameters"] = schema
        return declared

    # Members that a session.update may change.

    def _set_modalities(self, value: Any) -> None:
        self.session["output_modalities"] = read_modalities(value, "session.output_modalities")

    def _set_instructions(self, value: Any) -> None:
        if value is not None and not isinstance(value, str):
            raise invalid("session.instructions", "'instructions' must be a string.")
        self.session["instructions"] = value or ""

    def _set_tools(self, value: Any) -> None:
        if value is not None and not isinstance(value, list):
            raise invalid("session.tools", "'tools' must be a list.")
        for number, tool in enumerate(value or ()):
            named = isinstance(tool, dict) and isinstance(tool.get("name"), str)
            if not named or not isinstance(tool.get("parameters") or {}, dict):
                raise invalid(f"session.tools[{number}]", "A tool must have a name, and a JSON Schema as 'parameters'.")
        self._large = size_within(value) > LARGE
        self.session["tools"] = value or []

    def _set_choice(self, value: Any) -> None:
        if value not in (None, "auto", "none"):
            reason = "This model's provider supports only 'auto' and 'none' as tool_choice."
            raise unsupported("session.tool_choice", reason)
        self.session["tool_choice"] = value or "auto"

    def _set_limit(self, value: Any) -> None:
        if value not in (None, "inf") and (type(value) is not int or value < 1):
            raise invalid("session.max_output_tokens", "'max_output_tokens' must be a number above 0, or 'inf'.")
        self.session["max_output_tokens"] = value or "inf"

    def _set_truncation(self, value: Any) -> None:
        if value not in (None, "auto", "disabled"):
            message = "This model's provider supports only 'auto' and 'disabled' as truncation."
            raise unsupported("session.truncation", message)
        self.session["truncation"] = value or "auto"

    def _set_parallel(self, value: Any) -> None:
        if value is False:
            raise unsupported("session.parallel_tool_calls", "This model's provider may call several tools at once.")

    def _set_nothing(self, value: Any) -> None:
        """Accept `type`, which the gateway checks when it opens the session."""

    def _set_audio(self, value: Any) -> None:
        for side, given in members(value, "session.audio").items():
            known = SIDES.get(side)
            if known is None:
                raise unsupported(f"session.audio.{side}", f"There is no '{side}' in audio.")
            for name, member in members(given, f"session.audio.{side}").items():
                read = known.get(name)
                if read is None:
                    place = f"session.audio.{side}.{name}"
                    raise unsupported(place, f"This model's provider has no counterpart of '{name}'.")
                self.session["audio"][side][name] = read(self, member)

    def _read_format(self, value: Any) -> Json:
        given = members(value, "session.audio.input.format") if value is not None else PCM
        if given.get("type") != PCM["type"] or given.get("rate") not in (None, RATE):
            raise unsupported("session.audio.input.format", "This model supports only audio/pcm at 24000 Hz.")
        return PCM

    def _read_transcription(self, value: Any) -> Json | None:
        """Read `transcription`. The model transcribes its input, so the named transcriber has no effect."""
        if value is None:
            return None
        given = members(value, "session.audio.input.transcription")
        for name, member in given.items():
            if name not in ("model", "language") and member is not None:
                place = f"session.audio.input.transcription.{name}"
                raise unsupported(place, f"This model's provider has no counterpart of '{name}'.")
        if not isinstance(given.get("language") or "", str):
            raise invalid("session.audio.input.transcription.language", "'language' must be a string.")
        return given

    def _read_noise(self, value: Any) -> None:
        if value is not None:
            text = "This model's provider has no counterpart of 'noise_reduction'."
            raise unsupported("session.audio.input.noise_reduction", text)

    def _read_detection(self, value: Any) -> Json | None:
        place = "session.audio.input.turn_detection"
        if value is None:
            return None
        given = {"type": "server_vad", **members(value, place)}
        for name, member in given.items():
            check = DETECTION.get(name)
            if check is None or (member is not None and not check(member)):
                text = f"This model's provider has no counterpart of {name} {str(member)[:40]!r}."
                raise unsupported(f"{place}.{name}", text)
        return given

    def _read_voice(self, value: Any) -> str:
        offered = self._target.mapping.voices
        if value is None:
            return _default_voice(self._target)
        known = next((voice for voice in offered if str(value).lower() == voice.lower()), "")
        if offered and not known:
            text = f"{self._target.mapping.key} has no voice {str(value)[:64]!r}; it has {', '.join(offered)}."
            raise unsupported("session.audio.output.voice", text, code="voice_not_supported")
        return known or str(value)

    def _read_speed(self, value: Any) -> float:
        if value not in (None, 1, 1.0):
            raise unsupported("session.audio.output.speed", "This model's provider has no counterpart of 'speed'.")
        return 1.0


def read_modalities(value: Any, place: str) -> list[str]:
    """Return the output modalities: audio (with its transcript) or text (the transcript alone)."""
    if value is None:
        return AUDIO_ONLY
    if value not in (AUDIO_ONLY, WRITTEN):
        raise invalid(place, 'The output modalities must be ["audio"] or ["text"].')
    return list(value)


def size_within(value: Any) -> int:
    """Return the size of a caller's value as JSON, in bytes. InvalidRequest if it is nested too deep to be written."""
    for _ in range(ADDED_LEVELS):
        value = [value]
    try:
        return len(orjson.dumps(value))
    except orjson.JSONEncodeError:
        raise InvalidRequest("The event is nested too deeply.", code="invalid_event") from None


def invalid(param: str, reason: str) -> InvalidRequest:
    return InvalidRequest(reason, param=param, code="invalid_event")


def _default_voice(target: Target) -> str:
    if target.mapping.voices:
        return target.mapping.voices[0]
    return ""


def members(value: Any, place: str) -> Json:
    """Return a value that must be an object. InvalidRequest for any other value."""
    if not isinstance(value, dict):
        raise invalid(place, f"'{place}' must be an object.")
    return value


def _is_time(value: Any) -> bool:
    return type(value) is int and 0 <= value <= 60_000


CHANGES = {
    "type": LiveSettings._set_nothing,
    "output_modalities": LiveSettings._set_modalities,
    "instructions": LiveSettings._set_instructions,
    "tools": LiveSettings._set_tools,
    "tool_choice": LiveSettings._set_choice,
    "max_output_tokens": LiveSettings._set_limit,
    "truncation": LiveSettings._set_truncation,
    "parallel_tool_calls": LiveSettings._set_parallel,
    "audio": LiveSettings._set_audio,
}
SIDES: dict[str, dict[str, Callable[[LiveSettings, Any], Any]]] = {
    "input": {
        "format": LiveSettings._read_format,
        "transcription": LiveSettings._read_transcription,
        "noise_reduction": LiveSettings._read_noise,
        "turn_detection": LiveSettings._read_detection,
    },
    "output": {
        "format": LiveSettings._read_format,
        "voice": LiveSettings._read_voice,
        "speed": LiveSettings._read_speed,
    },
}
# Members of turn_detection, each with a function that returns whether the API supports a value.
DETECTION: dict[str, Callable[[Any], bool]] = {
    "type": lambda value: value in ("server_vad", "semantic_vad"),
    "create_response": lambda value: value is True,
    "interrupt_response": lambda value: isinstance(value, bool),
    "threshold": lambda value: isinstance(value, int | float) and 0 <= value <= 1,
    "prefix_padding_ms": _is_time,
    "silence_duration_ms": _is_time,
    "eagerness": lambda value: isinstance(value, str) and value in EAGERNESS,
}
