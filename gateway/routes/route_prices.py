"""The prices of the models that routes name."""

from collections.abc import Callable
from weakref import WeakKeyDictionary

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping
from gateway.routes.compiled import CompiledRoute

MAX_PRICES = 2_000
OUTPUT_SHARE = 5  # input tokens for each token of output when models are compared by their price
NO_MAPPINGS: tuple[Mapping, ...] = ()
PER_MILLION = 1_000_000


class RoutePrices:
    """The mappings and prices of models by the names that routes use, under one catalogue."""

    def __init__(self, catalogue: Callable[[], Catalogue]) -> None:
        self._catalogue = catalogue
        self._known: dict[str, tuple[Mapping, ...]] = {}
        self._references: WeakKeyDictionary[CompiledRoute, str] = WeakKeyDictionary()
        self._known_of: Catalogue | None = None

    def mappings_of(self, name: str) -> tuple[Mapping, ...]:
        """Return the priced mappings of a model, () for one without a known price."""
        catalogue = self._follow()
        mappings = self._known.get(name)
        if mappings is None:
            if len(self._known) >= MAX_PRICES:
                self._known = {}
            mappings = self._known[name] = self._find(catalogue, name)
        return mappings

    def reference_of(self, route: CompiledRoute) -> str:
        """Return the reference model of a route, for its savings: its most expensive model unless it names one."""
        if route.reference:
            return route.reference
        self._follow()
        name = self._references.get(route)
        if name is None:
            name = self._references[route] = max(route.models, key=self.price_of)
        return name

    def price_of(self, name: str) -> int:
        """Return a price by which models are compared; 0 for an unknown one."""
        for mapping in self.mappings_of(name):
            rates = mapping.prices[0].base
            return OUTPUT_SHARE * (rates.prompt or 0) + (rates.completion or 0)
        return 0

    def lost_cache_nusd(self, name: str, tokens: int) -> int:
        """Return what it costs more to send tokens uncached to a model."""
        for mapping in self.mappings_of(name):
            rates = mapping.prices[0].base
            if rates.prompt and rates.input_cache_read is not None:
                return tokens * (rates.prompt - rates.input_cache_read) // PER_MILLION
        return 0

    def _follow(self) -> Catalogue:
        """Return the catalogue in force; what is known of another one is forgotten."""
        catalogue = self._catalogue()
        if self._known_of is not catalogue:
            self._known = {}
            self._references = WeakKeyDictionary()
            self._known_of = catalogue
        return catalogue

    def _find(self, catalogue: Catalogue, name: str) -> tuple[Mapping, ...]:
        model = catalogue.find_version(name)
        provider = ""
        if model is None:
            provider, _, rest = name.partition("/")
            model = catalogue.find_version(rest.partition(":")[0]) if rest else None
        if model is None:
            return NO_MAPPINGS
        mappings = [one for one in model.mappings if one.prices and (not provider or one.provider == provider)]
        return tuple(mappings)
