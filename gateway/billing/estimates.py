"""Estimated usage of answers for which the provider reported no usage, or only partial usage.

An estimate counts the prompt (four bytes of text per token, plus its media), the text that was received, and hidden
reasoning, which is estimated from the time before the first content after REASONING_AFTER_S: at the speed at which the
target wrote its last answers with reasoning, and at least at REASONING_TOKENS_PER_SECOND.
"""

from collections.abc import Callable

from msgspec import structs

from gateway.billing import unit_estimates
from gateway.billing.outcome import GUARDRAIL_BLOCKED, SUPERSEDED, Attempt
from gateway.billing.terms import Terms
from gateway.billing.unit_estimates import BYTES_PER_TOKEN
from gateway.billing.usage_completion import complete
from gateway.catalogue.entries import Mapping
from gateway.catalogue.prices import Charge
from gateway.neutral.request import Requirements
from gateway.neutral.usage import Usage

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
