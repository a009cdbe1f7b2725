"""Every regular expression searches in time by the length of its text, whatever a caller or a provider sends."""

import ast
import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.pattern_attacks import USES, worst_growth

from gateway.metering.session_ids import SESSIONS
from gateway.metering.sources import known_clients
from gateway.providers.vectors import MEMBER
from gateway.surfaces import surface_table

GATEWAY = Path(__file__).resolve().parents[2] / "gateway"
FILES = sorted(GATEWAY.rglob("*.py"))
TEXTS = {path: path.read_text() for path in FILES}
METHOD = re.compile(rf"(\w+)\.({'|'.join(USES)})\b")
MATCHED = re.compile(r"\b_end\((\w+), ")  # by the helper of the repair of JSON


class Found(NamedTuple):
    """A pattern, its place in its module, and the methods that are called."""

    place: str
    pattern: re.Pattern[Any]
    uses: frozenset[str]


# Patterns that may take longer, with the reason why only the project writes their text.
OWN_TEXTS = {
    "gateway.configuration.document:LINE": "lines of the project's own default.toml",
    "gateway.surfaces.console.guide_pages:HEADING": "headings of the project's own guides",
    "gateway.surfaces.console.guide_pages:MARKS": "headings of the project's own guides",
}
# Patterns that are made while the gateway starts.
MADE: dict[str, Callable[[], Iterable[re.Pattern[Any]]]] = {
    "the paths of all operations": lambda: [surface_table.addresses()._varied],
    "aliases of paths": lambda: [pattern for pattern, _ in surface_table.addresses()._aliases],
    "sessions in user ids": lambda: SESSIONS._patterns,
    "clients by user agent": lambda: [client.agent for client in known_clients()._clients if client.agent],
    "a member of a long answer": lambda: [re.compile(MEMBER % b"data")],
}
# The attack must find these: the forms of hostile patterns that there were.
QUADRATIC = {
    r"(a|aa)*b": "match",
    r"\s+$": "search",
    r"\d*\.?\d*x?\d*": "fullmatch",
    r"/\*.*?\*/": "search",
    r'"choices": ?(\[\{[^\[\]]*"content": ?")([^"\\]*(?:\\.[^"\\]*)*)("[^\[\]]*\])': "search",
    r"[a-z_-]*claw": "search",
}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(GATEWAY.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def uses_by_name() -> dict[str, set[str]]:
    uses: dict[str, set[str]] = {}
    for text in TEXTS.values():
        for name, method in METHOD.findall(text):
            uses.setdefault(name, set()).add(method)
        for name in MATCHED.findall(text):
            uses.setdefault(name, set()).add("match")
    return uses | {"BY_FORMAT": {"search"}}  # a table; its patterns have another name where they are used


def patterns_in(value: Any, depth: int = 3) -> Iterator[re.Pattern[Any]]:
    if type(value) is re.Pattern:
        yield value
    elif type(value) is type(METHOD.match) and type(value.__self__) is re.Pattern:
        yield value.__self__
    elif depth and type(value) in (dict, list, tuple, set, frozenset):
        for each in value.values() if isinstance(value, dict) else value:
            yield from patterns_in(each, depth - 1)


def kept_patterns(path: Path) -> Iterator[Found]:
    """Yield the patterns that a module keeps under its names."""
    for name, value in vars(importlib.import_module(module_of(path))).items():
        for pattern in patterns_in(value):
            method = "" if value is pattern else getattr(value, "__name__", "")
            uses = {method} if method in USES else uses_by_name().get(name, set(USES))
            yield Found(name, pattern, frozenset(uses))


def written_patterns(path: Path) -> Iterator[Found]:
    """Yield the patterns that are literals in calls of `re`."""
    for node in ast.walk(ast.parse(TEXTS[path])):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re"), attr=method), args=[ast.Constant(value=source), *_]
            ) if method in (*USES, "compile"):
                yield Found(f"line {node.lineno}", re.compile(source), frozenset((method,) if method in USES else USES))


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in FILES if "import re\n" in TEXTS[path]], ids=module_of)
def test_four_times_the_text_takes_four_times_the_time(path: Path) -> None:
    kept = set(kept_patterns(path))
    known = {found.pattern.pattern for found in kept}
    found = kept | {found for found in written_patterns(path) if found.pattern.pattern not in known}
    places = {f"{module_of(path)}:{each.place}": each for each in found}
    slow = {
        place: worst_growth(each.pattern, set(each.uses)) for place, each in places.items() if place not in OWN_TEXTS
    }
    assert {place: worst for place, worst in slow.items() if worst} == {}


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("made", MADE)
def test_patterns_that_are_made_at_the_start_take_linear_time(made: str) -> None:
    found = [
        worst_growth(pattern, {"match", "fullmatch"} if "paths" in made else {"search"}) for pattern in MADE[made]()
    ]
    assert found and not any(found), found


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("source", QUADRATIC)
def test_a_quadratic_pattern_is_found(source: str) -> None:
    assert worst_growth(re.compile(source), {QUADRATIC[source]})
