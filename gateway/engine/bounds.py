"""The most that a request can cost, asked for before it is sent."""

from gateway.catalogue.entries import Mapping
from gateway.catalogue.prices import upper_bound
from gateway.limits.spending import Ask
from gateway.money import MILLION
from gateway.neutral.chat import ChatRequest

MESSAGE_TOKENS = 8  # roles and separators around each message
MEDIA_TOKENS = 16_384  # the most that one image or file was seen to count as, pages of a document included
SEARCHES = 5  # what one answer may look up where the caller sets no number


def ask_for(request: ChatRequest, mappings: tuple[Mapping, ...], default_output: int, at_us: int) -> Ask:
    """The dearest of what any of `mappings` may cost. A token is at least one byte, so bytes bound tokens."""
    needs, tier = request.needs, request.options.service_tier
    tokens = needs.prompt_bytes + MESSAGE_TOKENS * (needs.messages + 1) + MEDIA_TOKENS * needs.media
    searches = SEARCHES if needs.web_search else 0
    media = needs.media > 0 or needs.audio or needs.image_output
    fixed = rate = longest = 0
    for mapping in mappings:
        base = upper_bound(mapping, tokens, 0, at_us=at_us, service_tier=tier, media=media, searches=searches)
        full = upper_bound(mapping, tokens, MILLION, at_us=at_us, service_tier=tier, media=media, searches=searches)
        fixed, rate = max(fixed, base), max(rate, full - base)
        longest = max(longest, mapping.max_output)
    explicit = needs.max_tokens is not None
    output = needs.max_tokens if explicit else longest or default_output
    return Ask(fixed_nusd=fixed, output_rate=rate, max_output=output * needs.n, explicit=explicit)
