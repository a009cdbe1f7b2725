"""Chunks of a stream that are one more piece of the first choice's text and nothing else: the bulk of most streams.

They are checked by their type alone and written again from it, so that a relayed piece costs no look at each member.
Whatever holds anything else is no piece and is read in full.
"""

from typing import Annotated, Literal

from msgspec import UNSET, DecodeError, Meta, Struct, UnsetType
from msgspec.json import Decoder, Encoder

Nothing = None | UnsetType


class _Delta(Struct, forbid_unknown_fields=True, gc=False):
    content: Annotated[str, Meta(min_length=1)]
    role: str | None | UnsetType = UNSET
    refusal: Nothing = UNSET
    reasoning: Nothing = UNSET
    reasoning_content: Nothing = UNSET
    function_call: Nothing = UNSET
    tool_calls: Nothing = UNSET


class _Choice(Struct, forbid_unknown_fields=True, gc=False):
    delta: _Delta
    index: Literal[0] = 0
    logprobs: Nothing = UNSET
    finish_reason: Nothing = UNSET


class Piece(Struct, gc=False):
    """What counts of a chunk (API reference, chat completion chunk object); the rest is not relayed anyway."""

    choices: tuple[_Choice]
    usage: None = None
    error: None = None
    service_tier: str | None = None

    @property
    def size(self) -> int:
        return len(self.choices[0].delta.content)


DECODER = Decoder(Piece)
ENCODER = Encoder()


def read_piece(data: bytes) -> Piece | None:
    """The piece that a chunk's JSON is; None for one that is anything else, or no JSON."""
    try:
        return DECODER.decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None


def write_piece(piece: Piece) -> bytes:
    """The chunk's `choices` as JSON, in one line."""
    return ENCODER.encode(piece.choices)
