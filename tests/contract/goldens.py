"""The goldens: for each case of each surface with each vendor one file, small enough to be read in a difference.

`<surface>/<vendor>/<case>.json` holds what the caller sees, turn for turn, and what the vendor got. Of usage it holds
what is not zero: that every count of COUNTS is told, zeros included, is looked at apart by `thin`.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "samples" / "contract"
Json = dict[str, Any]
# The counts that usage always has, by surface.
COUNTS = {
    "chat": (
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "reasoning_tokens",
        "prompt_tokens_details.cached_tokens",
        "prompt_tokens_details.cache_write_tokens",
        "prompt_tokens_details.cache_creation_tokens",
        "prompt_tokens_details.audio_tokens",
        "prompt_tokens_details.video_tokens",
        "completion_tokens_details.reasoning_tokens",
        "completion_tokens_details.audio_tokens",
        "completion_tokens_details.image_tokens",
    ),
    "messages": (
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "cache_creation.ephemeral_5m_input_tokens",
        "cache_creation.ephemeral_1h_input_tokens",
    ),
    "responses": (
        "input_tokens",
        "output_tokens",
        "total_tokens",
        "input_tokens_details.cached_tokens",
        "input_tokens_details.cache_write_tokens",
        "output_tokens_details.reasoning_tokens",
    ),
    "ai4": ("inputTokens", "outputTokens", "totalTokens", "cachedInputTokens", "reasoningTokens"),
}


def path_of(surface: str, vendor: str, name: str) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return FOLDER / surface / vendor / f"{slug}.json"


@cache
def read(surface: str, vendor: str, name: str) -> Json:
    return json.loads(path_of(surface, vendor, name).read_text())


def find(surface: str, vendor: str, name: str) -> Json | None:
    """None where the surface has no such case."""
    return read(surface, vendor, name) if path_of(surface, vendor, name).exists() else None


def write(surface: str, vendor: str, name: str, golden: Json) -> None:
    path = path_of(surface, vendor, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(golden, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def thin(surface: str, seen: list[Json]) -> list[Json]:
    """Return the caller's view without counts that are zero. Raises AssertionError when a count is missing."""
    return [{**turn, "usage": _thin(surface, turn["usage"])} if turn.get("usage") else turn for turn in seen]


def _thin(surface: str, usage: Json) -> Json:
    kept = {name: dict(value) if isinstance(value, dict) else value for name, value in usage.items()}
    for count in COUNTS[surface]:
        place, _, name = count.rpartition(".")
        inner = kept[place] if place else kept
        assert type(inner.get(name)) is int, f"{surface}: no count {count} in {usage}"
        if not inner[name]:
            del inner[name]
    return {name: value for name, value in kept.items() if value != {}}
