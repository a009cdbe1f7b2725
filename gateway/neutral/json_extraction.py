"""Response healing: extraction of the JSON that a model intended from the text that it wrote."""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from msgspec import Struct

from gateway.neutral.chat import ResponseFormat
from gateway.neutral.conformity import conforms
from gateway.neutral.json_repair import Unrepairable, repair
from gateway.runtime.threads import compute

MARKDOWN = "markdown_extraction"
MIXED_CONTENT = "mixed_content_extraction"
SYNTAX = "syntax_fix"
TRUNCATION = "truncation_completion"
COMBINED = "combined_strategies"

# Possessive quantifiers: no backtracking if no bracket follows.
FENCE = re.compile(r"```[ \t]*+[\w+-]*+\s*+(?=[{\[])")
WHITESPACE = "\ufeff \t\r\n"
MAX_LENGTH = 1 << 18  # beyond it, parsing in Python would take too long even in a thread
IN_THREAD_FROM = 1 << 13  # from this length on, the work runs in a thread
MAX_TRIES = 20


class Healed(Struct, frozen=True):
    """The extracted text, which is JSON and nothing else.

    `strategies` lists the repairs in order, with combined_strategies last if there are several.
    """

    text: str
    strategies: tuple[str, ...]


class _Candidate(Struct, frozen=True):
    text: str
    value: Any
    end: int
    strategies: tuple[str, ...]


def heal(text: str, format: ResponseFormat) -> Healed | None:
    """Return the JSON in `text`, or None if it is already JSON or contains none of the requested kind.

    Text without an object or array stays unchanged, because a refusal in plain words is a valid response. With a
    schema, only values that conform to it are accepted; without a schema, arrays and empty objects within prose are
    not accepted, nor truncated values that are empty.
    """
    if format.kind == "text" or len(text) > MAX_LENGTH:
        return None
    if len(text) < IN_THREAD_FROM:
        return _heal(text, format)
    return compute(_heal, text, format)


def _heal(text: str, format: ResponseFormat) -> Healed | None:
    if _parses(text):
        return None
    for places, fenced in ((_whole(text), False), (_fences(text), True), (_amid(text), False)):
        candidates = [value for value in _read(text, places, fenced) if _is_wanted(value, format)]
        if candidates:
            best = max(candidates, key=_text_length)
            several = (COMBINED,) if len(best.strategies) > 1 else ()
            return Healed(best.text, best.strategies + several)
    return None


def _text_length(candidate: _Candidate) -> int:
    return len(candidate.text)


def _whole(text: str) -> Iterator[int]:
    start = len(text) - len(text.lstrip(WHITESPACE))
    if text[start : start + 1] in ("{", "["):
        yield start


def _fences(text: str) -> Iterator[int]:
    return (match.end() for match in FENCE.finditer(text))


def _amid(text: str) -> Iterator[int]:
    return (match.start() for match in re.finditer(r"[{\[]", text))


def _read(text: str, places: Iterator[int], fenced: bool) -> Iterator[_Candidate]:
    """Yield the readable values at these positions, without nested ones.

    Stop after as many characters were read in vain as the text has.
    """
    work = tries = end = 0
    for start in places:
        if start < end:
            continue
        tries += 1
        if tries > MAX_TRIES or work > len(text):
            return
        try:
            candidate = _read_at(text, start, fenced)
        except Unrepairable as failure:
            work += failure.at - start
        else:
            end = candidate.end
            yield candidate


def _read_at(text: str, start: int, fenced: bool) -> _Candidate:
    repaired = repair(text, start)
    # Text that needed no repair keeps its original form, including whitespace.
    if repaired.fixed or repaired.cut:
        exact = repaired.text
    else:
        exact = text[start : repaired.end]
    around = text[:start] + text[repaired.end :]
    mixed = not fenced and bool(around.strip(WHITESPACE))
    named = ((MARKDOWN, fenced), (MIXED_CONTENT, mixed), (SYNTAX, repaired.fixed), (TRUNCATION, repaired.cut))
    used = tuple(name for name, was in named if was) or (SYNTAX,)  # no repair: the text has a byte order mark
    try:
        return _Candidate(exact, _parse(exact), repaired.end, used)
    except (ValueError, RecursionError):
        raise Unrepairable(repaired.end) from None


def _is_wanted(candidate: _Candidate, format: ResponseFormat) -> bool:
    if format.kind == "json_schema" and format.schema is not None:
        return conforms(candidate.value, format.schema)
    if TRUNCATION in candidate.strategies and not candidate.value:
        return False
    return MIXED_CONTENT not in candidate.strategies or (isinstance(candidate.value, dict) and bool(candidate.value))


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
