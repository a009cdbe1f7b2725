"""Placeholders of masked values: the same for a value in all of a session, found again however a model writes them.

A placeholder is a label and an id, such as EMAIL_7QK2M9XR4T. The id is a keyed hash of the value, in an alphabet
without letters that look like digits, so that a worker that has lost its tables writes the same placeholder again. Its
last characters are a keyed hash of the others, so that such a worker knows it from a value that only looks like one.
"""

import hmac
import re
from bisect import bisect
from collections.abc import Mapping

from msgspec import json

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32
READ_AS = str.maketrans("OIL", "011")  # how letters are read that the alphabet leaves out
ID_LENGTH = 10
SEAL_LENGTH = 2  # characters of the id that prove that the gateway wrote it
LEAST_CUT = 6  # characters of the id that a cut placeholder has
LABELS = ("CARD", "EMAIL", "IBAN", "ID", "IP", "KEY", "NAME", "PASSWORD", "PHONE", "SECRET", "TERM", "TOKEN")
REMOVED = "[removed]"
LABEL = f"(?:{'|'.join(LABELS)})"
ESCAPE = r"(?<=\\[nrtbf])|(?<=\\u[0-9A-Fa-f]{4})"  # an escape of JSON; its last character is not part of a word
BEGIN = rf"(?:(?<![0-9A-Za-z])(?<!\\(?=[nrtbfu]))|{ESCAPE})"
# A label with an id that may be cut, or a whole id with or without its label.
WRITTEN = re.compile(
    rf"{BEGIN}(?:{LABEL}\\{{0,2}}[_-](?P<cut>[0-9A-Za-z]{{{LEAST_CUT},{ID_LENGTH}}})"
    rf"|(?:{LABEL}\s)?(?P<id>[0-9A-Za-z]{{{ID_LENGTH}}}))(?![0-9A-Za-z])",
    re.IGNORECASE,
)
OWN = re.compile(rf"{LABEL}_[{ALPHABET}]{{{ID_LENGTH}}}")
LONGEST = max(map(len, LABELS)) + 3 + ID_LENGTH
# The end of a text that may be the beginning of a placeholder.
BEGUN = re.compile(rf"{BEGIN}(?:[A-Za-z]{{1,8}}(?:\\{{0,2}}[_-]|\s|\\{{1,2}}))?[0-9A-Za-z]{{0,{ID_LENGTH}}}$")
BOUNDARY = re.compile(BEGIN)
BEGUN_ESCAPE = re.compile(r"\\(?:u[0-9A-Fa-f]{0,3})?$")


class Masks:
    """The placeholders of one session: `values` by the id of their placeholder. `key` makes the ids."""

    def __init__(self, key: bytes, values: Mapping[str, str] | None = None) -> None:
        self._key = key
        self.values: dict[str, str] = dict(values or {})
        self.added = False  # whether a value was added
        self._ordered: list[str] = []

    def mask(self, value: str, label: str) -> str:
        """Return the placeholder of a value."""
        ident = self.ident_of(value)
        if self.values.get(ident) != value:
            self.values[ident] = value
            self.added = True
        return f"{label}_{ident}"

    def keep_newest(self, count: int) -> None:
        """Forget all but the latest values."""
        if len(self.values) > count:
            self.values = dict(list(self.values.items())[-count:])
            self._ordered = []

    def ident_of(self, value: str) -> str:
        """Return the id of the placeholder of a value."""
        begun = self._hash(value.encode("utf-8", "surrogatepass"), ID_LENGTH - SEAL_LENGTH)
        return begun + self._seal(begun)

    def owns(self, text: str) -> bool:
        """Return whether a text is a placeholder of the session, also of a value that is forgotten."""
        if OWN.fullmatch(text) is None:
            return False
        begun = text[-ID_LENGTH:-SEAL_LENGTH]
        return hmac.compare_digest(text[-SEAL_LENGTH:], self._seal(begun))

    def _seal(self, begun: str) -> str:
        return self._hash(b"seal\0" + begun.encode(), SEAL_LENGTH)

    def _hash(self, data: bytes, length: int) -> str:
        number = int.from_bytes(hmac.digest(self._key, data, "sha256")[:7], "big")
        return "".join(ALPHABET[number >> 5 * place & 31] for place in range(length))

    def restore(self, text: str, escaped: bool = False) -> str:
        """Return the text with the values in place of their placeholders. `escaped`: within a string of JSON."""
        if not self.values or len(text) < LEAST_CUT:
            return text

        def value_of(match: re.Match[str]) -> str:
            value = self._find(match["cut"] or match["id"])
            if value is None:
                return match[0]
            return write_escaped(value) if escaped else value

        return WRITTEN.sub(value_of, text)

    def held(self, text: str) -> int:
        """Return how many characters at the end of a text may be the beginning of a placeholder."""
        if not self.values:
            return 0
        escape = BEGUN_ESCAPE.search(text, max(0, len(text) - 5))
        if escape is not None:
            return len(text) - escape.start()
        begun = BEGUN.search(text, max(0, len(text) - LONGEST))
        if begun is None:
            return 0
        for start in range(begun.start(), len(text)):
            if BOUNDARY.match(text, start) and self._may_begin(text[start:]):
                return len(text) - start
        return 0

    def _find(self, written: str) -> str | None:
        ident = written.upper().translate(READ_AS)
        if len(ident) == ID_LENGTH:
            return self.values.get(ident)
        known = self._in_order()
        first = bisect(known, ident)
        if first >= len(known) or not known[first].startswith(ident):
            return None
        if first + 1 < len(known) and known[first + 1].startswith(ident):
            return None  # it may be either value
        return self.values[known[first]]

    def _may_begin(self, text: str) -> bool:
        upper = text.upper()
        if any(label.startswith(upper) for label in LABELS):
            return True
        for label in LABELS:
            if upper.startswith(label):
                rest = upper[len(label) :].lstrip("\\")
                if not rest or ((rest[0] in "_-" or rest[0].isspace()) and self._is_begun(rest[1:])):
                    return True
        return self._is_begun(upper)

    def _is_begun(self, ident: str) -> bool:
        """Return whether an id of the session begins with `ident` and is longer."""
        ident = ident.translate(READ_AS)
        known = self._in_order()
        place = bisect(known, ident)
        return place < len(known) and known[place].startswith(ident)

    def _in_order(self) -> list[str]:
        if len(self._ordered) != len(self.values):
            self._ordered = sorted(self.values)
        return self._ordered


def write_escaped(value: str) -> str:
    """Return a value as it is written within a string of JSON."""
    return json.encode(value).decode()[1:-1]
