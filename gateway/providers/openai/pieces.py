"""Fast path for stream chunks with only one more piece of the first choice's text: most chunks of most streams.

They are recognized by their type alone, and a relayed one is written again from it, so that a piece needs no check of
each member. Anything else is parsed in full.
"""

from collections.abc import Callable
from typing import Annotated, Generic, Literal, NamedTuple, TypeVar

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


Choices = tuple[_Choice]
Kept = TypeVar("Kept")


class PieceRun(NamedTuple, Generic[Kept]):
    """Pieces that came one after the other: what is kept of each, the length of all their text, and the last service
    tier that they name ("" for none)."""

    kept: list[Kept]
    size: int
    tier: str


DECODER = Decoder(Piece)
ENCODER = Encoder()


def read_run(events: list[tuple[str, bytes]], start: int, keep: Callable[[Choices], Kept]) -> PieceRun[Kept]:
    """The pieces from `start` on, up to the first event that is anything else, and of each what `keep` makes of its
    choices."""
    decode = DECODER.decode
    kept: list[Kept] = []
    size = 0
    tier = ""
    try:
        for name, data in events[start:] if start else events:
            if name:
                break
            piece = decode(data)
            choices = piece.choices
            kept.append(keep(choices))
            size += len(choices[0].delta.content)
            if piece.service_tier:
                tier = piece.service_tier
    except (DecodeError, UnicodeDecodeError, RecursionError):
        pass  # of another kind, or no JSON: whoever reads it in full will say so
    return PieceRun(kept, size, tier)


write_choices: Callable[[Choices], bytes] = ENCODER.encode  # as JSON in one line


def piece_text(choices: Choices) -> str:
    return choices[0].delta.content
