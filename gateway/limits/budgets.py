"""Spending limits of keys, members and teams: a total, a rolling window, and what was used of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec import Struct

from gateway.control.version import Control
from gateway.errors import InvalidRequest
from gateway.limits.leases import LeaseRequest, bound_of, insert_budget
from gateway.limits.models import KEY, LIKELY, MEMBER, TEAM, TOTAL, WINDOW, budget_id
from gateway.limits.periods import Period, read_period
from gateway.limits.thresholds import pack_thresholds, read_thresholds, unpack_thresholds
from gateway.store.database import Database

SELECT = (
    "SELECT b.id, b.limit_nusd, b.settled_nusd + COALESCE(SUM(l.spent_nusd), 0), b.leased_nusd, b.period, "
    "b.window_start, b.alert_at, b.reservation FROM budget b LEFT JOIN lease l ON l.budget = b.id "
    "AND l.generation = b.generation "
    "WHERE b.id IN ({marks}) GROUP BY b.id, b.limit_nusd, b.settled_nusd, b.leased_nusd, b.period, b.window_start, "
    "b.alert_at, b.reservation"
)
BATCH_SIZE = 200


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
    """Limits and usage of one subject. `period_usage_nusd` is 0 and both times are None while no window is running."""

    limits: Limits
    usage_nusd: int
    period_usage_nusd: int
    period_started_us: int | None
    period_resets_us: int | None


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
        """Replace the limits within an open transaction; the caller announces the change."""
        if scope not in (KEY, MEMBER, TEAM):
            raise InvalidRequest(f"There are no spending limits of a {scope}.")
        limits.checked()
        self._control.bump()
        total, window = (LeaseRequest(budget_id(scope_id, kind), scope, scope_id, kind) for kind in (TOTAL, WINDOW))
        insert_budget(self._database, total, None)
        self._database.execute("UPDATE budget SET limit_nusd = ? WHERE id = ?", (limits.total_nusd, total.budget))
        if limits.period is not None:
            insert_budget(self._database, window, None)
            self._begin_other_window(window.budget, str(limits.period))
        # Without a limit the period stays, so that a window that runs is continued by the next limit of that period.
        self._database.execute("UPDATE budget SET limit_nusd = ? WHERE id = ?", (limits.period_nusd, window.budget))
        alert_at = pack_thresholds(read_thresholds(limits.alert_at))
        both = (alert_at, limits.reservation, total.budget, window.budget)
        self._database.execute("UPDATE budget SET alert_at = ?, reservation = ? WHERE id IN (?, ?)", both)

    def _begin_other_window(self, budget: str, period: str) -> None:
        """Forget the window of a budget if its period was another one."""
        self._database.execute(
            "UPDATE budget SET period = ?, window_start = NULL, settled_nusd = 0, leased_nusd = 0, "
            "generation = generation + 1 WHERE id = ? AND period <> ?",
            (period, budget, period),
        )

    def write_bound(self, provider_key_id: str, max_nusd: int | None) -> None:
        """Limit the total spending through an organization's provider key; None: no limit. Runs in an open transaction;
        the caller announces the change. Earlier spending counts."""
        hold = bound_of(provider_key_id)
        if max_nusd is not None:
            insert_budget(self._database, hold, max_nusd)
        self._database.execute("UPDATE budget SET limit_nusd = ? WHERE id = ?", (max_nusd, hold.budget))

    def status(self, scope_id: str) -> Status:
        """Limits and counters of a key, member, team or provider key, current to the last durable settlement."""
        return self.statuses((scope_id,))[scope_id]

    def statuses(self, scope_ids: Iterable[str]) -> dict[str, Status]:
        """Return the status of several subjects by id."""
        subjects = list(scope_ids)
        now = self._database.now_us()
        statuses: dict[str, Status] = {}
        for start in range(0, len(subjects), BATCH_SIZE):
            part = subjects[start : start + BATCH_SIZE]
            rows = self._database.read(partial(self._rows, part))
            statuses |= {scope_id: _status(scope_id, rows, now) for scope_id in part}
        return statuses

    def _rows(self, scope_ids: Sequence[str]) -> dict[str, tuple]:
        keys = [budget_id(scope_id, kind) for scope_id in scope_ids for kind in (TOTAL, WINDOW)]
        rows = self._database.execute(SELECT.format(marks=", ".join("?" * len(keys))), keys).fetchall()
        return {row[0]: row[1:] for row in rows}


def _status(scope_id: str, rows: dict[str, tuple], now_us: int) -> Status:
    total = rows.get(budget_id(scope_id, TOTAL), (None, 0, 0, "", None, "", ""))
    limit, spent, _, text, start, *_ = rows.get(budget_id(scope_id, WINDOW), (None, 0, 0, "", None, "", ""))
    if text and limit is not None:
        period = read_period(text)
    else:
        period = None
    limits = Limits(total[0], limit if period else None, period, unpack_thresholds(total[5]), total[6] or LIKELY)
    spent = int(spent)
    if period and start is not None:
        end = period.end(start)
    else:
        end = 0
    if not spent or end <= now_us:
        return Status(limits, int(total[1]), 0, None, None)
    return Status(limits, int(total[1]), spent, start, end)
