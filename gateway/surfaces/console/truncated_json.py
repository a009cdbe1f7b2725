"""JSON of which only the beginning was stored, closed after its last complete value."""

import re
from itertools import islice

# A text without its end is the last token; everything between the tokens is numbers, literals and white space.
TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*("|\Z)|[{}\[\],]', re.DOTALL)
# An escape of which the end is missing, or the first half of a pair.
CUT_ESCAPE = re.compile(rb"(?:\\u[0-9a-fA-F]{0,3}|\\u[dD][89abAB][0-9a-fA-F]{2})\Z")
LONGEST_ESCAPE = 6
MAX_DEPTH = 400
MAX_TOKENS = 400_000  # that are examined; the beginning before the next one is kept
CLOSING = {b"{": b"}", b"[": b"]"}


def mend(cut: bytes) -> bytes:
    """Return the longest beginning of `cut` that can be closed, closed: a text at its end is kept in part, another
    value left out. b"" if nothing can be kept. Linear in the length."""
    if _count_backslashes(cut, len(cut)) % 2:  # without it, a text at the end would be no token
        cut = cut[:-1]
    open_, end, last = _walk(cut)
    if len(open_) > MAX_DEPTH:
        return b""
    kept = cut[:end]
    if last is not None and open_ and _is_value(cut, last.start(), open_):
        kept = cut[: last.end()] if last.group(1) else _end_text(cut) + b'"'
    return kept + b"".join(reversed(open_))


def _walk(cut: bytes) -> tuple[list[bytes], int, re.Match[bytes] | None]:
    """Return what closes the objects and lists that are open at the end, the end of what is complete, and the text
    after it, None without one."""
    open_: list[bytes] = []
    end = 0
    last: re.Match[bytes] | None = None
    for token in islice(TOKEN.finditer(cut), MAX_TOKENS):
        text = token.group()[:1]
        if text == b'"':
            last = token
            continue
        if not (open_ or text in CLOSING):
            continue
        last, end = None, token.end()
        if text in CLOSING:
            open_.append(CLOSING[text])
        elif text == b",":
            end = token.start()
        elif open_.pop() != text:
            return [], 0, None
        if not open_ or len(open_) > MAX_DEPTH:
            break
    return open_, end, last


def _count_backslashes(text: bytes, end: int) -> int:
    """Return how many backslashes are directly before a place."""
    count = 0
    while count < end and text[end - count - 1 : end - count] == b"\\":
        count += 1
    return count


def _is_value(cut: bytes, start: int, open_: list[bytes]) -> bool:
    """Return whether the text that begins at `start` is a value rather than the name of a member."""
    return open_[-1] == b"]" or cut[max(0, start - 64) : start].rstrip().endswith(b":")


def _end_text(cut: bytes) -> bytes:
    """Return bytes that end in a text without a part of a character or escape at their end."""
    for _ in range(2):  # the second half of a pair, then its first half
        escape = CUT_ESCAPE.search(cut, max(0, len(cut) - LONGEST_ESCAPE))
        if escape is not None and not _count_backslashes(cut, escape.start()) % 2:
            cut = cut[: escape.start()]
    return cut.decode("utf-8", "ignore").encode()
