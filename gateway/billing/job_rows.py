"""The usage row of a job: created when a provider accepts the job, completed by any worker when it ends."""

from gateway.billing.outcome import Attempt
from gateway.billing.usage_rows import BASIS, extra_of
from gateway.catalogue.prices import Charge, capped, cost_of, discounted
from gateway.metering.models import CAPPED, OVERRUN
from gateway.metering.usage_table import UsageRecord
from gateway.money import MAX_CALL_NUSD
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Target

FINISH = "stop"
ERROR = "error"


def completed(
    record: UsageRecord, target: Target, usage: Usage, discount_ppm: int, bound_nusd: int, now_us: int
) -> tuple[UsageRecord, Charge]:
    """Return the row of a successful job and its charge, at the prices in force when it began, less the discount of
    that time. `bound_nusd` is the amount that was held for it."""
    charge = cost_of(usage, target.mapping, record.at)
    flags = record.flags
    if charge.total >= MAX_CALL_NUSD:
        charge = capped(charge)
        flags = flags | CAPPED
    charge = discounted(charge, discount_ppm)
    if charge.total > bound_nusd:
        flags |= OVERRUN
    row = record._replace(
        posted_at=now_us,
        cost_nusd=charge.total,
        input_nusd=charge.input,
        output_nusd=charge.output + charge.reasoning,
        cached_nusd=charge.cached_input,
        cache_write_nusd=charge.cache_write + charge.cache_write_1h,
        input=usage.input,
        output=usage.output,
        duration_ms=_lasted_ms(record, now_us),
        basis=BASIS[usage.basis],
        flags=flags,
        finish=FINISH,
        extra=extra_of(usage, charge, Attempt(record.attempt, target, record.at, 0.0)),
        discount_ppm=discount_ppm or None,
        discount_nusd=charge.saved if discount_ppm else None,
    )
    return row, charge


def failed(record: UsageRecord, code: str, now_us: int) -> UsageRecord:
    """Return the row of a failed job, which costs nothing."""
    return record._replace(posted_at=now_us, duration_ms=_lasted_ms(record, now_us), finish=ERROR, error=_clean(code))


def _clean(code: str) -> str:
    return code[:64].replace("\0", "")  # PostgreSQL rejects NUL in text, and upstream codes may contain it


def _lasted_ms(record: UsageRecord, now_us: int) -> int:
    return max(0, now_us - record.at) // 1000
