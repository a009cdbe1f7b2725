"""Estimated usage of answers for which the provider reported none, or only the beginning.

An estimate counts the prompt (four bytes of text a token, and its media), the text that came of the answer, and hidden
reasoning by the time that passed before it: THOUGHT_TOKENS_A_SECOND after the first THOUGHT_AFTER_S.
"""

from collections.abc import Callable

from msgspec import structs

from gateway.billing import units
from gateway.billing.outcome import Attempt
from gateway.billing.terms import Terms
from gateway.billing.units import BYTES_PER_TOKEN
from gateway.billing.usage_completion import complete
from gateway.catalogue.prices import Charge
from gateway.neutral.usage import Usage

HUNG_UP = "client_disconnect"
NONE = "none"
# Reasoning models write 40 to 150 tokens a second; a model that does not reason begins within two seconds.
THOUGHT_TOKENS_A_SECOND = 50
THOUGHT_AFTER_S = 2.0
SHARES = 1 << 20  # in how many parts an estimate is reduced


def estimate(terms: Terms, attempt: Attempt) -> Usage:
    """The usage of an attempt that may have ended early. Counts that the provider reported stand; those of output may
    be of its beginning, so the larger of both is taken."""
    reported = attempt.usage
    if reported is None:
        return _unreported(terms, attempt)
    if terms.units is not None:
        return reported
    thought = _hidden_reasoning(terms, attempt)
    output = -(-attempt.output_length // BYTES_PER_TOKEN) + thought
    if not reported.input_total:
        reported = structs.replace(reported, input=terms.prompt_tokens, basis="estimated")
    if reported.output_total >= output:
        return reported
    output += reported.output - reported.output_total
    return structs.replace(reported, output=output, reasoning=max(reported.reasoning, thought), basis="estimated")


def completed(terms: Terms, attempt: Attempt, reported: Usage | None) -> Usage:
    """The usage of a whole answer, with an estimate of what was not reported."""
    estimated = _unreported(terms, attempt)
    return complete(reported, estimated, terms.units, attempt.target.mapping, attempt.output_length)


def usage_so_far(terms: Terms, attempt: Attempt, most_output: int) -> Usage:
    """The usage of an answer that the gateway ends here. An estimate of its text is at most what the reservation pays
    for; counts that the provider reported stand."""
    if terms.units is not None:
        sound = completed(terms, attempt, attempt.usage)
        return structs.replace(sound, output_audio=min(sound.output_audio, most_output))
    usage = estimate(terms, attempt)
    if attempt.usage is not None:
        counted = attempt.usage.output
    else:
        counted = 0
    if usage.basis != "estimated" or usage.output <= max(counted, most_output):
        return usage
    return structs.replace(usage, output=max(counted, most_output))


def usage_of(terms: Terms, attempt: Attempt) -> Usage | None:
    """The usage for which an attempt is billed, None for nothing. A failure before any content is free unless the
    provider reported usage; after content the provider bills what it made."""
    reported = attempt.usage
    if attempt.finish == HUNG_UP:
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
    """The largest part of an estimate that costs no more than was reserved: less output, and then less input."""
    for names in (("output", "reasoning"), ("input", "input_image", "input_audio", "output_audio")):
        least = 0
        most = SHARES
        while least < most:
            share = (least + most + 1) // 2
            if price(_scaled(usage, names, share)).total <= bound_nusd:
                least = share
            else:
                most = share - 1
        usage = _scaled(usage, names, least)
        if price(usage).total <= bound_nusd:
            break
    return usage


def _scaled(usage: Usage, names: tuple[str, ...], share: int) -> Usage:
    return structs.replace(usage, **{name: getattr(usage, name) * share // SHARES for name in names})


def _unreported(terms: Terms, attempt: Attempt) -> Usage:
    """The usage of an attempt without any report."""
    mapping = attempt.target.mapping
    length = attempt.output_length
    if terms.units is not None:
        return units.estimate(terms.units, mapping, terms.prompt_bytes, length)
    thought = _hidden_reasoning(terms, attempt)
    output = -(-length // BYTES_PER_TOKEN) + thought
    return Usage(input=terms.prompt_tokens, output=output, reasoning=thought, basis="estimated")


def _hidden_reasoning(terms: Terms, attempt: Attempt) -> int:
    """Tokens that a reasoning model may have written before its first content, by the time that it took. The time of an
    answer in one piece is also that of its text."""
    mapping = attempt.target.mapping
    request = terms.context.request
    if not mapping.reasoning or request is None:
        return 0
    needs = request.requirements
    if needs.effort == NONE or (NONE in mapping.reasoning_efforts and not needs.reasoning):
        return 0
    seconds = (attempt.first_at or attempt.ended) - attempt.started - THOUGHT_AFTER_S
    if attempt.first_at:
        visible = 0
    else:
        visible = attempt.output_length // BYTES_PER_TOKEN
    return max(0, int(seconds * THOUGHT_TOKENS_A_SECOND) - visible)
