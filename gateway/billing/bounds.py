"""Upper bounds: the most that a request can cost, computed before it is sent."""

import sys
from functools import lru_cache

from msgspec import structs

from gateway.billing.units import units_at
from gateway.catalogue.entries import Mapping
from gateway.catalogue.prices import Dearest, dearest
from gateway.clock import HOUR_US
from gateway.limits.cost_bound import CostBound
from gateway.media.token_counting import MOST_CONTEXT_TOKENS
from gateway.money import MILLION
from gateway.neutral.operations import OPERATIONS
from gateway.neutral.request import Request, Requirements
from gateway.neutral.usage import NOTHING, Units, Usage

SEARCHES = 5  # what one answer may look up where the caller sets no number
SESSIONS = 1  # containers that code of one answer runs in
REMEMBERED = 8192

# The hour, the service tier, whether media count, how many searches may, whose other tools may run ("": none).
Terms = tuple[int, str, bool, int, str]


def ask_for(request: Request, mappings: tuple[Mapping, ...], default_output: int, at_us: int) -> CostBound:
    """The dearest of what any of `mappings` may cost."""
    return Bounds(mappings).ask(request, default_output, at_us)


class Bounds:
    """Upper bounds of requests that may go to any of some mappings; kept with a plan, which serves many requests."""

    __slots__ = ("_known", "_longest", "_mappings", "_most")

    def __init__(self, mappings: tuple[Mapping, ...]) -> None:
        self._mappings = mappings
        limits = [mapping.max_output for mapping in mappings]
        self._longest = max(limits, default=0)
        self._most = self._longest if limits and all(limits) else sys.maxsize  # what none of them gives more than
        self._known: dict[Terms, tuple[list[tuple[int, int]], int, bool]] = {}

    def ask(self, request: Request, default_output: int, at_us: int) -> CostBound:
        """The dearest of what any of the mappings may cost, with the tokens of the operation's own rule."""
        needs = request.requirements
        if needs.units is not None:
            return self._ask_units(request, needs.units, at_us)
        media = needs.media > 0 or needs.audio or needs.image_output
        hosted = needs.hosted or needs.vendor_only
        terms = (at_us // HOUR_US, request.options.service_tier, media, SEARCHES if needs.web_search else 0, hosted)
        known = self._known.get(terms)
        if known is None:
            known = self._known[terms] = self._price(terms)
        prices, rate, plain = known
        tokens = OPERATIONS[request.operation].prompt_tokens(request)
        fixed = unforeseen = 0
        if plain:
            for each, per_million in prices:
                prompt = each - (-tokens * per_million // MILLION)
                if prompt > fixed:
                    fixed = prompt
        else:
            fixed, unforeseen = self._price_prompt(terms, tokens, needs)
        if needs.n > 1:
            calls = self._calls_for(needs.n, needs.stream)
            fixed = fixed * calls
            unforeseen = unforeseen * calls
            tokens = tokens * calls
        limit = needs.max_tokens
        if limit is None:
            output = self._longest or default_output
        else:
            if limit < self._most:
                output = limit
            else:
                output = self._most
        return CostBound(fixed, rate, output * needs.n, limit is not None, needs.n, tokens, unforeseen)

    def _price_prompt(self, terms: Terms, tokens: int, needs: Requirements) -> tuple[int, int]:
        """The price of a prompt with media or with tools of the provider, and what of it is for what only the provider
        sees: files at addresses, what its tools find.

        No prompt is longer than the context of its model, which refuses it without a charge.
        """
        unseen = needs.unseen_media or needs.web_search or needs.hosted or needs.vendor_only
        least = most = 0
        for mapping in self._mappings:
            rates = _dearest(_Priced(mapping), *terms)
            context = mapping.context_length or MOST_CONTEXT_TOKENS
            read = min(tokens, context)
            least = max(least, rates.fixed - (-read * rates.input // MILLION))
            if unseen:
                read = context
            most = max(most, rates.fixed - (-read * rates.input // MILLION))
        return most, most - least

    def _calls_for(self, n: int, streamed: bool) -> int:
        """The most calls that `n` answers may take; each of them reads the prompt."""
        most = [mapping.choices_a_call(streamed) or n for mapping in self._mappings]
        return max((-(-n // each) for each in most), default=1)

    def _ask_units(self, request: Request, units: Units, at_us: int) -> CostBound:
        """The bound of an operation that is not priced by its text alone. All that it may use is known before, except
        how long a spoken text lasts: its sound has a rate, by which more is reserved while it lasts longer."""
        most, rate, sound = self._price_units(request, units.most, at_us)
        unforeseen = 0
        if units.unforeseen:
            unforeseen = max(0, most - self._price_units(request, units.likely, at_us)[0])
        text = OPERATIONS[request.operation].prompt_tokens(request)
        return CostBound(most, rate, sound, True, 1, text, unforeseen)

    def _price_units(self, request: Request, units: Usage, at_us: int) -> tuple[int, int, int]:
        """The most that units cost but for sound that is made; the rate and the tokens of that."""
        text = OPERATIONS[request.operation].prompt_tokens(request)
        hour = at_us // HOUR_US
        most = 0
        rate = 0
        sound = 0
        for mapping in self._mappings:
            used = units_at(mapping, units)
            rates = dearest(mapping, hour * HOUR_US, request.options.service_tier, True, used)
            into = (text + used.input_total) * rates.input
            out = used.output_total * rates.output
            if used.output_audio:
                sound = max(sound, used.output_total)
                out = 0
                rate = max(rate, rates.output)
            most = max(most, rates.fixed - (-into // MILLION) - (-out // MILLION))
        return most, rate, sound

    def _price(self, terms: Terms) -> tuple[list[tuple[int, int]], int, bool]:
        """What counts of the prices: (for each request, per million tokens in) of those that none of the others is
        above in both, and the highest rate of output; whether text alone comes and goes, without the provider's
        tools."""
        found = [_dearest(_Priced(mapping), *terms) for mapping in self._mappings]
        prices = {(rates.fixed, rates.input) for rates in found}
        highest = [one for one in prices if not any(_is_above(other, one) for other in prices)]
        _, _, media, searches, hosted = terms
        return highest, max([rates.output for rates in found], default=0), not (media or searches or hosted)


def _is_above(other: tuple[int, int], one: tuple[int, int]) -> bool:
    return other != one and other[0] >= one[0] and other[1] >= one[1]


class _Priced:
    """A mapping as a cache key: the catalogue's entries are never changed in place, so identity will do."""

    __slots__ = ("mapping",)

    def __init__(self, mapping: Mapping) -> None:
        self.mapping = mapping

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Priced) and self.mapping is other.mapping

    def __hash__(self) -> int:
        return id(self.mapping)


@lru_cache(maxsize=REMEMBERED)
def _dearest(priced: _Priced, hour: int, tier: str, media: bool, searches: int, hosted: str) -> Dearest:
    """Within an hour: its dearest tier and peak count throughout, so that a bound costs one multiplication."""
    if searches:
        units = Usage(searches=searches)
    else:
        units = NOTHING
    if hosted:
        units = structs.replace(units, file_searches=SEARCHES, code_sessions=SESSIONS)
    return dearest(priced.mapping, hour * HOUR_US, tier, media, units)
