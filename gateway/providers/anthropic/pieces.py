"""Fast path for the deltas of text, thinking and tool input, which are most events of most streams.

A typed decoder recognizes them. Any other event is parsed in full.
"""

from typing import Annotated

from msgspec import DecodeError, Meta, Struct
from msgspec.json import Decoder

from gateway.dialects.anthropic import NAME
from gateway.neutral.events import ReasoningDelta, TextDelta, ToolCallDelta

EVENT = "content_block_delta"


class _Text(Struct, tag_field="type", tag="text_delta", gc=False):
    text: str


class _Thinking(Struct, tag_field="type", tag="thinking_delta", gc=False):
    thinking: str


class _Input(Struct, tag_field="type", tag="input_json_delta", gc=False):
    partial_json: Annotated[str, Meta(min_length=1)]


class _Piece(Struct, tag_field="type", tag=EVENT, gc=False):
    index: Annotated[int, Meta(ge=0, lt=1 << 31)]
    delta: _Text | _Thinking | _Input


DECODER = Decoder(_Piece)


def read_piece(data: bytes) -> TextDelta | ReasoningDelta | ToolCallDelta | None:
    """Return the event of a delta, or None for any other data; the full parser then reports malformed events."""
    try:
        piece = DECODER.decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    delta = piece.delta
    if isinstance(delta, _Text):
        return TextDelta(delta.text, piece.index)
    if isinstance(delta, _Thinking):
        return ReasoningDelta(delta.thinking, vendor=NAME, block=piece.index)
    return ToolCallDelta(piece.index, delta.partial_json)
