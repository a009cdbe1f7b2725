"""The transactions of budget leases: take a lease, count spending, return the rest.

Locks are taken in the same order everywhere (budgets by id, then leases by id), so that workers never deadlock.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from gateway.errors import Unavailable
from gateway.limits.cost_bound import CostBound, Payer, ReservationSize, Shortage, fit_modes
from gateway.limits.limit_members import Untracked, open_members
from gateway.limits.limit_rules import LimitShare
from gateway.limits.models import (
    CREDITS,
    KEY,
    LIKELY,
    LIKELY_SCOPES,
    LIMIT,
    MEMBER,
    ORGANIZATION,
    PROVIDER_KEY,
    TEAM,
    TOTAL,
    WINDOW,
    budget_id,
)
from gateway.limits.periods import read_period
from gateway.money import MAX_SETTLED_NUSD
from gateway.store.database import Database
from gateway.store.journal import Statement

FOREVER = float("inf")
READ_AT_ONCE = 500
# How often a take is retried because other workers used the amount first; then the caller has to retry.
ROUNDS = 20
# A lease is at most this share of what remains, so that one worker holds little unused near the limit …
LEASE_DIVISOR = 64
# … and at most this many times the request that needed it.
MAX_LEASE_FACTOR = 1000
# The end of the counters' range: half of the column's range, so that two counters can be added.
MAX_COUNTER_NUSD = 1 << 62


SELECT_BUDGETS = (
    "SELECT id, limit_nusd, settled_nusd, leased_nusd, period, window_start, generation, scope, reservation "
    "FROM budget WHERE id IN"
)
OWNED_SCOPES = (KEY, MEMBER, TEAM, PROVIDER_KEY)  # whose limits have the ids of their budgets
SPEND = Statement("lease_spend", "UPDATE lease SET spent_nusd = spent_nusd + ? WHERE id = ?", sums=True)


class LeaseRequest(NamedTuple):
    """A budget that a request charges, and the worker's share of it: `free_nusd` of the lease `lease` (0: none),
    negative after a cost above the lease. `fresh` is the id for a new lease if none can be used; `wanted_nusd` is the
    sum that all waiting requests need; `name` is that of the team or limit. `share` is set for a budget of a row of
    `limits`. `limit_nusd` is the limit of a session or run, which the
    request brings; None: the store has the limit."""

    budget: str
    scope: str
    scope_id: str
    kind: str
    lease: int = 0
    generation: int = 0
    free_nusd: int = 0
    fresh: int = 0
    wanted_nusd: int = 0
    name: str = ""
    limit_nusd: int | None = None
    share: LimitShare | None = None


class LeaseGrant(NamedTuple):
    """The worker's lease after a take. `limit_nusd` None: no limit; `rest_nusd` is still available to other workers;
    `ends_in_us` is the time until the window ends, None without a window. `likely`: it reserves likely costs."""

    hold: LeaseRequest
    lease: int
    generation: int
    limit_nusd: int | None
    granted_nusd: int
    rest_nusd: int
    period: str
    ends_in_us: int | None
    resets_us: int
    likely: bool = False


class NotTaken(Exception):
    """Takes back what a transaction wrote for a request that `outcome` refuses or delays."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome


class LeaseGrants(NamedTuple):
    """The result of a successful take."""

    need: ReservationSize
    slices: list[LeaseGrant]


class BudgetRow(NamedTuple):
    """A budget's row in the store, locked."""

    id: str
    limit_nusd: int | None
    settled_nusd: int
    leased_nusd: int
    period: str
    window_start: int | None
    generation: int
    scope: str = ""
    reservation: str = ""

    @property
    def likely(self) -> bool:
        """Whether requests reserve their likely cost instead of the highest."""
        if self.limit_nusd is None:
            return False
        return self.reservation == LIKELY or (not self.reservation and self.scope in LIKELY_SCOPES)

    @property
    def is_window(self) -> bool:
        return is_window(self.id)

    @property
    def is_limited(self) -> bool:
        """Whether a limit was set, or so much was spent that further counting would overflow the column."""
        return self.limit_nusd is not None or self.settled_nusd >= MAX_SETTLED_NUSD

    @property
    def highest_nusd(self) -> int:
        """The limit, or the end of the range without one."""
        if self.limit_nusd is None:
            return MAX_SETTLED_NUSD
        return self.limit_nusd

    @property
    def left_nusd(self) -> int:
        return self.highest_nusd - self.settled_nusd - self.leased_nusd


def holds_of(payer: Payer) -> list[LeaseRequest]:
    """Return the budgets of a payer, in the order in which shortages are reported."""
    places = [(KEY, payer.key_id, ""), (MEMBER, payer.member_id, ""), *((TEAM, *team) for team in payer.teams)]
    holds = [
        LeaseRequest(budget_id(scope_id, kind), scope, scope_id, kind, name=name)
        for scope, scope_id, name in places
        if scope_id
        for kind in (TOTAL, WINDOW)
    ]
    for scope, scope_id, limit_nusd in payer.sessions:
        holds.append(LeaseRequest(budget_id(scope_id, TOTAL), scope, scope_id, TOTAL, limit_nusd=limit_nusd))
    if payer.provider_key_id:
        holds.append(bound_of(payer.provider_key_id))
    if payer.limits:
        holds += map(request_of, payer.limits.shares)
    if payer.credits:
        organization_id = payer.organization_id
        holds.append(LeaseRequest(budget_id(organization_id, CREDITS), ORGANIZATION, organization_id, CREDITS))
    return holds


def request_of(share: LimitShare) -> LeaseRequest:
    """Return the request for a lease of a limit's budget."""
    return LeaseRequest(share.budget, LIMIT, share.scope_id, share.rule.kind, name=share.label, share=share)


def bound_of(provider_key_id: str) -> LeaseRequest:
    """Return the budget of an organization's provider key."""
    return LeaseRequest(budget_id(provider_key_id, TOTAL), PROVIDER_KEY, provider_key_id, TOTAL)


def take(
    database: Database, epoch: int, holds: Sequence[LeaseRequest], cost_bound: CostBound
) -> LeaseGrants | Shortage | Untracked:
    """Take leases that make every budget sufficient for `cost_bound`, or return the first that is not; all of them or
    none. Untracked: a limit has as many members as it counts apart. Raises Unavailable if the worker's row is missing.
    """

    def work() -> LeaseGrants | Shortage | Untracked:
        _require_owner(database, epoch)
        opened = open_members(database, [hold.share for hold in holds if hold.share and not hold.lease])
        outcome: LeaseGrants | Shortage | Untracked
        if opened.untracked:
            outcome = Untracked(opened.untracked)
        else:
            outcome = _take(database, holds, cost_bound, epoch, running=False)
        if opened.inserted and not isinstance(outcome, LeaseGrants):
            raise NotTaken(outcome)
        return outcome

    try:
        return database.write(work)
    except NotTaken as refusal:
        untaken: Shortage | Untracked = refusal.outcome
        return untaken


def take_more(database: Database, epoch: int, holds: Sequence[LeaseRequest], nusd: int) -> LeaseGrants | Shortage:
    """Take `nusd` more for a request in progress, as `take`. The request belongs to the window of its admission, so no
    window is started; once another window has started, the old one no longer limits the request."""

    def work() -> LeaseGrants | Shortage:
        _require_owner(database, epoch)
        return _take(database, holds, CostBound(nusd, 0, 0, True), epoch, running=True)

    return database.write(work)


def read_terms(database: Database, budgets: Sequence[str]) -> dict[str, tuple[int | None, str, int, bool]]:
    """Return budget id → limit, period, generation, and whether likely costs are reserved. Windows that are not counted
    are left out."""
    sql = f"{SELECT_BUDGETS} ({marks(budgets)})"
    now = database.now_us()
    rows = [BudgetRow(*row) for row in database.read(partial(database.fetch, sql, budgets))]
    return {row.id: (row.limit_nusd, row.period, row.generation, row.likely) for row in rows if _is_counted(row, now)}


def read_left(database: Database, budgets: Sequence[str]) -> dict[str, int]:
    """Return budget id → what no worker holds of it."""
    left: dict[str, int] = {}
    for start in range(0, len(budgets), READ_AT_ONCE):
        part = budgets[start : start + READ_AT_ONCE]
        rows = database.read(partial(database.fetch, f"{SELECT_BUDGETS} ({marks(part)})", part))
        left |= {row.id: row.left_nusd for row in map(BudgetRow._make, rows)}
    return left


def _take(
    database: Database, holds: Sequence[LeaseRequest], cost_bound: CostBound, epoch: int, running: bool
) -> LeaseGrants | Shortage:
    now = database.now_us()
    rows = load(database, holds, now, running)
    leases = read_leases(database, [hold.lease for hold in holds if hold.lease])
    holds = [_current(hold, rows[hold.budget], leases, running) for hold in holds if hold.budget in rows]
    if running:
        holds = [hold for hold in holds if hold.lease]
    limited = [hold for hold in holds if rows[hold.budget].is_limited]
    exact = [_left(hold, rows) for hold in limited if not rows[hold.budget].likely]
    likely = [_left(hold, rows) for hold in limited if rows[hold.budget].likely]
    need = fit_modes(cost_bound, min(exact, default=None), min(likely, default=None), bool(likely))
    if need is None:
        lacking = [hold for hold in limited if _left(hold, rows) < cost_bound.least_nusd(rows[hold.budget].likely)]
        short = min(lacking or limited, key=partial(_left, rows=rows))
        return shortage_of(database, epoch, cost_bound, short, rows, now)
    less = cost_bound.unlikely_nusd
    granted = [
        _size(hold, row := rows[hold.budget], need.amount_nusd - (less if row.likely else 0), running) for hold in holds
    ]
    slices = zip(holds, granted, strict=True)
    return LeaseGrants(need, [_grant(database, epoch, hold, rows[hold.budget], nusd, now) for hold, nusd in slices])


def _left(hold: LeaseRequest, rows: dict[str, BudgetRow]) -> int:
    return rows[hold.budget].left_nusd + hold.free_nusd


def _require_owner(database: Database, epoch: int) -> None:
    """Lock the worker's row, so that its leases are not swept while it takes one."""
    share = " FOR KEY SHARE" if database.kind == "postgresql" else ""
    if database.execute(f"SELECT 1 FROM worker WHERE epoch = ?{share}", (epoch,)).fetchone() is None:
        raise Unavailable("This worker is being registered anew; try again.")


def load(database: Database, holds: Sequence[LeaseRequest], now: int, running: bool) -> dict[str, BudgetRow]:
    """Lock and return the budgets; insert missing totals and credits, and restart windows that ended."""
    ids = [hold.budget for hold in holds]
    rows = lock_budgets(database, ids)
    missing = [hold for hold in holds if hold.budget not in rows and hold.kind != WINDOW and hold.share is None]
    if missing:
        for hold in sorted(missing):
            # Credits that were never granted are zero, and a provider key is only charged when it has a limit. Any
            # other missing limit means no limit.
            insert_budget(database, hold, 0 if hold.kind == CREDITS or hold.scope == PROVIDER_KEY else hold.limit_nusd)
        rows = lock_budgets(database, ids)
    for hold in holds:
        if hold.limit_nusd is not None and rows[hold.budget].limit_nusd != hold.limit_nusd:
            rows[hold.budget] = _set_limit(database, rows[hold.budget], hold.limit_nusd)
    for row in list(rows.values()):
        if not _is_counted(row, now):
            del rows[row.id]
        elif row.is_window and not running and _end(row) <= now:
            rows[row.id] = _begin_window(database, row, now)
    return rows


def insert_budget(database: Database, hold: LeaseRequest, limit_nusd: int | None) -> None:
    """Insert the row unless it exists; inside a write."""
    begun_us = None if hold.limit_nusd is None else database.now_us()
    database.execute(
        "INSERT INTO budget (id, scope, scope_id, kind, limit_nusd, settled_nusd, leased_nusd, period, generation, "
        "begun_at) VALUES (?, ?, ?, ?, ?, 0, 0, '', 0, ?) ON CONFLICT (id) DO NOTHING",
        (hold.budget, hold.scope, hold.scope_id, hold.kind, limit_nusd, begun_us),
    )


def _set_limit(database: Database, row: BudgetRow, limit_nusd: int) -> BudgetRow:
    """Store the limit of a session or run, which each request brings; what was spent counts under any limit."""
    database.execute("UPDATE budget SET limit_nusd = ? WHERE id = ?", (limit_nusd, row.id))
    return row._replace(limit_nusd=limit_nusd)


def lock_budgets(database: Database, ids: Sequence[str]) -> dict[str, BudgetRow]:
    """Lock the rows of budgets in the order of their ids. Inside a write."""
    if not ids:
        return {}
    sql = f"{SELECT_BUDGETS} ({marks(ids)}) ORDER BY id{_for_update(database)}"
    return {row[0]: BudgetRow(*row) for row in database.execute(sql, ids).fetchall()}


def read_leases(database: Database, ids: Sequence[int]) -> dict[int, tuple[str, int, int, int]]:
    """Lock leases and return lease id → budget, generation, granted, spent."""
    if not ids:
        return {}
    sql = (
        f"SELECT id, budget, generation, granted_nusd, spent_nusd FROM lease WHERE id IN ({marks(ids)}) "
        f"ORDER BY id{_for_update(database)}"
    )
    return {row[0]: tuple(row[1:]) for row in database.execute(sql, ids).fetchall()}


def _is_counted(row: BudgetRow, now: int) -> bool:
    """Return whether spending is charged to a budget: to a window without a limit only while it runs, so that a limit
    that is removed and set again has forgotten nothing."""
    return row.limit_nusd is not None or not row.is_window or row.scope == LIMIT or _end(row) > now


def _begin_window(database: Database, row: BudgetRow, now: int) -> BudgetRow:
    database.execute(
        "UPDATE budget SET window_start = ?, generation = ?, past_nusd = past_nusd + settled_nusd, settled_nusd = 0, "
        "leased_nusd = 0 WHERE id = ?",
        (now, row.generation + 1, row.id),
    )
    return row._replace(window_start=now, generation=row.generation + 1, settled_nusd=0, leased_nusd=0)


def _current(hold: LeaseRequest, row: BudgetRow, leases: dict[int, Any], running: bool) -> LeaseRequest:
    """Return the request with the store's view of its lease: a missing lease, or one of an earlier window, is left
    out."""
    if hold.lease in leases and hold.generation == row.generation:
        return hold
    return hold._replace(lease=0, free_nusd=0)


def _grant(database: Database, epoch: int, hold: LeaseRequest, row: BudgetRow, granted: int, now: int) -> LeaseGrant:
    if granted:
        changed = database.execute(
            "UPDATE budget SET leased_nusd = leased_nusd + ? WHERE id = ? "
            "AND (limit_nusd IS NULL OR limit_nusd - settled_nusd - leased_nusd >= ?)",
            (granted, hold.budget, min(granted, row.left_nusd)),
        )
        if not changed.rowcount:
            raise Unavailable("A budget changed while it was read; try again.")
    lease = hold.lease or hold.fresh
    if not hold.lease:
        database.execute(
            "INSERT INTO lease (id, budget, worker, generation, granted_nusd, spent_nusd, taken_at) "
            "VALUES (?, ?, ?, ?, ?, 0, ?)",
            (lease, hold.budget, epoch, row.generation, granted, now),
        )
    elif granted:
        database.execute(
            "UPDATE lease SET granted_nusd = granted_nusd + ?, taken_at = ? WHERE id = ?", (granted, now, lease)
        )
    ends = _end(row)
    rest = 0 if row.limit_nusd is None else row.left_nusd - granted
    left_us = ends - now if ends else None
    return LeaseGrant(hold, lease, row.generation, row.limit_nusd, granted, rest, row.period, left_us, ends, row.likely)


def _size(hold: LeaseRequest, row: BudgetRow, amount: int, running: bool) -> int:
    """Return how much to take so that `amount` is free.

    The grant covers later requests too, near the limit only the current one; unforeseen costs may exceed what is left.
    Nothing is granted without a limit, except for a `running` request with a lease from when there was one.
    """
    short = amount - hold.free_nusd
    if short <= 0 or (row.limit_nusd is None and not running):
        return 0
    if row.limit_nusd is None or short > row.left_nusd:
        return short
    ahead = min(row.left_nusd // LEASE_DIVISOR, amount * MAX_LEASE_FACTOR)
    return max(0, min(row.left_nusd, max(short, ahead, hold.wanted_nusd - hold.free_nusd)))


def shortage_of(
    database: Database, epoch: int, cost_bound: CostBound, hold: LeaseRequest, rows: dict[str, BudgetRow], now: int
) -> Shortage:
    """Return what the budget of `hold` lacks for `cost_bound`; `epoch` is that of the worker that needs it."""
    row = rows[hold.budget]
    sql = (
        "SELECT COALESCE(SUM(CASE WHEN worker <> ? AND granted_nusd > spent_nusd THEN 1 ELSE 0 END), 0), "
        "COALESCE(SUM(spent_nusd), 0) FROM lease WHERE budget = ? AND generation = ?"
    )
    others, spent = database.execute(sql, (epoch, hold.budget, row.generation)).fetchone()
    left = row.left_nusd + hold.free_nusd
    unspent = row.highest_nusd - row.settled_nusd - int(spent)
    place = (hold.scope, hold.kind, row.highest_nusd)
    least = cost_bound.least_nusd(row.likely)
    most = 0
    if cost_bound.explicit and not row.likely and cost_bound.output_rate:
        most = cost_bound.foreseen.tokens_within(left) // cost_bound.choices
    rule = None if hold.share is None else hold.share.rule
    limit_id = hold.budget if hold.scope in OWNED_SCOPES else ""
    return Shortage(
        *place, left, least, row.period, _end(row), bool(others), hold.name, unspent, row.likely, most, rule, limit_id
    )


def is_window(budget: str) -> bool:
    return budget.endswith(f":{WINDOW}")


def _end(row: BudgetRow) -> int:
    """Return when the running window ends; 0 when none is running."""
    if row.window_start is None:
        return 0
    return read_period(row.period).end(row.window_start)


def _for_update(database: Database) -> str:
    if database.kind == "postgresql":
        return " FOR UPDATE"
    return ""


def marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
