"""Admission in memory: what a request may cost is reserved from slices of budgets that this worker holds."""

import secrets
import threading
from collections.abc import Callable
from typing import Any

from gateway.clock import SECOND_US, Clock
from gateway.control import Control
from gateway.errors import GatewayError, Unavailable
from gateway.limits.cost_bound import CostBound, Payer, Shortage
from gateway.limits.leases import FOREVER, ROUNDS, LeaseRequest, Move, Slice, fold, holds_of, read_terms, take
from gateway.limits.worker_leases import UNLIMITED, BudgetLease, BudgetSet, Claim, Reservation, TakeQueue
from gateway.money import NANO
from gateway.store.database import Database
from gateway.store.journal import Journal
from gateway.threads import Job, pause

__all__ = ["CostBound", "Payer", "Reservation", "Spending"]

# A shortage is believed for this long, so that an exhausted key does not ask the store at each request.
SHORT_S = 0.1
SHORTAGES = 10_000
# What other workers do not use goes back within a second; until then a shortage may be none.
PATIENCE_S, PATIENCE_ROUNDS = 0.3, 4
# Unused for so long, a slice's rest goes back; its empty lease is kept for a while, for the next request.
IDLE_S, KEEP_S = 0.3, 10.0
FOLDED_AT_ONCE = 200
# A slice without a limit is taken anew after so much, so that the end of what a budget counts is met.
LOOKED_AT_NUSD = 1_000_000 * NANO


class Spending:
    """The budgets of this worker. `announce(epoch)` records outside of this process that leases are about to be
    taken under `epoch`, so that they are recovered when it dies. `tend` must run about each 0.4 s."""

    def __init__(
        self,
        database: Database,
        journal: Journal,
        control: Control,
        clock: Clock,
        announce: Callable[[int], object] = lambda epoch: None,
    ) -> None:
        self._database, self._journal, self._control, self._clock = database, journal, control, clock
        self._announce, self._announced = announce, 0
        self._budget_sets: dict[Payer, BudgetSet] = {}
        self._current: dict[str, BudgetLease] = {}
        self._all: dict[int, BudgetLease] = {}
        self._closing: list[Move] = []
        self._spent: dict[BudgetSet, float] = {}  # when (monotonic), since the last tending
        self._gates: dict[str, TakeQueue] = {}
        self._short: dict[Payer, tuple[float, int, Shortage]] = {}
        self._tending = threading.Lock()
        # The control version that `find` takes, and whether what was leased under an epoch is surely still this
        # worker's: the functions themselves, since each request asks.
        self.check: Callable[[], int] = control.check
        self.owns: Callable[[int], bool] = control.owns
        self.regain: Callable[[int], bool] = control.regain

    def reserve(self, payer: Payer, ask: CostBound, patient: bool = True) -> Reservation:
        """Reserve the bound of `ask` from every budget of `payer`, or from none. `patient`: wait a moment for what
        other workers hold of it and do not use.

        SpendingLimitReached or OutOfCredits (402) name the limit, what is left and when it resets. Unavailable when
        the leases ran out or the store cannot be asked.
        """
        found = self.find(payer, ask, self._control.check())
        return found or self._reserve_slowly(payer, ask, PATIENCE_ROUNDS if patient else 0)

    def find(self, payer: Payer, ask: CostBound, version: int) -> Reservation | None:
        """A reservation from memory alone under the control version at hand, None where that does not suffice."""
        budget_set = self._budget_sets.get(payer)
        if budget_set is None or budget_set.version != version or budget_set.epoch != self._control.epoch:
            return None
        full = ask.bound_nusd
        # Where the caller set no limit, half of what remains must suffice, else the output is capped.
        if not budget_set.covers(full, full if ask.explicit else 2 * full):
            return None
        if budget_set.ends != FOREVER and budget_set.ends <= self._clock.monotonic():
            return None
        budget_set.reserve(full)
        return Reservation(self, budget_set, full)

    def reserved_nusd(self) -> int:
        """What requests under way hold, summed over all budgets."""
        return sum(held.reserved for held in self._all.values())

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Name → (help text, value)."""
        return {
            "budget_leases": ("Slices of budgets that this worker holds.", len(self._all)),
            "budget_reserved_usd": (
                "Reserved by requests under way, each budget counted.",
                self.reserved_nusd() / NANO,
            ),
        }

    def tend(self, idle_s: float = IDLE_S, keep_s: float = KEEP_S) -> None:
        """Fold what was spent into the budgets and give back what was idle. Unavailable: it is done the next time."""
        with self._tending:
            now = self._clock.monotonic()
            self._stamp()
            moves, self._closing = self._closing, []
            moves += [move for held in list(self._all.values()) if (move := self._move(held, now, idle_s, keep_s))]
            # Neighbours together, few at a time: no other writer waits long.
            moves.sort()
            while moves:
                try:
                    fold(self._database, moves[:FOLDED_AT_ONCE])
                except BaseException:
                    self._doubt(moves)
                    raise
                del moves[:FOLDED_AT_ONCE]

    def close(self) -> None:
        """Give back all that no request holds. Unavailable when the store is away: the recovery does it then."""
        for held in list(self._all.values()):
            self._retire(held)
        self.tend(idle_s=-1.0, keep_s=-1.0)

    def enlarge(self, slices: tuple[BudgetLease, ...], nusd: int) -> Shortage | None:
        """Try to make `nusd` free in all of `slices`, for a request under way."""
        return _result(Job(_attempt, self._enlarge, slices, nusd))

    def note(self, budget_set: BudgetSet, reserved: int, cost: int, credits: bool) -> None:
        """Of `reserved`, `cost` was spent (rows appended); the rest is free again."""
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

    def _stamp(self) -> None:
        """Mark the leases that something was spent of: once a round, not in each request."""
        spent, self._spent = self._spent, {}
        journal = self._journal
        mark = journal.posted + journal.failed + journal.pending
        for budget_set, at in spent.items():
            for held in budget_set.slices:
                held.used_at = max(held.used_at, at)
                held.mark, held.dirty = mark, True

    def _reserve_slowly(self, payer: Payer, ask: CostBound, rounds: int) -> Reservation:
        outcome = self._claim(payer, ask)
        while isinstance(outcome, Shortage):
            if not (outcome.others and rounds):
                raise outcome.error()
            rounds -= 1
            pause(PATIENCE_S)
            outcome = self._claim(payer, ask)
        return outcome

    def _claim(self, payer: Payer, ask: CostBound) -> Reservation | Shortage:
        """In a greenlet of its own: a caller who hangs up meanwhile cannot leave a slice that nobody knows of."""
        claim = Claim()
        try:
            return _result(Job(_attempt, self._fill, payer, ask, claim))
        except GatewayError:
            raise
        except BaseException:
            claim.dropped = True
            if claim.reservation is not None:
                claim.reservation.release()
            raise

    def _fill(self, payer: Payer, ask: CostBound, claim: Claim) -> Reservation | Shortage:
        place = payer.provider_key_id or payer.organization_id
        gate = self._gates.setdefault(place, TakeQueue())
        gate.waiting += 1
        gate.wanted_nusd += ask.bound_nusd
        try:
            with gate.lock:
                return self._fill_alone(payer, ask, claim, gate)
        finally:
            gate.waiting -= 1
            gate.wanted_nusd -= ask.bound_nusd
            if not gate.waiting:
                self._gates.pop(place, None)

    def _fill_alone(self, payer: Payer, ask: CostBound, claim: Claim, gate: TakeQueue) -> Reservation | Shortage:
        for _ in range(ROUNDS):
            version = self._renew(payer)
            found = self.find(payer, ask, version) or self._recall(payer, ask, version)
            found = found or self._take(payer, ask, version, gate.wanted_nusd)
            if isinstance(found, Reservation):
                claim.reservation = found
                if claim.dropped:
                    found.release()
            if found is not None:
                return found
        raise Unavailable("Too many requests change this budget at once; try again.")

    def _renew(self, payer: Payer) -> int:
        """The control version; slices whose limits changed since they were taken are used no more."""
        version = self._control.check()
        budget_set = self._budget_sets.get(payer)
        budgets = [hold.budget for hold in holds_of(payer)]
        # Without a set too: other payers may have left leases here that this one shares.
        shared = [self._current[budget] for budget in budgets if budget in self._current]
        known = budget_set.slices if budget_set else shared
        if all(held.version == version for held in known) and (budget_set is None or budget_set.version == version):
            return version
        terms = read_terms(self._database, budgets)
        self._short.pop(payer, None)
        for held in known:
            held.version = version
            if terms.pop(held.hold.budget, None) != (held.limit, held.period, held.generation):
                self._retire(held)
        if terms:  # A window was set that this budget set does not have.
            self._budget_sets.pop(payer, None)
        if budget_set is not None:
            budget_set.version = version
        return version

    def _recall(self, payer: Payer, ask: CostBound, version: int) -> Shortage | None:
        """The shortage that was just found under the same limits, when it concerns this ask too."""
        at, known, short = self._short.get(payer, (float("-inf"), version, None))
        fresh = known == version and self._clock.monotonic() - at <= SHORT_S
        return short if short is not None and fresh and ask.least_nusd >= short.need_nusd else None

    def _take(self, payer: Payer, ask: CostBound, version: int, wanted: int) -> Reservation | Shortage | None:
        """Ask the store; None when others used meanwhile what was counted as free."""
        epoch = self._control.epoch
        self._claim_epoch(epoch)
        pinned = self._pin(holds_of(payer), epoch)
        holds = [hold._replace(wanted_nusd=wanted, fresh=secrets.randbits(62) + 1) for hold, _ in pinned]
        try:
            outcome = take(self._database, epoch, holds, ask)
        except BaseException:
            self._distrust(holds)
            raise
        finally:
            self._unpin(pinned)
        if isinstance(outcome, Shortage):
            outcome = outcome._replace(others=outcome.others or self._gives_back(holds))
            self._remember(payer, outcome, version)
            return outcome
        leases = tuple(self._accept(slice_, epoch, payer, version) for slice_ in outcome.slices)
        budget_set = BudgetSet(leases, version, epoch)
        self._budget_sets[payer] = budget_set
        if not budget_set.covers(outcome.need.amount_nusd, 0):
            return None
        nusd, cap = outcome.need
        budget_set.reserve(nusd)
        return Reservation(self, budget_set, nusd, cap)

    def _claim_epoch(self, epoch: int) -> None:
        if not epoch:
            raise Unavailable("This worker is not registered; try again.")
        if epoch != self._announced:
            self._announce(epoch)
            self._announced = epoch

    def _pin(self, holds: list[LeaseRequest], epoch: int) -> list[tuple[LeaseRequest, BudgetLease | None]]:
        pinned: list[tuple[LeaseRequest, BudgetLease | None]] = []
        for hold in holds:
            held = self._current.get(hold.budget)
            if held is None or held.epoch != epoch:
                pinned.append((hold, None))
                continue
            held.pins += 1
            pinned.append((held.held(hold), held))
        return pinned

    def _unpin(self, pinned: list[tuple[LeaseRequest, BudgetLease | None]]) -> None:
        for _, held in pinned:
            if held is not None:
                held.pins -= 1

    def _gives_back(self, holds: list[LeaseRequest]) -> bool:
        """Whether slices of these budgets, used no more since their limits changed, still go back."""
        budgets = {hold.budget for hold in holds}
        return any(
            one.retired and one.limit and one.free > 0 for one in self._all.values() if one.hold.budget in budgets
        )

    def _distrust(self, holds: list[LeaseRequest]) -> None:
        """Handle a take of unknown outcome: what it may have granted goes back, whole leases at a time."""
        for hold in holds:
            held = self._all.get(hold.lease)
            if held is not None:
                self._retire(held)
            self._closing.append(Move(hold.budget, hold.fresh, close=True))

    def _remember(self, payer: Payer, short: Shortage, version: int) -> None:
        if len(self._short) >= SHORTAGES:
            self._short.clear()
        self._short[payer] = (self._clock.monotonic(), version, short)

    def _accept(self, slice_: Slice, epoch: int, payer: Payer, version: int) -> BudgetLease:
        """Put a taken slice into the books."""
        now = self._clock.monotonic()
        held = self._all.get(slice_.lease)
        if held is None:
            ends = float("inf") if slice_.ends_in_us is None else now + slice_.ends_in_us / SECOND_US
            held = self._all[slice_.lease] = BudgetLease(slice_, epoch, ends, now)
            held.version = version
            before = self._current.get(slice_.hold.budget)
            if before is not None:
                self._retire(before)
            self._current[slice_.hold.budget] = held
        if slice_.limit_nusd is not None:
            held.total += slice_.granted_nusd
            held.rest = slice_.rest_nusd
        held.used_at = now
        held.payers.add(payer)
        return held

    def _retire(self, held: BudgetLease) -> None:
        """No new request uses it; its rest goes back with the next tending."""
        held.retired = True
        for payer in held.payers:
            self._budget_sets.pop(payer, None)
        held.payers.clear()
        if self._current.get(held.hold.budget) is held:
            del self._current[held.hold.budget]

    def _enlarge(self, slices: tuple[BudgetLease, ...], nusd: int) -> Shortage | None:
        epoch = self._control.epoch
        if any(held.epoch != epoch for held in slices):
            raise Unavailable("This worker lost touch with the database; try again.")
        for held in slices:
            held.pins += 1
        holds = [held.held(held.hold) for held in slices]
        try:
            outcome = take(self._database, epoch, holds, CostBound(nusd, 0, 0, True), running=True)
        except BaseException:
            for held in slices:
                self._retire(held)
            raise
        finally:
            for held in slices:
                held.pins -= 1
        if isinstance(outcome, Shortage):
            return outcome
        granted = {slice_.lease: slice_.granted_nusd for slice_ in outcome.slices}
        for held in slices:
            if held.limit is not None:
                # A window that is over limits nothing any more; what it still costs belongs to it.
                held.total += granted.get(held.lease, nusd)
        return None

    def _move(self, held: BudgetLease, now: float, idle_s: float, keep_s: float) -> Move | None:
        if held.pins:
            return None
        unused_s = now - held.used_at
        if held.limit is None and held.total < UNLIMITED - LOOKED_AT_NUSD:
            self._retire(held)
        stale = held.retired or now >= held.ends or held.epoch != self._control.epoch
        if not held.reserved and self._written(held) and (stale or unused_s > keep_s):
            self._retire(held)
            del self._all[held.lease]
            return Move(held.hold.budget, held.lease, close=True)
        limited = held.limit is not None
        give = max(0, held.free) if limited and (stale or unused_s > idle_s) else 0
        add = max(0, -held.free) if limited else 0
        if not (give or add or held.dirty):
            return None
        held.total += add - give
        held.dirty = False
        return Move(held.hold.budget, held.lease, give, add)

    def _written(self, held: BudgetLease) -> bool:
        """Whether all that was spent of it is in the store, so that its row may go."""
        journal = self._journal
        return not journal.pending or journal.posted + journal.failed >= held.mark

    def _doubt(self, moves: list[Move]) -> None:
        """Handle moves of unknown outcome: closings are repeated, other leases are used no more."""
        for move in moves:
            held = self._all.get(move.lease)
            if move.close:
                self._closing.append(move)
            elif held is not None:
                held.dirty = True
                if move.give_nusd or move.add_nusd:
                    self._retire(held)


def _attempt(work: Callable[..., object], *args: object) -> object:
    """The result of `work` or its error as a value: an error that leaves a greenlet would be printed."""
    try:
        return work(*args)
    except GatewayError as error:
        return error


def _result(job: Job) -> Any:
    outcome = job.result()
    if isinstance(outcome, GatewayError):
        raise outcome
    return outcome
