"""The sandbox's token rule: a token is four bytes of UTF-8; the last token may be shorter."""

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
