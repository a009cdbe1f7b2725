"""Runs a codec's work on large requests and answers in a thread, off the event loop."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from gateway.errors import UpstreamFailed
from gateway.neutral.parts import text_length
from gateway.neutral.request import Native, Request
from gateway.providers.answer_checks import MOST_CHOICES, ODD, check_parts
from gateway.providers.protocol import AnswerReader, Call, Codec, Target, UpstreamReply
from gateway.runtime.threads import compute

LARGE = 1 << 17  # bytes of an answer
MOST_CALLS = 5_000  # texts and tool calls in one


class Whole(Struct):
    """A reply whose body was already read."""

    reply: UpstreamReply
    body: bytes

    @property
    def status(self) -> int:
        return self.reply.status

    @property
    def headers(self) -> dict[str, str]:
        return self.reply.headers

    def read_all(self) -> bytes:
        return self.body

    def chunks(self) -> Iterator[bytes]:
        yield self.body

    def close(self) -> None:
        self.reply.close()


def write(codec: Codec, request: Request, target: Target) -> Call:
    """Like the codec's `write`."""
    if request.large and not codec.waits:
        return compute(codec.write, request, target)
    return codec.write(request, target)


def relay(codec: Codec, native: Native, request: Request, target: Target) -> Call:
    """Like the codec's `relay`."""
    if request.large:
        return compute(codec.relay, native, request, target)
    return codec.relay(native, request, target)


def read(codec: AnswerReader, reply: UpstreamReply, relayed: bool) -> Any:
    """Like the codec's `read`; the body is received here."""
    body = reply.read_all()
    if len(body) >= LARGE:
        check_parts(body)
        return compute(_read_large, codec, Whole(reply, body), relayed)
    result = codec.read(Whole(reply, body), relayed)
    if not relayed:
        _check_texts(result)
    return result


def _read_large(codec: AnswerReader, whole: Whole, relayed: bool) -> Any:
    result = codec.read(whole, relayed)
    result.large = True
    # Each is written by itself, and no caller can request so many.
    if max(len(getattr(result, name, ())) for name in ("choices", "images")) > MOST_CHOICES:
        raise UpstreamFailed(f"The provider sent more than {MOST_CHOICES} answers to one request.")
    if relayed:
        return result
    if sum(len(choice.parts) for choice in getattr(result, "choices", ())) > MOST_CALLS:
        raise UpstreamFailed(f"The provider sent an answer of more than {MOST_CALLS:,} texts and calls.")
    _check_texts(result)
    return result


def _check_texts(result: Any) -> None:
    """UpstreamFailed where one of its strings is not one: readers take a provider's values as they are."""
    try:
        for choice in getattr(result, "choices", ()):
            for part in choice.parts:
                text_length(part)
    except TypeError:
        raise UpstreamFailed(ODD, upstream_status=200) from None
