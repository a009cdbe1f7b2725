"""Parts of a message."""

from typing import Any, Literal

from msgspec import Struct

WEB = ("https://", "http://")  # schemes of URLs that a provider can load


class CacheMark(Struct, frozen=True, gc=False):
    """A request to cache the prompt up to and including this part. `ttl` "": the provider's default."""

    ttl: Literal["", "5m", "1h"] = ""


RangeKind = Literal["characters", "pages", "blocks", "result"]
ExecutedBy = Literal["", "provider"]  # "": the caller; "provider": the provider itself


class SourceRange(Struct, frozen=True, gc=False):
    """A location in the caller's own documents.

    `document` counts the documents (for kind "result": the search results) from 0. `first` and `last` are characters
    or blocks from 0, with the last one excluded, or pages from 1; -1 if unknown. `file_id` names the document if it is
    a stored file.
    """

    kind: RangeKind
    document: int
    first: int = -1
    last: int = -1
    file_id: str = ""


class Source(Struct, frozen=True):
    """The source of a statement: a page at `url`, or (`url` may be "") a `place` in the caller's own documents.

    `start` and `end` are character offsets into the text part, -1 if unknown.
    """

    url: str
    title: str = ""
    quote: str = ""
    start: int = -1
    end: int = -1
    place: SourceRange | None = None


NAMED, NAME_LENGTH = 8, 64  # members newer than the gateway in a warning, and characters of their names


class PartMembers(Struct, frozen=True):
    """Members beside a part that other formats lack or that are newer than the gateway, by name: only `vendor` reads
    them."""

    vendor: str
    body: dict[str, Any]


class Text(Struct, frozen=True):
    text: str
    cache: CacheMark | None = None
    sources: tuple[Source, ...] = ()
    signature: str = ""  # opaque and bound to this part by its vendor (Google signs text parts too)
    vendor: str = ""
    beside: PartMembers | None = None


class Refusal(Struct, frozen=True, gc=False):
    text: str


class Media(Struct, frozen=True, gc=False):
    """Media by URL or inline: exactly one of `url`, `data` (base64 text) and `file_id` is set."""

    media_type: str = ""  # e.g. image/png; "" if only the URL is known
    url: str = ""
    data: str = ""
    file_id: str = ""

    def inline(self, default_type: str) -> str:
        """Return `data` as a data URL (RFC 2397), with `default_type` if the media type is unknown."""
        return f"data:{self.media_type or default_type};base64,{self.data}"


class Image(Struct, frozen=True):
    media: Media
    detail: str = ""  # low, high, auto
    cache: CacheMark | None = None
    beside: PartMembers | None = None


class Audio(Struct, frozen=True):
    media: Media
    format: str = ""  # wav, mp3 …
    transcript: str = ""
    beside: PartMembers | None = None


# Names of audio formats by subtypes that are spelled otherwise.
AUDIO_FORMATS = {
    "mpeg": "mp3",
    "mpeg3": "mp3",
    "x-mpeg": "mp3",
    "x-wav": "wav",
    "wave": "wav",
    "vnd.wave": "wav",
    "x-m4a": "m4a",
    "mp4": "m4a",
    "x-aiff": "aiff",
    "x-flac": "flac",
}


def sound_format(media_type: str) -> str:
    """Return the name of the format of a media type of audio, such as "mp3"; "" without a subtype."""
    subtype = media_type.partition("/")[2]
    return AUDIO_FORMATS.get(subtype, subtype)


class Video(Struct, frozen=True):
    media: Media
    beside: PartMembers | None = None


class File(Struct, frozen=True):
    media: Media
    filename: str = ""
    title: str = ""
    context: str = ""
    citations: bool = False
    cache: CacheMark | None = None
    beside: PartMembers | None = None


class Reasoning(Struct, frozen=True, gc=False):
    """A block of reasoning.

    `text` may be empty; `signature` (of the text) and `sealed` (encrypted or redacted content) are opaque and
    meaningful to `vendor` only: they are dropped for other vendors and never altered. `vendor` is a dialect name
    ("anthropic", "google", "responses", "openai"); `ident` is the vendor's item id.
    """

    text: str = ""
    signature: str = ""
    sealed: str = ""
    vendor: str = ""
    ident: str = ""
    summary: bool = False  # `text` is a summary, not the reasoning itself


class ToolCall(Struct, frozen=True):
    """A tool call. `arguments` is JSON text exactly as the model wrote it ("" counts as {}).

    `signature` (with `vendor`) is opaque and must be sent back with the call. `executed` names the side that ran the
    tool: "" for the caller, "provider" for a server tool. `custom` marks a free-text tool, for which `arguments` is
    the raw input.
    """

    id: str
    name: str
    arguments: str
    signature: str = ""
    vendor: str = ""
    executed: ExecutedBy = ""
    custom: bool = False
    cache: CacheMark | None = None
    beside: PartMembers | None = None


class ToolResult(Struct, frozen=True):
    call_id: str
    parts: tuple["Part", ...]
    name: str = ""
    is_error: bool = False
    executed: ExecutedBy = ""
    cache: CacheMark | None = None
    beside: PartMembers | None = None


class VendorPart(Struct, frozen=True):
    """A block that only `vendor` understands (e.g. a server tool's result).

    It is kept whole; other vendors get the parts `instead`. Without any it is left out, which a warning reports unless
    it is `silent`. `kind` is its wire type, `body` its JSON value.
    """

    vendor: str
    kind: str
    body: dict[str, Any]
    instead: tuple["Part", ...] = ()
    silent: bool = False


Part = Text | Refusal | Image | Audio | Video | File | Reasoning | ToolCall | ToolResult | VendorPart

Role = Literal["system", "developer", "user", "assistant", "tool"]


class Message(Struct, frozen=True):
    """A message with its parts in order. Tool results are in messages of role "tool", calls in messages of role
    "assistant".
    """

    role: Role
    parts: tuple[Part, ...]
    name: str = ""


LENGTH = str.__len__  # unlike `len`, accepts only strings


def text_length(event: object) -> int:
    """Return the length of the text in an event or part, for estimates if a provider reports no usage.

    Raise TypeError if the text is not a string: providers' values are not checked before.
    """
    size: int | None = getattr(event, "size", None)
    if size is not None:
        return size
    return LENGTH(getattr(event, "text", "")) + LENGTH(getattr(event, "arguments", ""))
