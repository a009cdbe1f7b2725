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
# Sound is 24 kHz PCM, or telephone codecs of 8,000 bytes a second. A second is ten tokens, of a model's voice twenty.
SECOND_BYTES = 48_000
LEAST_SECOND_BYTES = 8_000
LEAST_BYTES_A_TOKEN = 800
USUAL_BYTES_A_TOKEN = 4_800
USUAL_BYTES_A_TOKEN_MADE = 2_400
TEXT_BYTES_A_TOKEN = 4
MOST_IMAGE_TOKENS = 4_096
# Of an output limit: as much as the model gives.
UNLIMITED = 0
# What is heard and transcribed apart is reserved by so much of it at the least.
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


def heard_units(sound_bytes: int) -> Units:
    """What the text of one turn of sound may count as, of which so much came by now."""
    length_ms = max(HEARD_MS, sound_bytes * 1000 // LEAST_SECOND_BYTES)
    most = Usage(input=200, input_audio=length_ms // 20, output=length_ms // 100, audio_ms=length_ms)
    return Units(most, Usage())


class ClientEvent(Struct):
    """An event of the caller, checked. `text` goes upstream.

    `begins`: "response" for one that asks for an answer, "sound" for one after which the provider may begin one by
    itself. `text_bytes` and `sound_bytes` are what it adds to the conversation; `most_output` is an output limit that
    it sets (UNLIMITED; None: it says nothing of it). `updates`: it sets what the session is, and is answered with that
    or refused; `listens`: the provider may begin responses by itself from then on. `apart`: its response reads
    something else than the conversation.
    """

    text: str
    id: str = ""
    begins: Literal["", "response", "sound"] = ""
    text_bytes: int = 0
    sound_bytes: int = 0
    most_output: int | None = None
    updates: bool = False
    apart: bool = False
    listens: bool = False


class ServerEvent(Struct):
    """An event of the provider. `text` is what the caller is told of it, "" for nothing; `kind` is what it means here,
    "" for nothing but content.

    `started` and `done`: the response `id`, with its usage and how it ended (a finish reason, a `fault`); `refused`:
    the caller's event `id` had no effect; `committed`, `heard` and `unheard`: the item `id` of sound that is or will be
    transcribed, with the usage of that; `settings`: what the session is now; `account`: something of the account
    with the provider. `text_length` and `sound_bytes` are the size of the content of the response `id` in it.

    Of settings `listens` tells whether the provider begins responses by itself, `most_output` the limit of each
    (UNLIMITED; None: not told), `transcriber` the provider's name of the model that transcribes ("": none does; None:
    not told).
    """

    kind: Literal["", "started", "done", "refused", "committed", "heard", "unheard", "settings", "account"] = ""
    id: str = ""
    usage: Usage | None = None
    finish: str = "stop"
    fault: str = ""
    listens: bool = True
    most_output: int | None = None
    transcriber: str | None = None
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
    if isinstance(value, str):
        return len(value)
    return 0
