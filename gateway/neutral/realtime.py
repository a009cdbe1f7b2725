"""A realtime session and the meaning of its events for billing, in any format."""

from typing import Any, ClassVar, Final, Literal

from msgspec import Struct

from gateway.neutral.request import Request, Requirements
from gateway.neutral.usage import Units, Usage

SessionType = Literal["realtime", "transcription"]
REALTIME: Final = "realtime"
TRANSCRIPTION: Final = "transcription"
# The provider's own system prompt, and tokens added by tools and roles, which no event reports.
OVERHEAD_TOKENS = 1_000
# Audio is 24 kHz PCM, or telephone codecs with 8,000 bytes a second. A second of input is ten tokens, of output
# twenty.
SECOND_BYTES = 48_000
MIN_BYTES_PER_SECOND = 8_000
MIN_BYTES_PER_TOKEN = 800
INPUT_TOKENS_PER_SECOND = 10
OUTPUT_TOKENS_PER_SECOND = 20
TEXT_BYTES_PER_TOKEN = 4
MAX_IMAGE_TOKENS = 4_096
# As an output limit: the model's own maximum.
UNLIMITED = 0
# The minimum duration that is reserved for audio that is transcribed separately.
MIN_TRANSCRIBED_MS = 120_000


class RealtimeInput(Struct, frozen=True):
    """The purpose of a session: responses ("realtime") or the text of the speech ("transcription")."""

    type: SessionType = "realtime"


class RealtimeRequest(Request, eq=False):
    """A session, or one response in it. `decode` returns a RealtimeInput."""

    operation: ClassVar[str] = "realtime"


def request_of(model: str, opened: RealtimeInput, tokens: int, most_output: int) -> RealtimeRequest:
    """Return a request for a session or a response that reads at most `tokens` and writes at most `most_output`."""
    requirements = Requirements(stream=True, prompt_bytes=tokens, messages=1, media=1, max_tokens=most_output)
    return RealtimeRequest(model, requirements, lambda: opened)


def transcription_units(sound_bytes: int) -> Units:
    """Return the units of transcribing one turn of audio, of which `sound_bytes` have arrived."""
    length_ms = max(MIN_TRANSCRIBED_MS, sound_bytes * 1000 // MIN_BYTES_PER_SECOND)
    maximum = Usage(input=200, input_audio=length_ms // 20, output=length_ms // 100, audio_ms=length_ms)
    return Units(maximum, Usage())


class ClientEvent(Struct):
    """A validated event of the caller. `text` is sent upstream.

    `begins`: "response" if it requests a response, "sound" if the provider may begin a response on its own after it.
    `text_bytes` and `sound_bytes` are added to the conversation; `most_output` is the output limit that it sets
    (UNLIMITED; None: no change). `updates`: it changes the session's settings, which the provider confirms or rejects;
    `auto_responds`: from then on the provider may begin responses on its own. `apart`: its response reads other input
    than the conversation. `unseen`: it adds content that only the provider can measure, such as a file at an address.
    """

    text: str
    id: str = ""
    begins: Literal["", "response", "sound"] = ""
    text_bytes: int = 0
    sound_bytes: int = 0
    most_output: int | None = None
    updates: bool = False
    apart: bool = False
    auto_responds: bool = False
    unseen: bool = False


class ServerEvent(Struct):
    """An event of the provider. `text` is sent to the caller ("": nothing).

    `kind` is its meaning for billing, "" for plain content: `started` and `done`: the response `id`, with its usage and
    its end (a finish reason and a `fault`); `refused`: the caller's event `id` was rejected; `committed`,
    `transcribing`, `transcribed` and `transcription_failed`: the audio item `id` that is or will be transcribed, with a
    piece of the transcript, or with the usage of the transcription;
    `settings`: the session's current settings; `account`: a message about the account with the provider. `text_length`
    and `sound_bytes` are the size of the content that belongs to the response `id`.

    In settings, `auto_responds` says whether the provider begins responses on its own, `most_output` is the limit of
    each response (UNLIMITED; None: not reported), `transcriber` is the provider's name of the transcription model
    ("": none; None: not reported), and `heard_second` and `spoken_second` are the bytes of a second of sound in and out
    (0: not reported).
    """

    kind: Literal[
        "",
        "started",
        "done",
        "refused",
        "committed",
        "transcribing",
        "transcribed",
        "transcription_failed",
        "settings",
        "account",
    ] = ""
    id: str = ""
    usage: Usage | None = None
    finish: str = "stop"
    fault: str = ""
    auto_responds: bool = True
    most_output: int | None = None
    transcriber: str | None = None
    text_length: int = 0
    sound_bytes: int = 0
    text: str = ""
    heard_second: int = 0
    spoken_second: int = 0


class SessionLock(Struct, omit_defaults=True):
    """Settings that a client secret fixes for its sessions.

    `model` "": nothing is fixed. `instructions` and `voice` "": free. `transcription` None: free; "": no
    transcription.
    """

    type: SessionType = "realtime"
    model: str = ""
    instructions: str = ""
    voice: str = ""
    transcription: str | None = None


def size_of(value: Any) -> int:
    """Return the length of a text; 0 for other types."""
    if isinstance(value, str):
        return len(value)
    return 0
