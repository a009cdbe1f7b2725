"""Estimated units of requests for which the provider reports none: the units of the operation, otherwise bytes of
text."""

from msgspec import structs

from gateway.catalogue.entries import Mapping
from gateway.neutral.images import MADE_TOKENS
from gateway.neutral.transcriptions import MIN_AUDIO_KEY, SECOND_MS
from gateway.neutral.usage import Units, Usage

BYTES_PER_TOKEN = 4


def units_at(mapping: Mapping, usage: Usage) -> Usage:
    """Return `usage` as this mapping bills it: with image tokens where images are billed by tokens, without tokens
    where characters are billed, and without sound tokens where hours of sound are billed."""
    if usage.characters and any(prices.base.character for prices in mapping.prices):
        return structs.replace(usage, input=0, output=0, output_audio=0)
    if usage.audio_ms and any(prices.base.input_audio_hour for prices in mapping.prices):
        min_ms = mapping.extra.get(MIN_AUDIO_KEY, 0) * SECOND_MS
        read = usage.input if any(prices.base.prompt for prices in mapping.prices) else 0
        output = usage.output if any(prices.base.completion for prices in mapping.prices) else 0
        return structs.replace(usage, input=read, input_audio=0, output=output, audio_ms=max(usage.audio_ms, min_ms))
    if usage.images > mapping.max_n > 0:  # several calls are made, and each bills the prompt
        calls = -(-usage.images // mapping.max_n)
        repeated = {name: getattr(usage, name) * calls for name in ("input", "input_image", "images_read")}
        usage = structs.replace(usage, **repeated)
    if not usage.images or usage.output_image or any(prices.base.per_image for prices in mapping.prices):
        return usage
    return structs.replace(usage, output=0, output_image=image_tokens(mapping, usage) + usage.output)


def image_tokens(mapping: Mapping, usage: Usage) -> int:
    """Return the tokens of the images of `usage` at a mapping that bills images by tokens. A size that is not listed
    counts like the most expensive one."""
    table = mapping.image_tokens
    return usage.images * (table.get(usage.price_key) or max(table.values(), default=MADE_TOKENS))


def estimate(
    units: Units | None, mapping: Mapping, prompt_bytes: int, output_length: int = 0, media_tokens: int = 0
) -> Usage:
    """Return the estimated usage of a call without reported usage: the requested units (for sound, at least what was
    received), otherwise text at four bytes per token, and the tokens of media."""
    if units is not None:
        likely = units.likely
        output_tokens = -(-output_length // BYTES_PER_TOKEN)
        if 0 < likely.output_audio < output_tokens:
            likely = structs.replace(likely, output_audio=output_tokens)
        return structs.replace(units_at(mapping, likely), basis="estimated")
    text = media_tokens - (-prompt_bytes // BYTES_PER_TOKEN)
    written = -(-output_length // BYTES_PER_TOKEN)
    return Usage(input=text, output=written, basis="estimated")
