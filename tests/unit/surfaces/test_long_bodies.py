"""Which bodies are translated in a thread: those with many parts, not those with much source code."""

import json
from dataclasses import fields
from typing import Any

import pytest

from gateway.configuration.settings import LimitSettings
from gateway.neutral.json_weight import FEW_CONTAINERS, LARGE, count_marks
from gateway.surfaces.anthropic import routes as anthropic
from gateway.surfaces.google import routes as google
from gateway.surfaces.openai import chat

CODE = "def f(a): return [{'x': a, 'y': [a]}]\n" * 5_000
LIMITS = LimitSettings(**dict.fromkeys((field.name for field in fields(LimitSettings)), 0))


def is_large(surface: str, parts: int) -> bool:
    """Return whether a body of `parts` parts and much code is large."""
    texts: list[dict[str, Any]] = [{"text": CODE}, *({"text": "x"} for _ in range(parts))]
    if surface == "google":
        raw = json.dumps({"contents": [{"role": "user", "parts": texts}]}).encode()
    else:
        content = [{"type": "text", **text} for text in texts]
        raw = json.dumps({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": content}]}).encode()
    assert len(raw) > LARGE
    assert count_marks(raw)[0] > FEW_CONTAINERS
    if surface == "google":
        return google._read(True, LIMITS, raw, "m", False).large
    if surface == "anthropic":
        return anthropic._read(True, LIMITS, raw, "").large
    return chat.read_here(True, LIMITS, raw)[1].large


@pytest.mark.parametrize("surface", ["chat", "anthropic", "google"])
def test_source_code_is_translated_without_a_thread_and_many_parts_in_one(surface: str) -> None:
    assert not is_large(surface, 10)
    assert is_large(surface, 2_000)
