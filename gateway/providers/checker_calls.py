"""Calls of outside checkers of guardrails: the texts as a checker takes them, and the interface of its form."""

from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import orjson
from msgspec import Struct

from gateway.errors import UpstreamFailed
from gateway.guardrails.checked_texts import Content, Role
from gateway.guardrails.checkers import Checker, CheckerForm, FoundValue

OVERLAP = 200  # characters that the pieces of a long text share
SHORT = 500  # texts up to this length are joined, where a checker takes one text in a call
JOINED = 5_000
JOINT = "\n\n"
MOST_PLACES = 1_000  # of one value; more of them are a finding without a place
MOST_FOUND = 5_000  # findings of a piece, and their places in its contents; more of them are one without a place
PROBLEM = "The checker answered in another form than its API describes."


class PiecePart(NamedTuple):
    """A part of a content: the number of the content, where the part begins in the piece and in the content, and its
    length."""

    content: int
    start: int
    offset: int
    length: int


class CheckedPiece(Struct, frozen=True):
    """A text for a checker, or with a `media_type` a file in base64."""

    text: str
    role: Role
    place: str
    parts: tuple[PiecePart, ...]
    media_type: str = ""


# The findings in each piece of a call.
Verdicts = list[list[FoundValue]]


class CheckCall(NamedTuple):
    """A call of a checker over HTTP. `read` returns the findings of the answer in each piece. It raises ValueError,
    KeyError, TypeError or AttributeError for an answer in another form."""

    pieces: Sequence[CheckedPiece]
    url: str
    headers: Mapping[str, str]
    body: bytes
    read: Callable[[Any], Verdicts]

    def verdicts(self, body: bytes) -> Verdicts:
        """Return what an answer says. UpstreamFailed."""
        try:
            found = self.read(orjson.loads(body))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise UpstreamFailed(PROBLEM) from None
        if len(found) != len(self.pieces):
            raise UpstreamFailed(PROBLEM)
        return [bounded(values) for values in found]


def bounded(found: Iterable[FoundValue]) -> list[FoundValue]:
    """Return what was found in a piece, with the values beyond MOST_FOUND as one finding without a place."""
    rest = iter(found)
    kept = list(islice(rest, MOST_FOUND))
    kept += [FoundValue(value.kind) for value in islice(rest, 1)]
    return kept


class CheckRequest(NamedTuple):
    """The input for the calls of a checker. `ident` names the request; `now_us` is the time."""

    checker: Checker
    credential: str
    pieces: Sequence[CheckedPiece]
    ident: str
    now_us: int


class FormCalls(Protocol):
    """Interface of a form: writes the calls that check some pieces."""

    def __call__(self, request: CheckRequest) -> list[CheckCall]: ...


def cut(form: CheckerForm, contents: Sequence[Content]) -> list[CheckedPiece]:
    """Return the pieces of contents as a form takes them: long texts are cut, with an overlap, and short ones of the
    same role are joined where a call has one text."""
    pieces: list[CheckedPiece] = []
    short: dict[Role, list[int]] = {}
    for number, content in enumerate(contents):
        text = content.text
        if content.media_type:
            whole = (PiecePart(number, 0, 0, len(text)),)
            pieces.append(CheckedPiece(text, content.role, content.place, whole, content.media_type))
        elif form.together == 1 and len(text) <= SHORT:
            short.setdefault(content.role, []).append(number)
        else:
            step = max(1, form.longest - OVERLAP)
            for offset in range(0, max(1, len(text) - OVERLAP), step):
                part = text[offset : offset + form.longest]
                pieces.append(
                    CheckedPiece(part, content.role, content.place, (PiecePart(number, 0, offset, len(part)),))
                )
    for numbers in short.values():
        pieces += _join(contents, numbers)
    return pieces


def _join(contents: Sequence[Content], numbers: Sequence[int]) -> list[CheckedPiece]:
    joined: list[CheckedPiece] = []
    texts: list[str] = []
    parts: list[PiecePart] = []
    size = 0

    def finish() -> None:
        if parts:
            first = contents[parts[0].content]
            joined.append(CheckedPiece(JOINT.join(texts), first.role, first.place, tuple(parts)))
            texts.clear()
            parts.clear()

    for number in numbers:
        text = contents[number].text
        if size + len(text) > JOINED:
            finish()
            size = 0
        parts.append(PiecePart(number, size, 0, len(text)))
        texts.append(text)
        size += len(text) + len(JOINT)
    finish()
    return joined


def place_found(piece: CheckedPiece, found: Sequence[FoundValue]) -> list[tuple[int, FoundValue]]:
    """Return what was found in a piece, with the numbers and places of its contents. What has no place is attributed to
    the first content of the piece."""
    placed: list[tuple[int, FoundValue]] = []
    starts = [part.start for part in piece.parts]
    for value in found:
        if value.end <= value.start or len(placed) > MOST_FOUND:
            placed.append((piece.parts[0].content, FoundValue(value.kind)))
            continue
        for number in range(max(0, bisect(starts, value.start) - 1), len(starts)):
            part = piece.parts[number]
            if part.start >= value.end:
                break
            start = max(value.start, part.start)
            end = min(value.end, part.start + part.length)
            if start < end:
                moved = part.offset - part.start
                placed.append((part.content, FoundValue(value.kind, start + moved, end + moved)))
    return placed


def together(request: CheckRequest) -> list[Sequence[CheckedPiece]]:
    """Return the pieces in groups, as many as a call takes."""
    size = request.checker.kind.together
    return [request.pieces[start : start + size] for start in range(0, len(request.pieces), size)]


def find_all(text: str, value: str, kind: str) -> list[FoundValue]:
    """Return every place of a value in a text, where a checker says the value but not its place. Without any it is a
    finding without a place."""
    found: list[FoundValue] = []
    start = text.find(value) if value else -1
    while start >= 0 and len(found) < MOST_PLACES:
        found.append(FoundValue(kind, start, start + len(value)))
        start = text.find(value, start + len(value))
    if start >= 0 or not found:
        found.append(FoundValue(kind))
    return found
