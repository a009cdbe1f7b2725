"""Holds: reservations for a job or a session, which outlive the worker that made them.

A hold is a row in the store with one lease for each budget that it charges. These leases belong to no worker, so the
sweep of dead workers skips them, and every budget counts them as leased like any other. A hold ends once: either
settled with the cost of the job, together with the rows that record it, or released completely.
"""

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from gateway.errors import GatewayError, NotFound
from gateway.limits.cost_bound import CostBound, Payer, Shortage, fit
from gateway.limits.lease_folding import LeaseChange, fold_inside
from gateway.limits.leases import (
    SPEND,
    BudgetRow,
    LeaseRequest,
    NotTaken,
    holds_of,
    load,
    lock_budgets,
    read_leases,
    request_of,
    shortage_of,
)
from gateway.limits.limit_members import open_members
from gateway.limits.models import CREDITS, NO_WORKER
from gateway.runtime.threads import pause
from gateway.store.database import Database
from gateway.store.journal import Row

GRANT = "UPDATE budget SET leased_nusd = leased_nusd + ? WHERE id = ?"  # for a row that is locked and was checked
LEASE = (
    "INSERT INTO lease (id, budget, worker, generation, granted_nusd, spent_nusd, taken_at, hold) "
    "VALUES (?, ?, ?, ?, ?, 0, ?, ?)"
)
ROUND_WAIT_S = 0.3
WAIT_ROUNDS = 4
LEASES = "SELECT id, budget FROM lease WHERE hold = ? ORDER BY id"


def nothing() -> None:
    """Write no rows with the end of a hold."""


def _with_shared(requests: Sequence[LeaseRequest]) -> list[LeaseRequest]:
    """Return the budgets and those that members of limits may share instead."""
    shared = {hold.share.rule.others.budget: hold.share.rule.others for hold in requests if hold.share}
    return [*requests, *map(request_of, shared.values())]


class JobHold(NamedTuple):
    """The reservation of the job `id`. `output_cap`: the output limit that its budgets allow, None without one."""

    id: str
    organization_id: str
    amount_nusd: int
    output_cap: int | None
    placed_at_us: int


class HeldAmounts(NamedTuple):
    """The remaining amount of a hold (neither spent nor returned), and its leases: id, budget and generation."""

    left_nusd: int
    leases: tuple[tuple[int, str, int], ...]


class Holds:
    """All holds of the installation; any process may place, extend or end one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def place(
        self,
        ident: str,
        payer: Payer,
        cost_bound: CostBound,
        rows: Sequence[Row] = (),
        patient: bool = True,
        check: Callable[[], None] | None = None,
    ) -> JobHold:
        """Reserve the most that `cost_bound` can cost from every budget of `payer`, or from none. Idempotent: a job has
        one hold.

        `rows` are written in the same transaction; `check` is called in it before and may raise. Unless `patient` is
        False, the call waits a moment for unused amounts in the leases of workers. SpendingLimitReached, OutOfCredits,
        Unavailable.
        """
        place = partial(self._place, ident, payer, cost_bound, rows, check)
        outcome = self._try_to(place)
        rounds_left = WAIT_ROUNDS if patient else 0
        while isinstance(outcome, Shortage):
            if not (outcome.others and rounds_left):
                raise outcome.error()
            rounds_left -= 1
            pause(ROUND_WAIT_S)
            outcome = self._try_to(place)
        return outcome

    def _try_to(self, place: Callable[[], JobHold | Shortage]) -> JobHold | Shortage:
        try:
            return self._database.write(place)
        except NotTaken as refusal:
            short: Shortage = refusal.outcome
            return short

    def find(self, ident: str) -> JobHold | None:
        """Return the hold of a job, None when there is none or it has ended. Unavailable."""
        return self._database.read(partial(self._find, ident))

    def read(self, ident: str) -> "HeldAmounts | None":
        """Return the remaining amount of a hold, and its leases; None when there is none. Unavailable."""
        return self._database.read(partial(self._read, ident))

    def with_prefix(self, prefix: str) -> list[str]:
        """Return the ids of the holds that begin with `prefix`. Unavailable."""
        sql = "SELECT id FROM hold WHERE substr(id, 1, ?) = ? ORDER BY id"
        return [row[0] for row in self._database.query_rows(sql, (len(prefix), prefix))]

    def give_back(self, ident: str, nusd: int) -> None:
        """Return an amount of a hold to its budgets, and count in them what was spent of it so far. Unavailable."""
        self._database.write(partial(self._give_back, ident, nusd))

    def extend(self, ident: str, payer: Payer, nusd: int) -> None:
        """Reserve `nusd` more from the budgets of the hold. SpendingLimitReached, OutOfCredits (both with
        budget_exhausted_mid_stream), NotFound when the hold has ended, Unavailable."""
        error = self._database.write(partial(self._extend, ident, payer, nusd))
        if error is not None:
            raise error

    def settle(self, ident: str, cost_nusd: int, credits: bool, record: Callable[[], object]) -> bool:
        """End a hold with the cost of its job. `record` writes the job's rows in the same transaction (it may run again
        when that is retried); `credits` False does not charge the organization's credits.

        False when the hold had ended before: then nothing is written. Unavailable: the outcome is unknown, so retry.
        """
        return self._database.write(partial(self._end, ident, cost_nusd, credits, record))

    def release(self, ident: str) -> bool:
        """Release a hold without cost; False when it had ended before. Unavailable."""
        return self.settle(ident, 0, True, nothing)

    def execute(self, rows: Sequence[Row]) -> None:
        """Write rows; inside a write."""
        for statement, params in rows:
            self._database.execute(statement.sql, params)

    def _find(self, ident: str) -> JobHold | None:
        sql = "SELECT id, organization, amount_nusd, output_cap, placed_at FROM hold WHERE id = ?"
        row = self._database.execute(sql, (ident,)).fetchone()
        if row is None:
            return None
        return JobHold(*row)

    def _read(self, ident: str) -> "HeldAmounts | None":
        hold = self._find(ident)
        if hold is None:
            return None
        sql = "SELECT id, budget, generation, spent_nusd FROM lease WHERE hold = ? ORDER BY id"
        rows = self._database.execute(sql, (ident,)).fetchall()
        spent_nusd = max((row[3] for row in rows), default=0)
        return HeldAmounts(hold.amount_nusd - spent_nusd, tuple((row[0], row[1], row[2]) for row in rows))

    def _give_back(self, ident: str, nusd: int) -> None:
        database = self._database
        leases = self._leases(ident)
        lock_budgets(database, [budget for _, budget in leases])
        spent = read_leases(database, [lease for lease, _ in leases])
        if self._find(ident) is None:
            return
        fold_inside(database, [LeaseChange(budget, lease, give_nusd=nusd) for lease, budget in leases])
        gone_nusd = nusd + max((row[3] for row in spent.values()), default=0)
        database.execute("UPDATE hold SET amount_nusd = amount_nusd - ? WHERE id = ?", (gone_nusd, ident))

    def budgets(self, ident: str) -> list[str]:
        """Return the ids of the budgets that a hold charges; inside a read or write."""
        return [budget for _, budget in self._leases(ident)]

    def _place(
        self, ident: str, payer: Payer, cost_bound: CostBound, rows: Sequence[Row], check: Callable[[], None] | None
    ) -> JobHold | Shortage:
        database = self._database
        if check is not None:
            check()
        now = self._database.now_us()
        existing = self._find(ident)
        if existing is not None:
            return existing
        requests, opened = self._open(payer)
        budget_rows = load(database, requests, now, running=False)
        # A process that placed the hold at the same time had these budgets locked until now.
        existing = self._find(ident)
        if existing is not None:
            return existing
        budgets = [budget for budget in requests if budget.budget in budget_rows]
        limited = [budget for budget in budgets if budget_rows[budget.budget].is_limited]
        left = [budget_rows[budget.budget].left_nusd for budget in limited]
        need = fit(cost_bound, min(left) if left else None)
        if need is None:
            short = limited[left.index(min(left))]
            refusal = shortage_of(database, NO_WORKER, cost_bound, short, budget_rows, now)
            if opened:
                raise NotTaken(refusal)
            return refusal
        for budget in budgets:
            self._grant(ident, budget_rows[budget.budget], need.amount_nusd, now)
        hold = JobHold(ident, payer.organization_id, need.amount_nusd, need.output_cap, now)
        database.execute(
            "INSERT INTO hold (id, organization, amount_nusd, output_cap, placed_at) VALUES (?, ?, ?, ?, ?)", hold
        )
        self.execute(rows)
        return hold

    def _open(self, payer: Payer) -> tuple[list[LeaseRequest], int]:
        """Return the budgets to reserve from, all of which exist, and how many were inserted; inside a write."""
        requests = holds_of(payer)
        opened = open_members(self._database, [hold.share for hold in requests if hold.share])
        if not opened.untracked:
            return requests, opened.inserted
        apart = {share.budget for share in opened.untracked}
        shared = {share.rule.others.budget: request_of(share.rule.others) for share in opened.untracked}
        more = open_members(self._database, [hold.share for hold in shared.values() if hold.share])
        requests = [*(hold for hold in requests if hold.budget not in apart), *shared.values()]
        return requests, opened.inserted + more.inserted

    def _grant(self, ident: str, row: BudgetRow, nusd: int, now: int) -> None:
        """Insert the lease of one budget; without a limit it is empty and only counts what is spent."""
        granted = 0 if row.limit_nusd is None else nusd
        if granted:
            self._database.execute(GRANT, (granted, row.id))
        lease = secrets.randbits(62) + 1
        self._database.execute(LEASE, (lease, row.id, NO_WORKER, row.generation, granted, now, ident))

    def _extend(self, ident: str, payer: Payer, nusd: int) -> GatewayError | None:
        """Extend all leases or none. A window that has ended since the admission no longer limits anything."""
        database = self._database
        sql = "SELECT budget, id, generation FROM lease WHERE hold = ? ORDER BY id"
        leases = {row[0]: (row[1], row[2]) for row in database.execute(sql, (ident,)).fetchall()}
        rows = lock_budgets(database, list(leases))
        if self._find(ident) is None:
            return NotFound("This job has ended.")
        limited = [
            budget
            for budget in _with_shared(holds_of(payer))
            if budget.budget in leases
            and rows[budget.budget].limit_nusd is not None
            and rows[budget.budget].generation == leases[budget.budget][1]
        ]
        for budget in limited:
            if rows[budget.budget].left_nusd < nusd:
                more = CostBound(nusd, 0, 0, True)
                return shortage_of(database, NO_WORKER, more, budget, rows, database.now_us()).error(mid_stream=True)
        for budget in limited:
            lease = leases[budget.budget][0]
            database.execute(GRANT, (nusd, budget.budget))
            database.execute("UPDATE lease SET granted_nusd = granted_nusd + ? WHERE id = ?", (nusd, lease))
        database.execute("UPDATE hold SET amount_nusd = amount_nusd + ? WHERE id = ?", (nusd, ident))
        return None

    def _end(self, ident: str, cost_nusd: int, credits: bool, record: Callable[[], object]) -> bool:
        database = self._database
        leases = self._leases(ident)
        lock_budgets(database, [budget for _, budget in leases])  # before any lease: the lock order everywhere
        if not database.execute("DELETE FROM hold WHERE id = ?", (ident,)).rowcount:
            return False
        record()
        if cost_nusd:
            for lease, budget in leases:
                if credits or not budget.endswith(f":{CREDITS}"):
                    database.execute(SPEND.sql, (cost_nusd, lease))
        fold_inside(database, [LeaseChange(budget, lease, close=True) for lease, budget in leases])
        return True

    def _leases(self, ident: str) -> list[tuple[int, str]]:
        return [(row[0], row[1]) for row in self._database.execute(LEASES, (ident,)).fetchall()]
