"""Candidates: mappings with capabilities and prices that are compiled once for a catalogue and a day."""

from msgspec import Struct

from gateway.catalogue.entries import Mapping, Model, Prices, Provider, TokenRates
from gateway.catalogue.lifecycle import ACTIVE, has_ended, state_on
from gateway.catalogue.price_rates import UNPRICED, prices_at, rates_at
from gateway.clock import to_iso
from gateway.neutral.request import ProviderPreferences
from gateway.neutral.units import UNITS
from gateway.routing.capabilities import UNLIMITED, Ability, read_ability

VIDEO_TOKENS = 21_600  # tokens of one second of 1280 x 720, to compare prices by second and by token
# output tokens of one image of 1024 × 1024 at medium quality, to compare prices by token and by image
IMAGE_TOKENS = 1056
# Prices to compare where text has none.
MEDIA_RATES = tuple(unit.price for unit in UNITS if unit.billed in ("each", "length", "call") and unit.tool is None)


class HealthFigures(Struct, frozen=True):
    """Comparable prices in nano-dollars per million units.

    `mean` is that of input and output, or of the only priced unit; `image` is the price of one generated image.
    """

    input: int
    output: int
    cache_read: int
    mean: float
    image: float


# The usual large prompt: the share of its tokens that the provider reads from its cache, and output tokens for one
# token of input.
CACHE_HIT = 0.1
OUTPUT_RATIO = 0.2


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


def blend(figures: HealthFigures) -> float:
    """Return the price of a token of large prompts in n$ per million: input partly from the cache, little output."""
    if not (figures.input or figures.output):
        return figures.mean
    read = figures.cache_read
    cost = figures.input * (1.0 - CACHE_HIT) + read * CACHE_HIT + figures.output * OUTPUT_RATIO
    return cost / (1.0 + OUTPUT_RATIO)


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
    if sides:
        mean = sum(sides) / len(sides)
    else:
        mean = _unit_price(rates)
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


def _bar(mapping: Mapping, provider: Provider, prices: Prices, today: str) -> str:
    if has_ended(mapping, today):
        return f"deactivated on {mapping.deactivated}"
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
