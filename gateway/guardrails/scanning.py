"""Finds the values of detectors in texts, in one pass for all detectors and never twice in the same text."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from gateway.guardrails.detectors import Detector, compile_set
from gateway.guardrails.value_checks import CONTEXT

MAX_FINDINGS = 10_000  # of one detector in one text; a text with more of them counts as one finding
CACHE_SIZE = 16_384  # texts whose findings a scanner remembers; texts are known by their digest only
SHORT = 64  # texts up to this length are not remembered


class Finding(Struct, frozen=True):
    """A value in a text: the number of its detector, and its place in characters."""

    detector: int
    start: int
    end: int


class Scanner:
    """Finds the values of some detectors. Remembers for each of the latest texts what was found, by its digest."""

    def __init__(self, detectors: Sequence[Detector]) -> None:
        self.detectors = tuple(detectors)
        self._set = compile_set([detector.pattern for detector in detectors])
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
        if data is None:
            data = text.encode("utf-8", "surrogatepass")
        numbers = self._set.Match(data)
        if not numbers:
            return ()
        found = [
            Finding(number, start, end)
            for number in numbers
            for start, end in _spans(self.detectors[number], text, data)
        ]
        found.sort(key=lambda finding: (finding.start, -finding.end))
        return tuple(found)


def _spans(detector: Detector, text: str, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the places of a detector's values, in characters."""
    offsets = _Offsets(text, data)
    count = 0
    for match in detector.expression.finditer(data):
        first, last = match.span(detector.value)
        if first < 0 or first == last:
            continue
        count += 1
        if count > MAX_FINDINGS:
            yield offsets.of(first), len(text)
            return
        start = offsets.of(first)
        end = offsets.of(last)
        before = text[max(0, start - CONTEXT) : start]
        if detector.accepts(text[start:end], before, text[end : end + CONTEXT]):
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
