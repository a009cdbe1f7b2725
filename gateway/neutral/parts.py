"""Parts of a message."""

from typing import Literal

from msgspec import Struct


class CacheMark(Struct, frozen=True, gc=False):
    """A caller's wish that the prompt be cached up to and including this part. `ttl` "" = provider's default."""

    ttl: Literal["", "5m", "1h"] = ""


RangeKind = Literal["characters", "pages", "blocks", "result"]
ExecutedBy = Literal["", "provider"]  # the caller, or the provider itself


class SourceRange(Struct, frozen=True, gc=False):
    """Where in what the caller gave: `document` counts its documents (of kind "result": its search results) from 0.

    `first` and `last` are characters or blocks from 0, the last one excluded, or pages from 1; -1 when unknown.
    `file_id` names the document where it is a stored file.
    """

    kind: RangeKind
    document: int
    first: int = -1
    last: int = -1
    file_id: str = ""


class Source(Struct, frozen=True):
    """Where a statement comes from: a page at `url`, or (`url` may be "") a `place` in the caller's own documents.

    `start`/`end` are character offsets into the text part, -1 when unknown.
    """

    url: str
    title: str = ""
    quote: str = ""
    start: int = -1
    end: int = -1
    place: SourceRange | None = None


class Text(Struct, frozen=True):
    text: str
    cache: CacheMark | None = None
    sources: tuple[Source, ...] = ()
    signature: str = ""  # opaque, bound to this part by its vendor (Google signs text parts too)
    vendor: str = ""


class Refusal(Struct, frozen=True, gc=False):
    text: str


class Media(Struct, frozen=True, gc=False):
    """Bytes by address or inline: exactly one of `url` and `data` (base64 text) is set, or `file_id` alone."""

    media_type: str = ""  # e.g. image/png; "" when only an address is known
    url: str = ""
    data: str = ""
    file_id: str = ""

    def inline(self, usual_type: str) -> str:
        """`data` as an address of its own (RFC 2397), of `usual_type` where none is known."""
        return f"data:{self.media_type or usual_type};base64,{self.data}"


class Image(Struct, frozen=True):
    media: Media
    detail: str = ""  # low, high, auto
    cache: CacheMark | None = None


class Audio(Struct, frozen=True):
    media: Media
    format: str = ""  # wav, mp3 …
    transcript: str = ""


class Video(Struct, frozen=True):
    media: Media


class File(Struct, frozen=True):
    media: Media
    filename: str = ""
    title: str = ""
    context: str = ""
    citations: bool = False
    cache: CacheMark | None = None


class Reasoning(Struct, frozen=True, gc=False):
    """A block of reasoning. `text` may be empty; `signature` (of the text) and `sealed` (encrypted or redacted
    content) are opaque and mean something to `vendor` only: another vendor's are dropped on purpose, never altered.

    `vendor` is a dialect name ("anthropic", "google", "responses", "openai"); `ident` the vendor's item id.
    """

    text: str = ""
    signature: str = ""
    sealed: str = ""
    vendor: str = ""
    ident: str = ""
    summary: bool = False  # `text` is a summary, not the reasoning itself


class ToolCall(Struct, frozen=True):
    """`arguments` is JSON text exactly as written by the model ("" counts as {}).

    `signature` (with `vendor`) is an opaque mark that must come back with the call. `executed` names the side that
    ran it: "" the caller's, "provider" a server tool. `custom` marks a free-text tool: arguments is its raw input.
    """

    id: str
    name: str
    arguments: str
    signature: str = ""
    vendor: str = ""
    executed: ExecutedBy = ""
    custom: bool = False
    cache: CacheMark | None = None


class ToolResult(Struct, frozen=True):
    call_id: str
    parts: tuple["Part", ...]
    name: str = ""
    is_error: bool = False
    executed: ExecutedBy = ""
    cache: CacheMark | None = None


class VendorPart(Struct, frozen=True):
    """A block that only `vendor` understands (e.g. a server tool's result): kept whole for it, or the target is
    skipped. `kind` is its wire type, `body` its JSON value."""

    vendor: str
    kind: str
    body: dict


Part = Text | Refusal | Image | Audio | Video | File | Reasoning | ToolCall | ToolResult | VendorPart

Role = Literal["system", "developer", "user", "assistant", "tool"]


class Message(Struct, frozen=True):
    """Parts in order. Tool results sit in messages of role "tool", calls in those of role "assistant"."""

    role: Role
    parts: tuple[Part, ...]
    name: str = ""


LENGTH = str.__len__  # unlike `len`, of texts alone


def text_length(event: object) -> int:
    """Length of the text that an event or part brings, for estimates where a provider reports no usage. TypeError for
    what is no text: readers take a provider's words as they are."""
    size = getattr(event, "size", None)
    if size is not None:
        return size
    return LENGTH(getattr(event, "text", "")) + LENGTH(getattr(event, "arguments", ""))
