"""The usage row of a job: begun when a provider takes it, finished when it ends, by whichever worker."""

from gateway.billing.outcome import Attempt
from gateway.billing.usage_rows import BASIS, extra_of
from gateway.catalogue.prices import Charge, capped, cost_of, discounted
from gateway.metering.models import CAPPED, OVERRUN
from gateway.metering.usage_table import UsageRecord
from gateway.money import MOST_CALL_NUSD
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Target

DONE = "stop"
ERROR = "error"


def completed(
    record: UsageRecord, target: Target, usage: Usage, discount_ppm: int, bound_nusd: int, now_us: int
) -> tuple[UsageRecord, Charge]:
    """The row of a job that brought what was asked for, and what it costs: at the prices of when it began, less the
    discount of then. `bound_nusd` is what was held for it."""
    charge = cost_of(usage, target.mapping, record.at)
    flags = record.flags
    if charge.total >= MOST_CALL_NUSD:
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
        finish=DONE,
        extra=extra_of(usage, charge, Attempt(record.attempt, target, record.at, 0.0)),
        discount_ppm=discount_ppm or None,
        discount_nusd=charge.saved if discount_ppm else None,
    )
    return row, charge


def failed(record: UsageRecord, code: str, now_us: int) -> UsageRecord:
    """The row of a job that brought nothing: it costs nothing."""
    return record._replace(posted_at=now_us, duration_ms=_lasted_ms(record, now_us), finish=ERROR, error=_clean(code))


def _clean(code: str) -> str:
    return code[:64].replace("\0", "")  # which PostgreSQL takes in no text, and an upstream may send


def _lasted_ms(record: UsageRecord, now_us: int) -> int:
    return max(0, now_us - record.at) // 1000
