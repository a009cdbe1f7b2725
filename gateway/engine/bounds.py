"""The most that a request can cost, asked for before it is sent."""

from functools import lru_cache

from gateway.catalogue.entries import Mapping
from gateway.catalogue.prices import Dearest, dearest
from gateway.clock import HOUR_US
from gateway.limits.asks import Ask
from gateway.money import MILLION
from gateway.neutral.chat import ChatRequest

MESSAGE_TOKENS = 8  # roles and separators around each message
MEDIA_TOKENS = 16_384  # the most that one image or file was seen to count as, pages of a document included
SEARCHES = 5  # what one answer may look up where the caller sets no number
REMEMBERED = 8192


def ask_for(request: ChatRequest, mappings: tuple[Mapping, ...], default_output: int, at_us: int) -> Ask:
    """The dearest of what any of `mappings` may cost. A token is at least one byte, so bytes bound tokens."""
    needs = request.needs
    tokens = needs.prompt_bytes + MESSAGE_TOKENS * (needs.messages + 1) + MEDIA_TOKENS * needs.media
    media = needs.media > 0 or needs.audio or needs.image_output
    searches = SEARCHES if needs.web_search else 0
    fixed = rate = longest = 0
    hour, tier = at_us // HOUR_US, request.options.service_tier
    for mapping in mappings:
        rates = _dearest(_Priced(mapping), hour, tier, media, searches)
        prompt = rates.fixed - (-tokens * rates.input // MILLION)
        if prompt > fixed:
            fixed = prompt
        if rates.output > rate:
            rate = rates.output
        if mapping.max_output > longest:
            longest = mapping.max_output
    explicit = needs.max_tokens is not None
    output = needs.max_tokens if explicit else longest or default_output
    return Ask(fixed, rate, output * needs.n, explicit, needs.n, tokens)


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
def _dearest(priced: _Priced, hour: int, tier: str, media: bool, searches: int) -> Dearest:
    """Within an hour: its dearest tier and peak count throughout, so that a bound costs one multiplication."""
    return dearest(priced.mapping, hour * HOUR_US, tier, media, searches)
