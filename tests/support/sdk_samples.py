"""Draws values of the vendors' SDK types: members of requests, parts of prompts and tools.

A text is drawn by the name of its member: addresses, base64, ids of stored objects and names of models get values that
cost money where a request has them.
"""

from __future__ import annotations

import types
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typing_extensions
from hypothesis import strategies as st

from gateway.providers.sandbox import speech
from gateway.providers.sandbox.images import png

Json = dict[str, Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]
DEAR = "dear-model-9"
DEAR_MODELS = ("claude-opus-4-6", "gpt-image-2", "gemini-3.1-pro-preview")
DEPTH = 4
PICTURE = b64encode(png(8, 8, "")).decode()
SOUND = b64encode(speech.make("wav", 3.0)).decode()
PAGE = b64encode(
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF"
).decode()
CONTENTS = (PICTURE, SOUND, PAGE, b64encode(b"plain text " * 40).decode())
ADDRESSES = (
    "https://files.example.com/picture.png",
    "https://files.example.com/book.pdf",
    "https://files.example.com/film.mp4",
    "https://www.youtube.com/watch?v=1",
    "gs://bucket/film.mp4",
    "https://generativelanguage.googleapis.com/v1beta/files/1",
    f"data:image/png;base64,{PICTURE}",
    f"data:application/pdf;base64,{PAGE}",
)
MEDIA_TYPES = ("image/png", "audio/wav", "application/pdf", "video/mp4", "text/plain")
STORED = ("file-1", "file_1", "cntr_1", "vs_1")


def text_of(draw: Draw, name: str) -> str:
    """A text for a member of this name."""
    name = name.lower()
    if "model" in name:
        return draw(st.sampled_from((DEAR, *DEAR_MODELS)))
    if name.endswith(("url", "uri")):
        return draw(st.sampled_from(ADDRESSES))
    if "data" in name or name in ("bytes", "result", "b64_json"):
        return draw(st.sampled_from(CONTENTS))
    if "mime" in name or name == "media_type":
        return draw(st.sampled_from(MEDIA_TYPES))
    if name in ("file_id", "file_ids", "container", "vector_store_ids", "cached_content", "container_id"):
        return draw(st.sampled_from(STORED))
    if name.endswith("id"):
        return f"{name}_1"
    return draw(st.sampled_from(("words", "more words of text")))


def value_of(draw: Draw, hint: Any, name: str, depth: int = 0) -> Any:
    """A value of the type of a member."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return draw(st.sampled_from(inner))
    if origin in (Union, types.UnionType):
        known = [one for one in inner if one is not type(None) and getattr(one, "__name__", "") != "Unset"]
        return value_of(draw, draw(st.sampled_from(known)), name, depth)
    if origin is Annotated or "Required" in str(origin):
        return value_of(draw, inner[0], name, depth)
    if origin is dict:
        return {"a": value_of(draw, inner[1], name, depth + 1)} if depth < DEPTH else {}
    if origin is not None:
        return [value_of(draw, inner[0], name, depth + 1)] if inner and depth < DEPTH else []
    if _is_structure(hint):
        return structure_of(draw, hint, depth)
    return _simple(draw, hint, name)


def _simple(draw: Draw, hint: Any, name: str) -> Any:
    if isinstance(hint, type) and issubclass(hint, str) and hasattr(hint, "__members__"):
        words = [one.value for one in hint if "UNSPECIFIED" not in one.value]  # type: ignore[attr-defined]
        return draw(st.sampled_from(words or [one.value for one in hint]))  # type: ignore[attr-defined]
    if hint is bool:
        return draw(st.booleans())
    if hint is int:
        return draw(st.sampled_from((1, 2, 300)))
    if hint is float:
        return draw(st.sampled_from((0.5, 1.0)))
    if hint in (str, bytes):
        return text_of(draw, name)
    return {} if hint in (Any, object, dict) else text_of(draw, name)


def structure_of(draw: Draw, kind: Any, depth: int = 0) -> Json:
    """An object of a type, with the required members and some of the others."""
    found = {}
    for name, hint, required in members_of(kind):
        if required or (depth < DEPTH and draw(st.integers(0, 2)) == 0):
            found[name] = value_of(draw, hint, name, depth + 1)
    return found


@cache
def members_of(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Name, type and whether it is required, of each member of a type."""
    if not hasattr(kind, "model_fields"):
        hints = typing_extensions.get_type_hints(kind, include_extras=True)
        whole = getattr(kind, "__total__", True)
        return tuple((name, hint, _is_required(hint, whole)) for name, hint in hints.items())
    fields = kind.model_fields.items()
    return tuple((field.alias or name, field.annotation, field.is_required()) for name, field in fields)


def _is_structure(hint: Any) -> bool:
    return hasattr(hint, "model_fields") or hasattr(hint, "__total__")


def _is_required(hint: Any, whole: bool) -> bool:
    return "Required[" in str(hint)[:40] or (whole and "NotRequired[" not in str(hint)[:40])


def kinds_in(union: Any) -> Iterator[Any]:
    """The types of objects in a union, a list or another type of types."""
    if _is_structure(union):
        yield union
        return
    for one in get_args(union):
        yield from kinds_in(one)
