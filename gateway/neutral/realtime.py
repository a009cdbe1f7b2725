"""A realtime session: what it is opened for, and what its events mean for money, whatever format they have."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from msgspec import Struct

from gateway.neutral.request import Request, Requirements
from gateway.neutral.usage import Units, Usage

SessionType = Literal["realtime", "transcription"]
REALTIME: Final = "realtime"
TRANSCRIPTION: Final = "transcription"
# A system prompt of the provider's own, what tools and roles add: no event tells of it.
OVERHEAD_TOKENS = 1_000
# Sound is base64 of 24 kHz PCM, 48,000 bytes a second, or of telephone codecs, 8,000; ten tokens are a second.
LEAST_BYTES_A_TOKEN, USUAL_BYTES_A_TOKEN = 800, 4_800
TEXT_BYTES_A_TOKEN = 4
# What is heard and transcribed apart is reserved by so much of it; a longer turn is billed in full all the same.
HEARD_MS = 120_000


@dataclass(frozen=True, slots=True)
class RealtimeInput:
    """What a session is opened as: for answers ("realtime") or for the text of what is said ("transcription")."""

    type: SessionType = "realtime"


class RealtimeRequest(Request, eq=False):
    """A session, or one response of it. `decode` gives a RealtimeInput."""

    operation: ClassVar[str] = "realtime"


def request_of(model: str, opened: RealtimeInput, tokens: int, most_output: int) -> RealtimeRequest:
    """A session or a response at `model`, which reads at most `tokens` and writes at most `most_output`."""
    needs = Requirements(stream=True, prompt_bytes=tokens, messages=1, media=1, max_tokens=most_output)
    return RealtimeRequest(model, needs, lambda: opened)


def heard_units() -> Units:
    """What the text of one turn of sound may count as."""
    most = Usage(input=200, input_audio=HEARD_MS // 20, output=HEARD_MS // 100, audio_ms=HEARD_MS)
    return Units(most, Usage())


class ClientEvent(Struct):
    """An event of the caller, checked. `text` goes upstream.

    `begins`: "response" for one that asks for an answer, "sound" for one after which the provider may begin one by
    itself. `text_bytes` and `sound_bytes` are what it adds to the conversation. `updates` tells that it changes the
    session; `most_output` is the output limit that it sets for the session or its response (0: there is none, None: it
    says nothing of it). `heard`: the model that transcribes from now on, None where the event says nothing of it.
    """

    text: str
    id: str = ""
    begins: Literal["", "response", "sound"] = ""
    text_bytes: int = 0
    sound_bytes: int = 0
    updates: bool = False
    most_output: int | None = None
    heard: str | None = None


class ServerEvent(Struct):
    """An event of the provider. `text` is what the caller is told of it, "" for nothing; `kind` is what it means here,
    "" for nothing but content.

    `started` and `done`: the response `id`, with its usage and how it ended (a finish reason, a `fault`); `refused`:
    the caller's event `id` had no effect; `committed`, `heard` and `unheard`: the item `id` of sound that is or will
    be transcribed, with the usage of that; `settings`: what the session is now, of which `listens` tells whether the
    provider begins responses by itself, and `most_output` the output limit of each (0: none; None in what no change
    brought about). `text_length` and `sound_bytes` are the size of the answer's content in it.
    """

    kind: Literal["", "started", "done", "refused", "committed", "heard", "unheard", "settings"] = ""
    id: str = ""
    usage: Usage | None = None
    finish: str = "stop"
    fault: str = ""
    listens: bool = True
    most_output: int | None = None
    text_length: int = 0
    sound_bytes: int = 0
    text: str = ""


class SessionLock(Struct, omit_defaults=True):
    """What a client secret settles for its sessions. `model` "": nothing. `instructions` and `voice` "": open.
    `transcription` None: open; "": there is none."""

    type: SessionType = "realtime"
    model: str = ""
    instructions: str = ""
    voice: str = ""
    transcription: str | None = None


def size_of(value: Any) -> int:
    """The bytes of a text; 0 for what is none."""
    return len(value) if isinstance(value, str) else 0
