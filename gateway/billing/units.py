"""Estimated units of a request where the provider reports none: of its operation, else by bytes of text."""

from msgspec import structs

from gateway.catalogue.entries import Mapping
from gateway.neutral.images import MADE_TOKENS
from gateway.neutral.transcriptions import LEAST_AUDIO, SECOND_MS
from gateway.neutral.usage import Units, Usage

BYTES_PER_TOKEN = 4


def units_at(mapping: Mapping, usage: Usage) -> Usage:
    """`usage` as it counts at this mapping: with the tokens of its images where those are what is billed, and without
    tokens where its characters or hours are."""
    if usage.characters and any(prices.base.character for prices in mapping.prices):
        return structs.replace(usage, input=0, output=0, output_audio=0)
    if usage.audio_ms and any(prices.base.input_audio_hour for prices in mapping.prices):
        least_ms = mapping.extra.get(LEAST_AUDIO, 0) * SECOND_MS
        return structs.replace(usage, input=0, input_audio=0, output=0, audio_ms=max(usage.audio_ms, least_ms))
    if usage.images > mapping.max_n > 0:  # each of several calls reads the prompt
        calls = -(-usage.images // mapping.max_n)
        usage = structs.replace(usage, input=usage.input * calls, input_image=usage.input_image * calls)
    if not usage.images or usage.output_image or any(prices.base.per_image for prices in mapping.prices):
        return usage
    table = mapping.image_tokens
    tokens = table.get(usage.price_key) or max(table.values(), default=MADE_TOKENS)
    return structs.replace(usage, output=0, output_image=usage.images * tokens + usage.output)


def estimate(units: Units | None, mapping: Mapping, prompt_bytes: int, output_length: int = 0) -> Usage:
    """What was used, nobody having told: the units that were asked for, else four bytes of text a token."""
    if units is not None:
        return structs.replace(units_at(mapping, units.likely), basis="estimated")
    text, written = -(-prompt_bytes // BYTES_PER_TOKEN), -(-output_length // BYTES_PER_TOKEN)
    return Usage(input=text, output=written, basis="estimated")
