"""The catalogue in memory: immutable, searchable by id or alias, and replaced as a whole."""

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from collections.abc import Mapping as ReadOnlyMapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gateway.catalogue.entries import Mapping, Model, Provider
from gateway.catalogue.lifecycle import Series, find_successor, name_series
from gateway.clock import to_iso
from gateway.neutral.request import unmarked
from gateway.runtime.call_merging import SharedCalls

# Other spellings of a model's name, as agents and configurations for other gateways write them.
#
# A name without an id or alias of its own is read with dots, underscores and dashes as one character, then without a
# date or "latest" at its end. A spelling that fits several models fits none.

SEPARATORS = str.maketrans("._", "--")
YEAR = r"20[2-9]\d"
MONTH = r"(?:0[1-9]|1[0-2])"
DAY = r"(?:0[1-9]|[12]\d|3[01])"
DATE = re.compile(rf"[-@]{YEAR}(?:{MONTH}{DAY}|-{MONTH}-{DAY})\Z")
LATEST = re.compile(r"[-@](?:latest|default)\Z")


class Spellings:
    """The models of a catalogue by their names in a common spelling."""

    __slots__ = ("_models", "_snapshots")

    def __init__(self, names: Iterable[str], aliases: ReadOnlyMapping[str, str]) -> None:
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


MAX_NAME_LENGTH = 120
CACHE_SIZE = 12  # a serialised model list is about a megabyte

T = TypeVar("T")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Catalogue:
    """Everything that is served. `models` and `providers` are by id, `aliases` are further names of models.

    `version` changes with any byte of the source files.
    """

    models: dict[str, Model]
    providers: dict[str, Provider]
    aliases: dict[str, str]
    version: str
    _grams: dict[str, frozenset[str]] = field(default_factory=dict, repr=False, compare=False)
    _served: dict[tuple[str, str], Mapping] = field(default_factory=dict, repr=False, compare=False)
    _spellings: list[Spellings] = field(default_factory=list, repr=False, compare=False)
    _series: dict[Series, list[Model]] = field(default_factory=dict, repr=False, compare=False)

    def __init__(
        self, models: Iterable[Model], providers: Iterable[Provider], aliases: dict[str, str], version: str = ""
    ) -> None:
        put = object.__setattr__
        put(self, "models", {model.id: model for model in models})
        put(self, "providers", {provider.id: provider for provider in providers})
        put(self, "aliases", {alias.lower(): ident for alias, ident in aliases.items()})
        put(self, "version", version)
        put(self, "_grams", {})
        put(self, "_served", {})
        put(self, "_spellings", [])
        put(self, "_series", {})

    def find(self, name: str) -> Model | None:
        """Return the model with this id or alias, ignoring case; None if there is none."""
        model = self.models.get(name)
        if model is not None:
            return model
        lower = name.lower()
        return self.models.get(self.aliases.get(lower, lower))

    def find_spelling(self, name: str) -> Model | None:
        """Return the model with this id or alias in another spelling: with other separators, and without the mark of a
        long context. None if there is none."""
        return self.find(name) or self.models.get(self._all_spellings().find(name))

    def find_version(self, name: str) -> Model | None:
        """Return the model in any spelling, or the one that `name` is the latest or a dated version of."""
        return self.find_spelling(name) or self.models.get(self._all_spellings().find_version(name))

    def successor(self, model: Model, day: str) -> Model | None:
        """Return the model of the same series that replaces a retired or retiring one on `day`; None without one."""
        if not self._series:
            for known in self.models.values():
                self._series.setdefault(name_series(known), []).append(known)
        return find_successor(model, self._series.get(name_series(model), ()), day)

    def provider(self, ident: str) -> Provider | None:
        return self.providers.get(ident)

    def served_as(self, provider: str, external_id: str) -> Mapping | None:
        """Return the mapping that `provider` itself knows by this id; None if there is none."""
        if not self._served:
            mappings = (mapping for model in self.models.values() for mapping in model.mappings)
            self._served.update(((mapping.provider, mapping.external_id.lower()), mapping) for mapping in mappings)
        return self._served.get((provider, external_id.lower()))

    def mappings_of(self, name: str, operation: str = "") -> tuple[Mapping, ...]:
        """Return the mappings of the model with this id or alias, limited to `operation` ("": any)."""
        model = self.find(name)
        if model is None:
            return ()
        return tuple(mapping for mapping in model.mappings if not operation or operation in mapping.operations)

    def suggest(self, text: str, n: int = 3) -> list[str]:
        """Return up to `n` ids or aliases most similar to `text`, best first, for error messages."""
        requested = _grams(text.lower()[:MAX_NAME_LENGTH].rsplit("/", 1)[-1])
        if not requested:
            return []
        ranked = []
        for name, grams in self._all_grams().items():
            score = len(requested & grams) / len(requested | grams)
            if score >= 0.25:
                ranked.append((-score, name))
        return [name for _, name in sorted(ranked)[:n]]

    def _all_spellings(self) -> Spellings:
        """Return every name in its common spelling, built on first use."""
        if not self._spellings:
            self._spellings.append(Spellings(self.models, self.aliases))
        return self._spellings[0]

    def _all_grams(self) -> dict[str, frozenset[str]]:
        """Return the trigrams of every name, built on first use: most processes never need them."""
        if not self._grams:
            self._grams.update((name, _grams(name)) for name in (*self.models, *self.aliases))
        return self._grams


class CurrentCatalogue:
    """Holds the current catalogue; a reload replaces it as a whole, so a request sees one version throughout.

    It also caches a few recently used results derived from that catalogue (serialised lists), until it is replaced.
    """

    def __init__(self, catalogue: Catalogue, remembered: int = CACHE_SIZE) -> None:
        self._catalogue = catalogue
        self._size = remembered
        self._derived: OrderedDict[Hashable, Any] = OrderedDict()
        self._calls: SharedCalls[Hashable, Any] = SharedCalls()

    def current(self) -> Catalogue:
        return self._catalogue

    def swap(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._derived = OrderedDict()

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached result of `make` for `key`; concurrent callers share one call.

        The key must contain the catalogue's version.
        """
        derived = self._derived
        if key in derived:
            derived.move_to_end(key)
            kept: T = derived[key]
            return kept
        result: T = self._calls.run(key, make)
        derived[key] = result
        derived.move_to_end(key)
        while len(derived) > self._size:
            derived.popitem(last=False)
        return result


def day_of(at_us: int) -> str:
    """Return the UTC day ("YYYY-MM-DD") of a time in microseconds."""
    return to_iso(at_us)[:10]


def _grams(name: str) -> frozenset[str]:
    padded = f"^{name}$"
    if name:
        return frozenset(padded[i : i + 3] for i in range(len(padded) - 2))
    return frozenset()
