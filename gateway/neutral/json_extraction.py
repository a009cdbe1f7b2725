"""Response healing: the JSON that a model meant, found in what it wrote (HTTP reference, section 2.5)."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from gateway.neutral.chat import ResponseFormat
from gateway.neutral.conformity import conforms
from gateway.neutral.json_repair import Unmendable, mend
from gateway.runtime.threads import compute

MARKDOWN = "markdown_extraction"
MIXED = "mixed_content_extraction"
SYNTAX = "syntax_fix"
TRUNCATION = "truncation_completion"
COMBINED = "combined_strategies"

# Possessive: where no bracket follows nothing is tried again.
FENCE = re.compile(r"```[ \t]*+[\w+-]*+\s*+(?=[{\[])")
BLANKS = "\ufeff \t\r\n"
MAX_LENGTH = 1 << 18  # beyond it a reading in Python would take too long even in a thread of its own
APART = 1 << 13  # from here on it is read in one
MAX_TRIES = 20


@dataclass(frozen=True, slots=True)
class Healed:
    """`text` is JSON and nothing else; `strategies` is how it was found, in order, combined_strategies last if any."""

    text: str
    strategies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    text: str
    value: Any
    end: int
    strategies: tuple[str, ...]


def heal(text: str, wanted: ResponseFormat) -> Healed | None:
    """The JSON in `text`, or None: it is JSON already, or holds none of the wanted kind.

    Text without an object or array stays as it is: a refusal in plain words is an answer too. With a schema, only
    what conforms to it is taken; without one, neither an array nor an empty object amid prose is, nor what the cut
    left empty.
    """
    if wanted.kind == "text" or len(text) > MAX_LENGTH:
        return None
    if len(text) < APART:
        return _heal(text, wanted)
    return compute(_heal, text, wanted)


def _heal(text: str, wanted: ResponseFormat) -> Healed | None:
    if _parses(text):
        return None
    for places, fenced in ((_whole(text), False), (_fences(text), True), (_amid(text), False)):
        found = [one for one in _read(text, places, fenced) if _is_wanted(one, wanted)]
        if found:
            best = max(found, key=lambda one: len(one.text))
            several = (COMBINED,) if len(best.strategies) > 1 else ()
            return Healed(best.text, best.strategies + several)
    return None


def _whole(text: str) -> Iterator[int]:
    start = len(text) - len(text.lstrip(BLANKS))
    if text[start : start + 1] in ("{", "["):
        yield start


def _fences(text: str) -> Iterator[int]:
    return (match.end() for match in FENCE.finditer(text))


def _amid(text: str) -> Iterator[int]:
    return (match.start() for match in re.finditer(r"[{\[]", text))


def _read(text: str, places: Iterator[int], fenced: bool) -> Iterator[_Found]:
    """What can be read at these places, one not within the other. Ends when as much was
    read in vain as there is."""
    work = tries = end = 0
    for start in places:
        if start < end:
            continue
        tries += 1
        if tries > MAX_TRIES or work > len(text):
            return
        try:
            found = _read_at(text, start, fenced)
        except Unmendable as failure:
            work += failure.at - start
        else:
            end = found.end
            yield found


def _read_at(text: str, start: int, fenced: bool) -> _Found:
    mended = mend(text, start)
    # What was right stays as it was written, blanks included.
    if mended.fixed or mended.cut:
        exact = mended.text
    else:
        exact = text[start : mended.end]
    around = text[:start] + text[mended.end :]
    mixed = not fenced and bool(around.strip(BLANKS))
    named = ((MARKDOWN, fenced), (MIXED, mixed), (SYNTAX, mended.fixed), (TRUNCATION, mended.cut))
    used = tuple(name for name, was in named if was) or (SYNTAX,)  # none: a byte order mark
    try:
        return _Found(exact, _parse(exact), mended.end, used)
    except (ValueError, RecursionError):
        raise Unmendable(mended.end) from None


def _is_wanted(found: _Found, wanted: ResponseFormat) -> bool:
    if wanted.kind == "json_schema" and wanted.schema is not None:
        return conforms(found.value, wanted.schema)
    if TRUNCATION in found.strategies and not found.value:
        return False
    return MIXED not in found.strategies or (isinstance(found.value, dict) and bool(found.value))


def _parses(text: str) -> bool:
    try:
        _parse(text)
    except (ValueError, RecursionError):
        return False
    return True


def _parse(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
