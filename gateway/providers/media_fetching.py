"""Fetches images, files and audio that a request refers to by URL, for targets that load no URLs themselves.

The URL comes from a caller, so the SSRF guard checks it and each redirect; the type of the content is detected from its
first bytes, never from the declared content type.
"""

from base64 import b64encode
from collections.abc import Iterator
from typing import Protocol as Interface

from msgspec.structs import replace

from gateway.errors import GatewayError, NotSupported, UpstreamFailed
from gateway.neutral.chat import ChatRequest, Conversation
from gateway.neutral.file_types import HEAD, type_of
from gateway.neutral.parts import Audio, File, Image, Media, Message, Part, ToolResult
from gateway.runtime.threads import Job, compute

ADDRESSES = ("https://", "http://")
MOST_BYTES = 20 << 20  # of one image or file
MOST_IN_ALL = 40 << 20  # of one request
MOST_ADDRESSES = 20
PATIENCE_S = 20.0
LARGE = 1 << 20
# Servers refuse clients without a user agent.
HEADERS = {"user-agent": "llmgateway", "accept": "image/*, audio/*, application/pdf, */*;q=0.1"}
FAILURES = {"address_not_allowed": "it does not lead to a public address", "response_too_large": "it is too large"}
IMAGE = ("image/",)
TAKEN = ("image/", "audio/", "application/pdf")


class FetchedAnswer(Interface):
    """The response of a fetch."""

    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...


class Fetcher(Interface):
    """Sends GET to a caller's URL, with the SSRF guard and a size limit. Raises GatewayError."""

    def fetch(self, url: str, max_bytes: int, *, timeout_s: float, headers: dict[str, str]) -> FetchedAnswer: ...


def is_addressed(media: Media) -> bool:
    """Whether the media is given by an http(s) URL."""
    return not media.data and media.url.lower().startswith(ADDRESSES)


def addressed(request: ChatRequest) -> dict[Media, tuple[str, ...]]:
    """Return all images, files and audio of a request that are given by URL, and the types that each may have.

    The cost of an image was reserved for an image; a document behind its URL would cost many times that.
    """
    found: dict[Media, tuple[str, ...]] = {}
    for message in request.conversation().messages:
        for part in _flat(message.parts):
            if is_addressed(part.media) and found.get(part.media) != IMAGE:
                if isinstance(part, Image):
                    found[part.media] = IMAGE
                else:
                    found[part.media] = TAKEN
    return found


def bring(fetcher: Fetcher, request: ChatRequest, seconds: float) -> ChatRequest:
    """Return the request with the content of all its URLs, fetched concurrently and within `seconds`.

    NotSupported for content that cannot be loaded, is too large, or is not an image, audio or PDF. Another target may
    be able to load it.
    """
    if request.inlined is None:
        wanted = addressed(request)
        if len(wanted) > MOST_ADDRESSES:
            raise _unreadable(f"more than {MOST_ADDRESSES} images and files are given by URL")
        jobs = [Job(_load, fetcher, media, kinds, min(seconds, PATIENCE_S)) for media, kinds in wanted.items()]
        try:
            loaded = {media: job.result(seconds) for media, job in zip(wanted, jobs, strict=True)}
        except TimeoutError:
            raise _unreadable("loading took too long") from None
        finally:
            for job in jobs:
                job.stop()
        size = sum(len(media.data) for media in loaded.values())
        if size * 3 // 4 > MOST_IN_ALL:
            raise _unreadable(f"together they exceed {MOST_IN_ALL >> 20} MB")
        conversation = _filled(request.conversation(), loaded)
        request.inlined = replace(
            request,
            decode=lambda: conversation,
            native=None,
            _decoded=conversation,
            large=request.large or size > LARGE,
        )
    return request.inlined


def _load(fetcher: Fetcher, media: Media, kinds: tuple[str, ...], seconds: float) -> Media:
    try:
        answer = fetcher.fetch(media.url, MOST_BYTES, timeout_s=seconds, headers=HEADERS)
    except UpstreamFailed as error:
        raise _unreadable(FAILURES.get(error.code, "it cannot be reached"), media) from None
    except GatewayError:
        raise _unreadable("it cannot be reached", media) from None
    if answer.status != 200:
        raise _unreadable(f"its server answers {answer.status}", media)
    kind = type_of(answer.body[:HEAD])
    if not kind.startswith(kinds):
        raise _unreadable("it is not an image" if kinds == IMAGE else "it is not an image, audio or PDF", media)
    if len(answer.body) > LARGE:
        packed = compute(b64encode, answer.body)
    else:
        packed = b64encode(answer.body)
    return Media(media_type=kind, data=packed.decode())


def _unreadable(why: str, media: Media | None = None) -> NotSupported:
    if media is not None:
        what = f"The content of {media.url.partition('?')[0][:200]}"
    else:
        what = "The content of URLs in the messages"
    return NotSupported(f"{what} could not be loaded: {why}.", param="messages", code="media_not_loaded")


def _flat(parts: tuple[Part, ...]) -> Iterator[Image | File | Audio]:
    for part in parts:
        if isinstance(part, ToolResult):
            yield from _flat(part.parts)
        elif isinstance(part, Image | File | Audio):
            yield part


def _filled(conversation: Conversation, loaded: dict[Media, Media]) -> Conversation:
    messages = tuple(_fill_message(message, loaded) for message in conversation.messages)
    return replace(conversation, messages=messages)


def _fill_message(message: Message, loaded: dict[Media, Media]) -> Message:
    return replace(message, parts=tuple(_fill(part, loaded) for part in message.parts))


def _fill(part: Part, loaded: dict[Media, Media]) -> Part:
    if isinstance(part, ToolResult):
        return replace(part, parts=tuple(_fill(inner, loaded) for inner in part.parts))
    if isinstance(part, Image | File | Audio) and part.media in loaded:
        return replace(part, media=loaded[part.media])
    return part
