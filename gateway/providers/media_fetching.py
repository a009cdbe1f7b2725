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
from gateway.neutral.file_types import HEAD_BYTES, type_of
from gateway.neutral.parts import WEB, Audio, File, Image, Media, Message, Part, ToolResult
from gateway.neutral.request import Request
from gateway.runtime.threads import Job, Slots, compute

MAX_BYTES = 20 << 20  # of one image or file
MAX_TOTAL_BYTES = 40 << 20  # of one request
MAX_ADDRESSES = 20
CONCURRENT_FETCHES = 3  # addresses of a request that are loaded at the same time
COPIES = 3  # of the loaded bytes: as base64, and as the body of the call
TIMEOUT_S = 20.0
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


class KeptBytesCounter(Interface):
    """Counts the bytes that a request keeps, as long as it refers to this object. Raises Overloaded beyond a budget."""

    def grow(self, size: int) -> None: ...
    def release(self) -> None: ...


class Fetcher(Interface):
    """Sends GET to a caller's URL, with the SSRF guard and a size limit. Raises GatewayError. `keep` returns the count
    of the bytes that the request keeps."""

    def keep(self) -> KeptBytesCounter: ...

    def fetch(self, url: str, max_bytes: int, *, timeout_s: float, headers: dict[str, str]) -> FetchedAnswer: ...


def is_addressed(media: Media) -> bool:
    """Whether the media is given by an http(s) URL."""
    return not media.data and media.url.lower().startswith(WEB)


def addressed(request: ChatRequest) -> dict[Media, tuple[str, ...]]:
    """Return all images, files and audio of a request that are given by URL, and the types that each may have.

    The cost of an image was reserved for an image; a document behind its URL would cost many times that.
    """
    media_types: dict[Media, tuple[str, ...]] = {}
    for message in request.conversation().messages:
        for part in _flat(message.parts):
            if is_addressed(part.media) and media_types.get(part.media) != IMAGE:
                if isinstance(part, Image):
                    media_types[part.media] = IMAGE
                else:
                    media_types[part.media] = TAKEN
    return media_types


class _Allowance:
    """The bytes that the URLs of one request may still load, a few URLs at a time."""

    def __init__(self, held: KeptBytesCounter) -> None:
        self.held = held
        self.slots = Slots(CONCURRENT_FETCHES)
        self._left = MAX_TOTAL_BYTES

    def spend(self, size: int) -> None:
        """Count loaded bytes. NotSupported when all together are too many, Overloaded when the worker has no room."""
        self._left -= size
        if self._left < 0:
            raise _unreadable(f"together they exceed {MAX_TOTAL_BYTES >> 20} MB")
        self.held.grow(COPIES * size)


def fetch_media(fetcher: Fetcher, request: ChatRequest, seconds: float) -> ChatRequest:
    """Return the request with the content of all its URLs, fetched concurrently and within `seconds`.

    NotSupported for content that cannot be loaded, is too large, or is not an image, audio or PDF. Another target may
    be able to load it.
    """
    if request.inlined is None:
        media_types = addressed(request)
        if len(media_types) > MAX_ADDRESSES:
            raise _unreadable(f"more than {MAX_ADDRESSES} images and files are given by URL")
        allowance = _Allowance(fetcher.keep())
        timeout_s = min(seconds, TIMEOUT_S)
        jobs = [Job(_load, fetcher, media, kinds, timeout_s, allowance) for media, kinds in media_types.items()]
        try:
            loaded = {media: job.result(seconds) for media, job in zip(media_types, jobs, strict=True)}
        except BaseException as error:
            # The traceback may refer to the count until garbage collection.
            allowance.held.release()
            if isinstance(error, TimeoutError):
                raise _unreadable("loading took too long") from None
            raise
        finally:
            for job in jobs:
                job.stop()
        size = sum(len(media.data) for media in loaded.values())
        conversation = _filled(request.conversation(), loaded)
        request.inlined = replace(
            request,
            decode=lambda: conversation,
            contents={media.url: content for media, content in loaded.items()},
            _decoded=conversation,
            large=request.large or size > LARGE,
            loaded=allowance.held,
        )
    return request.inlined


def release(request: Request) -> None:
    """End the count of loaded bytes after a failure: its traceback may refer to the request for long."""
    if isinstance(request, ChatRequest) and request.inlined is not None:
        request.inlined.loaded.release()


def _load(fetcher: Fetcher, media: Media, kinds: tuple[str, ...], seconds: float, allowance: _Allowance) -> Media:
    if not allowance.slots.take(seconds):
        raise _unreadable("loading took too long")
    try:
        allowance.spend(0)
        return _fetch(fetcher, media, kinds, seconds, allowance)
    finally:
        allowance.slots.give()


def _fetch(fetcher: Fetcher, media: Media, kinds: tuple[str, ...], seconds: float, allowance: _Allowance) -> Media:
    try:
        answer = fetcher.fetch(media.url, MAX_BYTES, timeout_s=seconds, headers=HEADERS)
    except UpstreamFailed as error:
        raise _unreadable(FAILURES.get(error.code, "it cannot be reached"), media) from None
    except GatewayError:
        raise _unreadable("it cannot be reached", media) from None
    if answer.status != 200:
        raise _unreadable(f"its server answers {answer.status}", media)
    kind = type_of(answer.body[:HEAD_BYTES])
    if not kind.startswith(kinds):
        raise _unreadable("it is not an image" if kinds == IMAGE else "it is not an image, audio or PDF", media)
    allowance.spend(len(answer.body))
    packed = compute(b64encode, answer.body) if len(answer.body) > LARGE else b64encode(answer.body)
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
