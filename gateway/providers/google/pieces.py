"""Fast path for stream chunks with one piece of the first candidate's text, which are most chunks of most streams.

A typed decoder recognizes them. Any other chunk is parsed in full.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, DecodeError, Meta, Struct, UnsetType
from msgspec.json import Decoder

Nothing = None | UnsetType


class _Part(Struct, forbid_unknown_fields=True, gc=False):
    text: Annotated[str, Meta(min_length=1)]


class _Content(Struct, gc=False):
    parts: tuple[_Part]


class _Candidate(Struct, rename="camel", gc=False):
    content: _Content
    index: Literal[0] = 0
    finish_reason: Nothing = UNSET
    grounding_metadata: Nothing = UNSET


class _Piece(Struct, rename="camel", gc=False):
    candidates: tuple[_Candidate]
    usage_metadata: dict[str, Any] | None = None
    prompt_feedback: Nothing = UNSET
    error: Nothing = UNSET


DECODER = Decoder(_Piece)


def read_piece(data: bytes) -> tuple[str, dict[str, Any] | None] | None:
    """Return the text of a chunk and the usage so far, if it reports any.

    Returns None for any other data; the full parser then reports malformed chunks.
    """
    try:
        piece = DECODER.decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return piece.candidates[0].content.parts[0].text, piece.usage_metadata
