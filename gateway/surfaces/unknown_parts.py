"""Content parts and tools of types that are newer than the gateway: their own vendor gets them as written.

In decoded bodies they stand as `{"type": "unknown", "kind": …, "body": …}`.
"""

from collections.abc import Collection
from typing import Any

from msgspec.json import encode

Json = dict[str, Any]
UNKNOWN = "unknown"
DATA_URL = "data:"
DATA = "data"  # the member of inline media in most formats


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


def text_size(body: Any) -> int:
    """Return the bytes of a part as JSON, without inline media, which no model reads as text."""
    size = len(encode(body))
    left = [body]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            for name, inner in value.items():
                if isinstance(inner, str):
                    size -= len(inner) if name == DATA or inner.startswith(DATA_URL) else 0
                else:
                    left.append(inner)
    return max(size, 0)
