"""The payload that a settlement retains: its storage fee, and the usage row that waits for it.

Usage, spending, fee and payload are one entry of the journal, so that none exists without the others. An attempt that
fails before it answers is recorded at once and has no fee.
"""

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from gateway.errors import BudgetInUse, GatewayError, OutOfCredits
from gateway.limits.cost_bound import CostBound
from gateway.limits.spending import Payer, Spending
from gateway.limits.worker_leases import BudgetSet, Reservation
from gateway.metering.usage_table import UsageRecord
from gateway.money import MILLION
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Target
from gateway.store.journal import Ticket

# How a settlement and the recording of its request's payload meet: one entry of the journal has both.


class HeldEntry(Struct, frozen=True, eq=False):
    """The entry of a serving attempt that waits for the row of its payload. `awaited`: the end of the answer waits
    for it.

    `post` appends usage, spending, fee and the payload's row as one entry, with further rows if there are any. Without
    a row the payload could not be stored, so no fee is charged. Unavailable.
    """

    record: UsageRecord
    fee_nusd: int
    awaited: bool
    post: Callable[..., Ticket]

    @property
    def served(self) -> str:
        """The provider and model that served the request."""
        return f"{self.record.provider}/{self.record.served}"


class PayloadCapture(Protocol):
    """Interface of a payload recording, for projects that retain payloads (engine/payload_collection.py).

    `stored`: the payload is stored, for a fee."""

    @property
    def fee_nusd(self) -> int: ...
    @property
    def stored(self) -> bool: ...

    def note_request(self, model: str, streamed: bool) -> None: ...
    def capture_call(self, target: Target) -> Any: ...
    def forget(self) -> None: ...
    def open(self) -> None: ...
    def hold(self, entry: HeldEntry) -> Ticket | None: ...
    def close(self) -> None: ...


# Nano-dollars for each input or output token: 0.01 USD per million. The fee is a whole number, so nothing is rounded.
FEE_NUSD = 10
OUT_OF_CREDITS = (
    "The organization's credits do not cover the storage fee of this request's payload (0.01 USD per million tokens). "
    "Add credits, or set the project's retention to none."
)


class RetainedPayload(Struct, frozen=True, eq=False):
    """A captured payload, and the reservation of its storage fee from the organization's credits."""

    capture: PayloadCapture
    storage: Reservation


def fee_of(usage: Usage | None) -> int:
    """Return the storage fee for a request with this usage; cached and reasoning tokens count once, like all others."""
    if usage is None:
        return 0
    return FEE_NUSD * (usage.input_total + usage.output_total)


def fee_bound(cost_bound: CostBound) -> CostBound:
    """Return the upper bound of a request's storage fee."""
    fixed_nusd = cost_bound.input_tokens * FEE_NUSD
    return CostBound(fixed_nusd, FEE_NUSD * MILLION, cost_bound.max_output, cost_bound.explicit, cost_bound.choices)


def refusal(error: OutOfCredits | BudgetInUse, reserved_nusd: int) -> GatewayError:
    """Return the error of a request when credits do not cover both its call and its storage fee; it has reserved
    `reserved_nusd` of them itself."""
    if isinstance(error, BudgetInUse) and error.spare_nusd >= reserved_nusd:
        return error
    return OutOfCredits(OUT_OF_CREDITS)


def retain(
    capture: PayloadCapture, spending: Spending, organization_id: str, cost_bound: CostBound, reserved_nusd: int
) -> RetainedPayload:
    """Reserve the storage fee of a request's payload from the organization's credits, of which the request has reserved
    `reserved_nusd`.

    The fee is charged in every mode of the project and counts for no limit of a key or member. OutOfCredits,
    BudgetInUse, Unavailable.
    """
    if not capture.stored:
        capture.open()
        return RetainedPayload(capture, Reservation(spending, BudgetSet((), 0, 0), 0))
    try:
        storage = spending.reserve(Payer("", "", organization_id, True), fee_bound(cost_bound))
    except (OutOfCredits, BudgetInUse) as error:
        raise refusal(error, reserved_nusd) from error
    capture.open()
    return RetainedPayload(capture, storage)
