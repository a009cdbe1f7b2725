"""The candidates of each model name, compiled once for a catalogue and a day."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from gateway.catalogue.entries import RESPONSES_PROTOCOL, Mapping, Model, Provider
from gateway.catalogue.lifecycle import ACTIVE, state_on
from gateway.clock import DAY_US, Clock, to_iso
from gateway.routing.candidates import Candidate, make_candidate
from gateway.routing.resolve import CatalogueView, CustomRoutes, Resolution, is_common, resolve

NOTHING_LOST: frozenset[str] = frozenset()
DEPENDABLE = ("stable", "beta")
CAPACITY = 4_000  # callers choose the names; each entry is small


class CandidateTable(Struct, frozen=True):
    """The candidates of a model name. `others` are candidates of other providers than the pinned one."""

    resolution: Resolution
    candidates: tuple[Candidate, ...]
    others: tuple[Candidate, ...] = ()


class Tables:
    """Compiled tables of the current catalogue; all are dropped when it or the day changes.

    `dialects` maps protocol names to dialects where they differ, `lost` to the Requirements that their formats cannot
    express, `carried` to the operations that they support (a missing protocol supports all).
    """

    def __init__(
        self,
        catalogue: Callable[[], CatalogueView],
        clock: Clock,
        dialects: dict[str, str] | None = None,
        lost: dict[str, frozenset[str]] | None = None,
        carried: dict[str, frozenset[str]] | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._clock = clock
        self._dialects = dialects or {}
        self._lost = lost or {}
        self._carried = carried or {}
        self._seen: CatalogueView | None = None
        self._day = -1
        self._today = ""
        self._tables: dict[str, CandidateTable] = {}
        self._models: dict[str, tuple[Candidate, ...]] = {}
        self._cheapest: dict[object, tuple[Candidate, ...]] = {}

    def find(self, requested_model: str, routes: CustomRoutes | None = None) -> CandidateTable:
        """Return the table of a model name. Raise the errors of `resolve`."""
        catalogue = self._current()
        table = self._tables.get(requested_model)
        if table is not None:
            return table
        resolution = resolve(requested_model, catalogue, self._today, routes)
        table = CandidateTable(
            resolution, self._compile_all(resolution, resolution.candidates), self._others(resolution)
        )
        # Custom definitions of one organization must not be shared with others.
        if len(self._tables) < CAPACITY and is_common(requested_model, resolution, catalogue):
            self._tables[requested_model] = table
        return table

    def of_models(self, idents: tuple[str, ...], by_image: bool = False) -> tuple[Candidate, ...]:
        """Return candidates of the listed models (unknown ones are skipped), cheapest first, equal prices in list
        order. `by_image` compares the prices of an image.
        """

        def listed(catalogue: CatalogueView) -> Iterable[Model | None]:
            return map(catalogue.find, idents)

        return self._sorted(idents, listed, by_image)

    def of_all(self, by_image: bool = False) -> tuple[Candidate, ...]:
        """Return candidates of every stable or beta model, cheapest first, equal prices in catalogue order."""
        return self._sorted(None, _dependable, by_image)

    def of_model(self, model: Model) -> tuple[Candidate, ...]:
        """Return the candidates of one model."""
        self._current()
        candidates = self._models.get(model.id)
        if candidates is None:
            candidates = self._models[model.id] = tuple(
                candidate for mapping in model.mappings if (candidate := self._compile(mapping, model))
            )
        return candidates

    def _sorted(
        self, name: object, models: Callable[[CatalogueView], Iterable[Model | None]], by_image: bool
    ) -> tuple[Candidate, ...]:
        catalogue = self._current()
        candidates = self._cheapest.get((name, by_image))
        if candidates is None:
            if len(self._cheapest) >= CAPACITY:
                self._cheapest.clear()
            alive = (model for model in models(catalogue) if model and state_on(model, self._today) == ACTIVE)
            rows = [candidate for model in alive for candidate in self.of_model(model)]
            candidates = self._cheapest[name, by_image] = tuple(
                sorted(rows, key=_image_price if by_image else _mean_price)
            )
        return candidates

    def _others(self, resolution: Resolution) -> tuple[Candidate, ...]:
        return self._compile_all(resolution, resolution.others)

    def _compile_all(self, resolution: Resolution, mappings: tuple[Mapping, ...]) -> tuple[Candidate, ...]:
        if resolution.model is None:
            return ()
        if resolution.custom_model is not None:
            return (
                self._make(
                    resolution.custom_model.mapping, resolution.custom_model.provider, resolution.custom_model.model
                ),
            )
        keys = {mapping.key for mapping in mappings}
        return tuple(candidate for candidate in self.of_model(resolution.model) if candidate.key in keys)

    def _compile(self, mapping: Mapping, model: Model) -> Candidate | None:
        provider = self._catalogue().provider(mapping.provider)
        if provider:
            return self._make(mapping, provider, model)
        return None

    def _make(self, mapping: Mapping, provider: Provider, model: Model) -> Candidate:
        protocol = mapping.protocol or provider.protocol
        dialect = self._dialects.get(protocol, "")
        lost = self._lost.get(protocol, NOTHING_LOST)
        if mapping.responses_api:
            second = self._dialects.get(RESPONSES_PROTOCOL, "")
        else:
            second = ""
        carried = self._carried.get(protocol)
        return make_candidate(mapping, provider, model, self._day * DAY_US, dialect, second, lost, carried)

    def _current(self) -> CatalogueView:
        catalogue = self._catalogue()
        day = self._clock.now_us() // DAY_US
        if catalogue is not self._seen or day != self._day:
            self._seen = catalogue
            self._day = day
            self._today = to_iso(day * DAY_US)[:10]
            self._tables = {}
            self._models = {}
            self._cheapest = {}
        return catalogue


def _dependable(catalogue: CatalogueView) -> Iterable[Model]:
    return (model for model in catalogue.models.values() if model.stability in DEPENDABLE)


def _mean_price(candidate: Candidate) -> float:
    return candidate.figures.mean


def _image_price(candidate: Candidate) -> float:
    return candidate.figures.image
