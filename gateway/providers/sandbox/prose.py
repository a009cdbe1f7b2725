"""Generates repeatable prose of a chosen length from templates, and counts tokens."""

from collections.abc import Iterator
from random import Random

# The sandbox's token rule: a token is four bytes of UTF-8; the last token may be shorter.

TOKEN_BYTES = 4
IMAGE_TOKENS = 85
MEDIA_BYTES_PER_TOKEN = 1000


def count(text: str) -> int:
    """Return the tokens of a text: its UTF-8 bytes / 4, rounded up."""
    size = len(text) if text.isascii() else len(text.encode())
    return -(-size // TOKEN_BYTES)


def count_media(size: int) -> int:
    """Return the tokens of an audio clip or a file: its size / 1,000 bytes, rounded up."""
    return -(-size // MEDIA_BYTES_PER_TOKEN)


def clip(text: str, tokens: int) -> str:
    """Return the longest prefix of the text with at most `tokens` tokens; no character is split."""
    if count(text) <= tokens:
        return text
    return text.encode()[: tokens * TOKEN_BYTES].decode(errors="ignore")


def count_slices(text: str, tokens: int) -> int:
    """Return the number of pieces that `slice_text` makes."""
    if text.isascii():
        return -(-len(text) // (tokens * TOKEN_BYTES))
    return len(slice_text(text, tokens))


def slice_text(text: str, tokens: int) -> list[str]:
    """Return the text in pieces of at most `tokens` tokens."""
    size = tokens * TOKEN_BYTES
    if text.isascii():
        return [text[start : start + size] for start in range(0, len(text), size)]
    data = text.encode()
    pieces = []
    start = 0
    while start < len(data):
        piece = data[start : start + size].decode(errors="ignore")
        pieces.append(piece)
        start += len(piece.encode())
    return pieces


DEFAULT_TOKENS = 64
MAX_TOKENS = 1000

OPENINGS = ("In short", "As a rule", "In practice", "To begin with", "Put simply", "On balance", "At first sight")
SUBJECTS = ("the first step", "a careful plan", "the usual answer", "a small change", "the main question", "the team")
VERBS = ("depends on", "follows from", "leads to", "rests on", "benefits from", "comes before", "explains")
OBJECTS = (
    "a clear goal",
    "good measurements",
    "the weather of the day",
    "steady work",
    "an open mind",
    "a second look",
)
ENDINGS = ("most of the time", "in nearly every case", "sooner or later", "without much effort", "as one would hope")
THOUGHTS = ("First", "Next", "Then", "After that", "Besides")


def write_answer(subject: str, seed: str, tokens: int | None, limit: int | None) -> str:
    """Return prose about `subject`.

    `tokens` is its exact length. Without it, the prose consists of the complete sentences (at least one) that fit into
    `limit`, at most 1,000 tokens, or into 64 tokens without a limit.
    """
    lead = f'Here is a sandbox answer about "{clip(subject, 12)}". ' if subject else "Here is a sandbox answer. "
    sentences = _sentences(seed)
    if tokens is not None:
        return fill(lead, sentences, tokens)
    maximum = min(limit or DEFAULT_TOKENS, MAX_TOKENS)
    text = lead
    for sentence in sentences:
        if count((text + sentence).rstrip()) > maximum:
            return text.rstrip()
        text += sentence
    return text


def write_thoughts(subject: str, seed: str, tokens: int) -> str:
    """Return reasoning text of exactly `tokens` tokens."""
    lead = f'The question is "{clip(subject, 12)}". ' if subject else "The question is short. "
    rest = (f"{word}, {sentence[0].lower()}{sentence[1:]}" for word, sentence in _steps(seed))
    return fill(lead, rest, tokens)


def fill(lead: str, more: Iterator[str], tokens: int) -> str:
    """Return `lead`, extended by `more` or truncated to exactly `tokens` tokens."""
    parts = [lead]
    size = len(lead.encode())
    while size < tokens * 4:
        part = next(more)
        parts.append(part)
        size += len(part.encode())
    return clip("".join(parts), tokens)


def _sentences(seed: str) -> Iterator[str]:
    dice = Random(seed)
    while True:
        words = [dice.choice(words) for words in (OPENINGS, SUBJECTS, VERBS, OBJECTS, ENDINGS)]
        yield "{}, {} {} {} {}. ".format(*words)


def _steps(seed: str) -> Iterator[tuple[str, str]]:
    for place, sentence in enumerate(_sentences(seed)):
        yield THOUGHTS[min(place, place % (len(THOUGHTS) - 1) + 1)], sentence
