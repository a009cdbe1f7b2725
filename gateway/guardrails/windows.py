"""Windows over streams: text is passed on as soon as no value can begin in what is held back."""

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.guardrails.detectors import Detector
from gateway.guardrails.placeholders import Masks
from gateway.guardrails.rule_sets import CHANGES, Match, RuleSet, changes_of

CONTEXT = 256  # characters before the window that patterns may read
LONG_HELD = 512  # a window that holds back more is not read for each further character
MOST_HELD = 1 << 15  # characters that a window holds back; longer values are cut here
HEADER = 64  # characters in which the kind of a block of PEM is named
KEY_HEADER = "PRIVATE KEY"
END = "-----END "
BLANK = re.compile(r"\s")

# Returns what is written instead of a value, and records it; raises to end the stream.
Replace = Callable[[Match, str], str]


class Stage(Protocol):
    """A filter of a streamed text: `feed` returns the part that may be sent now, `flush` the rest at the end."""

    def feed(self, text: str) -> str: ...
    def flush(self) -> str: ...


class TextWindow:
    """The window of one text of a stream: `feed` returns the text that may be sent, `flush` the rest at its end."""

    def __init__(self, rules: RuleSet, replace: Replace, masks: Masks | None = None) -> None:
        self._rules = rules
        self._masks = masks
        self._replace = replace
        self._alphabets, self._openings = _holds_of(rules.answer_detectors)
        self._before = ""
        self._held = ""
        self._wait = 0  # characters until the window is read again, unless a blank comes before

    def feed(self, text: str) -> str:
        """Add a piece of text, and return what may be sent now."""
        self._held += text
        self._wait -= len(text)
        if self._wait > 0 and not BLANK.search(text):
            return ""
        held_back = self._held_back()
        self._wait = held_back // 8 if held_back > LONG_HELD else 0
        return self._release(len(self._held) - held_back)

    def flush(self) -> str:
        """Return the rest."""
        return self._release(len(self._held))

    def _release(self, size: int) -> str:
        """Return the first `size` characters of the window, edited; fewer where a value reaches beyond them."""
        if size <= 0:
            return ""
        offset = len(self._before)
        text = self._before + self._held
        matches = [match for match in self._rules.find(text, "answer", self._masks, once=True) if match.end > offset]
        until = offset + size
        for match in matches:
            if match.start < until < match.end and (until < len(text) or match.end > len(text)):
                until = match.start if match.start > offset or len(self._held) < MOST_HELD else match.end
        if until <= offset:
            return ""
        complete = [match for match in matches if match.end <= until]
        released = self._edit(text, complete, offset, until)
        self._before = text[max(0, until - CONTEXT) : until]
        self._held = text[until:]
        return released

    def _edit(self, text: str, matches: Sequence[Match], start: int, until: int) -> str:
        for match in matches:
            if match.rule.acts not in CHANGES:
                self._replace(match, match.value_in(text))
        pieces = []
        for match in changes_of(matches):
            pieces.append(text[start : max(start, match.start)])
            pieces.append(self._replace(match, match.value_in(text)))
            start = match.end
        pieces.append(text[start:until])
        return "".join(pieces)

    def _held_back(self) -> int:
        """Return how many characters at the end may belong to a value that is not complete."""
        held = self._held
        most = 0
        for alphabet, longest in self._alphabets:
            run = len(held) - len(held.rstrip(alphabet)) if alphabet else len(held)
            most = max(most, min(run, longest))
        for opening, longest in self._openings:
            most = max(most, min(_opened(held, opening), longest))
        return min(most, MOST_HELD)


def _opened(held: str, opening: str) -> int:
    """Return how many characters at the end belong to a block of PEM that is not complete, or may begin one."""
    start = held.rfind(opening)
    while start >= 0:
        block = held[start:]
        header = block[len(opening) : HEADER]
        is_other = "-----" in header and KEY_HEADER not in header
        end = block.find(END)
        if not is_other and (end < 0 or "-----" not in block[end + len(END) :]):
            return len(block)
        start = held.rfind(opening, 0, start)
    for size in range(len(opening) - 1, 0, -1):
        if held.endswith(opening[:size]):
            return size
    return 0


def _holds_of(detectors: Sequence[Detector]) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Return the alphabets with the most characters of a value of each, and the openings of blocks."""
    alphabets: dict[str, int] = {}
    openings: dict[str, int] = {}
    for detector in detectors:
        kept, key = (openings, detector.opening) if detector.opening else (alphabets, detector.alphabet)
        kept[key] = max(kept.get(key, 0), detector.longest)
    return list(alphabets.items()), list(openings.items())


class RestoredText:
    """Restores the values of placeholders in one text of a stream. Its pieces may cut a placeholder anywhere."""

    def __init__(self, masks: Masks, escaped: bool) -> None:
        self._masks = masks
        self._escaped = escaped
        self._held = ""

    def feed(self, text: str) -> str:
        """Add a piece of text, and return what can be sent now."""
        text = self._held + text
        size = len(text) - self._masks.held(text)
        self._held = text[size:]
        return self._masks.restore(text[:size], self._escaped)

    def flush(self) -> str:
        """Return the rest."""
        text, self._held = self._held, ""
        return self._masks.restore(text, self._escaped)
