"""Completes the usage of a whole answer: what its provider left out is estimated by what was delivered.

A kind of use that has a price at the mapping is estimated when all its counts are zero: what was read, what was made,
and each unit that is priced by itself. Other counts stay as the provider reported them.

Sources of an estimate, the first that is known: units that the answer itself shows (its images, pages, searches,
seconds of sound); text of the answer, four bytes a token; what the request asked for.
"""

import math

from msgspec import structs

from gateway.billing.units import BYTES_PER_TOKEN, image_tokens, units_at
from gateway.catalogue.entries import Mapping
from gateway.neutral.transcriptions import AUDIO_TOKENS_A_SECOND, OUTPUT_TOKENS_A_SECOND, SECOND_MS
from gateway.neutral.usage import NOTHING, Units, Usage, counts_anything

READ = ("input", "cache_read", "cache_write", "cache_write_1h", "input_audio", "input_audio_cached", "input_image")
MADE = ("output", "output_audio", "output_image")
READ_RATES = ("prompt", "input_audio", "image", "input_cache_read")
MADE_RATES = ("completion", "output_audio", "output_image", "internal_reasoning", "thinking_completion")
# Units that are priced by themselves: each count with its rate.
UNIT_RATES = {"pages": "ocr_page", "characters": "character", "audio_ms": "input_audio_hour", "searches": "web_search"}


def complete(
    reported: Usage | None, estimated: Usage, units: Units | None, mapping: Mapping, output_length: int
) -> Usage:
    """The usage of an answer that came whole; `reported` itself when nothing is missing. Counts that were filled in
    make its basis "estimated". `estimated` is the estimate of the request without any report."""
    if reported is None or (units is None and not counts_anything(reported)):
        return _expected(reported or NOTHING, estimated, units, mapping, output_length)
    missing = _missing(reported, units, mapping)
    if missing:
        expected = _expected(reported, estimated, units, mapping, output_length)
        filled = {name: count for name in missing if (count := getattr(expected, name))}
        if filled:
            return structs.replace(reported, **filled, basis="estimated")
        return reported
    if units is None and reported.images and not reported.output_image and _priced(mapping, ("output_image",)):
        return _with_images(reported, output_length)
    return reported


def _missing(reported: Usage, units: Units | None, mapping: Mapping) -> list[str]:
    """The counts to estimate: those of priced kinds of use that were reported as nothing."""
    names: list[str] = []
    if not reported.input_total and _priced(mapping, READ_RATES):
        names += READ
    if not reported.output_total and _priced(mapping, MADE_RATES):
        names += MADE
    if units is None:
        return names
    if units.likely.images and not reported.output_image and "output_image" not in names:
        names.append("output_image")  # the operation makes images, whatever text was reported
    return names + [
        name for name, rate in UNIT_RATES.items() if not getattr(reported, name) and _priced(mapping, (rate,))
    ]


def _priced(mapping: Mapping, rates: tuple[str, ...]) -> bool:
    return any(getattr(prices.base, rate) for prices in mapping.prices for rate in rates)


def _expected(reported: Usage, estimated: Usage, units: Units | None, mapping: Mapping, output_length: int) -> Usage:
    """The estimated usage of the whole answer, from the units that `reported` shows."""
    if units is None:
        if reported.images:
            drawn = image_tokens(mapping, reported)
        else:
            drawn = 0
        if drawn:
            return structs.replace(estimated, output_image=drawn)
        return estimated
    likely = _shown(units.likely, reported, -(-output_length // BYTES_PER_TOKEN))
    return structs.replace(units_at(mapping, likely), basis="estimated")


def _shown(likely: Usage, reported: Usage, made: int) -> Usage:
    """The units that were requested, replaced by those that the answer shows; `made`: tokens of its text or sound."""
    if likely.images and reported is not NOTHING:
        return structs.replace(likely, images=reported.images, price_key=reported.price_key or likely.price_key)
    if likely.output_audio and made:
        return structs.replace(likely, output_audio=made)
    if not likely.audio_ms:
        if likely.pages and made:
            return structs.replace(likely, output=made)
        return likely
    if not reported.audio_ms:
        if made:
            return structs.replace(likely, output=made)
        return likely
    seconds = reported.audio_ms / SECOND_MS
    return structs.replace(
        likely,
        audio_ms=reported.audio_ms,
        input_audio=math.ceil(seconds * AUDIO_TOKENS_A_SECOND),
        output=made or math.ceil(seconds * OUTPUT_TOKENS_A_SECOND),
    )


def _with_images(reported: Usage, output_length: int) -> Usage:
    """The same with the tokens of images apart, where a provider reports one sum for them and the text: all of it that
    reasoning and text do not account for."""
    drawn = max(0, reported.output - reported.reasoning + (-output_length // BYTES_PER_TOKEN))
    return structs.replace(reported, output=reported.output - drawn, output_image=drawn)
