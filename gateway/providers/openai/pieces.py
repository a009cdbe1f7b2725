"""Fast path for stream chunks that only contain a piece of the first choice's text, as most chunks do.

A strict struct recognizes them and writes them again when they are relayed, so that no member is checked in Python. All
other chunks are parsed in full.
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
    """The members of a chunk that are read (OpenAI API reference, "The chat completion chunk object"). The others are
    never relayed."""

    choices: tuple[_Choice]
    usage: None = None
    error: None = None
    service_tier: str | None = None


Choices = tuple[_Choice]
Kept = TypeVar("Kept")


class PieceRun(NamedTuple, Generic[Kept]):
    """Consecutive pieces: the kept value of each, the length of all their text, and the last service tier ("" for
    none)."""

    kept: list[Kept]
    size: int
    tier: str


DECODER = Decoder(Piece)
ENCODER = Encoder()


def read_run(events: list[tuple[str, bytes]], start: int, keep: Callable[[Choices], Kept]) -> PieceRun[Kept]:
    """Read the pieces from `start` up to the first other event. Keep the result of `keep` for the choices of each."""
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
        pass  # another kind of chunk, or invalid JSON: the full reader handles it
    return PieceRun(kept, size, tier)


write_choices: Callable[[Choices], bytes] = ENCODER.encode  # as JSON in one line


def piece_text(choices: Choices) -> str:
    return choices[0].delta.content
