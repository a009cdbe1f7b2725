"""Estimated usage of answers for which the provider reported no usage, or only partial usage.

An estimate counts the prompt (four bytes of text per token, plus its media), the text that was received, and hidden
reasoning, which is estimated from the time before the first content after REASONING_AFTER_S: at the speed at which the
target wrote its last answers with reasoning, and at least at REASONING_TOKENS_PER_SECOND.
"""

import math
from collections.abc import Callable

from msgspec import structs

from gateway.billing import unit_estimates
from gateway.billing.context import GUARDRAIL_BLOCKED, SUPERSEDED, Attempt, Terms
from gateway.billing.unit_estimates import BYTES_PER_TOKEN, image_tokens, units_at
from gateway.catalogue.entries import Mapping
from gateway.catalogue.prices import Charge
from gateway.neutral.hosted_uses import HostedUse
from gateway.neutral.request import Requirements
from gateway.neutral.transcriptions import AUDIO_TOKENS_PER_SECOND, OUTPUT_TOKENS_PER_SECOND, SECOND_MS
from gateway.neutral.units import CODE_COST, SEARCH_COST, UNITS, counts_of, prices_of
from gateway.neutral.usage import NO_USAGE, Units, Usage, counts_anything

# Completes the usage of a whole answer: counts that its provider left out are estimated from what was delivered.
#
# A priced kind of usage is estimated when all its counts are zero. The kinds are input, output, and each unit with its
# own price. Other counts stay as reported.
#
# An estimate takes the first source that is known: units visible in the answer (its images, pages, searches, seconds of
# sound); the answer's text, at four bytes per token; the units that the request specified.

INPUT_COUNTS = counts_of("input")
OUTPUT_COUNTS = counts_of("output")
INPUT_RATES = prices_of("input")
OUTPUT_RATES = prices_of("output")
# Uses of a tool in one answer; the longest research of a model has some two hundred searches.
MAX_USES = 500
USES = tuple(unit.count for unit in UNITS if unit.billed == "each" and unit.cost in (SEARCH_COST, CODE_COST))
# Limits for one document, one query with its documents, and one sound, if the request does not allow more.
MAX_PAGES = MAX_SEARCHES = 1_000
MAX_SOUND_MS = 24 * 3_600_000
# Units with their own price: usage field → price key.
UNIT_RATES = {unit.count: unit.price for unit in UNITS if unit.billed in ("each", "length")}


def complete(
    reported: Usage | None, estimated: Usage, units: Units | None, mapping: Mapping, output_length: int
) -> Usage:
    """Return the usage of a complete answer; `reported` itself if nothing is missing. Filled counts set its basis to
    "estimated". `estimated` is the estimate without any report."""
    if reported is None or (units is None and not counts_anything(reported)):
        return _expected(reported or NO_USAGE, estimated, units, mapping, output_length)
    if units is not None:
        reported = _with_known(reported, units_at(mapping, units.likely))
    missing = _missing(reported, units, mapping)
    if units is not None and units.likely.audio_ms and not output_length and counts_anything(reported):
        # Silence has an empty transcript, of which a provider rightly reports no output.
        missing = [name for name in missing if name not in OUTPUT_COUNTS]
    if missing:
        expected = _expected(reported, estimated, units, mapping, output_length)
        filled = {name: count for name in missing if (count := getattr(expected, name))}
        if filled:
            return structs.replace(reported, **filled, basis="estimated")
        return reported
    if units is None and reported.images and not reported.output_image and _priced(mapping, ("output_image",)):
        return _with_images(reported, output_length)
    return reported


def _with_known(reported: Usage, likely: Usage) -> Usage:
    """Return `reported` with the units that follow from the request and that no provider counts: images that are read,
    and pages that are annotated."""
    annotated = reported.pages if likely.annotated_pages else 0
    if likely.images_read or annotated:
        return structs.replace(reported, images_read=likely.images_read, annotated_pages=annotated)
    return reported


def fill_unreported(reported: Usage, estimated: Usage, mapping: Mapping) -> Usage:
    """Return `reported` with the priced kinds of usage that it leaves at zero, as `estimated` has them: a provider may
    report seconds for a model with a price for tokens, or the reverse."""
    missing = _missing(reported, Units(estimated, estimated), mapping)
    filled = {name: count for name in missing if (count := getattr(estimated, name))}
    if filled:
        return structs.replace(reported, **filled, basis="estimated")
    return reported


def believed(usage: Usage, units: Units | None, uses: tuple[HostedUse, ...], mapping: Mapping) -> Usage:
    """Return the usage with its units limited to what one answer can have, whatever its provider reports: for a tool
    MAX_USES, or the most that the caller allows; for other operations what the request can amount to."""
    if units is None:
        times = max([use.times for use in uses], default=1)
        most = max([MAX_USES, *(use.most for use in uses)]) * times
        limits = dict.fromkeys(USES, most)
    else:
        maximum = units_at(mapping, units.maximum)
        pages = max(maximum.pages, MAX_PAGES)
        limits = {"pages": pages, "annotated_pages": pages, "searches": max(maximum.searches, MAX_SEARCHES)}
        limits["audio_ms"] = max(maximum.audio_ms, MAX_SOUND_MS)
    beyond = {name: limit for name, limit in limits.items() if getattr(usage, name) > limit}
    if beyond:
        return structs.replace(usage, **beyond)
    return usage


def _missing(reported: Usage, units: Units | None, mapping: Mapping) -> list[str]:
    """Return the counts to estimate: those of priced kinds of usage that were reported as zero."""
    names: list[str] = []
    if not reported.input_total and _priced(mapping, INPUT_RATES):
        names += INPUT_COUNTS
    if not reported.output_total and _priced(mapping, OUTPUT_RATES):
        names += OUTPUT_COUNTS
    if units is None:
        return names
    if units.likely.images and not reported.output_image and "output_image" not in names:
        names.append("output_image")  # the operation generates images even if only text was reported
    return names + [
        name for name, rate in UNIT_RATES.items() if not getattr(reported, name) and _priced(mapping, (rate,))
    ]


def _priced(mapping: Mapping, rates: tuple[str, ...]) -> bool:
    return any(getattr(prices.base, rate) for prices in mapping.prices for rate in rates)


def _expected(reported: Usage, estimated: Usage, units: Units | None, mapping: Mapping, output_length: int) -> Usage:
    """Return the estimated usage of the whole answer, from the units that `reported` shows."""
    if units is None:
        drawn = image_tokens(mapping, reported) if reported.images else 0
        if drawn:
            return structs.replace(estimated, output_image=drawn)
        return estimated
    likely = _shown(units.likely, reported, -(-output_length // BYTES_PER_TOKEN))
    return structs.replace(units_at(mapping, likely), basis="estimated")


def _shown(likely: Usage, reported: Usage, output_tokens: int) -> Usage:
    """Return the requested units with those visible in the answer; `output_tokens` are those of its text or sound."""
    if likely.images and reported is not NO_USAGE:
        return structs.replace(likely, images=reported.images, price_key=reported.price_key or likely.price_key)
    if likely.output_audio and output_tokens:
        return structs.replace(likely, output_audio=output_tokens)
    if not likely.audio_ms:
        if likely.pages and output_tokens:
            return structs.replace(likely, output=output_tokens)
        return likely
    if not reported.audio_ms:
        if output_tokens:
            return structs.replace(likely, output=output_tokens)
        return likely
    seconds = reported.audio_ms / SECOND_MS
    return structs.replace(
        likely,
        audio_ms=reported.audio_ms,
        input_audio=math.ceil(seconds * AUDIO_TOKENS_PER_SECOND),
        output=output_tokens or math.ceil(seconds * OUTPUT_TOKENS_PER_SECOND),
    )


def _with_images(reported: Usage, output_length: int) -> Usage:
    """Return `reported` with image tokens separated, for providers that report one sum for images and text: everything
    that reasoning and text do not account for."""
    drawn = max(0, reported.output - reported.reasoning + (-output_length // BYTES_PER_TOKEN))
    return structs.replace(reported, output=reported.output - drawn, output_image=drawn)


CLIENT_DISCONNECT = "client_disconnect"
# Ends of attempts that were cancelled while the provider worked: what it consumed until then is billed.
CANCELLED = (CLIENT_DISCONNECT, GUARDRAIL_BLOCKED, SUPERSEDED)
NONE = "none"
# Reasoning models write 40 to 150 tokens a second; a model that does not reason begins within two seconds.
REASONING_TOKENS_PER_SECOND = 50
REASONING_AFTER_S = 2.0
SPEED = "output_speed"  # key of a target's memo: output tokens a second of its answers with reasoning
MEASURED_TOKENS = 200  # a shorter answer says little about the speed
KEPT_SHARE = 0.75  # of the former speed, when an answer is measured
SHARES = 1 << 20  # resolution of the binary search in `within`


def estimate(terms: Terms, attempt: Attempt) -> Usage:
    """Return the usage of an attempt that may have ended early.

    Reported counts are kept. Reported output may cover only the beginning of the answer, so the larger of the reported
    and the estimated count is taken.
    """
    reported = attempt.usage
    if attempt.used is not None:
        reported = attempt.used() or reported
    if reported is None:
        return _unreported(terms, attempt)
    if terms.units is not None:
        return completed(terms, attempt, reported)
    thought = _hidden_reasoning(terms, attempt)
    output = -(-attempt.output_length // BYTES_PER_TOKEN) + thought
    if not reported.input_total:
        reported = structs.replace(reported, input=terms.prompt_tokens, basis="estimated")
    if reported.output_total >= output:
        return reported
    output += reported.output - reported.output_total
    return structs.replace(reported, output=output, reasoning=max(reported.reasoning, thought), basis="estimated")


def completed(terms: Terms, attempt: Attempt, reported: Usage | None) -> Usage:
    """Return the usage of a complete answer, with estimates for counts that were not reported."""
    estimated = _unreported(terms, attempt)
    return complete(reported, estimated, terms.units, attempt.target.mapping, attempt.output_length)


def usage_so_far(terms: Terms, attempt: Attempt, most_output: int) -> Usage:
    """Return the usage of an answer that the gateway cuts off. Estimated output is limited to what the reservation pays
    for; reported counts are kept."""
    if terms.units is not None:
        sound = completed(terms, attempt, attempt.usage)
        return structs.replace(sound, output_audio=min(sound.output_audio, most_output))
    usage = estimate(terms, attempt)
    counted = attempt.usage.output if attempt.usage is not None else 0
    if usage.basis != "estimated" or usage.output <= max(counted, most_output):
        return usage
    return structs.replace(usage, output=max(counted, most_output))


def usage_of(terms: Terms, attempt: Attempt) -> Usage | None:
    """Return the billable usage of an attempt, None if nothing is billed. A failure before any content is free unless
    the provider reported usage; after content, the provider bills what it generated."""
    reported = attempt.usage
    if attempt.finish in CANCELLED:
        if reported is not None and reported.basis == "drained":
            return reported
        return estimate(terms, attempt)
    if attempt.error is not None:
        estimated = reported is not None and reported.basis == "estimated"
        if attempt.first_at and not estimated:
            return estimate(terms, attempt)
        return reported
    if reported is None:
        return completed(terms, attempt, None)
    return reported


def within(usage: Usage, bound_nusd: int, price: Callable[[Usage], Charge]) -> Usage:
    """Return the largest part of an estimate that costs at most `bound_nusd`. Output is reduced first, then input."""
    for names in (("output", "reasoning"), ("input", "input_image", "input_audio", "output_audio")):
        minimum = 0
        maximum = SHARES
        while minimum < maximum:
            share = (minimum + maximum + 1) // 2
            if price(_scaled(usage, names, share)).total <= bound_nusd:
                minimum = share
            else:
                maximum = share - 1
        usage = _scaled(usage, names, minimum)
        if price(usage).total <= bound_nusd:
            break
    return usage


def _scaled(usage: Usage, names: tuple[str, ...], share: int) -> Usage:
    return structs.replace(usage, **{name: getattr(usage, name) * share // SHARES for name in names})


def _unreported(terms: Terms, attempt: Attempt) -> Usage:
    """Return the estimated usage of an attempt without reported usage."""
    mapping = attempt.target.mapping
    length = attempt.output_length
    if terms.units is not None:
        return unit_estimates.estimate(terms.units, mapping, terms.prompt_bytes, length)
    thought = _hidden_reasoning(terms, attempt)
    output = -(-length // BYTES_PER_TOKEN) + thought
    return Usage(input=terms.prompt_tokens, output=output, reasoning=thought, basis="estimated")


def _hidden_reasoning(terms: Terms, attempt: Attempt) -> int:
    """Estimate the hidden reasoning tokens from the time before the first content. Answers that arrive in one piece
    have no first content, so the tokens of their text are subtracted."""
    request = terms.context.request
    if request is None or not may_reason(attempt.target.mapping, request.requirements):
        return 0
    seconds = (attempt.first_at or attempt.ended) - attempt.started - REASONING_AFTER_S
    visible = 0 if attempt.first_at else attempt.output_length // BYTES_PER_TOKEN
    speed = max(REASONING_TOKENS_PER_SECOND, attempt.target.memo.get(SPEED, 0.0))
    return max(0, int(seconds * speed) - visible)


def may_reason(mapping: Mapping, requirements: Requirements) -> bool:
    """Return whether the model may reason about the request, which it may do in silence."""
    if not mapping.reasoning or requirements.effort == NONE:
        return False
    return requirements.reasoning or NONE not in mapping.reasoning_efforts


def learn_speed(attempt: Attempt, usage: Usage) -> None:
    """Record how fast the target wrote a complete answer with reasoning."""
    seconds = attempt.ended - attempt.started
    if usage.output_total < MEASURED_TOKENS or usage.basis == "estimated" or seconds <= 0:
        return
    speed = usage.output_total / seconds
    memo = attempt.target.memo
    memo[SPEED] = KEPT_SHARE * memo.get(SPEED, speed) + (1 - KEPT_SHARE) * speed
