"""The goldens: for each case of each surface with each vendor one file, small enough to be read in a difference.

`<surface>/<vendor>/<case>.json` has the answers that the caller gets, turn by turn, and the requests to the vendor.
It has only the counts of usage that are not zero; `thin` checks that an answer has every count of COUNTS.

Equal goldens are stored once: `equal.json` lists, for a stored golden, the cases that must give the same.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "samples" / "contract"
EQUAL = FOLDER / "equal.json"
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


def stored() -> set[Path]:
    return {*FOLDER.rglob("*.json")} - {EQUAL}


@cache
def equal_to() -> dict[Path, Path]:
    """Return the golden of each case that shares the file of another case."""
    groups = json.loads(EQUAL.read_text())
    return {FOLDER / f"{case}.json": FOLDER / f"{golden}.json" for golden, cases in groups.items() for case in cases}


@cache
def find(surface: str, vendor: str, name: str) -> Json | None:
    """None where the surface has no such case."""
    text = _text_of(path_of(surface, vendor, name))
    return json.loads(text) if text else None


def _text_of(path: Path) -> str:
    """Return the golden of a case, its own or the equal one; "" if there is none."""
    if not path.exists():
        path = equal_to().get(path, path)
    return path.read_text() if path.exists() else ""


def read(surface: str, vendor: str, name: str) -> Json:
    golden = find(surface, vendor, name)
    assert golden is not None, f"{surface}/{vendor}: no golden of {name}"
    return golden


def store_once(paths: list[Path]) -> None:
    """Remove goldens of cases that no longer exist and all but the first of equal ones, and write `equal.json`."""
    texts = {path: text for path in paths if (text := _text_of(path))}
    for path in stored():
        path.unlink()
    first: dict[str, str] = {}
    groups: dict[str, list[str]] = {}
    for path, text in texts.items():
        case = str(path.relative_to(FOLDER).with_suffix(""))
        golden = first.setdefault(text, case)
        if golden == case:
            path.write_text(text)
        else:
            groups.setdefault(golden, []).append(case)
    EQUAL.write_text(json.dumps(groups, indent=1, sort_keys=True) + "\n")
    equal_to.cache_clear()
    find.cache_clear()


def write(surface: str, vendor: str, name: str, golden: Json) -> None:
    path = path_of(surface, vendor, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(golden, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def thin(surface: str, turns: list[Json]) -> list[Json]:
    """Return the caller's view without counts that are zero. Raises AssertionError when a count is missing."""
    return [{**turn, "usage": _thin(surface, turn["usage"])} if turn.get("usage") else turn for turn in turns]


def _thin(surface: str, usage: Json) -> Json:
    kept = {name: dict(value) if isinstance(value, dict) else value for name, value in usage.items()}
    for count in COUNTS[surface]:
        place, _, name = count.rpartition(".")
        inner = kept[place] if place else kept
        assert type(inner.get(name)) is int, f"{surface}: no count {count} in {usage}"
        if not inner[name]:
            del inner[name]
    return {name: value for name, value in kept.items() if value != {}}
