"""Cost calculation: usage × prices = nano-dollars, and upper bounds of costs. Pure functions.

Each component is rounded once, half up; the total is their sum, so parts always add up. A missing rate is replaced by
the next more general one: cached input, cache writes, audio and image input by the prompt's rate, a one-hour write by
the five-minute write's, audio and image output by the completion's.
"""

import functools
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from operator import attrgetter

from msgspec import Struct

from gateway.catalogue.entries import BATCH_TIER, Mapping, Peak, Prices, TokenRates
from gateway.clock import DAY_US, MINUTE_US
from gateway.money import MAX_CALL_NUSD, MILLION
from gateway.neutral.request import TIERS_JOINED
from gateway.neutral.units import COMPONENTS, COUNTS, TEXT_COUNTS, UNITS, prices_of, with_counters
from gateway.neutral.usage import NO_USAGE, Usage

# Selection of the rates in force: dated lists, tiers by input tokens, daily peaks and service tiers. Pure functions.

EPOCH_DAY = date(1970, 1, 1).toordinal()
FIRST_DAY = 3
WEEK_DAYS = 7  # 1970-01-01 was a Thursday; Monday is 0
DAY_MINUTES = DAY_US // MINUTE_US
UNPRICED = TokenRates()

# Names of the ordinary service tier, as providers report it.
ORDINARY_TIERS = frozenset(("", "auto", "default", "standard", "standard_only", "on_demand"))


def rates_at(mapping: Mapping, at_us: int, input_tokens: int) -> TokenRates:
    """Return the rates of a request made at `at_us` with `input_tokens` tokens, including cached ones."""
    if mapping.steady is not None:
        return mapping.steady
    prices = prices_at(mapping.prices, at_us)
    if prices is None:
        return UNPRICED
    if prices.peaks:
        day, since = divmod(at_us, DAY_US)
        for peak in prices.peaks:
            if _within(day, since // MINUTE_US, peak):
                return peak.rates
    for tier in prices.tiers:
        if tier.up_to is None or input_tokens <= tier.up_to:
            return tier.rates
    return prices.base


def prices_at(lists: tuple[Prices, ...], at_us: int) -> Prices | None:
    """Return the newest price list that has begun; before the first date the oldest list, None without any."""
    if len(lists) < 2:
        if lists:
            return lists[0]
        return None
    current = lists[0]
    for prices in lists[1:]:
        if _starts_us(prices.from_date) > at_us:
            break
        current = prices
    return current


def reachable_rates(mapping: Mapping, at_us: int, input_tokens: int) -> Iterable[TokenRates]:
    """Yield all rates at which a request of at most `input_tokens`, started at `at_us`, may be billed.

    A list that begins within the next day is included: a long request may end under it.
    """
    current = prices_at(mapping.prices, at_us)
    for prices in mapping.prices:
        if prices is current or at_us < _starts_us(prices.from_date) <= at_us + DAY_US:
            yield from _rates_of(prices, input_tokens)


def multiplier(mapping: Mapping, service_tier: str) -> tuple[int, int]:
    """Return the token price multiplier of a service tier as an exact fraction; (1, 1) for the ordinary or an unknown
    tier.

    Multipliers of several tiers ("fast+us") are multiplied.
    """
    numerator = 1
    denominator = 1
    if service_tier not in ORDINARY_TIERS:
        for name in service_tier.split(TIERS_JOINED):
            text = mapping.batch_multiplier if name == BATCH_TIER else mapping.service_tiers.get(name)
            if text:
                over, under = _fraction(text)
            else:
                over, under = (1, 1)
            numerator = numerator * over
            denominator = denominator * under
    return numerator, denominator


def _rates_of(prices: Prices, input_tokens: int) -> Iterable[TokenRates]:
    for peak in prices.peaks:
        yield peak.rates
    for tier in prices.tiers:
        yield tier.rates
        if tier.up_to is None or input_tokens <= tier.up_to:
            return
    yield prices.base


def _within(day: int, minute: int, peak: Peak) -> bool:
    """Return whether `minute` of a `day` since 1970 is in a span that began then, or on the evening before."""
    if peak.start > peak.end and minute < peak.end:
        day -= 1
    elif not peak.start <= minute < (peak.end if peak.start <= peak.end else DAY_MINUTES):
        return False
    return (day + FIRST_DAY) % WEEK_DAYS in peak.days and day not in peak.holidays


@functools.lru_cache(maxsize=4096)
def _starts_us(from_date: str) -> int:
    if not from_date:
        return -(2**63)
    return (date.fromisoformat(from_date).toordinal() - EPOCH_DAY) * DAY_US


@functools.lru_cache(maxsize=256)
def _fraction(text: str) -> tuple[int, int]:
    return Decimal(text).as_integer_ratio()


HOUR_MS = 3_600_000
SECOND_MS = 1_000
# Each component may be rounded up by half a nano-dollar; an upper bound of all components includes this margin.
ROUNDING_ROOM = 16
ANY_TOKENS = 1 << 62  # more than the limit of any tier
# Units that cost their price times their count.
UNITS_BILLED_EACH = [unit for unit in UNITS if unit.billed == "each"]
EACH_COMPONENTS = [unit.component for unit in UNITS_BILLED_EACH]
READ_EACH_COUNT = attrgetter(*(unit.count for unit in UNITS_BILLED_EACH))
READ_EACH_RATE = attrgetter(*(unit.price for unit in UNITS_BILLED_EACH))
# Units with a price for each model of the provider's tool.
BY_TOOL_MODEL = [unit for unit in UNITS if unit.billed == "model"]
TOOL_MODEL_COMPONENTS = frozenset(unit.component for unit in BY_TOOL_MODEL if unit.derived)
READ_OTHER_COUNTS = attrgetter(*(name for name in COUNTS if name not in TEXT_COUNTS))
READ_INPUT_RATES = attrgetter(*prices_of("input"))
READ_TEXT_INPUT_RATES = attrgetter(*prices_of("input", media=False))
READ_OUTPUT_RATES = attrgetter(*prices_of("output"))
READ_TEXT_OUTPUT_RATES = attrgetter(*prices_of("output", media=False))


# Immutable by convention; not frozen, because `cost_of` adds the rare components.
@with_counters(COMPONENTS)
class Charge(Struct, gc=False):
    """The cost of usage, in nano-dollars by component; `total` is their exact sum.

    `output` excludes reasoning if it is priced separately. The components that no code reads by name have their fields
    from UNITS. `discount_ppm` is the discount in parts per million and `saved` its amount: `total` and `saved` together
    are the list price. `plain`: the usage has only prompt text, its five-minute cache and output text.
    """

    input: int = 0
    cached_input: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    image_input: int = 0
    output: int = 0
    reasoning: int = 0
    video_output: int = 0
    total: int = 0
    discount_ppm: int = 0
    saved: int = 0
    plain: bool = False


FREE = Charge()


def cost_of(usage: Usage, mapping: Mapping, at_us: int, service_tier: str = "") -> Charge:
    """Return the cost of `usage` at `mapping`, at the service tier that was used and the time of the request.

    An unpriced `price_key` costs `default`, else the highest listed price. An unpriced mapping costs nothing.
    """
    rates = mapping.steady or rates_at(mapping, at_us, usage.input_total // (usage.calls or 1))
    numerator = 1
    scale = MILLION
    if service_tier not in ORDINARY_TIERS:
        numerator, denominator = multiplier(mapping, service_tier)
        scale *= denominator
    half = scale // 2
    prompt = rates.prompt or 0
    completion = rates.completion or 0
    written = usage.output
    thought = 0
    if usage.reasoning:
        thought, completion = _thought(usage, rates)
        written -= thought
    into = (usage.input * prompt * numerator + half) // scale
    out = (written * completion * numerator + half) // scale
    charge = Charge(into, output=out, total=into + out)
    # Most requests have only text in and out.
    if thought:
        _add(charge, "reasoning", (thought * (rates.internal_reasoning or 0) * numerator + half) // scale)
    if usage.cache_read or usage.cache_write or usage.cache_write_1h:
        _add_cached(charge, usage, rates, numerator, scale)
        if mapping.batch_cache_multiplier and BATCH_TIER in service_tier.split(TIERS_JOINED):
            _price_apart(charge, usage, rates, mapping.batch_cache_multiplier)
    if rates.request or any(READ_OTHER_COUNTS(usage)):
        for name, tokens, rate in _media_buckets(usage, rates, prompt, completion):
            _add(charge, name, (tokens * rate * numerator + half) // scale)
        for name, nusd in _unit_parts(usage, rates).items():
            if name in TOOL_MODEL_COMPONENTS:  # its model works in the tier of the request
                nusd = (nusd * numerator * MILLION + half) // scale
            _add(charge, name, nusd)
    else:
        charge.plain = not (usage.cache_write_1h or usage.calls)
    return charge


def _price_apart(charge: Charge, usage: Usage, rates: TokenRates, text: str) -> None:
    """Replace the cost of cached input by that at another multiplier of its price."""
    over, under = _fraction(text)
    rate = _first(rates.input_cache_read, rates.prompt or 0)
    cost = _rounded(usage.cache_read * rate * over, MILLION * under)
    _add(charge, "cached_input", cost - charge.cached_input)


def _thought(usage: Usage, rates: TokenRates) -> tuple[int, int]:
    """Return the reasoning tokens that are priced separately, and the rate of the other output."""
    if rates.thinking_completion is not None:
        return 0, rates.thinking_completion
    return min(usage.reasoning, usage.output) if rates.internal_reasoning is not None else 0, rates.completion or 0


def _add(charge: Charge, name: str, nusd: int) -> None:
    setattr(charge, name, getattr(charge, name) + nusd)
    charge.total += nusd


def discounted(charge: Charge, ppm: int) -> Charge:
    """Apply a discount of `ppm` millionths to a charge at list price; each component is reduced separately (see
    `reduced`).

    The total is again the sum of the components; it is never above the list price and never below zero.
    """
    if not ppm:
        return charge
    parts = {name: reduced(nusd, ppm) for name in COMPONENTS if (nusd := getattr(charge, name))}
    total = sum(parts.values())
    return Charge(**parts, total=total, discount_ppm=ppm, saved=charge.total - total, plain=charge.plain)


def price_of(
    usage: Usage, mapping: Mapping, at_us: int, discount_ppm: int, service_tier: str = ""
) -> tuple[Charge, bool]:
    """Return the charge of a usage, less a discount of so many millionths, and whether it was limited to
    MAX_CALL_NUSD."""
    charge = cost_of(usage, mapping, at_us, service_tier)
    is_capped = charge.total >= MAX_CALL_NUSD
    return discounted(capped(charge) if is_capped else charge, discount_ppm), is_capped


def capped(charge: Charge) -> Charge:
    """Limit a charge to MAX_CALL_NUSD; the last components are reduced, so that the parts still add up to the
    total.
    """
    left = MAX_CALL_NUSD
    parts = {}
    for name in COMPONENTS:
        nusd = min(getattr(charge, name), left)
        if nusd:
            parts[name] = nusd
            left -= nusd
    return Charge(**parts, total=MAX_CALL_NUSD - left, plain=charge.plain)


def reduced(nusd: int, ppm: int) -> int:
    """Return an amount reduced by `ppm` millionths, rounded half up to whole nano-dollars."""
    return (nusd * (MILLION - ppm) + MILLION // 2) // MILLION


class HighestRates(Struct, frozen=True):
    """The highest prices at a mapping: n$ per request, and per million tokens in and out."""

    fixed: int
    input: int
    output: int


def highest_rates(
    mapping: Mapping,
    at_us: int,
    service_tier: str = "",
    media: bool = True,
    units: Usage = NO_USAGE,
) -> HighestRates:
    """Return linear upper bounds over every tier, peak and bucket at which a request started at `at_us` may be billed.

    `fixed` holds the price of a request, of all units in `units` other than tokens, and a margin for rounding; an
    unlisted `price_key` counts as the highest listed price. `media` False ignores audio and image rates, for requests
    with only text in and out; cache rates always count.
    """
    numerator, denominator = multiplier(mapping, service_tier)
    fixed = into = out = 0
    for rates in reachable_rates(mapping, at_us, ANY_TOKENS):
        fixed = max(fixed, sum(_unit_parts(units, rates, bound=True).values()))
        into = max(into, dearest_input(rates, media))
        out = max(out, _dearest_output(rates, media))
    # A lower tier than the requested one is never more expensive, so the ordinary price is the minimum of the bound. A
    # provider's batch is served in no other tier.
    least = 0 if service_tier == BATCH_TIER else 1
    into = max(into * least, -(-into * numerator // denominator))
    out = max(out * least, -(-out * numerator // denominator))
    return HighestRates(fixed + ROUNDING_ROOM if fixed or into or out else 0, into, out)


def _add_cached(charge: Charge, usage: Usage, rates: TokenRates, numerator: int, scale: int) -> None:
    """Add the cost of cached tokens that were read and written."""
    prompt = rates.prompt or 0
    write = _first(rates.input_cache_write, prompt)
    half = scale // 2
    for name, tokens, rate in (
        ("cached_input", usage.cache_read, _first(rates.input_cache_read, prompt)),
        ("cache_write", usage.cache_write, write),
        ("cache_write_1h", usage.cache_write_1h, _first(rates.input_cache_write_1h, write)),
    ):
        _add(charge, name, (tokens * rate * numerator + half) // scale)


def _media_buckets(usage: Usage, rates: TokenRates, prompt: int, completion: int) -> list[tuple[str, int, int]]:
    buckets = []
    if usage.input_audio or usage.input_audio_cached:
        # Audio priced by the hour is billed by its length; its tokens then only count for the size of the prompt.
        by_hour = rates.input_audio_hour is not None and usage.audio_ms > 0
        audio = _first(rates.input_audio, 0 if by_hour else prompt)
        buckets.append(("audio_input", usage.input_audio, audio))
        buckets.append(("audio_cached_input", usage.input_audio_cached, _first(rates.input_audio_cache_read, audio)))
    if usage.input_image:
        buckets.append(("image_input", usage.input_image, _first(rates.image, prompt)))
    if usage.output_audio:
        buckets.append(("audio_output", usage.output_audio, _first(rates.output_audio, completion)))
    if usage.output_image and not (rates.per_image and usage.images):
        buckets.append(("image_output", usage.output_image, _first(rates.output_image, completion)))
    return buckets


def _unit_parts(usage: Usage, rates: TokenRates, bound: bool = False) -> dict[str, int]:
    """Return the components priced by units at the ordinary service tier. `bound`: their maximum."""
    parts: dict[str, int] = {}
    if rates.request:
        parts["request"] = _rounded(rates.request * (usage.calls or 1), MILLION)
    for component, count, rate in zip(EACH_COMPONENTS, READ_EACH_COUNT(usage), READ_EACH_RATE(rates), strict=True):
        if count and rate:
            parts[component] = parts.get(component, 0) + _rounded(count * rate, MILLION)
    if usage.audio_ms and rates.input_audio_hour and rates.input_audio is None:
        parts["audio_seconds"] = _rounded(usage.audio_ms * rates.input_audio_hour, MILLION * HOUR_MS)
    if usage.images and rates.per_image:
        parts["images"] = _rounded(usage.images * _keyed(rates.per_image, usage.price_key, bound), MILLION)
    for unit in BY_TOOL_MODEL:
        count = getattr(usage, unit.count)
        if count and (table := getattr(rates, unit.price)):
            nusd = _rounded(count * _keyed(table, usage.price_key, bound), MILLION)
            parts[unit.component] = parts.get(unit.component, 0) + nusd
    if usage.video_ms and (rates.per_second or rates.per_video_token):
        parts["video_output"] = _video_part(usage, rates, bound)
    return parts


def _video_part(usage: Usage, rates: TokenRates, bound: bool) -> int:
    if rates.per_second:
        rate = _video_rate(rates.per_second, usage.price_key, bound)
        return _rounded(usage.video_ms * rate, MILLION * SECOND_MS)
    return _rounded(usage.output * _video_rate(rates.per_video_token, usage.price_key, bound), MILLION)


def _video_rate(table: dict[str, int], key: str, bound: bool) -> int:
    """Return the price of a resolution: by `key`, its resolution, `default_audio` or `default_video`, `default`, else
    the highest.

    The properties of a video are known before it is made, so its bound has the same price; without a key the bound is
    the highest price.
    """
    if bound and not key:
        return max(table.values())
    resolution, _, sound = key.partition("_")
    for name in (key, resolution, f"default_{sound}", "default"):
        if name in table:
            return table[name]
    return max(table.values())


def _keyed(table: dict[str, int], key: str, bound: bool) -> int:
    """Return the price under `key`, else `default`, else the highest: an unknown size is never billed too low.

    A `bound` uses the highest price, because the actual size may be listed.
    """
    if key in table:
        return table[key]
    if "default" in table and not bound:
        return table["default"]
    return max(table.values())


def dearest_input(rates: TokenRates, media: bool) -> int:
    """Return the highest rate of an input token; without `media`, of text."""
    if media:
        return max(rate or 0 for rate in READ_INPUT_RATES(rates))
    return max(rate or 0 for rate in READ_TEXT_INPUT_RATES(rates))


def _dearest_output(rates: TokenRates, media: bool) -> int:
    if media:
        return max(rate or 0 for rate in READ_OUTPUT_RATES(rates))
    return max(rate or 0 for rate in READ_TEXT_OUTPUT_RATES(rates))


def _first(rate: int | None, fallback: int) -> int:
    if rate is None:
        return fallback
    return rate


def _rounded(amount: int, scale: int) -> int:
    return (amount + scale // 2) // scale
