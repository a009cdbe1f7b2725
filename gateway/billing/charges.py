"""Charges of attempts: their usage, completed and in the units that are billed, times the prices of their mapping."""

from gateway.billing.estimates import CANCELLED, completed, usage_of, within
from gateway.billing.outcome import Attempt
from gateway.billing.terms import Terms
from gateway.catalogue.prices import FREE, Charge, capped, cost_of, discounted
from gateway.catalogue.protocols import uses_at
from gateway.money import MAX_CALL_NUSD
from gateway.neutral.hosted_uses import as_billed
from gateway.neutral.usage import MAX_UNITS, Usage, within_bounds


def bill(terms: Terms, attempt: Attempt, discount_ppm: int) -> Charge:
    """Set the `charge` of an attempt, less `discount_ppm` millionths, and a missing `usage`; return the charge."""
    usage = attempt.usage
    if usage is None or attempt.error is not None or attempt.finish in CANCELLED:
        usage = attempt.usage = usage_of(terms, attempt)
    if usage is None:
        charge = FREE
    else:
        if terms.hosted_uses:
            usage = attempt.usage = in_units(terms, attempt, usage)
        charge = cost_of(usage, attempt.target.mapping, terms.context.at_us, attempt.service_tier)
        read = usage.input + usage.cache_read + usage.cache_write
        output = usage.output
        if not charge.plain or output <= 0 or not 0 < read < MAX_UNITS - output or terms.units is not None:
            charge = _bounded(terms, attempt, usage, charge)
        if charge.total >= MAX_CALL_NUSD:
            charge = capped(charge)
            attempt.capped = True
        if discount_ppm:
            charge = discounted(charge, discount_ppm)
    attempt.charge = charge
    return charge


def bill_within(terms: Terms, attempt: Attempt, discount_ppm: int, bound_nusd: int) -> bool:
    """Reduce an estimate of tokens that costs more than was reserved; return whether it fits. False for usage that the
    provider reported, and for units, because their maximum is always reserved."""
    usage = attempt.usage
    if usage is None or usage.basis != "estimated" or terms.units is not None:
        return False

    def price(counted: Usage) -> Charge:
        charge = cost_of(counted, attempt.target.mapping, terms.context.at_us, attempt.service_tier)
        return discounted(charge, discount_ppm)

    attempt.usage = within(usage, bound_nusd, price)
    attempt.charge = price(attempt.usage)
    return attempt.charge.total <= bound_nusd


def _bounded(terms: Terms, attempt: Attempt, usage: Usage, charge: Charge) -> Charge:
    """Complete a usage that lacks counts, limit implausible counts, store it in the attempt, and return its charge."""
    if usage.input_total >= MAX_UNITS or usage.output_total >= MAX_UNITS:
        attempt.capped = True  # parsers have limited the counts already
    if _is_whole(terms, attempt, usage):
        reported = usage
        mapping = attempt.target.mapping
        usage = completed(terms, attempt, reported)
        if usage is not reported:
            attempt.usage = usage
            charge = cost_of(usage, mapping, terms.context.at_us, attempt.service_tier)
    plausible = within_bounds(usage)
    if plausible is usage:
        return charge
    attempt.usage = plausible
    attempt.capped = True
    return cost_of(plausible, attempt.target.mapping, terms.context.at_us, attempt.service_tier)


def _is_whole(terms: Terms, attempt: Attempt, usage: Usage) -> bool:
    """Return whether reported usage must account for a whole answer: one that ended normally, unless the provider's
    content filter removed all of its images."""
    if attempt.error is not None and attempt.finish not in CANCELLED:
        return False
    if terms.units is None:
        return usage.basis != "estimated"
    return usage.images > 0 or attempt.finish != "content_filter"


def in_units(terms: Terms, attempt: Attempt, usage: Usage) -> Usage:
    """Return the usage of an attempt in the units that the tools of its request are billed by."""
    uses = uses_at(attempt.target.protocol, terms.hosted_uses)
    return as_billed(usage, uses, attempt.ended - attempt.started)
