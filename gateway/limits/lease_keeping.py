"""The leases that one worker holds: registered when taken, folded into their budgets after spending, returned when
idle."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

from gateway.clock import SECOND_US, Clock
from gateway.control.version import Control
from gateway.errors import Unavailable
from gateway.limits.cost_bound import Payer
from gateway.limits.lease_folding import LeaseChange, fold
from gateway.limits.leases import FOREVER, LeaseGrant, LeaseRequest, read_left
from gateway.limits.worker_leases import UNLIMITED, BudgetLease, BudgetSet
from gateway.money import NANO
from gateway.store.database import Database
from gateway.store.journal import Journal

# The unused part of a lease is returned after this long; the empty lease is kept a while longer for the next request.
RETURN_AFTER_S = 0.3
LEASE_RETENTION_S = 10.0
FOLDED_AT_ONCE = 200
# An idle lease is kept for an outage only while its budget has this many times as much for other workers.
KEPT_SHARE = 8
# Leases of the members of a limit for each rest: the next request of an end user may come minutes later, and taking a
# lease costs as much as several requests. They stay this long after their last use, as many at most …
RESTING_S = 300.0
MAX_RESTING = 20_000
# … are looked at this often, whether other workers need what they hold, …
LOOK_S = 20.0
ROUND_S = 0.5
# … and their spending is counted in the budget this often.
RESTING_FOLD_S = 120.0
# A lease without a limit is renewed after this amount, so that an overflow of the counter is noticed.
LOOKED_AT_NUSD = 1_000_000 * NANO


class OutageLimits(NamedTuple):
    """How a worker serves without the store: leases are kept for `keep_s` after their last use. Without the store, a
    request is admitted while this worker charged less than `max_nusd` to each of its budgets, within their leases."""

    keep_s: float
    max_nusd: int


class LeaseKeeper:
    """`budget_sets` are the leases that each payer's requests reserve from, `current` the lease of each budget for new
    requests, `held` every lease by id, `busy` those that every round looks at. Without the store, the sets are in
    `outage_sets` instead of `budget_sets`. `maintain` must run about every ROUND_S."""

    def __init__(
        self,
        database: Database,
        journal: Journal,
        control: Control,
        clock: Clock,
        outage: OutageLimits | None = None,
    ) -> None:
        self._database = database
        self._journal = journal
        self._control = control
        self._clock = clock
        self.budget_sets: dict[Payer, BudgetSet] = {}
        self.current: dict[str, BudgetLease] = {}
        self.held: dict[int, BudgetLease] = {}
        self.busy: dict[int, BudgetLease] = {}
        self._resting: OrderedDict[int, BudgetLease] = OrderedDict()  # all others, those that are looked at next first
        self._epoch = 0  # in the last round
        self._closing: list[LeaseChange] = []
        self._spent: dict[BudgetSet, float] = {}  # when (monotonic) something was spent since the last `maintain`
        self._maintenance = threading.Lock()
        self._outage = outage
        self.outage_sets: dict[Payer, BudgetSet] = {}
        self._totals_before: dict[int, int] = {}  # what leases had when the outage began
        if outage is not None:
            control.on_coasting(self._change_mode)

    def reserved_nusd(self) -> int:
        """Return the reservations of requests in progress, summed over all budgets."""
        return sum(held.reserved for held in self.held.values())

    def maintain(self, idle_s: float | None = None, keep_s: float | None = None) -> None:
        """Fold spending into the budgets and return idle leases. Unavailable: it is retried next time.

        Nothing is folded while the store is down or lacks spending that was kept elsewhere.
        """
        if self._journal.behind or self._control.coasting:
            return
        longer_s = self._outage.keep_s if self._outage is not None else 0.0
        rests = idle_s is None
        if idle_s is None:
            idle_s = RETURN_AFTER_S
        if keep_s is None:
            keep_s = max(LEASE_RETENTION_S, longer_s)
        with self._maintenance:
            now = self._clock.monotonic()
            self._stamp()
            woken, counted = self._find_needed(now) if rests else (list(self._resting.values()), [])
            self._wake(woken)
            kept = self._kept_for_outage(now, idle_s, longer_s)
            doubted = [held for held in self.busy.values() if held.uncertain]
            for held in doubted:
                held.dirty = True
            changes = self._closing
            self._closing = []
            changes += [
                change
                for held in list(self.busy.values())
                if (change := self._change_of(held, now, longer_s if held.lease in kept else idle_s, keep_s))
            ]
            counted = [held for held in counted if held.lease in self._resting]
            changes += [change for held in counted if (change := self._change_of(held, now, FOREVER, FOREVER))]
            # Adjacent leases together, a few at a time, so that no other writer waits long.
            changes.sort()
            while changes:
                try:
                    fold(self._database, changes[:FOLDED_AT_ONCE])
                except BaseException:
                    self._repeat_changes(changes)
                    raise
                del changes[:FOLDED_AT_ONCE]
            for held in doubted:  # the store responded
                self.retire(held)
            if rests:
                for held in woken:
                    self._place(held)

    def _find_needed(self, now: float) -> tuple[list[BudgetLease], list[BudgetLease]]:
        """Return the resting leases that have to be returned or ended, and those that have to be counted in their
        budgets; each is looked at every LOOK_S."""
        resting = self._resting
        known = self._epoch
        self._epoch = self._control.epoch
        if known not in (0, self._epoch):
            return list(resting.values()), []
        needed = []
        counted = []
        idle = []
        for _ in range(ceil(len(resting) * ROUND_S / LOOK_S)):
            lease, held = next(iter(resting.items()))
            resting.move_to_end(lease)
            unused_s = now - held.used_at
            if unused_s > RESTING_S or now >= held.ends:
                needed.append(held)
                continue
            if held.dirty and now - held.folded_at > RESTING_FOLD_S:
                counted.append(held)
            if held.limit is not None and held.free > 0 and unused_s > RETURN_AFTER_S:
                idle.append(held)
        if idle:
            left = read_left(self._database, sorted({held.hold.budget for held in idle}))
            needed += [held for held in idle if left.get(held.hold.budget, 0) < KEPT_SHARE * held.free]
        return needed, counted

    def _wake(self, leases: Iterable[BudgetLease]) -> None:
        for held in leases:
            if self._resting.pop(held.lease, None) is not None:
                self.busy[held.lease] = held

    def _place(self, held: BudgetLease) -> None:
        """Let a lease rest if it covers a further request and its budget has enough for others, else wake it."""
        share = held.hold.share
        if share is None or not share.rule.each or held.lease not in self.held:
            return
        is_spare = held.limit is None or held.need_nusd <= held.free <= held.spare_nusd // KEPT_SHARE
        if held.retired or held.uncertain or not is_spare:
            self._wake((held,))
        elif len(self._resting) < MAX_RESTING and self.busy.pop(held.lease, None) is not None:
            self._resting[held.lease] = held

    def _kept_for_outage(self, now: float, idle_s: float, longer_s: float) -> set[int]:
        """Return the idle leases that stay for an outage: those of budgets with much left for other workers."""
        if longer_s <= idle_s:
            return set()
        idle = [
            held
            for held in self.busy.values()
            if held.limit is not None and held.free > 0 and not held.retired and now - held.used_at > idle_s
        ]
        if not idle:
            return set()
        left = read_left(self._database, sorted({held.hold.budget for held in idle}))
        return {held.lease for held in idle if left.get(held.hold.budget, 0) >= KEPT_SHARE * held.free}

    def close(self) -> None:
        """Return everything that no request has reserved. Unavailable when the store is down: crash recovery returns
        the leases then."""
        if self._journal.behind or self._control.coasting:
            raise Unavailable("The database is down.")
        for held in list(self.held.values()):
            self.retire(held)
        self.maintain(idle_s=-1.0, keep_s=-1.0)

    def note(self, budget_set: BudgetSet, reserved: int, cost: int, credits: bool) -> None:
        """Record that `cost` of `reserved` was spent (its rows are appended); the remainder is free again."""
        now = self._clock.monotonic()
        spared = budget_set.slices
        if cost:
            self._spent[budget_set] = now
            spared = () if credits else budget_set.credit_slices
            for held in budget_set.slices if credits else budget_set.own_slices:
                held.reserved -= reserved
                held.total -= cost
        for held in spared:
            held.reserved -= reserved
            held.used_at = now

    def accept(self, grant: LeaseGrant, epoch: int, payer: Payer, version: int) -> BudgetLease:
        """Register a lease that was taken."""
        now = self._clock.monotonic()
        held = self.held.get(grant.lease)
        if held is None:
            ends = float("inf") if grant.ends_in_us is None else now + grant.ends_in_us / SECOND_US
            held = self.held[grant.lease] = self.busy[grant.lease] = BudgetLease(grant, epoch, ends, now)
            held.version = version
            before = self.current.get(grant.hold.budget)
            if before is not None:
                self.retire(before)
            self.current[grant.hold.budget] = held
        if grant.limit_nusd is not None:
            held.total += grant.granted_nusd
            held.spare_nusd = grant.rest_nusd
        held.used_at = now
        held.payers.add(payer)
        changed = held.limit != grant.limit_nusd  # a change that this worker has not seen yet
        if changed or grant.rest_nusd < 0:  # the grant exceeds what was left: it is for one request only
            self.retire(held)
        else:
            self._place(held)
        return held

    def retire(self, held: BudgetLease) -> None:
        """Stop using a lease for new requests; the next `maintain` returns the rest of it."""
        held.retired = True
        self._wake((held,))
        payers = held.payers
        held.payers = set()
        for payer in payers:
            for sets in (self.budget_sets, self.outage_sets):
                budget_set = sets.pop(payer, None)
                # A lease in use must not remember every end user after the lease of that user ended.
                for other in budget_set.slices if budget_set is not None else ():
                    other.payers.discard(payer)
        if self.current.get(held.hold.budget) is held:
            del self.current[held.hold.budget]

    def return_uncertain(self, holds: list[LeaseRequest]) -> None:
        """Handle a take of unknown outcome: once the store responds, return whole leases, including what the take may
        have granted. Until then they serve, because they have at least what this worker counts."""
        for hold in holds:
            held = self.held.get(hold.lease)
            if held is not None:
                self.doubt(held)
            self._closing.append(LeaseChange(hold.budget, hold.fresh, close=True))

    def doubt(self, held: BudgetLease) -> None:
        """Return a lease once the store responds. A take before that gets a new one."""
        held.uncertain = True
        self._wake((held,))

    def gives_back(self, holds: list[LeaseRequest]) -> bool:
        """Return whether leases of these budgets that are retired, or will be, still have to be returned."""
        budgets = {hold.budget for hold in holds}
        return any(
            (held.retired or held.uncertain) and held.limit and held.free > 0
            for held in self.busy.values()
            if held.hold.budget in budgets
        )

    def may_charge(self, budget_set: BudgetSet) -> bool:
        """Return whether each budget of the set may be charged more without the store."""
        if self._outage is None:
            return False
        before = self._totals_before
        most = self._outage.max_nusd
        return all(before.get(held.lease, held.total) - held.total < most for held in budget_set.slices)

    def _change_mode(self, coasting: bool) -> None:
        """Begin or end to serve without the store."""
        if coasting:
            self._totals_before = {held.lease: held.total for held in self.held.values()}
            self.outage_sets.update(self.budget_sets)
            self.budget_sets.clear()
            return
        for payer, budget_set in self.outage_sets.items():
            self.budget_sets.setdefault(payer, budget_set)
        self.outage_sets.clear()

    def _stamp(self) -> None:
        """Mark the leases that were spent from; done once per round instead of in each request."""
        spent = self._spent
        self._spent = {}
        journal = self._journal
        mark = journal.posted + journal.failed + journal.pending
        for budget_set, at in spent.items():
            for held in budget_set.slices:
                held.used_at = max(held.used_at, at)
                held.mark = mark
                held.dirty = True
                if held.free < held.need_nusd:  # also after an overrun: there is nothing to rest for
                    self._wake((held,))

    def _change_of(self, held: BudgetLease, now: float, idle_s: float, keep_s: float) -> LeaseChange | None:
        if held.pins:
            return None
        unused_s = now - held.used_at
        if held.limit is None and held.total < UNLIMITED - LOOKED_AT_NUSD:
            self.retire(held)
        stale = held.retired or now >= held.ends or held.epoch != self._control.epoch
        if not held.reserved and self._written(held) and (stale or unused_s > keep_s):
            self.retire(held)
            del self.held[held.lease]
            self.busy.pop(held.lease, None)
            return LeaseChange(held.hold.budget, held.lease, close=True)
        limited = held.limit is not None
        give = max(0, held.free) if limited and (stale or unused_s > idle_s) else 0
        add = max(0, -held.free) if limited else 0
        if not (give or add or held.dirty):
            return None
        held.total += add - give
        held.dirty = False
        held.folded_at = now
        return LeaseChange(held.hold.budget, held.lease, give, add)

    def _written(self, held: BudgetLease) -> bool:
        """Return whether everything spent from a lease is in the store, so that its row may be deleted."""
        journal = self._journal
        return not journal.pending or journal.posted + journal.failed >= held.mark

    def _repeat_changes(self, changes: list[LeaseChange]) -> None:
        """Handle changes of unknown outcome: closings are repeated, other leases returned once the store responds."""
        for change in changes:
            held = self.held.get(change.lease)
            if change.close:
                self._closing.append(change)
            elif held is not None:
                held.dirty = True
                if change.give_nusd or change.add_nusd:
                    self.doubt(held)
