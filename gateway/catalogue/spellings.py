"""Other spellings of a model's name, as agents and configurations for other gateways write them.

A name without an id or alias of its own is read with dots, underscores and dashes as one character, then without a date
or "latest" at its end. A spelling that fits several models fits none.
"""

import re
from collections.abc import Iterable, Mapping

from gateway.neutral.model_marks import unmarked

SEPARATORS = str.maketrans("._", "--")
YEAR = r"20[2-9]\d"
MONTH = r"(?:0[1-9]|1[0-2])"
DAY = r"(?:0[1-9]|[12]\d|3[01])"
DATE = re.compile(rf"[-@]{YEAR}(?:{MONTH}{DAY}|-{MONTH}-{DAY})\Z")
LATEST = re.compile(r"[-@](?:latest|default)\Z")


class Spellings:
    """The models of a catalogue by their names in a common spelling."""

    __slots__ = ("_models", "_snapshots")

    def __init__(self, names: Iterable[str], aliases: Mapping[str, str]) -> None:
        self._models: dict[str, str] = {}  # model by spelling; "" = several models
        self._snapshots: dict[str, tuple[str, str]] = {}  # the latest date and its model, by the name before the date
        for name in names:
            self._add(name, name)
        for alias, model in aliases.items():
            self._add(alias, model)

    def _add(self, name: str, model: str) -> None:
        spelling = _spell(name)
        if self._models.setdefault(spelling, model) != model:
            self._models[spelling] = ""
        if dated := DATE.search(spelling):
            base = spelling[: dated.start()]
            snapshot = (re.sub(r"\D", "", dated[0]), model)
            self._snapshots[base] = max(snapshot, self._snapshots.get(base, snapshot))

    def find(self, name: str) -> str:
        """Return the model that is spelled `name` with other separators; "" if there is none."""
        return self._models.get(_spell(name), "")

    def find_version(self, name: str) -> str:
        """Return the model that `name` is the latest or a dated version of; "" if there is none.

        The latest version of a model that has dated names only is the one with the latest date.
        """
        spelling = _spell(name)
        if dated := DATE.search(spelling):
            return self._models.get(spelling[: dated.start()], "")
        if latest := LATEST.search(spelling):
            base = spelling[: latest.start()]
            return self._models.get(base) or self._snapshots.get(base, ("", ""))[1]
        return ""


def _spell(name: str) -> str:
    return unmarked(name).strip().lower().translate(SEPARATORS)
