"""The effective configuration as lines: each value with its source; secrets are masked."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.secret_text import MASK, mask_address

UNSET = "not set"


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of a section, "" if it is unset or hidden, and its origin."""

    section: str
    key: str
    value: Any
    origin: str


def entries_of(sections: Mapping[str, Any], origins: Mapping[tuple[str, str], str]) -> Iterator[Entry]:
    """Yield every setting, in the order of the sections, with masked passwords in URLs."""
    for name, values in sections.items():
        for setting in dataclasses.fields(values):
            value = getattr(values, setting.name)
            if isinstance(value, str):
                value = mask_address(value)
            elif isinstance(value, tuple):
                value = [mask_address(item) if isinstance(item, str) else item for item in value]
            yield Entry(name, setting.name, value, origins.get((name, setting.name), "default"))


def secret_entry(
    section: str,
    key: str,
    names: Sequence[str],
    environment: Mapping[str, str],
    references: Mapping[str, str],
    file: str,
) -> Entry:
    """Return the entry of a secret from the first of `names` that is set: its origin and a mask, never its value.

    `references` are those of the `file`.
    """
    for name in names:
        reference = f"{file}: {references[name]}" if name in references else ""
        if environment.get(name):
            return Entry(section, key, MASK, reference or name)
        path = environment.get(f"{name}_FILE", "")
        if path:
            return Entry(section, key, MASK, reference or f"{name}_FILE: {path}")
    return Entry(section, key, "", UNSET)
