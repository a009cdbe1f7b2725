"""Finds the values of detectors in texts, in one pass for all detectors and never twice in the same text."""

import re
import threading
from bisect import bisect
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from gateway.guardrails.detectors import Detector, compile_sets
from gateway.guardrails.value_checks import CONTEXT

# Values of one detector in one text, and texts that look like one and are checked; what follows after more of either is
# one finding, so that a rule that blocks refuses what was not read.
MAX_FINDINGS = 10_000
MAX_CANDIDATES = 30_000
CACHE_SIZE = 16_384  # texts for which a scanner caches the findings, by digest only
SHORT = 64  # texts up to this length are not remembered
INVISIBLE = "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f"
BLANKS = "\u00a0\u2000-\u200a\u202f\u205f\u3000"
DASHES = "\u2010-\u2015\u2212"
WIDE = "\uff0b\uff0d-\uff1a\uff20-\uff3a\uff3f\uff41-\uff5a"  # full-width forms that values consist of
WIDE_SHIFT = 0xFEE0
DASHES_ONLY = re.compile(f"[{DASHES}]")
# Other ways to write a character: escapes of JSON, also within strings of JSON, of URLs and HTML, and look-alikes. The
# first character comes from one set, which is found fast.
WRITTEN_OTHERWISE = re.compile(
    rf"[\\%&{INVISIBLE}{BLANKS}{DASHES}{WIDE}](?:(?<=[^\\%&])"
    r"|(?<=\\)(?<!\\\\)\\*+(?:u(?P<json>[0-9A-Fa-f]{4})|(?P<control>[nrtbf])|(?P<mark>[\"'/]))"
    r"|(?<=%)(?P<url>[2-7][0-9A-Fa-f])|(?<=&)#(?:x(?P<hex>[0-9A-Fa-f]{2,4})|(?P<decimal>[0-9]{2,4}));)"
)
# The usual escapes.
PLAIN = {"\\n": "\n", "\\r": "\n", "\\t": "\n", '\\"': '"', "\\\\n": "\n", '\\\\\\"': '"'}
HINTS = ("\\", "%", "&#")


class Finding(Struct, frozen=True):
    """A value in a text: the number of its detector, and its place in characters. `value` is the value if it is written
    in another way there, such as with escapes."""

    detector: int
    start: int
    end: int
    value: str = ""


class Scanner:
    """Finds the values of some detectors. Remembers for each of the latest texts what was found, by its digest."""

    def __init__(self, detectors: Sequence[Detector]) -> None:
        self.detectors = tuple(detectors)
        self._sets = compile_sets([detector.pattern for detector in detectors])
        self._known: OrderedDict[bytes, tuple[Finding, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def scan(self, text: str) -> tuple[Finding, ...]:
        """Return the values in `text`, ordered by their start; those of several detectors may overlap."""
        if len(text) <= SHORT:
            return self._find(text) if text else ()
        data = text.encode("utf-8", "surrogatepass")
        digest = blake2b(data, digest_size=16).digest()
        with self._lock:
            found = self._known.get(digest)
            if found is not None:
                self._known.move_to_end(digest)
                return found
        found = self._find(text, data)
        with self._lock:
            self._known[digest] = found
            while len(self._known) > CACHE_SIZE:
                self._known.popitem(last=False)
        return found

    def scan_once(self, text: str) -> tuple[Finding, ...]:
        """Do the same as `scan` for a text that does not come again, such as a part of a stream."""
        return self._find(text)

    def _find(self, text: str, data: bytes | None = None) -> tuple[Finding, ...]:
        found = self._find_written(text, data)
        plain = PlainText.of(text)
        if plain is not None:
            found = plain.place(self._find_written(plain.text), found)
        found.sort(key=lambda finding: (finding.start, -finding.end))
        return tuple(found)

    def _find_written(self, text: str, data: bytes | None = None) -> list[Finding]:
        """Return the values that are written in `text` as they are."""
        if data is None:
            data = text.encode("utf-8", "surrogatepass")
        numbers = [first + number for first, patterns in self._sets for number in patterns.Match(data)]
        return [
            Finding(number, start, end)
            for number in numbers
            for start, end in _spans(self.detectors[number], text, data)
        ]


class PlainText:
    """A text without escapes and look-alikes, and the places of its characters in the text as it was written."""

    def __init__(self, written: str, text: str) -> None:
        self.text = text
        self._written = written
        # The positions of each piece: its beginning here and as written, and its end as written.
        self._starts: list[int] = []
        self._begins: list[int] = []
        self._ends: list[int] = []

    @classmethod
    def of(cls, written: str) -> "PlainText | None":
        """Return the plain text, None if the text is plain."""
        if written.isascii() and not any(hint in written for hint in HINTS):
            return None
        text, count = WRITTEN_OTHERWISE.subn(_read, written)
        return cls(written, text) if count else None

    def _index(self) -> None:
        """Find the pieces of the text."""
        size = done = 0
        for match in WRITTEN_OTHERWISE.finditer(self._written):
            start, end = match.span()
            for length, begin, stop in ((start - done, done, start), (len(_read(match)), start, end)):
                if length:
                    self._starts.append(size)
                    self._begins.append(begin)
                    self._ends.append(stop)
                    size += length
            done = end
        self._starts.append(size)
        self._begins.append(done)
        self._ends.append(len(self._written))

    def place(self, found: Sequence[Finding], written: Sequence[Finding]) -> list[Finding]:
        """Return what was found here at its places as written, with what was found as `written` itself unless that
        begins within an escape."""
        if not found and not written:
            return []
        self._index()
        placed: dict[tuple[int, int, int], Finding] = {}
        for finding in found:
            start, end = self._start_of(finding.start), self._end_of(finding.end)
            value = self.text[finding.start : finding.end]
            placed[finding.detector, start, end] = Finding(finding.detector, start, end, value)
        for finding in written:
            if not self._cuts(finding.start):
                placed.setdefault((finding.detector, finding.start, finding.end), finding)
        return list(placed.values())

    def _start_of(self, place: int) -> int:
        piece = bisect(self._starts, place) - 1
        inside = place - self._starts[piece]
        return min(self._begins[piece] + inside, self._ends[piece])

    def _end_of(self, place: int) -> int:
        piece = bisect(self._starts, place - 1) - 1
        if self._is_read(piece):
            return self._ends[piece]
        return self._begins[piece] + place - self._starts[piece]

    def _cuts(self, place: int) -> bool:
        """Return whether a place as written is within an escape."""
        piece = bisect(self._begins, place) - 1
        return piece >= 0 and self._begins[piece] < place < self._ends[piece] and self._is_read(piece)

    def _is_read(self, piece: int) -> bool:
        """Return whether a piece is a character that was written in another way."""
        next_start = self._starts[piece + 1] if piece + 1 < len(self._starts) else len(self.text)
        return next_start - self._starts[piece] != self._ends[piece] - self._begins[piece]


def _read(match: re.Match[str]) -> str:
    """Return the plain text of an escape or look-alike, "" for what is invisible."""
    plain = PLAIN.get(match[0])
    if plain is not None:
        return plain
    kind = match.lastgroup
    if kind is None:
        return _plain_of(match[0])
    written = match[kind]
    if kind in ("json", "url", "hex"):
        return _printed(int(written, 16))
    if kind == "decimal":
        return _printed(int(written))
    return written if kind == "mark" else "\n"


def _plain_of(character: str) -> str:
    """Return what a look-alike stands for, "" for what is invisible."""
    if "\uff01" <= character <= "\uff5e":
        return chr(ord(character) - WIDE_SHIFT)
    if DASHES_ONLY.match(character):
        return "-"
    return " " if character.isspace() else ""


def _printed(number: int) -> str:
    """Return a character; a line feed for control characters, which are no part of a value, and for surrogates."""
    return "\n" if number < 32 or 0xD800 <= number < 0xE000 else chr(number)


def _spans(detector: Detector, text: str, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the places of a detector's values, in characters."""
    offsets = _Offsets(text, data)
    candidates = accepted = 0
    for match in detector.expression.finditer(data):
        first, last = match.span(detector.value)
        if first < 0 or first == last:
            continue
        candidates += 1
        if candidates > MAX_CANDIDATES or accepted == MAX_FINDINGS:
            yield offsets.of(first), len(text)
            return
        start = offsets.of(first)
        end = offsets.of(last)
        before = text[max(0, start - CONTEXT) : start]
        if detector.accepts(text[start:end], before, text[end : end + CONTEXT]):
            accepted += 1
            yield start, end


class _Offsets:
    """Turns offsets in UTF-8 into offsets of characters, for offsets that grow."""

    def __init__(self, text: str, data: bytes) -> None:
        self._plain = len(text) == len(data)
        self._data = data
        self._bytes = 0
        self._characters = 0

    def of(self, offset: int) -> int:
        if self._plain:
            return offset
        if offset < self._bytes:
            self._bytes = self._characters = 0
        piece = self._data[self._bytes : offset]
        self._characters += len(piece.decode("utf-8", "surrogatepass"))
        self._bytes = offset
        return self._characters


def merged(findings: Sequence[Any]) -> list[Any]:
    """Return findings that do not overlap: of those that do, the first and longest one remains."""
    kept: list[Any] = []
    for finding in findings:
        if not kept or finding.start >= kept[-1].end:
            kept.append(finding)
    return kept
