"""Texts for which a regular expression takes longest: repetitions of what its parts match, and an end that fails."""

import re
import re._constants as sre  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)
CATEGORY_SAMPLES = {
    sre.CATEGORY_DIGIT: "0",
    sre.CATEGORY_NOT_DIGIT: "a",
    sre.CATEGORY_SPACE: " ",
    sre.CATEGORY_NOT_SPACE: "a",
    sre.CATEGORY_WORD: "a",
    sre.CATEGORY_NOT_WORD: ".",
}
ALPHABET = "a0 .\n\\\"',:;/[]{}()<>-_=%@\t\0"
ENDS = ("", "\0", "!\n", "\\")
FIRST_SIZE, LAST_SIZE, TIMES = 256, 16_384, 4
# A linear pattern takes at most some 2 ms for the last size, a quadratic one half a second.
SUSPICIOUS_S = 0.015
GROWTH = 8.0  # of the time for four times the text: a quadratic pattern has sixteen
GIVE_UP_S = 3.0

Use = Callable[[re.Pattern[Any], Any], object]
USES: dict[str, Use] = {
    "match": lambda pattern, text: pattern.match(text),
    "fullmatch": lambda pattern, text: pattern.fullmatch(text),
    "search": lambda pattern, text: pattern.search(text),
    "findall": lambda pattern, text: pattern.findall(text),
    "finditer": lambda pattern, text: [None for _ in pattern.finditer(text)],
    "sub": lambda pattern, text: pattern.sub(text[:0], text),
    "subn": lambda pattern, text: pattern.subn(text[:0], text),
    "split": lambda pattern, text: pattern.split(text),
}


class _TooLong(Exception):
    """A search took GIVE_UP_S."""


def worst_growth(pattern: re.Pattern[Any], uses: set[str]) -> str:
    """Return the text and the growth of the time for which `pattern` takes more than linear time; "" for none."""
    is_bytes = isinstance(pattern.pattern, bytes)
    for pump, start, end in _attacks(pattern):
        for use in uses:

            def seconds(size: int, pump: str = pump, start: str = start, end: str = end, use: str = use) -> float:
                text = start + pump * (size // len(pump)) + end
                return _seconds(lambda given: USES[use](pattern, given), text.encode("latin-1") if is_bytes else text)

            growth = _growth(seconds)
            if growth > GROWTH:
                return f"{use} of {start!r} + {pump!r} * n + {end!r}: {growth:.0f} times the time for {TIMES} times n"
    return ""


def growth_of(work: Callable[[int], Callable[[], object]]) -> float:
    """Return the growth of the time of `work(size)()` for four times the size; 0.0 if it takes next to none."""

    def seconds(size: int) -> float:
        call = work(size)
        return _seconds(lambda _: call(), None)

    return _growth(seconds, LAST_SIZE * TIMES)


def _growth(seconds: Callable[[int], float], last: int = LAST_SIZE) -> float:
    size = FIRST_SIZE
    while size <= last:
        if seconds(size) > SUSPICIOUS_S:
            least = min(seconds(size) for _ in range(3))
            return min(seconds(size * TIMES) for _ in range(3)) / least if least < GIVE_UP_S else float("inf")
        size *= TIMES
    return 0.0


def _seconds(work: Callable[[Any], object], given: Any) -> float:
    began = time.thread_time()
    try:
        with _alarm():
            work(given)
    except _TooLong:
        return float("inf")
    return time.thread_time() - began


@contextmanager
def _alarm() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, GIVE_UP_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _attacks(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """Yield what is repeated, what precedes it and what follows."""
    source = pattern.pattern
    tree = parser.parse(source, pattern.flags & ~re.DEBUG)
    whole, starts, bodies = _walk(tree)
    literals = set(_characters(tree))
    if not bodies:
        return  # of bounded length, apart from the search's own start
    pumps = dict.fromkeys(bodies)
    pumps |= dict.fromkeys(sorted(literals))
    pumps |= dict.fromkeys(_words(tree))
    pumps |= dict.fromkeys(filter(None, (whole, whole[:-1], *starts)))
    pumps |= dict.fromkeys(start + body for start, body in zip(starts, bodies, strict=False))
    for pump in pumps:
        for start in dict.fromkeys(("", *starts)):
            for end in ENDS:
                yield pump, start, end


def _walk(tree: Any) -> tuple[str, list[str], list[str]]:
    """Return a text that matches, the texts that lead to each unbounded repetition, and what those repeat."""
    text = ""
    starts: list[str] = []
    bodies: list[str] = []
    for kind, given in tree:
        parts = _parts_of(kind, given)
        if not parts:
            text += _sample(kind, given)
            continue
        for part in parts:
            inner, inner_starts, inner_bodies = _walk(part)
            starts += [text + start for start in inner_starts]
            bodies += inner_bodies
            if kind in REPEATS and given[1] >= FIRST_SIZE:
                starts.append(text)
                bodies.append(inner or "a")
                if inner_starts:
                    bodies += [inner + start for start in inner_starts]
        if kind in REPEATS:
            text += _walk(given[2])[0] * max(1, given[0]) if given[0] or given[1] else ""
        elif kind not in (sre.ASSERT, sre.ASSERT_NOT):
            text += _walk(parts[0])[0]
    return text, starts, bodies


def _parts_of(kind: Any, given: Any) -> list[Any]:
    if kind in REPEATS:
        return [given[2]]
    if kind is sre.SUBPATTERN:
        return [given[3]]
    if kind is sre.BRANCH:
        return list(given[1])
    if kind is sre.ATOMIC_GROUP:
        return [given]
    if kind in (sre.ASSERT, sre.ASSERT_NOT):
        return [given[1]]
    return []


def _sample(kind: Any, given: Any) -> str:
    if kind is sre.LITERAL:
        return chr(given)
    if kind is sre.NOT_LITERAL:
        return next(letter for letter in ALPHABET if ord(letter) != given)
    if kind is sre.ANY:
        return "a"
    if kind is sre.IN:
        return _member(given)
    return ""  # an assertion


def _member(members: Any) -> str:
    """Return a character of a class."""
    if members[0][0] is not sre.NEGATE:
        return next(iter(_class_characters(members)), "a")
    refused = {letter for letter in ALPHABET + "bcxyz" if _is_in(letter, members[1:])}
    return next((letter for letter in ALPHABET + "bcxyz" if letter not in refused), "~")


def _is_in(letter: str, members: Any) -> bool:
    for kind, given in members:
        if kind is sre.LITERAL and ord(letter) == given:
            return True
        if kind is sre.RANGE and given[0] <= ord(letter) <= given[1]:
            return True
        if kind is sre.CATEGORY:
            is_space, is_word = letter.isspace(), letter.isalnum() or letter == "_"
            if {
                sre.CATEGORY_DIGIT: letter.isdigit(),
                sre.CATEGORY_SPACE: is_space,
                sre.CATEGORY_WORD: is_word,
                sre.CATEGORY_NOT_DIGIT: not letter.isdigit(),
                sre.CATEGORY_NOT_SPACE: not is_space,
                sre.CATEGORY_NOT_WORD: not is_word,
            }.get(given, False):
                return True
    return False


def _class_characters(members: Any) -> Iterator[str]:
    for kind, given in members:
        if kind is sre.LITERAL:
            yield chr(given)
        elif kind is sre.RANGE:
            yield chr(given[0])
        elif kind is sre.CATEGORY:
            yield CATEGORY_SAMPLES.get(given, "a")


def _words(tree: Any) -> Iterator[str]:
    """Yield the runs of characters that a pattern names one after the other."""
    word = ""
    for kind, given in tree:
        if kind is sre.LITERAL:
            word += chr(given)
            continue
        if len(word) > 1:
            yield word
        word = ""
        for part in _parts_of(kind, given):
            yield from _words(part)
    if len(word) > 1:
        yield word


def _characters(tree: Any) -> Iterator[str]:
    """Yield the characters that a pattern names, and one of each class."""
    for kind, given in tree:
        parts = _parts_of(kind, given)
        for part in parts:
            yield from _characters(part)
        if kind is sre.IN and given[0][0] is not sre.NEGATE:
            yield from _class_characters(given)
        elif not parts and (sample := _sample(kind, given)) and kind is not sre.AT:
            yield sample
