"""Fast path for stream chunks that only contain a piece of the first choice's text, as most chunks do.

A strict struct recognizes them and writes them again when they are relayed, so that no member is checked in Python. All
other chunks are parsed in full.
"""

import re
from collections.abc import Callable
from operator import itemgetter
from typing import Annotated, Generic, Literal, NamedTuple, TypeVar

from msgspec import UNSET, DecodeError, Meta, Struct, UnsetType
from msgspec.json import Decoder, Encoder

from gateway.neutral.events import Batch, NativeChunk
from gateway.providers.sse import TEXT_PIECE

Nothing = None | UnsetType


class _Delta(Struct, forbid_unknown_fields=True, gc=False):
    content: Annotated[str, Meta(min_length=1)]
    role: str | UnsetType | None = UNSET
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
Events = list[tuple[str, bytes]]


class PieceRun(NamedTuple, Generic[Kept]):
    """Consecutive pieces: the kept value of each, the length of all their text, and the last service tier ("" for
    none)."""

    values: list[Kept]
    size: int
    tier: str


DECODER = Decoder(Piece)
CHOICES_DECODER = Decoder(Choices)
TEXTS_DECODER = Decoder(list[str])
ENCODER = Encoder()
# The choices of a piece in groups: up to its text, the text, and the rest. It matches where CHOICES is found and never
# backtracks, so that a hostile piece takes linear time: a quotation mark is passed only where no text begins.
CHOICES = b'"choices":'
PLACES = re.compile(
    rb'"choices": ?(\[\{[^\[\]"]*+(?:"(?!content": ?")[^\[\]"]*+)*+"content": ?")'
    rb'([^"\\]*+(?:\\.[^"\\]*+)*+)("[^\[\]]*+\])',
    re.DOTALL,
)
ENDS_IN_BACKSLASH = b'\\","'  # in texts that were joined with `","`
MAX_SHAPED_BYTES = 16_384  # the longest piece that is compared by its shape; longer ones are few
SPLIT_MEMBERS = ("content", "reasoning_content", "reasoning", "refusal")  # texts of a delta
BLOCK = 4  # events that are worth comparing as a block
NAME_OF = itemgetter(0)
DATA_OF = itemgetter(1)


class PieceShape(Struct, gc=False):
    """The bytes around the text of a piece. The next pieces of the stream usually differ in nothing but their text.

    `start` and `end` are the lengths of what precedes and what follows the choices.
    """

    before: bytes
    after: bytes
    start: int
    end: int


class AlikePieces(NamedTuple):
    """Pieces of one shape: their data and their texts."""

    shape: PieceShape
    data: list[bytes]
    texts: list[str]


class KeptValues(NamedTuple, Generic[Kept]):
    """The value to keep of the choices of one piece, and those of several pieces of one shape."""

    of_one: Callable[[Choices], Kept]
    of_alike: Callable[[AlikePieces], list[Kept]]


def read_run(events: Events, start: int, keeping: KeptValues[Kept]) -> PieceRun[Kept]:
    """Read the pieces from `start` up to the first other event."""
    decode = DECODER.decode
    keep = keeping.of_one
    values: list[Kept] = []
    size = 0
    tier = ""
    alike = len(events) - start > BLOCK  # not compared yet
    place = start
    end = len(events)
    try:
        while place < end:
            name, data = events[place]
            if name:
                break
            piece = decode(data)
            choices = piece.choices
            values.append(keep(choices))
            size += len(choices[0].delta.content)
            if piece.service_tier:
                tier = piece.service_tier
            place += 1
            if alike:
                alike = False
                pieces = _read_alike(events, place, data, choices)
                if pieces is not None:
                    values += keeping.of_alike(pieces)
                    size += len("".join(pieces.texts))
                    place += len(pieces.texts)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        pass  # another kind of chunk, or invalid JSON: the full reader handles it
    return PieceRun(values, size, tier)


def _read_alike(events: Events, start: int, data: bytes, choices: Choices) -> AlikePieces | None:
    """Return the events from `start` on that only differ in their text from the piece `data`, whose choices are known;
    None when some of these texts are empty or not valid."""
    shape = _shape_of(data, choices)
    following = events[start:]
    if shape is None or any(map(NAME_OF, following)):
        return None
    before = shape.before
    after = shape.after
    alike = list(map(DATA_OF, following))
    while alike and not (alike[-1].startswith(before) and alike[-1].endswith(after)):
        alike.pop()  # the events that end the stream
    texts = list(map(itemgetter(slice(len(before), -len(after))), alike))
    # Only alike pieces consist of the same bytes with these texts in between; no bytecode runs for each of them.
    if before + (after + before).join(texts) + after != b"".join(alike):
        return None
    joined = b'","'.join(texts)
    # All texts are JSON strings exactly if the list of them has as many members: a quotation mark in one of them
    # would add members, and only a backslash at its end could hide the one behind it.
    if ENDS_IN_BACKSLASH in joined:
        return None
    decoded = TEXTS_DECODER.decode(b'["%b"]' % joined)
    if len(decoded) != len(texts) or "" in decoded:
        return None
    return AlikePieces(shape, alike, decoded)


def _shape_of(data: bytes, choices: Choices) -> PieceShape | None:
    """Return the shape of a piece whose choices are known, None where it is unusual."""
    place = data.find(CHOICES)
    match = PLACES.match(data, place) if place >= 0 and len(data) <= MAX_SHAPED_BYTES else None
    if match is None or CHOICES_DECODER.decode(data[match.start(1) : match.end(3)]) != choices:
        return None
    return PieceShape(data[: match.end(1)], data[match.start(3) :], match.start(1), len(data) - match.end(3))


write_choices: Callable[[Choices], bytes] = ENCODER.encode  # as JSON in one line


def piece_text(choices: Choices) -> str:
    return choices[0].delta.content


def cut_choices(pieces: AlikePieces) -> list[bytes]:
    """Return the choices of each piece as JSON in one line, as its server wrote them."""
    return list(map(itemgetter(slice(pieces.shape.start, -pieces.shape.end)), pieces.data))


def take_texts(pieces: AlikePieces) -> list[str]:
    return pieces.texts


RELAYED = KeptValues(write_choices, cut_choices)
REBUILT = KeptValues(piece_text, take_texts)


def split_chunk(chunk: NativeChunk) -> Batch:
    """Return a decoded chunk with one choice and one long text as several: the first has the role, the last everything
    else. Written at once, 16 MB would silence the worker."""
    choices = chunk.body["choices"]
    delta = choices[0]["delta"]
    long = [name for name in SPLIT_MEMBERS if type(delta.get(name)) is str and len(delta[name]) > TEXT_PIECE]
    if len(choices) > 1 or len(long) != 1:
        return [chunk]
    name = long[0]
    text = delta[name]
    end = (len(text) - 1) // TEXT_PIECE * TEXT_PIECE
    added = {"role": delta.pop("role")} if "role" in delta else {}
    split: Batch = []
    for at in range(0, end, TEXT_PIECE):
        choice = {"index": choices[0].get("index", 0), "delta": {**added, name: text[at : at + TEXT_PIECE]}}
        split.append(NativeChunk(chunk.dialect, {"choices": [choice]}, True, TEXT_PIECE))
        added = {}
    delta[name] = text[end:]
    chunk.size -= end
    return [*split, chunk]
