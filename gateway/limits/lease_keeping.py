"""The leases that one worker holds: registered when taken, folded into their budgets after spending, returned when
idle."""

import threading

from gateway.clock import SECOND_US, Clock
from gateway.control.version import Control
from gateway.limits.cost_bound import Payer
from gateway.limits.leases import LeaseRequest, Move, Slice, fold
from gateway.limits.worker_leases import UNLIMITED, BudgetLease, BudgetSet
from gateway.money import NANO
from gateway.store.database import Database
from gateway.store.journal import Journal

# The unused part of a lease is returned after this long; the empty lease is kept a while longer for the next request.
IDLE_S = 0.3
KEEP_S = 10.0
FOLDED_AT_ONCE = 200
# A lease without a limit is renewed after this amount, so that an overflow of the counter is noticed.
LOOKED_AT_NUSD = 1_000_000 * NANO


class LeaseKeeper:
    """`budget_sets` are the leases that each payer's requests reserve from, `current` the lease of each budget for new
    requests, `held` every lease by id. `tend` must run about every 0.4 s."""

    def __init__(self, database: Database, journal: Journal, control: Control, clock: Clock) -> None:
        self._database = database
        self._journal = journal
        self._control = control
        self._clock = clock
        self.budget_sets: dict[Payer, BudgetSet] = {}
        self.current: dict[str, BudgetLease] = {}
        self.held: dict[int, BudgetLease] = {}
        self._closing: list[Move] = []
        self._spent: dict[BudgetSet, float] = {}  # when (monotonic) something was spent since the last `tend`
        self._tending = threading.Lock()

    def reserved_nusd(self) -> int:
        """Return the reservations of requests in progress, summed over all budgets."""
        return sum(held.reserved for held in self.held.values())

    def tend(self, idle_s: float = IDLE_S, keep_s: float = KEEP_S) -> None:
        """Fold spending into the budgets and return idle leases. Unavailable: it is retried next time."""
        with self._tending:
            now = self._clock.monotonic()
            self._stamp()
            moves = self._closing
            self._closing = []
            moves += [move for held in list(self.held.values()) if (move := self._move(held, now, idle_s, keep_s))]
            # Adjacent leases together, a few at a time, so that no other writer waits long.
            moves.sort()
            while moves:
                try:
                    fold(self._database, moves[:FOLDED_AT_ONCE])
                except BaseException:
                    self._repeat_moves(moves)
                    raise
                del moves[:FOLDED_AT_ONCE]

    def close(self) -> None:
        """Return everything that no request has reserved. Unavailable when the store is down: crash recovery returns
        the leases then."""
        for held in list(self.held.values()):
            self.retire(held)
        self.tend(idle_s=-1.0, keep_s=-1.0)

    def note(self, budget_set: BudgetSet, reserved: int, cost: int, credits: bool) -> None:
        """Record that `cost` of `reserved` was spent (its rows are appended); the remainder is free again."""
        now = self._clock.monotonic()
        spared = budget_set.slices
        if cost:
            self._spent[budget_set] = now
            if credits:
                spared = ()
            else:
                spared = budget_set.credit_slices
            for held in budget_set.slices if credits else budget_set.own_slices:
                held.reserved -= reserved
                held.total -= cost
        for held in spared:
            held.reserved -= reserved
            held.used_at = now

    def accept(self, slice_: Slice, epoch: int, payer: Payer, version: int) -> BudgetLease:
        """Register a lease that was taken."""
        now = self._clock.monotonic()
        held = self.held.get(slice_.lease)
        if held is None:
            if slice_.ends_in_us is None:
                ends = float("inf")
            else:
                ends = now + slice_.ends_in_us / SECOND_US
            held = self.held[slice_.lease] = BudgetLease(slice_, epoch, ends, now)
            held.version = version
            before = self.current.get(slice_.hold.budget)
            if before is not None:
                self.retire(before)
            self.current[slice_.hold.budget] = held
        if slice_.limit_nusd is not None:
            held.total += slice_.granted_nusd
            held.spare_nusd = slice_.rest_nusd
        held.used_at = now
        held.payers.add(payer)
        changed = held.limit != slice_.limit_nusd  # a change that this worker has not seen yet
        if changed or slice_.rest_nusd < 0:  # the grant exceeds what was left: it is for one request only
            self.retire(held)
        return held

    def retire(self, held: BudgetLease) -> None:
        """Stop using a lease for new requests; the next `tend` returns the rest of it."""
        held.retired = True
        for payer in held.payers:
            self.budget_sets.pop(payer, None)
        held.payers.clear()
        if self.current.get(held.hold.budget) is held:
            del self.current[held.hold.budget]

    def distrust(self, holds: list[LeaseRequest]) -> None:
        """Handle a take of unknown outcome: return whole leases, including what the take may have granted."""
        for hold in holds:
            held = self.held.get(hold.lease)
            if held is not None:
                self.retire(held)
            self._closing.append(Move(hold.budget, hold.fresh, close=True))

    def gives_back(self, holds: list[LeaseRequest]) -> bool:
        """Return whether leases of these budgets, retired because their limits changed, still have to be returned."""
        budgets = {hold.budget for hold in holds}
        return any(
            held.retired and held.limit and held.free > 0 for held in self.held.values() if held.hold.budget in budgets
        )

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

    def _move(self, held: BudgetLease, now: float, idle_s: float, keep_s: float) -> Move | None:
        if held.pins:
            return None
        unused_s = now - held.used_at
        if held.limit is None and held.total < UNLIMITED - LOOKED_AT_NUSD:
            self.retire(held)
        stale = held.retired or now >= held.ends or held.epoch != self._control.epoch
        if not held.reserved and self._written(held) and (stale or unused_s > keep_s):
            self.retire(held)
            del self.held[held.lease]
            return Move(held.hold.budget, held.lease, close=True)
        limited = held.limit is not None
        if limited and (stale or unused_s > idle_s):
            give = max(0, held.free)
        else:
            give = 0
        add = max(0, -held.free) if limited else 0
        if not (give or add or held.dirty):
            return None
        held.total += add - give
        held.dirty = False
        return Move(held.hold.budget, held.lease, give, add)

    def _written(self, held: BudgetLease) -> bool:
        """Return whether everything spent from a lease is in the store, so that its row may be deleted."""
        journal = self._journal
        return not journal.pending or journal.posted + journal.failed >= held.mark

    def _repeat_moves(self, moves: list[Move]) -> None:
        """Handle moves of unknown outcome: closings are repeated, other leases are retired."""
        for move in moves:
            held = self.held.get(move.lease)
            if move.close:
                self._closing.append(move)
            elif held is not None:
                held.dirty = True
                if move.give_nusd or move.add_nusd:
                    self.retire(held)
