"""JSON of which only the beginning was stored, closed after its last complete value."""

import re
from itertools import islice

# A text without its end is the last token; everything between the tokens is numbers, literals and white space.
TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)|[{}\[\],]', re.DOTALL)
MAX_DEPTH = 400
MAX_TOKENS = 400_000  # that are examined; the beginning before the next one is kept
CLOSING = {b"{": b"}", b"[": b"]"}


def mend(cut: bytes) -> bytes:
    """Return the longest beginning of `cut` that can be closed, closed: without the value at which it ends. b"" if
    nothing can be kept. Linear in the length."""
    open_: list[bytes] = []
    end = 0
    for token in islice(TOKEN.finditer(cut), MAX_TOKENS):
        text = token.group()[:1]
        if text == b'"' or not (open_ or text in CLOSING):
            continue
        end = token.end()
        if text in CLOSING:
            open_.append(CLOSING[text])
        elif text == b",":
            end = token.start()
        elif open_.pop() != text:
            return b""
        if not open_ or len(open_) > MAX_DEPTH:
            break
    return b"" if len(open_) > MAX_DEPTH else cut[:end] + b"".join(reversed(open_))
