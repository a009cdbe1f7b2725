"""The memory that a JSON text takes with what is made of it, estimated before it is decoded; and repair of lone
surrogates.

A list of short texts takes ten to thirty times the bytes of its JSON, and a text with one emoji four times its own.
"""

import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from sys import getsizeof
from typing import NamedTuple

from gateway.runtime.threads import compute, compute_if

# Repair of lone surrogates in JSON texts.
#
# Programs with UTF-16 strings sometimes cut an emoji in two and write each half as its own escape, which JSON parsers
# reject.

HALF_PAIR = rb"\\u[dD][%b][0-9a-fA-F]{2}"
FIRST = HALF_PAIR % b"89abAB"
SECOND = HALF_PAIR % b"c-fC-F"
HALF_BYTES = 6
# After an even number of backslashes, so that the backslash of the escape is not itself escaped.
UNESCAPED = rb"(?<!\\)((?:\\\\)*+)"
LONE_SURROGATE = re.compile(rb"%b(?:%b(?!%b)|(?<!%b)%b)" % (UNESCAPED, FIRST, SECOND, FIRST, SECOND))
# A fast check for candidates: the pattern starts with a literal prefix, which the engine searches quickly.
CANDIDATE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!%b)|[c-fC-F][0-9a-fA-F]{2}(?<!%b%b))" % (SECOND, FIRST, SECOND)
)
ENDING = re.compile(rb'%b(%b)(?=")' % (UNESCAPED, FIRST))
CUT_BEGINNING = re.compile(rb'(?<=")(?=%b)' % SECOND)
PAIR = re.compile(FIRST + SECOND)
ESCAPES = re.compile(rb"(?<!\\)\\")
REPLACEMENT = rb"\1\\ufffd"
SUBSTITUTION_BYTES = 1 << 16  # bytes of one substitution, which holds the interpreter lock for at most about 8 ms
MAX_LENGTH = 1 << 22  # Longer texts stay unchanged; parts of a stream are joined only up to SUBSTITUTION_BYTES.


def without_halves(text: bytes) -> bytes:
    """Replace each lone surrogate by the replacement character; the length stays the same."""
    if len(text) > MAX_LENGTH or CANDIDATE.search(text) is None:
        return text
    return b"".join(LONE_SURROGATE.sub(REPLACEMENT, piece) for piece in _pieces(text))


def _pieces(text: bytes) -> Iterator[bytes]:
    """Cut the text in front of escapes, but not within a surrogate pair."""
    at = 0
    while at < len(text):
        escape = ESCAPES.search(text, at + SUBSTITUTION_BYTES)
        end = escape.start() if escape is not None else len(text)
        if PAIR.match(text, end - HALF_BYTES):
            end += HALF_BYTES
        yield text[at:end]
        at = end


def join_halves(text: bytes, before: bytes) -> tuple[bytes, bytes]:
    """Remove lone surrogates from the next piece of a JSON stream.

    Return the text and the first half of a pair at its end (b"" for none); `before` is the half that the previous
    piece ended with, and is inserted where a string begins with the second half.
    """
    half = b""
    if len(text) <= SUBSTITUTION_BYTES:
        if before:
            text = CUT_BEGINNING.sub(before.replace(b"\\", b"\\\\"), text, 1)
        ends = list(ENDING.finditer(text))
        if ends:
            start, end = ends[-1].span(2)
            half = text[start:end]
            text = text[:start] + text[end:]
    return without_halves(text), half


# Counting the parts of a JSON text without decoding it.
#
# Each part takes memory, and time in the JSON decoder, which blocks all other threads of the process.

# Bytes that one call reads: it holds the interpreter lock for at most some 0.3 ms. A small request needs the lock some
# twenty times, in the event loop and in the thread of its commits, and may wait that long for each.
SLICE = 1 << 16
PIECE_BYTES = 1 << 15
QUOTE, BACKSLASH, UNICODE = b'"', b"\\", ord("u")
ESCAPED_BACKSLASH, ESCAPED_QUOTE, BLANK = b"\\\\", b'\\"', b"__"
ESCAPE_BYTES = 6
CHARACTER_BYTES = 4
CUT_BYTES = 16  # more than an escape and a half of a pair before it
FIRST_HALF = re.compile(FIRST)
# The mask and the mark of the further bytes of a character in UTF-8.
CONTINUED, CONTINUES = 0xC0, 0x80
COMMA = b","
OPENING = (b"{", b"[")
LARGE = 1 << 17  # bytes; a longer text with many parts is handled in a thread
# A text with few parts consists of strings, which are copied.
LARGE_WITHOUT_PARTS = 1 << 19
FEW_CONTAINERS = 1_000
BYTES_PER_COMMA = 32  # fewer bytes between commas are numbers, or small values
MANY_CONTAINERS, BYTES_PER_VALUE = 8_000, 12  # the same for the decoder alone
STRUCTURE = (*OPENING, COMMA)
UNMARKED = bytes(byte for byte in range(256) if byte not in b"".join(STRUCTURE) + QUOTE)
# First bytes, in UTF-8, of characters for which Python takes two or four bytes each, and of those that take four.
WIDE_LEADS, FOUR_LEADS = bytes(range(0xC4, 0x100)), bytes(range(0xF0, 0x100))
OTHERS = bytes(byte for byte in range(256) if byte not in b"".join(STRUCTURE) + WIDE_LEADS)


class Marks(NamedTuple):
    """The opening brackets and the commas of a JSON text, including those within strings, and the bytes that Python
    takes at most for each of its characters that are not escaped."""

    opening: int
    commas: int
    width: int


def is_large(raw: bytes) -> bool:
    """Return whether a JSON text is decoded, translated and written in a thread.

    A thread waits for the interpreter while the event loop is busy, which takes longer than decoding a simple text.
    """
    if len(raw) < LARGE:
        return False
    return len(raw) >= LARGE_WITHOUT_PARTS or has_many(count_marks(raw), len(raw))


def has_many(marks: Marks, length: int) -> bool:
    """Return whether a text of fewer than LARGE_WITHOUT_PARTS bytes is large for its number of parts."""
    opening, commas, _ = marks
    return length >= LARGE and (opening > FEW_CONTAINERS or commas * BYTES_PER_COMMA > length)


def takes_long(marks: Marks, length: int) -> bool:
    """Return whether the JSON decoder takes more than a millisecond or two. Source code and JSON within strings have as
    many marks as a thousand objects, and are copied."""
    opening, commas, _ = marks
    if length < LARGE:
        return False
    return length >= LARGE_WITHOUT_PARTS or opening > MANY_CONTAINERS or commas * BYTES_PER_VALUE > length


def has_more_parts(raw: bytes, maximum: int, marks: tuple[bytes, ...] = STRUCTURE) -> bool:
    """Return whether a JSON text has more than `maximum` parts, or more than `maximum` of these `marks`."""
    if len(raw) <= maximum:
        return False
    return compute_if(len(raw) > SLICE, _count_parts, raw, maximum, marks)


def _count_parts(raw: bytes, maximum: int, marks: tuple[bytes, ...]) -> bool:
    opening, commas, _ = count_marks(raw)
    return opening + (commas if COMMA in marks else 0) > maximum and compute(has_more, raw, maximum, marks)


def count_marks(raw: bytes) -> Marks:
    """Count the opening brackets and the commas, and look for wide characters; for long texts in `compute`."""
    opening = commas = 0
    width = 1
    for start in range(0, len(raw), SLICE):
        # All others are removed first: each count reads all bytes that it is given.
        marks = raw[start : start + SLICE].translate(None, OTHERS)
        if not marks.isascii():
            if width < WIDE:
                width = WIDE if len(marks.translate(None, FOUR_LEADS)) < len(marks) else 2
            marks = marks.translate(None, WIDE_LEADS)
        count = marks.count(COMMA)
        commas += count
        opening += len(marks) - count
    return Marks(opening, commas, width)


def has_more(raw: bytes, maximum: int, marks: tuple[bytes, ...] = STRUCTURE) -> bool:
    """Return whether there are more marks outside of strings than `maximum`; works in pieces so that other threads can
    run.
    """
    count = 0
    for bare in outside_strings(raw):
        count += sum(map(bare.count, marks))
        if count > maximum:
            return True
    return False


def outside_strings(raw: bytes) -> Iterator[bytes]:
    """Yield the marks (brackets and commas) of a JSON text that do not stand in strings, in pieces."""
    inside = 0
    for piece in pieces_of(raw):
        parts = piece.translate(None, UNMARKED).split(QUOTE)
        yield b"".join(parts[inside::2])
        inside = (inside + len(parts) - 1) & 1


def pieces_of(raw: bytes) -> Iterator[bytes]:
    """Yield a JSON text in pieces, in which each quote begins or ends a string."""
    at = 0
    while at < len(raw):
        end = end_of_text(raw, at, at + PIECE_BYTES)
        yield blank_escapes(raw[at:end])
        at = end


def blank_escapes(piece: bytes) -> bytes:
    """Return a text of the same length without escaped backslashes and quotes."""
    if BACKSLASH not in piece:
        return piece
    return piece.replace(ESCAPED_BACKSLASH, BLANK).replace(ESCAPED_QUOTE, BLANK)


def end_of_text(raw: bytes, start: int, end: int) -> int:
    """Return a place near `end` where the text of a string can be cut: in no escape, pair of escapes or character."""
    while end < len(raw):
        cut = _without_cut_text(raw, start, end)
        if cut > start:
            return cut
        end += CUT_BYTES
    return len(raw)


def _without_cut_text(raw: bytes, start: int, end: int) -> int:
    escape = raw.rfind(BACKSLASH, max(start, end - ESCAPE_BYTES + 1), end)
    if escape >= 0 and _begins_escape(raw, start, escape):
        length = ESCAPE_BYTES if raw[escape + 1] == UNICODE else 2
        if escape + length > end:
            end = escape
    half = end - ESCAPE_BYTES
    if half > start and FIRST_HALF.match(raw, half, end) and _begins_escape(raw, start, half):
        end = half
    for _ in range(CHARACTER_BYTES - 1):
        if raw[end] & CONTINUED == CONTINUES:
            end -= 1
    return end


def _begins_escape(raw: bytes, start: int, at: int) -> bool:
    """Return whether the backslash at `at` is not itself escaped."""
    before = raw[start : at + 1]
    return (len(before) - len(before.rstrip(BACKSLASH))) % 2 == 1


class ByteWeights(NamedTuple):
    """Bytes of an object or a list with what is made of it, and of each further value."""

    opening: int
    comma: int


# Measured for two letters in each part: 150 to 250 with the values in chats and messages, which become structs; 580 to
# 810 in items of responses, 430 in Gemini's contents, and 250 in other JSON, which become dictionaries first.
STRUCTS = ByteWeights(128, 64)
DICTIONARIES = ByteWeights(640, 64)
# Copies of a text beside its decoded strings: the body itself, and the body for the provider.
COPIES = 2
# An estimate over this and over EXACT_FACTOR times the text is computed again without the contents of strings, where
# brackets and commas of code stand; except where strings are short, since each takes more than a microsecond. A wide
# character counts for all of a text, so texts with some are measured from fewer bytes on.
EXACT_FROM = 4 << 20
EXACT_FROM_WIDE = 1 << 20
EXACT_FACTOR = 4
STRING_BYTES = 16
WIDE = 4
# Escaped characters for which a text takes four bytes each, or two. One pattern for both takes ten times as long.
ESCAPE = b"\\u"
FOUR = re.compile(rb"\\u[dD][89abAB]")
TWO = re.compile(rb"\\u(?!00)")
HEAD_BYTES = 100  # more than Python takes for a text beside its characters
DECODER = getincrementaldecoder("utf-8")  # of pieces that may begin or end within a character


def weigh(raw: bytes, weights: ByteWeights = DICTIONARIES, marks: Marks | None = None) -> int:
    """Return the bytes that a JSON text, what is decoded from it and its copy for a provider take. `marks` are those of
    the text where they were counted before."""
    length = len(raw)
    if length >= LARGE_WITHOUT_PARTS:
        return compute(_weigh, raw, weights, marks)
    return _weigh(raw, weights, marks)


def _weigh(raw: bytes, weights: ByteWeights, marks: Marks | None) -> int:
    length = len(raw)
    opening, commas, width = marks or count_marks(raw)
    width = _with_escapes(raw, width)
    structure = opening * weights.opening + commas * weights.comma
    rough = length * (COPIES + width) + structure
    least = EXACT_FROM_WIDE if width == WIDE else EXACT_FROM
    if rough < least or rough < EXACT_FACTOR * length:
        return rough
    strings = raw.count(b'"') - raw.count(b'\\"')
    if strings * STRING_BYTES > length:
        return rough
    return compute_if(length > LARGE, _weigh_exactly, raw, weights, width, structure)


def _weigh_exactly(raw: bytes, weights: ByteWeights, width: int, structure: int) -> int:
    if structure > EXACT_FROM:
        structure = _structure(raw, weights)
    return COPIES * len(raw) + structure + (len(raw) if width == 1 else _texts(raw))


def _width(text: bytes) -> int:
    """Return the bytes that a character of a text takes at most."""
    return _with_escapes(text, 1 if text.isascii() else _raw_width(text))


def _with_escapes(text: bytes, width: int) -> int:
    """Return the bytes that a character of a text takes at most, where one that is not escaped takes `width`."""
    # Searched from the end, which is twice as fast for two bytes.
    if width < WIDE and text.rfind(ESCAPE) >= 0:
        for wider, escape in ((WIDE, FOUR), (2, TWO)):
            if escape.search(text):
                return max(width, wider)
    return width


def _raw_width(text: bytes) -> int:
    """Return the width of the characters that are not escaped: Python's decoder finds it faster than a pattern."""
    if len(text) <= SLICE:
        return _width_of(text.decode("utf-8", "ignore"))
    decoder = DECODER("ignore")
    return max(_width_of(decoder.decode(text[at : at + SLICE])) for at in range(0, len(text), SLICE))


def _width_of(text: str) -> int:
    """Return the bytes that Python takes for each character of a text."""
    if len(text) > HEAD_BYTES:
        return getsizeof(text) // len(text)
    return (getsizeof(text + text) - getsizeof(text)) // len(text) if text else 1


def _structure(raw: bytes, weights: ByteWeights) -> int:
    """Return the bytes of the values outside of strings."""
    total = 0
    for bare in outside_strings(raw):
        total += weights.opening * sum(map(bare.count, OPENING)) + weights.comma * bare.count(COMMA)
    return total


def _texts(raw: bytes) -> int:
    """Return the bytes of the strings: each takes the width of its widest character for all of them."""
    total = len(raw)
    length = 0
    width = 1
    for piece, ends in _strings(raw):
        length += len(piece)
        width = max(width, _width(piece))
        if ends:
            total += length * (width - 1)
            length = 0
            width = 1
    return total + length * (width - 1)


def _strings(raw: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield the strings in pieces, with whether each ends its string."""
    inside = False
    for piece in pieces_of(raw):
        *ended, rest = piece.split(QUOTE)
        for text in ended:
            if inside:
                yield text, True
            inside = not inside
        if inside:
            yield rest, False
