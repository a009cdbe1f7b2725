"""The budget leases that a worker holds in memory, and the reservations of its requests."""

import threading
from typing import ClassVar, Protocol

from msgspec import Struct, field

from gateway.errors import Unavailable
from gateway.limits.cost_bound import CostBound, Payer, ReservationSize, Shortage, fit_modes
from gateway.limits.leases import FOREVER, ROUNDS, SPEND, LeaseGrant, LeaseRequest
from gateway.limits.models import CREDITS, split_groups
from gateway.store.journal import Row

UNLIMITED = 1 << 62


class BudgetLease:
    """A budget lease in memory. `total` is what the store counts as granted and not spent. `reserved` is the sum of
    reservations, plus settled amounts that are not written yet. `spare_nusd` is what the store had left for other
    workers at the last take.

    `pins` counts the takes in progress that rely on the lease; `payers` are those whose budget sets include it. `mark`
    is the journal's count of entries that must be written before the row may be deleted. `version` is the control
    version under which the limit was last compared with the store's. `uncertain`: a take of unknown outcome may have
    granted more than `total` says, so the lease is returned once the store responds; until then it serves.
    `peak_nusd` is the recent maximum of `reserved`, which is kept up only for serving without the store. `folded_at` is
    when its spending was last counted in the budget, `need_nusd` what the request needed that took it last.
    """

    __slots__ = (
        *("hold", "lease", "epoch", "generation", "limit", "period", "ends", "payers", "pins", "mark"),
        *("total", "reserved", "spare_nusd", "retired", "dirty", "used_at", "version", "is_credits"),
        *("uncertain", "peak_nusd", "likely", "folded_at", "need_nusd"),
    )

    def __init__(self, grant: LeaseGrant, epoch: int, ends: float, now: float) -> None:
        self.hold = grant.hold
        self.lease = grant.lease
        self.epoch = epoch
        self.generation = grant.generation
        self.limit = grant.limit_nusd
        self.period = grant.period
        self.ends = ends
        self.likely = grant.likely
        self.is_credits = grant.hold.kind == CREDITS
        self.total = self.spare_nusd = UNLIMITED if grant.limit_nusd is None else 0
        self.reserved = self.pins = self.mark = self.version = 0
        self.retired = self.dirty = self.uncertain = False
        self.peak_nusd = self.need_nusd = 0
        self.payers: set[Payer] = set()
        self.used_at = self.folded_at = now

    @property
    def free(self) -> int:
        """The amount that no request has reserved."""
        return self.total - self.reserved

    def held(self, hold: LeaseRequest) -> LeaseRequest:
        """Return `hold` with the free amount of this lease; negative after a cost above the whole lease."""
        return hold._replace(lease=self.lease, generation=self.generation, free_nusd=self.free)


class BudgetSet:
    """The leases that one payer's requests reserve from, and the control version under which they were read.

    `teams` are the teams whose budgets are included, as a usage row has them, `groups` the ids of sessions and runs.
    `leases` are (lease, budget) of all, `own_leases` without credits. `own_slices` and `credit_slices` are the leases
    without and with credits, `limited` those of budgets with a limit, `likely` those of budgets that reserve likely
    costs.
    """

    __slots__ = (
        *("slices", "own_slices", "credit_slices", "limited", "version", "epoch", "ends", "teams", "groups", "leases"),
        *("own_leases", "lease_ids", "own_lease_ids", "likely"),
    )

    def __init__(self, slices: tuple[BudgetLease, ...], version: int, epoch: int) -> None:
        self.slices = slices
        self.version = version
        self.epoch = epoch
        self.own_slices = tuple(held for held in slices if not held.is_credits)
        self.credit_slices = tuple(held for held in slices if held.is_credits)
        self.limited = tuple(held for held in slices if held.limit is not None)
        self.likely = tuple(held for held in self.limited if held.likely)
        self.ends = min((held.ends for held in slices), default=FOREVER)
        self.teams, self.groups = split_groups(held.hold.budget for held in slices)
        self.leases = [(held.lease, held.hold.budget) for held in slices]
        self.own_leases = [(held.lease, held.hold.budget) for held in self.own_slices]
        self.lease_ids = tuple(held.lease for held in slices)
        self.own_lease_ids = tuple(held.lease for held in self.own_slices)

    def covers(self, nusd: int, spare: int) -> bool:
        """Return whether every limited lease has `nusd` free, and `spare` including what the store had left."""
        for held in self.limited:
            free = held.total - held.reserved
            if free < nusd or free + held.spare_nusd < spare:
                return not nusd
        return True

    def covers_likely(self, cost_bound: CostBound) -> bool:
        """Do the same as `covers` where budgets with likely reservations need less than the others."""
        full = cost_bound.bound_nusd
        factor = 1 if cost_bound.explicit else 2
        for held in self.limited:
            free = held.total - held.reserved
            need = full - cost_bound.unlikely_nusd if held.likely else full
            if free < need or free + held.spare_nusd < factor * need:
                return False
        return True

    def fit(self, cost_bound: CostBound) -> ReservationSize | None:
        """Return the reservation that these leases cover, None if they do not."""
        exact = min((held.free for held in self.limited if not held.likely), default=None)
        likely = min((held.free for held in self.likely), default=None)
        return fit_modes(cost_bound, exact, likely, bool(self.likely))

    def reserve(self, nusd: int) -> None:
        """Reserve `nusd` from every lease."""
        for held in self.slices:
            held.reserved += nusd


class TakeQueue(Struct):
    """Takes for one organization or provider key run one at a time; `wanted_nusd` is the sum that all waiting takes
    need."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: int = 0
    wanted_nusd: int = 0


class BudgetAccounts(Protocol):
    """The interface of the worker's accounts that reservations use."""

    def check(self) -> int: ...
    def owns(self, epoch: int) -> bool: ...
    def renew_suspended(self, epoch: int) -> bool: ...
    def enlarge(self, slices: tuple[BudgetLease, ...], nusd: int) -> Shortage | None: ...
    def note(self, budget_set: BudgetSet, reserved: int, cost: int, credits: bool) -> None: ...
    def count_excess(self, nusd: int) -> None: ...
    def reserve(self, payer: Payer, cost_bound: CostBound, patient: bool) -> "Reservation": ...


class Reservation(Struct, eq=False):
    """The amounts that one request has reserved of every budget that it charges; created by `Spending`. Every method is
    idempotent.

    `output_cap` is the output limit to send upstream, None when the budgets need none. `deferred`: the cost is settled
    after the request has ended, by the job that it created (billing/job_reservation.py). `journaled`: its calls are
    written to the crash journal; they have other records otherwise. Budgets with likely
    reservations have `unlikely_nusd` less than `amount_nusd` reserved.
    """

    deferred: ClassVar[bool] = False
    journaled: ClassVar[bool] = True

    _accounts: BudgetAccounts
    budget_set: BudgetSet
    amount_nusd: int
    output_cap: int | None = None
    unlikely_nusd: int = 0
    _open: bool = True

    def check(self) -> None:
        """Check the leases just before the first upstream byte. Unavailable when they expired and cannot be renewed."""
        epoch = self.budget_set.epoch
        if not self._accounts.owns(epoch) and not self._accounts.renew_suspended(epoch):
            raise Unavailable("This worker lost its connection to the database; try again.")

    def reserve_call(self, payer: Payer, cost_bound: CostBound, patient: bool) -> "Reservation":
        """Reserve the bound of one call, at once unless `patient`. SpendingLimitReached, OutOfCredits, Unavailable."""
        return self._accounts.reserve(payer, cost_bound, patient)

    def leases(self, credits: bool) -> list[tuple[int, str]]:
        """Return the (lease, budget) pairs that a cost is charged to; `credits` False leaves out the organization's
        credits."""
        budget_set = self.budget_set
        if credits:
            return budget_set.leases
        return budget_set.own_leases

    def extend(self, nusd: int) -> bool:
        """Reserve `nusd` more; False when a budget cannot cover it."""
        return self.require(nusd) is None

    def require(self, nusd: int) -> Shortage | None:
        """Reserve `nusd` more, or return the budget that falls short. Unavailable when the store cannot be reached."""
        if nusd <= 0:
            return None
        for _ in range(ROUNDS):
            if not self._open:
                return None  # it may have ended while a lease was enlarged: its amounts are returned already
            if all(held.free >= nusd for held in self.budget_set.limited):
                self.budget_set.reserve(nusd)
                self.amount_nusd += nusd
                return None
            short = self._accounts.enlarge(self.budget_set.slices, nusd)
            if short is not None:
                return short
        raise Unavailable("Too many requests change this budget at once; try again.")

    def rows(self, cost_nusd: int, credits: bool = True) -> list[Row]:
        """Return journal rows that count `cost_nusd` as spent, to be appended together with the usage row."""
        if not cost_nusd:
            return []
        budget_set = self.budget_set
        return [(SPEND, (budget_set.lease_ids if credits else budget_set.own_lease_ids, cost_nusd))]

    def spend(self, cost_nusd: int, credits: bool = True) -> None:
        """Record the cost of a failed attempt that is billed, once its rows are appended; the remainder stays
        reserved."""
        if not self._open or not cost_nusd:
            return
        part = min(cost_nusd, self.amount_nusd)
        self._accounts.note(self.budget_set, part, cost_nusd, credits)
        self.amount_nusd -= part

    def settle(self, cost_nusd: int, credits: bool = True) -> bool:
        """Release the remainder, after the rows were appended. Return whether the cost exceeded the reservation."""
        if not self._open:
            return False
        self._open = False
        self._accounts.note(self.budget_set, self.amount_nusd, cost_nusd, credits)
        if self.unlikely_nusd:
            for held in self.budget_set.likely:
                held.reserved += self.unlikely_nusd
            if cost_nusd > self.amount_nusd - self.unlikely_nusd:
                self._accounts.count_excess(cost_nusd - self.amount_nusd + self.unlikely_nusd)
        return cost_nusd > self.amount_nusd

    def release(self) -> None:
        """Release everything: nothing (more) was spent."""
        self.settle(0)


class Claim(Struct):
    """A reservation being made in another greenlet; `dropped` when its request has ended meanwhile."""

    reservation: Reservation | None = None
    dropped: bool = False

    def drop(self) -> None:
        """Release the reservation, also one that is made later."""
        self.dropped = True
        if self.reservation is not None:
            self.reservation.release()
