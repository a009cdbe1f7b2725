"""Runs a codec's work on large requests and answers in a thread, off the event loop."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from gateway.errors import UpstreamFailed
from gateway.neutral.json_weight import is_large
from gateway.neutral.parameters import MAX_CHOICES
from gateway.neutral.parts import text_length
from gateway.neutral.request import Native, Request
from gateway.providers.answer_checks import UNKNOWN_SHAPE, check_parts
from gateway.providers.protocol import AnswerReader, Call, Codec, Target, UpstreamReply
from gateway.runtime.threads import compute

MAX_PARTS = 5_000  # texts and tool calls in an answer


class BufferedReply(Struct):
    """A reply with a buffered body."""

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
    """Run the codec's `write`, in a thread for a large request."""
    if request.large and not codec.waits:
        return compute(codec.write, request, target)
    return codec.write(request, target)


def relay(codec: Codec, native: Native, request: Request, target: Target) -> Call:
    """Run the codec's `relay`, in a thread for a large request."""
    if request.large:
        return compute(codec.relay, native, request, target)
    return codec.relay(native, request, target)


def read(codec: AnswerReader, reply: UpstreamReply, relayed: bool) -> Any:
    """Receive the body and run the codec's `read`, in a thread for a large body."""
    body = reply.read_all()
    if is_large(body):
        check_parts(body)
        return compute(_read_large, codec, BufferedReply(reply, body), relayed)
    result = codec.read(BufferedReply(reply, body), relayed)
    if not relayed:
        _check_texts(result)
    return result


def _read_large(codec: AnswerReader, whole: BufferedReply, relayed: bool) -> Any:
    result = codec.read(whole, relayed)
    result.large = True
    # Each choice is written separately, and no caller can request more than this.
    if max(len(getattr(result, name, ())) for name in ("choices", "images")) > MAX_CHOICES:
        raise UpstreamFailed(f"The provider sent more than {MAX_CHOICES} answers to one request.")
    if relayed:
        return result
    if sum(len(choice.parts) for choice in getattr(result, "choices", ())) > MAX_PARTS:
        raise UpstreamFailed(f"The provider sent an answer of more than {MAX_PARTS:,} texts and calls.")
    _check_texts(result)
    return result


def _check_texts(result: Any) -> None:
    """Raise UpstreamFailed when a text is not a string: readers do not check the types of a provider's values."""
    try:
        for choice in getattr(result, "choices", ()):
            for part in choice.parts:
                text_length(part)
    except TypeError:
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
