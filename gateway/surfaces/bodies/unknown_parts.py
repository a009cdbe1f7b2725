"""Content parts and tools of types that are newer than the gateway: their own vendor gets them as written.

In decoded bodies they stand as `{"type": "unknown", "kind": …, "body": …}`.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from msgspec.json import encode

from gateway.neutral.file_types import inline_media

Json = dict[str, Any]
UNKNOWN = "unknown"


def wrap(value: Any, known: Collection[str]) -> Any:
    """Return a part or tool, wrapped if its type is none of the `known` ones."""
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or not kind or kind in known:
        return value
    return {"type": UNKNOWN, "kind": kind, "body": value}


def require_unknown(kind: str, body: Json, known: Collection[str]) -> None:
    """Raise ValueError for a wrapped value that a caller wrote to hide one of a known type."""
    if body.get("type") != kind or kind in known:
        raise ValueError(f"the type {kind} is known")


class PartSize(NamedTuple):
    """The bytes of text in a part of an unknown type, and the number of its inline files, which no model reads as
    text."""

    text: int
    media: int


def size_of(body: Any) -> PartSize:
    """Return the size of a part as JSON."""
    lengths = [length for _, length in inline_media(body)]
    return PartSize(max(len(encode(body)) - sum(lengths), 0), len(lengths))
