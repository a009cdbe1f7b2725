"""Admission from memory: the upper bound of a request's cost is reserved from this worker's budget leases."""

import secrets
from collections.abc import Callable
from typing import Any

from gateway.clock import Clock
from gateway.control.version import Control
from gateway.errors import GatewayError, Unavailable
from gateway.limits.cost_bound import CostBound, Payer, ReservationSize, Shortage
from gateway.limits.lease_keeping import KEPT_SHARE, LeaseKeeper, OutageLimits
from gateway.limits.leases import FOREVER, ROUNDS, LeaseRequest, holds_of, read_terms, request_of, take, take_more
from gateway.limits.limit_members import Untracked
from gateway.limits.limit_rules import LimitShare
from gateway.limits.worker_leases import BudgetLease, BudgetSet, Claim, Reservation, TakeQueue
from gateway.money import NANO
from gateway.runtime.threads import Job, pause
from gateway.store.database import Database
from gateway.store.journal import Journal

__all__ = ["CostBound", "Payer", "Reservation", "Spending"]

# A shortage is remembered for this long, so that an exhausted key does not query the store at each request.
SHORTAGE_CACHE_S = 0.1
SHORTAGES = 10_000
# How long a worker remembers that a member of a limit is not counted apart.
UNTRACKED_S = 60.0
# Other workers return what they do not use within a second; until then a shortage may be temporary.
ROUND_WAIT_S = 0.3
WAIT_ROUNDS = 4
# How often a request that waits for the store looks whether this worker serves without it.
LOOK_AGAIN_S = 0.25
# For an outage, a lease has this many times what requests reserved of it at the recent peak; each round (0.5 s) lowers
# that peak by 1 / PEAK_DECAY.
AHEAD = 4
PEAK_DECAY = 50
NO_LEASE = "The database is down, and this worker has no leases of this key's budgets; try again."
LEASE_TOO_SMALL = "The database is down, and the leases of this key's budgets do not cover this request; try again."


class Spending:
    """The budgets of this worker. `announce(epoch)` records outside this process that leases are about to be taken
    under `epoch`, so that they are recovered if the process dies. `console` is the address of the console, "" if
    refusals name none. `maintain` must run about every 0.5 s."""

    def __init__(
        self,
        database: Database,
        journal: Journal,
        control: Control,
        clock: Clock,
        announce: Callable[[int], object] = lambda epoch: None,
        outage: OutageLimits | None = None,
        console: str = "",
    ) -> None:
        self._database = database
        self._control = control
        self._clock = clock
        self._announce = announce
        self._console = console
        self._announced = 0
        self._keeper = keeper = LeaseKeeper(database, journal, control, clock, outage)
        self._budget_sets = keeper.budget_sets
        self._current = keeper.current
        self._gates: dict[str, TakeQueue] = {}
        self._short: dict[Payer, tuple[float, int, Shortage]] = {}
        # Bound once because each request calls them: `check` returns the control version, which `find` takes; `owns`
        # returns whether leases of an epoch still belong to this worker.
        self.check: Callable[[], int] = control.check
        self.owns: Callable[[int], bool] = control.owns
        self.renew_suspended: Callable[[int], bool] = control.renew_suspended
        self.note: Callable[[BudgetSet, int, int, bool], None] = keeper.note
        # Members of limits that are not counted apart (budget id → the budget that they share, and until when).
        self._untracked: dict[str, tuple[LimitShare, float]] = {}
        self._prepares = outage is not None
        self._exceeded = self._excess_nusd = 0
        self.refused_alone = 0  # requests that no lease covered since the store went away
        if outage is not None:
            control.on_coasting(self._forget_refusals)
        self.close = keeper.close
        self.reserved_nusd = keeper.reserved_nusd

    def reserve(self, payer: Payer, cost_bound: CostBound, patient: bool = True) -> Reservation:
        """Reserve `cost_bound` from every budget of `payer`, or from none. `patient`: wait a moment for unused amounts
        that other workers hold.

        SpendingLimitReached or OutOfCredits (402) name the limit, the remainder and the reset time. Unavailable when
        the leases expired or the store cannot be reached.
        """
        reservation = self.find(payer, cost_bound, self._control.check())
        return reservation or self._reserve_slowly(payer, cost_bound, WAIT_ROUNDS if patient else 0)

    def find(self, payer: Payer, cost_bound: CostBound, version: int) -> Reservation | None:
        """Return a reservation from memory alone under a known control version, None when that is not enough."""
        budget_set = self._budget_sets.get(payer)
        if budget_set is None or budget_set.version != version or budget_set.epoch != self._control.epoch:
            return None
        full = cost_bound.bound_nusd
        # If the caller set no limit, half of what remains must be enough; otherwise the output is capped.
        if cost_bound.unlikely_nusd and budget_set.likely:
            return self._find_likely(budget_set, cost_bound)
        if not budget_set.covers(full, full if cost_bound.explicit else 2 * full):
            return None
        if budget_set.ends != FOREVER and budget_set.ends <= self._clock.monotonic():
            return None
        budget_set.reserve(full)
        return Reservation(self, budget_set, full)

    def _find_likely(self, budget_set: BudgetSet, cost_bound: CostBound) -> Reservation | None:
        if budget_set.ends <= self._clock.monotonic() or not budget_set.covers_likely(cost_bound):
            return None
        return self._reserve(budget_set, cost_bound, ReservationSize(cost_bound.bound_nusd, None))

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Name → (help text, value)."""
        return {
            "budget_leases": ("Slices of budgets that this worker holds.", len(self._keeper.held)),
            "budget_reserved_usd": (
                "Reserved by requests in progress, summed over all budgets.",
                self.reserved_nusd() / NANO,
            ),
            "likely_reservations_exceeded": (
                "Requests that cost more than the likely cost which limits had reserved, since the start.",
                self._exceeded,
            ),
            "likely_reservations_excess_usd": ("Sum of what those requests cost more.", self._excess_nusd / NANO),
        }

    def count_excess(self, nusd: int) -> None:
        """Count a request that cost `nusd` more than the likely cost that limits had reserved for it."""
        self._exceeded += 1
        self._excess_nusd += nusd

    def enlarge(self, slices: tuple[BudgetLease, ...], nusd: int) -> Shortage | None:
        """Try to free `nusd` in all of `slices`, for a request in progress."""
        shortage: Shortage | None = _result(Job(_attempt, self._enlarge, slices, nusd))
        return shortage

    def _reserve_slowly(self, payer: Payer, cost_bound: CostBound, rounds: int) -> Reservation:
        outcome = self._claim(payer, cost_bound)
        while isinstance(outcome, Shortage):
            if not (outcome.others and rounds):
                raise outcome.error()
            rounds -= 1
            pause(ROUND_WAIT_S)
            outcome = self._claim(payer, cost_bound)
        return outcome

    def maintain(self, idle_s: float | None = None, keep_s: float | None = None) -> None:
        """Run a round of LeaseKeeper.maintain, and take in advance what an outage of the store would need."""
        self._keeper.maintain(idle_s, keep_s)
        if self._prepares and idle_s is None:
            self._prepare()

    def _claim(self, payer: Payer, cost_bound: CostBound) -> Reservation | Shortage:
        """Reserve in a separate greenlet, so that a caller who disconnects cannot leave an unregistered lease
        behind."""
        if self._control.serves_alone():
            return self._reserve_alone(payer, cost_bound)
        claim = Claim()
        try:
            outcome: Reservation | Shortage = self._await_claim(Job(_attempt, self._fill, payer, cost_bound, claim))
            return outcome
        except Unavailable:
            if not self._prepares or self._control.coast_left_s() <= 0:
                raise
            claim.drop()
            return self._reserve_alone(payer, cost_bound)
        except GatewayError:
            raise
        except BaseException:
            claim.drop()
            raise

    def _await_claim(self, job: Job[Any]) -> Any:
        """Return the outcome; Unavailable as soon as this worker serves without the store."""
        while self._prepares:
            try:
                return _value(job.result(LOOK_AGAIN_S))
            except TimeoutError:
                if self._control.serves_alone():
                    raise Unavailable() from None
        return _value(job.result())

    def _reserve_alone(self, payer: Payer, cost_bound: CostBound) -> Reservation:
        """Reserve from the leases that this worker has, while it cannot reach the store. The output is limited where
        that makes a request fit, even below the caller's max_tokens: the alternative is a refusal."""
        keeper = self._keeper
        budget_set = keeper.outage_sets.get(payer) or keeper.budget_sets.get(payer)
        now = self._clock.monotonic()
        if budget_set is None or budget_set.epoch != self._control.epoch or budget_set.ends <= now:
            self.refused_alone += 1
            raise Unavailable(NO_LEASE)
        need = None
        if keeper.may_charge(budget_set):
            need = budget_set.fit(cost_bound) or budget_set.fit(cost_bound.lowered)
        if need is None:
            self.refused_alone += 1
            raise Unavailable(LEASE_TOO_SMALL)
        return self._reserve(budget_set, cost_bound, need)

    def _reserve(self, budget_set: BudgetSet, cost_bound: CostBound, need: ReservationSize) -> Reservation:
        unlikely = cost_bound.unlikely_nusd if budget_set.likely else 0
        budget_set.reserve(need.amount_nusd)
        for held in budget_set.likely:
            held.reserved -= unlikely
        return Reservation(self, budget_set, need.amount_nusd, need.output_cap, unlikely)

    def _prepare(self) -> None:
        """Let leases in use have room for more of what requests reserve now. A lease takes no more than a share of what
        its budget has left, so that other workers find enough."""
        for held in list(self._keeper.busy.values()):
            held.peak_nusd = max(held.reserved, held.peak_nusd - held.peak_nusd // PEAK_DECAY)
            if held.limit is None or held.retired or held.uncertain or held.pins or not held.peak_nusd:
                continue
            wanted = min(AHEAD * held.peak_nusd, (held.free + held.spare_nusd) // KEPT_SHARE)
            if held.free < wanted // 2 and not self._control.coasting:
                short = self._enlarge((held,), wanted)
                if short is not None:
                    held.spare_nusd = max(0, short.left_nusd - held.free)

    def _forget_refusals(self, coasting: bool) -> None:
        if coasting:
            self.refused_alone = 0

    def _fill(self, payer: Payer, cost_bound: CostBound, claim: Claim) -> Reservation | Shortage:
        place = payer.provider_key_id or payer.organization_id
        gate = self._gates.setdefault(place, TakeQueue())
        gate.waiting += 1
        gate.wanted_nusd += cost_bound.bound_nusd
        try:
            with gate.lock:
                return self._fill_alone(payer, cost_bound, claim, gate)
        finally:
            gate.waiting -= 1
            gate.wanted_nusd -= cost_bound.bound_nusd
            if not gate.waiting:
                self._gates.pop(place, None)

    def _fill_alone(self, payer: Payer, cost_bound: CostBound, claim: Claim, gate: TakeQueue) -> Reservation | Shortage:
        for _ in range(ROUNDS):
            if self._control.serves_alone():
                raise Unavailable()
            version = self._renew(payer)
            outcome = self.find(payer, cost_bound, version) or self._recall(payer, cost_bound, version)
            outcome = outcome or self._take(payer, cost_bound, version, gate.wanted_nusd)
            if isinstance(outcome, Reservation):
                claim.reservation = outcome
                if claim.dropped:
                    outcome.release()
            if outcome is not None:
                return outcome
        raise Unavailable("Too many requests change this budget at once; try again.")

    def _renew(self, payer: Payer) -> int:
        """Retire leases with limits that changed since they were taken; return the control version."""
        version = self._control.check()
        budget_set = self._budget_sets.get(payer)
        budgets = [hold.budget for hold in self._requests(payer)]
        # Without a budget set, other payers may have left leases here that this one shares.
        shared = [self._current[budget] for budget in budgets if budget in self._current]
        known = budget_set.slices if budget_set else shared
        if all(held.version == version for held in known) and (budget_set is None or budget_set.version == version):
            return version
        terms = read_terms(self._database, budgets)
        self._short.pop(payer, None)
        for held in known:
            held.version = version
            if terms.pop(held.hold.budget, None) != (held.limit, held.period, held.generation, held.likely):
                self._keeper.retire(held)
        if terms:  # A window limit was added that this budget set does not have.
            self._budget_sets.pop(payer, None)
        if budget_set is not None:
            budget_set.version = version
        return version

    def _recall(self, payer: Payer, cost_bound: CostBound, version: int) -> Shortage | None:
        """Return the last shortage under the same limits if it applies to this request too."""
        at, known, short = self._short.get(payer, (float("-inf"), version, None))
        fresh = known == version and self._clock.monotonic() - at <= SHORTAGE_CACHE_S
        if short is None or not fresh:
            return None
        least = cost_bound.least_nusd(short.likely)
        if least < short.need_nusd:
            return None
        return short._replace(need_nusd=least)

    def _take(
        self, payer: Payer, cost_bound: CostBound, version: int, needed_nusd: int
    ) -> Reservation | Shortage | None:
        """Take leases from the store; None when other requests have used the free amount meanwhile."""
        epoch = self._control.epoch
        self._claim_epoch(epoch)
        pinned = self._pin(self._requests(payer), epoch)
        holds = [hold._replace(wanted_nusd=needed_nusd, fresh=secrets.randbits(62) + 1) for hold, _ in pinned]
        try:
            outcome = take(self._database, epoch, holds, cost_bound)
        except BaseException:
            self._keeper.return_uncertain(holds)
            raise
        finally:
            self._unpin(pinned)
        if isinstance(outcome, Untracked):
            self._count_together(outcome)
            return None
        if isinstance(outcome, Shortage):
            outcome = outcome._replace(
                others=outcome.others or self._keeper.gives_back(holds),
                organization_id=payer.organization_id,
                page=self._console,
            )
            self._remember(payer, outcome, version)
            return outcome
        leases = tuple(self._keeper.accept(grant, epoch, payer, version) for grant in outcome.slices)
        budget_set = BudgetSet(leases, version, epoch)
        if not any(lease.retired for lease in leases):
            self._budget_sets[payer] = budget_set
        nusd = outcome.need.amount_nusd
        unlikely = cost_bound.unlikely_nusd
        for lease in leases:
            lease.need_nusd = nusd - unlikely if lease.likely else nusd
        if nusd and any(held.free < nusd - (unlikely if held.likely else 0) for held in budget_set.limited):
            return None
        return self._reserve(budget_set, cost_bound, outcome.need)

    def _requests(self, payer: Payer) -> list[LeaseRequest]:
        """Return the budgets of a payer, with those that members of limits share where they are not counted apart."""
        holds = holds_of(payer)
        if not (payer.limits and self._untracked):
            return holds
        now = self._clock.monotonic()
        requests: dict[str, LeaseRequest] = {}
        for hold in holds:
            share, until = self._untracked.get(hold.budget, (None, 0.0))
            if share is not None and until > now:
                hold = request_of(share)
            requests[hold.budget] = hold
        return list(requests.values())

    def _count_together(self, untracked: Untracked) -> None:
        if len(self._untracked) >= SHORTAGES:
            self._untracked.clear()
        until = self._clock.monotonic() + UNTRACKED_S
        for share in untracked.shares:
            self._untracked[share.budget] = (share.rule.others, until)

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
            if held is None or held.epoch != epoch or held.uncertain:
                pinned.append((hold, None))
                continue
            held.pins += 1
            pinned.append((held.held(hold), held))
        return pinned

    def _unpin(self, pinned: list[tuple[LeaseRequest, BudgetLease | None]]) -> None:
        for _, held in pinned:
            if held is not None:
                held.pins -= 1

    def _remember(self, payer: Payer, short: Shortage, version: int) -> None:
        if len(self._short) >= SHORTAGES:
            self._short.clear()
        self._short[payer] = (self._clock.monotonic(), version, short)

    def _enlarge(self, slices: tuple[BudgetLease, ...], nusd: int) -> Shortage | None:
        epoch = self._control.epoch
        if self._control.serves_alone():
            raise Unavailable(LEASE_TOO_SMALL)
        if any(held.epoch != epoch for held in slices):
            raise Unavailable("This worker lost its connection to the database; try again.")
        for held in slices:
            held.pins += 1
        holds = [held.held(held.hold) for held in slices]
        try:
            outcome = take_more(self._database, epoch, holds, nusd)
        except BaseException:
            for held in slices:
                self._keeper.doubt(held)
            raise
        finally:
            for held in slices:
                held.pins -= 1
        if isinstance(outcome, Shortage):
            return outcome._replace(unspent_nusd=0)  # its own reservation is a part of what requests have reserved
        granted = {grant.lease: grant.granted_nusd for grant in outcome.slices}
        for held in slices:
            if held.limit is not None:
                # A window that is over no longer limits anything; later costs of its requests still belong to it.
                held.total += granted.get(held.lease, nusd)
        return None


def _attempt(work: Callable[..., object], *args: object) -> object:
    """Return the result of `work` or its error as a value: an error that leaves a greenlet would be printed."""
    try:
        return work(*args)
    except GatewayError as error:
        return error


def _result(job: Job[Any]) -> Any:
    return _value(job.result())


def _value(outcome: object) -> Any:
    if isinstance(outcome, GatewayError):
        raise outcome
    return outcome
