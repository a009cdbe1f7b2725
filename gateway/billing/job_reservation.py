"""The reservation of a request that creates a job: a hold in the store, which ends with the job and not with the
request.

No intent is written: the job's row is inserted in the transaction that places the hold, and outlives this process.
Failed attempts are recorded at once and cost nothing; the accepted attempt is recorded when the job ends.
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from gateway.billing.context import Attempt
from gateway.billing.usage_rows import BASIS, extra_of
from gateway.catalogue.prices import Charge, price_of
from gateway.errors import GatewayError
from gateway.limits.cost_bound import CostBound, Payer
from gateway.limits.holds import Holds
from gateway.limits.spending import Spending
from gateway.limits.worker_leases import BudgetSet, Reservation
from gateway.metering.models import CAPPED, OVERRUN
from gateway.metering.usage_table import UsageRecord
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Target
from gateway.store.journal import Row

# The usage row of a job: created when a provider accepts the job, completed by any worker when it ends.

JOB_FINISH_REASON = "stop"
ERROR = "error"


def completed(
    record: UsageRecord, target: Target, usage: Usage, discount_ppm: int, bound_nusd: int, now_us: int
) -> tuple[UsageRecord, Charge]:
    """Return the row of a successful job and its charge, at the prices in force when it began, less the discount of
    that time. `bound_nusd` is the amount that was held for it."""
    charge, is_capped = price_of(usage, target.mapping, record.at, discount_ppm)
    flags = record.flags | (CAPPED if is_capped else 0)
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
        finish=JOB_FINISH_REASON,
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


CALL_HOLD = ":key"  # suffix of a job's id: the hold for its current attempt alone


class AcceptedCall(NamedTuple):
    """The call that a provider accepted: its usage row as far as it is known, and the discount in millionths on its
    price."""

    record: UsageRecord
    discount_ppm: int


class PendingJob:
    """A job that a request creates. The rows `inserts` are written in the transaction that places its hold, `deletes`
    in the one that releases it. `accepted` is set once a provider has accepted the job."""

    paced: ClassVar[bool] = True
    retains: ClassVar[bool] = False
    asks_checkers: ClassVar[bool] = True
    asks_judges: ClassVar[bool] = True

    def __init__(self, holds: Holds, ident: str, inserts: Sequence[Row], deletes: Sequence[Row]) -> None:
        self.holds = holds
        self.ident = ident
        self._inserts = inserts
        self._deletes = deletes
        self.accepted: AcceptedCall | None = None

    def reserve(self, spending: Spending, payer: Payer, cost_bound: CostBound) -> "JobReservation":
        """Place the hold and insert the job's rows. SpendingLimitReached, OutOfCredits, Unavailable."""
        self.holds.place(self.ident, payer, cost_bound, self._inserts)
        return JobReservation(spending, BudgetSet((), 0, 0), cost_bound.bound_nusd, job=self)

    def release(self) -> None:
        """Release the holds and delete the rows, because no provider accepted the job. Never raises."""
        try:
            self.holds.settle(self.ident, 0, True, self._delete)
        except GatewayError:
            return  # The sweep of unaccepted jobs releases it later.

    def _delete(self) -> None:
        self.holds.release(self.ident + CALL_HOLD)
        self.holds.execute(self._deletes)


class JobReservation(Reservation, kw_only=True, eq=False):
    """The hold of a job. Its budget set is empty, because the hold has reserved from the budgets already."""

    deferred: ClassVar[bool] = True
    journaled: ClassVar[bool] = False
    job: PendingJob

    def check(self) -> None:
        """Check that the store can be reached: the job could not be recorded after the call otherwise. Unavailable."""
        self._accounts.check()

    def reserve_call(self, payer: Payer, cost_bound: CostBound, patient: bool) -> "CallHold":
        self.job.holds.place(self.job.ident + CALL_HOLD, payer, cost_bound, patient=patient)
        return CallHold(self._accounts, self.budget_set, cost_bound.bound_nusd, job=self.job)

    def settle(self, cost_nusd: int, credits: bool = True) -> bool:
        """Settle nothing: an attempt that fails costs nothing, and the accepted one is charged when the job ends."""
        return False

    def release(self) -> None:
        self.job.release()


class CallHold(Reservation, kw_only=True, eq=False):
    """A job's hold for its current attempt: on the spending limit of the provider key, or on the credits."""

    job: PendingJob

    def settle(self, cost_nusd: int, credits: bool = True) -> bool:
        """Release the hold after a failed attempt, which costs nothing. Unavailable."""
        return self.job.holds.release(self.job.ident + CALL_HOLD)
