"""A tolerant parser that converts almost-JSON to JSON and reports what it repaired.

It converts text to text, so numbers keep every digit and keys keep their order; only faulty parts are rebuilt.
"""

import json
import re
import sys
from collections.abc import Callable

from msgspec import Struct

MAX_DEPTH = 100
BLANKS_AND_COMMENTS = re.compile(r"(?:[\s\ufeff]++|//[^\n]*+|/\*.*?\*/|#[^\n]*+)*+", re.DOTALL)
BLANK = re.compile(r"[ \t\r\n]*")
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
NUMBER_BEGUN = re.compile(r"-?\d*+\.?\d*+(?:[eE][+-]?)?\d*+", re.ASCII)
PLAIN_STARTS = frozenset('{}[]",:0123456789')  # certainly neither whitespace nor a comment
NUMBER_STARTS = frozenset("-0123456789")
WORD = re.compile(r"-?[A-Za-z]+")
KEY = re.compile(r"[^\W\d][\w$-]*|\$[\w$-]*")
BORDER = re.compile(r"\s|[,\]}:]|//|/\*|#|$")
AFTER_STRING = re.compile(r"\s*+(?:[,:\]}]|//|/\*|#|$)")
PLAIN_TEXT = {quote: re.compile(rf"[^\\\x00-\x1f\"{quote}]+") for quote in "\"'”"}
HEXADECIMAL = re.compile(r"[0-9a-fA-F]+")
HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")
WIDTHS = {"x": 2, "u": 4, "U": 8}
FOREIGN_ESCAPES = {"'": "'", "\n": "\\n", "0": "\\u0000", "v": "\\u000b", "a": "\\u0007"}
CLOSING_QUOTES = {'"': '"', "'": "'", "“": "”"}
# JSON has no equivalent of the last four; JavaScript's JSON.stringify writes them as null.
LITERALS = {
    "true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null",
    "NaN": "null", "nan": "null", "Infinity": "null", "-Infinity": "null", "undefined": "null",
}  # fmt: skip


class Unrepairable(Exception):
    """The text is not JSON with small mistakes. `at` is the position where parsing failed."""

    def __init__(self, at: int = 0) -> None:
        super().__init__()
        self.at = at


class _Cut(Exception):
    """The text ended where a value, or the rest of a value that cannot be guessed, was expected."""


class Repaired(Struct, frozen=True):
    """The repaired JSON, made from the source up to `end`.

    `fixed`: the syntax was wrong. `cut`: the end was missing.
    """

    text: str
    end: int
    fixed: bool
    cut: bool


def repair(text: str, start: int) -> Repaired:
    """Repair the object or array that begins at `start`. Raise Unmendable if there is none or it cannot be repaired."""
    reader = _Reader(text, start)
    if text[start : start + 1] not in ("{", "["):
        raise Unrepairable(start)
    try:
        reader.container(0)
    except (Unrepairable, RecursionError):
        raise Unrepairable(reader.at) from None
    return Repaired("".join(reader.out), reader.at, reader.fixed, reader.cut)


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Return the end of the match of `pattern` at `start`; `start` if it does not match."""
    match = pattern.match(text, start)
    if match is None:
        return start
    return match.end()


class _Reader:
    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.out: list[str] = []
        self.fixed = False
        self.cut = False

    def container(self, depth: int) -> None:
        """Read an object or array; close it if the text is truncated."""
        if depth > MAX_DEPTH:
            raise Unrepairable
        opening = self._take()
        if opening == "{":
            item, closing = (self._member, "}")
        else:
            item, closing = (self._value, "]")
        self.out.append(opening)
        try:
            self._items(item, closing, depth)
        except _Cut:
            self.cut = True
        self.out.append(closing)

    def _items(self, item: Callable[[int], None], closing: str, depth: int) -> None:
        """Read the items between the brackets. A truncated item without meaning is dropped together with its comma."""
        begun = False
        while self._next() != closing:
            mark = len(self.out)
            if begun:
                self._expect(",")
                if self._next() == closing:
                    self.fixed = True  # trailing comma
                    break
                self.out.append(",")
            try:
                item(depth)
            except _Cut:
                del self.out[mark:]
                raise
            begun = True
            if self.cut:
                return
        self.at += 1

    def _member(self, depth: int) -> None:
        if self._next() in CLOSING_QUOTES:
            self._string()
            if self.cut:
                raise _Cut
        else:
            self._bare_key()
        self._next()
        self._expect(":")
        self.out.append(":")
        self._value(depth)

    def _bare_key(self) -> None:
        match = KEY.match(self.text, self.at)
        if match is None:
            raise Unrepairable
        self.at = match.end()
        if self.at == len(self.text):
            raise _Cut
        self.fixed = True
        self.out.append(json.dumps(match.group(), ensure_ascii=False))

    def _value(self, depth: int) -> None:
        character = self._next()
        if character in ("{", "["):
            self.container(depth + 1)
        elif character in CLOSING_QUOTES:
            self._string()
        elif character in NUMBER_STARTS and not self.text.startswith("-I", self.at):
            self._number()
        else:
            self._word()

    def _number(self) -> None:
        begun_end = _end(NUMBER_BEGUN, self.text, self.at)
        match = NUMBER.match(self.text, self.at)
        if begun_end == len(self.text):
            self.cut = True
            self.at = begun_end
            if match is None:
                raise _Cut
        elif match is None or not BORDER.match(self.text, match.end()):
            raise Unrepairable
        else:
            self.at = match.end()
        self.out.append(match.group())

    def _word(self) -> None:
        match = WORD.match(self.text, self.at)
        if match is None:
            raise Unrepairable
        word = match.group()
        meaning = LITERALS.get(word)
        if meaning is None and match.end() == len(self.text):
            self.cut = True
            meaning = next((LITERALS[known] for known in LITERALS if known.startswith(word)), None)
        if meaning is None or not BORDER.match(self.text, match.end()):
            raise Unrepairable
        self.at = match.end()
        self.fixed = self.fixed or (not self.cut and meaning != word)
        self.out.append(meaning)

    def _string(self) -> None:
        """Read a string in any kind of quotes and write it in double quotes; close it if the text is truncated."""
        quote = CLOSING_QUOTES[self._take()]
        self.fixed = self.fixed or quote != '"'
        plain = PLAIN_TEXT[quote]
        self.out.append('"')
        while self.at < len(self.text):
            match = plain.match(self.text, self.at)
            if match:
                self.out.append(match.group())
                self.at = match.end()
                continue
            character = self._take()
            if character == "\\":
                self._escape()
            elif character == quote and self._closes(quote):
                self.out.append('"')
                return
            else:
                self._raw(character)
        self.cut = True
        self.out[-1] = HALF_PAIR.sub("", self.out[-1])
        self.out.append('"')

    def _closes(self, quote: str) -> bool:
        """Return whether a quote ends its string: an apostrophe within a word does not."""
        return quote != "'" or AFTER_STRING.match(self.text, self.at) is not None

    def _raw(self, character: str) -> None:
        """Escape a character that JSON requires to be escaped: a control character, or a double quote within other
        quotes.
        """
        self.fixed = True
        self.out.append(json.dumps(character, ensure_ascii=False)[1:-1])

    def _escape(self) -> None:
        """Convert an escape sequence. Escapes of other languages become JSON's; a lone backslash is doubled."""
        character = self._take()
        if character in WIDTHS and self._coded(character):
            return
        if not character:
            return  # truncated within the escape
        if character in '"\\/bfnrt':
            self.out.append("\\" + character)
            return
        self.fixed = True
        self.out.append(FOREIGN_ESCAPES.get(character, "\\\\" + json.dumps(character, ensure_ascii=False)[1:-1]))

    def _coded(self, kind: str) -> bool:
        """Read a numeric escape, if valid; a truncated one is dropped."""
        width = WIDTHS[kind]
        digits = self.text[self.at : self.at + width]
        if len(digits) < width:
            self.at = len(self.text)
            return True
        if not HEXADECIMAL.fullmatch(digits) or int(digits, 16) > sys.maxunicode:
            return False
        self.at += width
        self.fixed = self.fixed or kind != "u"
        self.out.append("\\u" + digits if kind == "u" else json.dumps(chr(int(digits, 16)))[1:-1])
        return True

    def _next(self) -> str:
        """Return the next character after whitespace and comments, without consuming it. Raise _Cut at the end of the
        text.
        """
        character = self.text[self.at : self.at + 1]
        if character in PLAIN_STARTS:
            return character
        blank = _end(BLANK, self.text, self.at)
        self.at = _end(BLANKS_AND_COMMENTS, self.text, blank)
        self.fixed = self.fixed or self.at != blank
        if self.at >= len(self.text) or self.text.startswith("/*", self.at):
            self.at = len(self.text)
            raise _Cut
        return self.text[self.at]

    def _take(self) -> str:
        character = self.text[self.at : self.at + 1]
        self.at += 1
        return character

    def _expect(self, character: str) -> None:
        if self._take() != character:
            raise Unrepairable
