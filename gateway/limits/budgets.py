"""Spending limits of keys, members and teams: a total, a rolling window, and what was used of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct

from gateway.clock import to_iso
from gateway.control.version import Control
from gateway.errors import InvalidRequest
from gateway.limits.leases import LeaseRequest, bound_of, insert_budget
from gateway.limits.models import CREDITS, KEY, LIKELY, MEMBER, TEAM, TOTAL, WINDOW, budget_id
from gateway.limits.owned_rows import BudgetTerms, OwnedTerms, keep_terms, name_owned, read_terms
from gateway.limits.periods import Period, read_period
from gateway.store.database import Database

# Finds budgets and credits that are nearly or fully spent, for warnings before requests are rejected.

# Budgets are examined from this many percent below the lowest threshold, because amounts in other workers' leases are
# counted a moment later.
WATCH_MARGIN = 10
WHOLLY = 100
NEARLY = (80,)  # the default percentages at which a budget is reported
MAX_THRESHOLDS = 8
MAX_ROWS = 2_000
MAX_MEMBERS_SHOWN = 100  # of limits for each of one organization
SPENT = (
    "b.settled_nusd + COALESCE((SELECT SUM(l.spent_nusd) FROM lease l WHERE l.budget = b.id "
    "AND l.generation = b.generation), 0)"
)
# The organization of a budget, by its scope.
OWNER_COLUMNS = (
    "COALESCE(p.organization_id, m.organization_id, t.organization_id, k.organization_id, y.organization, "
    "CASE WHEN b.scope = 'organization' THEN b.scope_id END, '')"
)
OWNER_NAME = "COALESCE(a.description, u.email, t.name, k.label, o.name, y.name, '')"
MEMBER_NAME = "CASE WHEN b.member = '' THEN y.name ELSE y.name || ' of ' || b.member END"
# The amount of which a share is used: that of a limit may be another one than where it refuses.
AMOUNT = "COALESCE(y.amount_nusd + y.raise_nusd, b.limit_nusd)"
ALERT_FROM = "COALESCE(y.alert_from, 50)"  # a worker of an earlier release sets none
OWNER_JOINS = (
    "LEFT JOIN api_key a ON b.scope = 'key' AND a.id = b.scope_id LEFT JOIN project p ON p.id = a.project_id "
    "LEFT JOIN member m ON b.scope = 'member' AND m.id = b.scope_id LEFT JOIN \"user\" u ON u.id = m.user_id "
    "LEFT JOIN team t ON b.scope = 'team' AND t.id = b.scope_id "
    "LEFT JOIN provider_key k ON b.scope = 'provider_key' AND k.id = b.scope_id "
    "LEFT JOIN organization o ON b.scope = 'organization' AND o.id = b.scope_id "
    "LEFT JOIN limits y ON b.limit_id <> '' AND y.id = b.limit_id AND y.deleted_at IS NULL"
)
BUDGETS = (
    f"SELECT b.scope, b.scope_id, b.kind, {OWNER_COLUMNS}, {OWNER_NAME}, {AMOUNT}, {SPENT}, b.period, "
    f"b.window_start, b.alert_at "
    f"FROM budget b {OWNER_JOINS} WHERE b.kind <> 'credits' AND {AMOUNT} > 0 "
    f"AND b.begun_at IS NULL AND (b.limit_id = '' OR (y.id IS NOT NULL AND b.limit_id = b.scope_id)) "
    f"AND (b.alert_at <> '' OR b.settled_nusd >= {AMOUNT} / 100 * ?) ORDER BY b.id LIMIT {MAX_ROWS}"
)
# Members of a limit for each may be many: they are examined from the lowest share at which it warns, and as many of one
# organization as do not hide those of others. Those of windows that began last come first.
MEMBERS = (
    f"SELECT scope, scope_id, kind, owner, name, amount, used, period, window_start, alert_at FROM (SELECT b.scope, "
    f"b.scope_id, b.kind, y.organization AS owner, {MEMBER_NAME} AS name, {AMOUNT} AS amount, {SPENT} AS used, "
    f"b.period, b.window_start, b.alert_at, b.id, ROW_NUMBER() OVER "
    f"(PARTITION BY y.organization ORDER BY b.window_start DESC, b.id) AS place "
    f"FROM budget b JOIN limits y ON y.id = b.limit_id AND y.deleted_at IS NULL WHERE b.limit_id <> '' "
    f"AND b.limit_id <> b.scope_id AND b.alert_at <> '' AND {AMOUNT} > 0 "
    f"AND b.settled_nusd >= {AMOUNT} / 100 * ({ALERT_FROM} - {WATCH_MARGIN}) "
    f"AND {SPENT} >= {AMOUNT} / 100 * {ALERT_FROM}) AS found "
    f"WHERE place <= {MAX_MEMBERS_SHOWN} ORDER BY place, id LIMIT {MAX_ROWS}"
)
CREDIT = (
    f"SELECT b.scope, b.scope_id, b.kind, {OWNER_COLUMNS}, {OWNER_NAME}, b.limit_nusd, {SPENT}, b.period, "
    f"b.window_start, b.alert_at "
    f"FROM budget b {OWNER_JOINS} WHERE b.kind = 'credits' AND b.limit_nusd > 0 "
    f"AND b.limit_nusd - b.settled_nusd < ? ORDER BY b.id LIMIT {MAX_ROWS}"
)


class SpentBudget(NamedTuple):
    """A limit of which little is left, in nano-dollars. `scope` is key, member, team, provider_key, organization or
    limit, `kind` total, window or credits; `resets_at` is ISO 8601, "" if it never resets; `reached` is the highest
    threshold in percent that was reached."""

    scope: str
    scope_id: str
    kind: str
    organization: str
    name: str
    limit_nusd: int
    spent_nusd: int
    resets_at: str = ""
    reached: int = 0

    @property
    def percent(self) -> int:
        return min(WHOLLY, self.spent_nusd * 100 // self.limit_nusd)

    @property
    def left_nusd(self) -> int:
        return max(0, self.limit_nusd - self.spent_nusd)

    @property
    def wholly(self) -> bool:
        return self.spent_nusd >= self.limit_nusd


def read_thresholds(percents: Iterable[int]) -> tuple[int, ...]:
    """Return sorted thresholds in percent. InvalidRequest for invalid or too many thresholds."""
    chosen = tuple(sorted(set(percents)))
    if len(chosen) > MAX_THRESHOLDS or any(not 1 <= percent <= WHOLLY for percent in chosen):
        text = f"Give at most {MAX_THRESHOLDS} thresholds, each from 1 to {WHOLLY} percent."
        raise InvalidRequest(text, param="alertThresholds")
    return chosen


def pack_thresholds(thresholds: Iterable[int]) -> str:
    """Return the thresholds as stored in a row of `budget`."""
    return ",".join(map(str, thresholds))


def unpack_thresholds(packed: str) -> tuple[int, ...]:
    """Return the thresholds of a row; () if the row has none."""
    if packed:
        return tuple(map(int, packed.split(",")))
    return ()


def find_spent(database: Database, credits_low_nusd: int, thresholds: Sequence[int] = NEARLY) -> list[SpentBudget]:
    """Return limits that reached a threshold (their own, or by default one of `thresholds`), and credits of
    organizations with less than `credits_low_nusd` left. A long query."""
    now = database.now_us()
    from_percent = max(0, min(thresholds, default=WHOLLY) - WATCH_MARGIN)
    rows = database.report(
        lambda: [
            *database.execute(BUDGETS, (from_percent,)).fetchall(),
            *database.execute(MEMBERS).fetchall(),
            *database.execute(CREDIT, (credits_low_nusd,)).fetchall(),
        ]
    )
    return [budget for row in rows if (budget := _read(row, now, thresholds)) is not None]


def _read(row: tuple[Any, ...], now_us: int, usual: Sequence[int]) -> SpentBudget | None:
    scope, scope_id, kind, organization, name, limit_nusd, spent_nusd, period, start, alert_at = row
    resets_at = ""
    if kind == WINDOW:
        if start is None or not period:
            return None
        end = read_period(period).end(start)
        if end <= now_us:
            return None
        resets_at = to_iso(end)
    budget = SpentBudget(scope, scope_id, kind, organization, name, int(limit_nusd), int(spent_nusd), resets_at)
    if kind == CREDITS:
        return budget
    thresholds = (*(unpack_thresholds(alert_at) or usual), WHOLLY)
    reached = max((percent for percent in thresholds if budget.percent >= percent), default=0)
    if reached:
        return budget._replace(reached=reached)
    return None


SELECT = (
    "SELECT b.id, b.limit_nusd, b.settled_nusd + COALESCE(SUM(l.spent_nusd), 0), b.leased_nusd, b.period, "
    "b.window_start, b.alert_at, b.reservation, COALESCE(y.raise_nusd, 0) FROM budget b "
    "LEFT JOIN lease l ON l.budget = b.id AND l.generation = b.generation "
    "LEFT JOIN limits y ON y.id = b.id AND y.limit_nusd = b.limit_nusd "
    "WHERE b.id IN ({marks}) GROUP BY b.id, b.limit_nusd, b.settled_nusd, b.leased_nusd, b.period, b.window_start, "
    "b.alert_at, b.reservation, y.raise_nusd"
)
SWEEP_BATCH_SIZE = 200


@dataclass(frozen=True, slots=True)
class Limits:
    """Spending limits in total and per period, in nano-dollars; None = no limit. Both period fields or neither.
    `alert_at` are the percentages of either limit that trigger an alert; () = the defaults of the installation.
    `reservation`: what requests reserve, their highest cost (EXACT) or their likely one (LIKELY)."""

    total_nusd: int | None = None
    period_nusd: int | None = None
    period: Period | None = None
    alert_at: tuple[int, ...] = field(default=(), compare=False)
    reservation: str = field(default=LIKELY, compare=False)

    def checked(self) -> "Limits":
        """InvalidRequest when an amount is negative or one of the period fields is missing."""
        if (self.period_nusd is None) != (self.period is None):
            raise InvalidRequest("A period limit needs an amount and a period.", param="periodUsageLimit")
        for name, amount in (("usageLimit", self.total_nusd), ("periodUsageLimit", self.period_nusd)):
            if amount is not None and amount < 0:
                raise InvalidRequest("A spending limit cannot be negative.", param=name)
        return self


class Status(Struct, frozen=True):
    """Limits and usage of one subject. `period_usage_nusd` is 0 and both times are None while no window is running.
    `limits` are those that were set; the raises are granted beside them for a time."""

    limits: Limits
    usage_nusd: int
    period_usage_nusd: int
    period_started_us: int | None
    period_resets_us: int | None
    total_raise_nusd: int = 0
    period_raise_nusd: int = 0

    @property
    def total_nusd(self) -> int | None:
        """The limit in total that is in force."""
        total = self.limits.total_nusd
        return None if total is None else total + self.total_raise_nusd

    @property
    def period_nusd(self) -> int | None:
        """The limit per period that is in force."""
        amount = self.limits.period_nusd
        return None if amount is None else amount + self.period_raise_nusd


class Budgets:
    """Sets and reads limits. Changes are in force on every worker when the call returns."""

    def __init__(self, database: Database, control: Control) -> None:
        self._database = database
        self._control = control

    def set_limits(self, scope: str, scope_id: str, limits: Limits) -> None:
        """Replace the limits of a key, member or team (`scope`). Usage is kept: only a period of another length or zone
        begins a new window."""
        self._database.write(partial(self.write_limits, scope, scope_id, limits))
        self._control.confirm()

    def write_limits(self, scope: str, scope_id: str, limits: Limits) -> None:
        """Replace the limits within an open transaction; the caller announces the change. Another amount ends the raise
        of a limit."""
        if scope not in (KEY, MEMBER, TEAM):
            raise InvalidRequest(f"There are no spending limits of a {scope}.")
        limits.checked()
        self._control.bump()
        alert_at = pack_thresholds(read_thresholds(limits.alert_at))
        total, window = (LeaseRequest(budget_id(scope_id, kind), scope, scope_id, kind) for kind in (TOTAL, WINDOW))
        terms = BudgetTerms("", alert_at, limits.reservation)
        total_nusd = self._keep_row(total, limits.total_nusd, terms)
        period_nusd = self._keep_row(window, limits.period_nusd, terms._replace(period=str(limits.period or "")))
        insert_budget(self._database, total, None)
        self._database.execute("UPDATE budget SET limit_nusd = ? WHERE id = ?", (total_nusd, total.budget))
        if limits.period is not None:
            insert_budget(self._database, window, None)
            self._begin_other_window(window.budget, limits.period)
        # Without a limit the period stays, so that a window that runs is continued by the next limit of that period.
        self._database.execute("UPDATE budget SET limit_nusd = ? WHERE id = ?", (period_nusd, window.budget))
        both = (alert_at, limits.reservation, total.budget, window.budget)
        self._database.execute("UPDATE budget SET alert_at = ?, reservation = ? WHERE id IN (?, ?)", both)

    def _keep_row(self, hold: LeaseRequest, amount_nusd: int | None, terms: BudgetTerms) -> int | None:
        """Store the row of a limit, and return the amount of its budget: with the raise if the set amount stays."""
        name = name_owned(hold.scope_id, hold.kind)
        if amount_nusd is None:
            keep_terms(self._database, name, None, terms)
            return None
        row = self._database.execute("SELECT limit_nusd FROM budget WHERE id = ?", (hold.budget,)).fetchone()
        kept = OwnedTerms(amount_nusd)
        if row is not None and row[0] is not None:
            before = read_terms(self._database, name, int(row[0]))
            raised = (before.raise_nusd, before.raise_until_us) if before.amount_nusd == amount_nusd else (0, None)
            kept = OwnedTerms(amount_nusd, *raised, before.actions)
        keep_terms(self._database, name, kept, terms)
        return kept.limit_nusd

    def _begin_other_window(self, budget: str, period: Period) -> None:
        """Forget the window of a budget if its period was of another length or time zone."""
        [(before,)] = self._database.fetch("SELECT period FROM budget WHERE id = ?", (budget,))
        if before and read_period(before).is_as_long_as(period):
            self._database.execute("UPDATE budget SET period = ? WHERE id = ?", (str(period), budget))
            return
        self._database.execute(
            "UPDATE budget SET period = ?, window_start = NULL, settled_nusd = 0, leased_nusd = 0, "
            "generation = generation + 1 WHERE id = ?",
            (str(period), budget),
        )

    def write_bound(self, provider_key_id: str, max_nusd: int | None) -> None:
        """Limit the total spending through an organization's provider key; None: no limit. Runs in an open transaction;
        the caller announces the change. Earlier spending counts."""
        hold = bound_of(provider_key_id)
        limit_nusd = self._keep_row(hold, max_nusd, BudgetTerms())
        if max_nusd is not None:
            insert_budget(self._database, hold, limit_nusd)
        self._database.execute("UPDATE budget SET limit_nusd = ? WHERE id = ?", (limit_nusd, hold.budget))

    def status(self, scope_id: str) -> Status:
        """Limits and counters of a key, member, team or provider key, current to the last durable settlement."""
        return self.statuses((scope_id,))[scope_id]

    def statuses(self, scope_ids: Iterable[str]) -> dict[str, Status]:
        """Return the status of several subjects by id."""
        subjects = list(scope_ids)
        now = self._database.now_us()
        statuses: dict[str, Status] = {}
        for start in range(0, len(subjects), SWEEP_BATCH_SIZE):
            part = subjects[start : start + SWEEP_BATCH_SIZE]
            rows = self._database.read(partial(self._rows, part))
            statuses |= {scope_id: _status(scope_id, rows, now) for scope_id in part}
        return statuses

    def _rows(self, scope_ids: Sequence[str]) -> dict[str, tuple[Any, ...]]:
        keys = [budget_id(scope_id, kind) for scope_id in scope_ids for kind in (TOTAL, WINDOW)]
        rows = self._database.execute(SELECT.format(marks=", ".join("?" * len(keys))), keys).fetchall()
        return {row[0]: row[1:] for row in rows}


def _status(scope_id: str, rows: dict[str, tuple[Any, ...]], now_us: int) -> Status:
    total = rows.get(budget_id(scope_id, TOTAL), (None, 0, 0, "", None, "", "", 0))
    limit, spent, _, text, start, *_, raised = rows.get(budget_id(scope_id, WINDOW), (None, 0, 0, "", None, "", "", 0))
    period = read_period(text) if text and limit is not None else None
    total_raise, period_raise = int(total[7]), int(raised) if period else 0
    limits = Limits(
        None if total[0] is None else total[0] - total_raise,
        limit - period_raise if period else None,
        period,
        unpack_thresholds(total[5]),
        total[6] or LIKELY,
    )
    spent = int(spent)
    end = period.end(start) if period and start is not None else 0
    raises = (total_raise, period_raise)
    if not spent or end <= now_us:
        return Status(limits, int(total[1]), 0, None, None, *raises)
    return Status(limits, int(total[1]), spent, start, end, *raises)
