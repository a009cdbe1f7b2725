"""The whole effective configuration as lines: each value with what set it, no secret shown."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MASK = "********"
PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/]*@|(?<=[?&]password=)[^&]*")
UNSET = "not set"


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of a section, "" where it is unset or not shown, and its origin."""

    section: str
    key: str
    value: Any
    origin: str


def entries_of(sections: Mapping[str, Any], origins: Mapping[tuple[str, str], str]) -> Iterator[Entry]:
    """Every setting, in the order of the sections. Passwords in addresses are masked."""
    for name, values in sections.items():
        for one in dataclasses.fields(values):
            value = getattr(values, one.name)
            shown = mask(value) if isinstance(value, str) else list(value) if isinstance(value, tuple) else value
            yield Entry(name, one.name, shown, origins.get((name, one.name), "default"))


def secret_entry(
    section: str,
    key: str,
    names: Sequence[str],
    environment: Mapping[str, str],
    references: Mapping[str, str],
    file: str,
) -> Entry:
    """A secret that the first of `names` that is set gives: whether there is one and where it comes from, never what
    it is. `references` are those of the `file`."""
    for name in names:
        if name in references:
            reference = f"{file}: {references[name]}"
        else:
            reference = ""
        if environment.get(name):
            return Entry(section, key, MASK, reference or name)
        path = environment.get(f"{name}_FILE", "")
        if path:
            return Entry(section, key, MASK, reference or f"{name}_FILE: {path}")
    return Entry(section, key, "", UNSET)


def mask(text: str) -> str:
    """The text without a password that may be in it."""
    return PASSWORD.sub(lambda found: f"{found[1]}:{MASK}@" if found[1] is not None else MASK, text)
