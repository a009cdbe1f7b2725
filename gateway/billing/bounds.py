"""Upper bounds: the most that a request can cost, computed before it is sent."""

import sys
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter

from gateway.billing.unit_estimates import units_at
from gateway.catalogue.entries import Mapping
from gateway.catalogue.prices import HighestRates, highest_rates, multiplier
from gateway.catalogue.video_shapes import max_cost
from gateway.clock import HOUR_US
from gateway.errors import NotSupported
from gateway.limits.cost_bound import CostBound
from gateway.media.token_counting import MAX_CONTEXT_TOKENS
from gateway.money import MILLION
from gateway.neutral.chat import ChatRequest
from gateway.neutral.hosted_uses import HostedUse, most_model_tokens, most_units
from gateway.neutral.operations import OPERATIONS
from gateway.neutral.request import Request, Requirements
from gateway.neutral.units import UNITS
from gateway.neutral.usage import NO_USAGE, Units, Usage
from gateway.neutral.videos import VideosRequest

# Searches of one answer when the request does not say what it uses.
MAX_SEARCHES = sum(unit.maximum for unit in UNITS if unit.count == "searches")
SEARCHED = Usage(searches=MAX_SEARCHES)
# Output tokens of one answer of a model without a known limit: no provider of text gives more.
MAX_OUTPUT_TOKENS = 131_072
CACHED_PRICES = 8192
CHAT = ChatRequest.operation
# Everything that a request may have besides text: most requests have none of it, and one check finds that out.
READ_MORE = attrgetter("media", "audio", "image_output", "hosted_uses", "web_search", "hosted", "vendor_only")
NO_MORE = READ_MORE(Requirements())

# Hour since the epoch, service tier, whether media are priced, whether only text is billed, most units of hosted tools.
Terms = tuple[int, str, bool, bool, Usage]


def compute_bound(request: Request, mappings: tuple[Mapping, ...], default_output: int, at_us: int) -> CostBound:
    """Return the highest cost of `request` at any of `mappings`."""
    return Bounds(mappings).compute(request, default_output, at_us)


class Bounds:
    """Computes cost bounds of requests that may be served by any of `mappings`. A cached plan keeps one for many
    requests."""

    __slots__ = ("_longest", "_mappings", "_max_output", "_price_cache", "_unlimited_output")

    def __init__(self, mappings: tuple[Mapping, ...]) -> None:
        self._mappings = mappings
        limits = [mapping.max_output for mapping in mappings]
        self._longest = max(limits, default=0)
        unlimited = [mapping.context_length or MAX_OUTPUT_TOKENS for mapping in mappings if not mapping.max_output]
        # The longest answer of the mappings without an output limit, 0 if all have one.
        self._unlimited_output = min(MAX_OUTPUT_TOKENS, max(unlimited, default=0))
        if limits and not unlimited:
            self._max_output = self._longest
        else:
            self._max_output = sys.maxsize
        self._price_cache: dict[Terms, tuple[list[tuple[int, int]], int, bool]] = {}

    def compute(self, request: Request, default_output: int, at_us: int) -> CostBound:
        """Return the highest cost of `request` at any of the mappings; its operation defines how prompt tokens are
        counted."""
        requirements = request.requirements
        if requirements.units is not None:
            return self._compute_units(request, requirements.units, at_us)
        if READ_MORE(requirements) == NO_MORE:
            terms: Terms = (at_us // HOUR_US, request.options.service_tier, False, True, NO_USAGE)
        else:
            terms = _terms_of(requirements, at_us // HOUR_US, request.options.service_tier)
        cached = self._price_cache.get(terms)
        if cached is None:
            cached = self._price_cache[terms] = self._price(terms)
        prices, rate, plain = cached
        operation = request.operation
        tokens = OPERATIONS[operation].prompt_tokens(request)
        fixed = unforeseen = 0
        if plain:
            for each, per_million in prices:
                prompt = each - (-tokens * per_million // MILLION)
                if prompt > fixed:
                    fixed = prompt
        else:
            fixed, unforeseen = self._price_prompt(terms, tokens, requirements)
        n = requirements.n
        if n > 1:
            calls = self._calls_for(n, requirements.stream)
            fixed = fixed * calls
            unforeseen = unforeseen * calls
            tokens = tokens * calls
        limit = requirements.max_tokens
        longer = 0
        if limit is None:
            output = self._longest or default_output
            if self._unlimited_output > output and operation == CHAT:
                # No limit is sent for it: providers refuse too high a limit, and a low one would cut answers.
                longer = (self._unlimited_output - output) * n
        else:
            output = limit if limit < self._max_output else self._max_output
        return CostBound(
            fixed, rate, output * n, limit is not None, n, tokens, unforeseen, longer, 0, operation != CHAT
        )

    def _compute_video(self, request: VideosRequest, at_us: int) -> CostBound:
        """Return the exact bound of a video. A mapping that does not support it adds nothing: its codec reports it."""
        maximum = 0
        for mapping in self._mappings:
            with suppress(NotSupported):
                maximum = max(maximum, max_cost(request.content(), mapping, at_us))
        return CostBound(maximum, 0, 0, True)

    def _price_prompt(self, terms: Terms, tokens: int, requirements: Requirements) -> tuple[int, int]:
        """Return the highest price of a prompt with media or hosted tools, and the part of it for content that only the
        provider sees (files at URLs, results of its tools).

        A prompt never costs more than the context length of its model: longer ones are rejected without a charge.
        """
        uses = requirements.hosted_uses
        unseen = (
            requirements.unseen_media
            or requirements.web_search
            or requirements.hosted
            or requirements.vendor_only
            or any(use.payment != "object" for use in uses)
        )
        models = [use for use in uses if use.output]
        minimum = maximum = 0
        for mapping in self._mappings:
            rates = _dearest(_CacheKey(mapping), *terms)
            context = mapping.context_length or MAX_CONTEXT_TOKENS
            read = min(tokens, context)
            minimum = max(minimum, rates.fixed - (-read * rates.input // MILLION))
            if unseen:
                read = context
            called = sum(_price_model(use, mapping, terms, tokens) for use in models)
            maximum = max(maximum, rates.fixed + called - (-read * rates.input // MILLION))
        return maximum, maximum - minimum

    def _calls_for(self, n: int, streamed: bool) -> int:
        """Return the most upstream calls that `n` choices may take; each call bills the prompt again."""
        maximum = [mapping.choices_a_call(streamed) or n for mapping in self._mappings]
        return max((-(-n // each) for each in maximum), default=1)

    def _compute_units(self, request: Request, units: Units, at_us: int) -> CostBound:
        """Return the bound of an operation that is not priced by text alone.

        Everything is known in advance except the length of generated speech. Its sound therefore has an output rate,
        and more is reserved while it continues.
        """
        if isinstance(request, VideosRequest):
            return self._compute_video(request, at_us)
        maximum, rate, sound = self._price_units(request, units.maximum, at_us)
        unforeseen = 0
        if units.foreseen is not None:
            unforeseen = max(0, maximum - self._price_units(request, units.foreseen, at_us)[0])
        text = OPERATIONS[request.operation].prompt_tokens(request)
        return CostBound(maximum, rate, sound, True, 1, text, unforeseen, fixed_output=True)

    def _price_units(self, request: Request, units: Usage, at_us: int) -> tuple[int, int, int]:
        """Return the highest price of `units` without generated sound, the rate of that sound, and its tokens."""
        text = OPERATIONS[request.operation].prompt_tokens(request)
        hour = at_us // HOUR_US
        maximum = 0
        rate = 0
        sound = 0
        for mapping in self._mappings:
            used = units_at(mapping, units)
            rates = highest_rates(mapping, hour * HOUR_US, request.options.service_tier, True, used)
            into = (text + used.input_total) * rates.input
            out = used.output_total * rates.output
            if used.output_audio:
                sound = max(sound, used.output_total)
                out = 0
                rate = max(rate, rates.output)
            maximum = max(maximum, rates.fixed - (-into // MILLION) - (-out // MILLION))
        return maximum, rate, sound

    def _price(self, terms: Terms) -> tuple[list[tuple[int, int]], int, bool]:
        """Return the relevant prices, the highest output rate, and whether only text is billed.

        The prices are pairs (nano-dollars per request, nano-dollars per million input tokens). Pairs that another pair
        exceeds in both are left out.
        """
        all_rates = [_dearest(_CacheKey(mapping), *terms) for mapping in self._mappings]
        prices = {(rates.fixed, rates.input) for rates in all_rates}
        highest = [price for price in prices if not any(_dominates(other, price) for other in prices)]
        output_rate = max([rates.output for rates in all_rates], default=0)
        return highest, output_rate, terms[3]


def _dominates(other: tuple[int, int], price: tuple[int, int]) -> bool:
    return other != price and other[0] >= price[0] and other[1] >= price[1]


class _CacheKey:
    """A mapping as a cache key. Catalogue entries are never changed in place, so identity is enough."""

    __slots__ = ("mapping",)

    def __init__(self, mapping: Mapping) -> None:
        self.mapping = mapping

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CacheKey) and self.mapping is other.mapping

    def __hash__(self) -> int:
        return id(self.mapping)


@lru_cache(maxsize=CACHED_PRICES)
def _dearest(key: _CacheKey, hour: int, tier: str, media: bool, text: bool, units: Usage) -> HighestRates:
    """Return the highest rates within an hour. Its highest tier and peak rate count throughout, so that a bound takes
    one multiplication."""
    return highest_rates(key.mapping, hour * HOUR_US, tier, media, units)


def _terms_of(requirements: Requirements, hour: int, tier: str) -> Terms:
    """Return the terms of a request with more than text."""
    media = requirements.media > 0 or requirements.audio or requirements.image_output
    hosted = requirements.hosted_uses or requirements.web_search or requirements.hosted or requirements.vendor_only
    return hour, tier, media, not (media or hosted), _units_of(requirements) if hosted else NO_USAGE


def _units_of(requirements: Requirements) -> Usage:
    """Return the most units of the tools that the provider runs, beside tokens."""
    units = most_units(requirements.hosted_uses)
    if units is NO_USAGE and requirements.web_search:
        return SEARCHED
    return units


def _price_model(use: HostedUse, mapping: Mapping, terms: Terms, tokens: int) -> int:
    """Return the most that the calls of a further model cost. Its prompt contains that of the request."""
    hour, tier, media, _, _ = terms
    fixed = highest_rates(mapping, hour * HOUR_US, tier, media, most_model_tokens(use, tokens)).fixed
    numerator, denominator = multiplier(mapping, tier)
    return max(fixed, -(-fixed * numerator // denominator))
