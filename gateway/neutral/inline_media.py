"""Inline media within JSON of types that the gateway does not know: data URLs, and base64 in a member `data`."""

from collections.abc import Iterator
from typing import Any

from gateway.neutral.file_types import decode_pieces, normalize_base64

DATA_URL = "data:"
ENCODED = ";base64,"
DATA = "data"  # the member of inline media in most formats
SHORTEST = 64  # characters; a shorter text in the member is no file


def inline_media(body: Any) -> Iterator[tuple[str, int]]:
    """Yield the base64 text of each file, and the length of the JSON text that has it."""
    left = [body]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            for name, inner in value.items():
                if not isinstance(inner, str):
                    left.append(inner)
                elif inner.startswith(DATA_URL) and ENCODED in inner[:256]:
                    yield inner.partition(ENCODED)[2], len(inner)
                elif name == DATA and len(inner) >= SHORTEST and _is_base64(inner):
                    yield inner, len(inner)


def _is_base64(text: str) -> bool:
    try:
        for _ in decode_pieces(normalize_base64(text)):
            continue
    except ValueError:
        return False
    return True
