"""Candidates: mappings with capabilities and prices that are compiled once for a catalogue and a day."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec import Struct

from gateway.catalogue.entries import RESPONSES_PROTOCOL, Mapping, Model, Prices, Provider, TokenRates
from gateway.catalogue.lifecycle import ACTIVE, has_ended, state_on
from gateway.catalogue.prices import UNPRICED, prices_at, rates_at
from gateway.clock import DAY_US, Clock, to_iso
from gateway.neutral.request import ProviderPreferences
from gateway.neutral.units import UNITS
from gateway.routing.capabilities import UNLIMITED, Ability, read_ability
from gateway.routing.resolve import CatalogueView, CustomRoutes, Resolution, is_common, resolve

VIDEO_TOKENS = 21_600  # tokens of one second of 1280 x 720, to compare prices by second and by token
# output tokens of one image of 1024 × 1024 at medium quality, to compare prices by token and by image
IMAGE_TOKENS = 1056
# Prices to compare where text has none.
ADDITIONS = ("annotated_page", "image_read")  # to the price of the page, or of the image that is made
MEDIA_RATES = tuple(
    unit.price
    for unit in UNITS
    if unit.billed in ("each", "length", "call") and unit.tool is None and unit.price not in ADDITIONS
)


class HealthFigures(Struct, frozen=True):
    """Comparable prices in nano-dollars per million units.

    `mean` is that of input and output, or of the only priced unit; `image` is the price of one generated image.
    """

    input: int
    output: int
    cache_read: int
    mean: float
    image: float


class TokenMix(NamedTuple):
    """The tokens of usual large prompts: `cached` is the share of the input that the provider reads from its cache,
    `output` the output tokens for one token of input. `source` says where both are from."""

    cached: float
    output: float
    source: str


GENERAL_MIX = TokenMix(0.1, 0.2, "general")
# An agent sends its whole conversation with each turn. The turns of coding agents are answered by short calls of tools.
AGENT_MIX = TokenMix(0.9, 0.02, "agents")
OBSERVED = "observed"
# Input tokens from which the mix of a project and model is reliable.
MIN_OBSERVED_TOKENS = 200_000


def observe_mix(input_tokens: int, cached_tokens: int, output_tokens: int) -> TokenMix | None:
    """Return the mix of sums of tokens; `input_tokens` includes the cached ones. None if they are too few."""
    if input_tokens < MIN_OBSERVED_TOKENS:
        return None
    cached = min(1.0, max(0.0, cached_tokens / input_tokens))
    return TokenMix(cached, max(0.0, output_tokens / input_tokens), OBSERVED)


class Candidate(Struct, frozen=True):
    """One compiled mapping. `operations` are those that the mapping serves and its protocol supports.

    `handicap` is 1 - priority. `barred` is the reason why it never serves ("": it may). `aging`: it is deprecated, so
    an automatic choice leaves it out. `flat`: it is not barred and has a single price. `blended` is that price for
    large prompts (see `blend`).
    """

    mapping: Mapping
    provider: Provider
    model: Model
    key: str
    operations: tuple[str, ...]
    place: str
    ability: Ability
    figures: HealthFigures
    steps: tuple[tuple[int, HealthFigures], ...]  # (maximum input tokens, prices)
    peaks: bool
    handicap: float
    keep_session: bool
    barred: str
    aging: bool = False
    flat: bool = False
    blended: float = 0.0

    def figures_at(self, tokens: int, at_us: int) -> HealthFigures:
        """Return the prices for a prompt of `tokens` at a point in time."""
        if self.peaks:
            return read_figures(rates_at(self.mapping, at_us, tokens))
        for up_to, figures in self.steps:
            if tokens <= up_to:
                return figures
        return self.figures


def blend(figures: HealthFigures, mix: TokenMix = GENERAL_MIX) -> float:
    """Return the price of a token of large prompts in n$ per million: input partly from the cache, little output."""
    if not (figures.input or figures.output):
        return figures.mean
    cached, output, _ = mix
    cost = figures.input * (1.0 - cached) + figures.cache_read * cached + figures.output * output
    return cost / (1.0 + output)


def place_of(mapping: Mapping) -> str:
    """Return the location that serves a mapping; it cools down as a whole when it accepts no connections."""
    if mapping.region:
        return f"{mapping.provider}:{mapping.region}"
    return mapping.provider


def is_named(names: tuple[str, ...], candidate: Candidate) -> bool:
    """Return whether one of the names is the candidate's provider, by id or name, or its place, whatever the case."""
    return rank_among(names, candidate) < len(names)


def rank_among(names: tuple[str, ...], candidate: Candidate) -> int:
    """Return the position of the candidate's provider among the names, or their number when it is not there."""
    provider = candidate.provider
    known = (provider.id.lower(), provider.name.lower(), candidate.place.lower())
    return next((place for place, name in enumerate(names) if name.lower() in known), len(names))


def reason_against(preferences: ProviderPreferences, candidate: Candidate) -> str:
    """Return the preference that leaves the candidate out, "" for none."""
    if preferences.only and not is_named(preferences.only, candidate):
        return "is not in provider.only"
    if is_named(preferences.ignore, candidate):
        return "is in provider.ignore"
    return ""


def make_candidate(
    mapping: Mapping,
    provider: Provider,
    model: Model,
    at_us: int,
    dialect: str = "",
    second: str = "",
    lost: frozenset[str] = frozenset(),
    carried: frozenset[str] | None = None,
) -> Candidate:
    """Compile one mapping for the UTC day of `at_us`.

    `dialect`, `second` and `lost` as in `read_ability`; `carried` are the operations that its protocol supports (None:
    all).
    """
    today = to_iso(at_us)[:10]
    prices = prices_at(mapping.prices, at_us) or Prices(UNPRICED)
    barred = _bar(mapping, provider, prices, today)
    figures = read_figures(prices.base)
    return Candidate(
        mapping=mapping,
        provider=provider,
        model=model,
        key=mapping.key,
        operations=tuple(name for name in mapping.operations if carried is None or name in carried),
        place=place_of(mapping),
        ability=read_ability(mapping, model, provider, dialect, second, lost),
        figures=figures,
        steps=tuple((tier.up_to or UNLIMITED, read_figures(tier.rates)) for tier in prices.tiers),
        peaks=bool(prices.peaks),
        handicap=1.0 - provider.priority,
        keep_session=bool(mapping.extra.get("keep_session")),
        barred=barred,
        aging=state_on(mapping, today) != ACTIVE,
        flat=not (barred or prices.tiers or prices.peaks),
        blended=blend(figures),
    )


def read_figures(rates: TokenRates) -> HealthFigures:
    """Return rates as comparable numbers; a missing rate is replaced by the closest one."""
    prompt = rates.prompt
    completion = rates.completion
    sides = [side for side in (prompt, completion) if side is not None]
    mean = sum(sides) / len(sides) if sides else _unit_price(rates)
    cache_read = rates.input_cache_read
    if cache_read is None:
        cache_read = prompt
    return HealthFigures(
        input=prompt or 0,
        output=completion or 0,
        cache_read=cache_read or 0,
        mean=mean,
        image=_image_price(rates) or mean,
    )


ENDED = "deactivated on"


def _bar(mapping: Mapping, provider: Provider, prices: Prices, today: str) -> str:
    if has_ended(mapping, today):
        return f"{ENDED} {mapping.deactivated}"
    if provider.priority <= 0:
        return "switched off by priority 0"
    if not (prices.base.priced or any(tier.rates.priced for tier in prices.tiers)):
        return "unpriced"
    return ""


def _unit_price(rates: TokenRates) -> float:
    for name in MEDIA_RATES:
        rate = getattr(rates, name)
        if rate is not None:
            return float(rate)
    return _lowest(rates.per_second) or _lowest(rates.per_video_token) * VIDEO_TOKENS or _image_price(rates)


def _image_price(rates: TokenRates) -> float:
    if rates.per_image:
        return _lowest(rates.per_image)
    return float((rates.output_image or 0) * IMAGE_TOKENS)


def _lowest(prices: dict[str, int]) -> float:
    if "default" in prices:
        return float(prices["default"])
    return float(min(prices.values(), default=0))


# The candidates of each model name, compiled once for a catalogue and a day.

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
                sorted(rows, key=_cheapest_image_price if by_image else _mean_price)
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
        second = self._dialects.get(RESPONSES_PROTOCOL, "") if mapping.responses_api else ""
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


def _cheapest_image_price(candidate: Candidate) -> float:
    return candidate.figures.image
