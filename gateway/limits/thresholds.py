"""Finds budgets and credits that are nearly or fully spent, for warnings before requests are rejected."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gateway.clock import to_iso
from gateway.errors import InvalidRequest
from gateway.limits.models import CREDITS, WINDOW
from gateway.limits.periods import read_period
from gateway.store.database import Database

# Budgets are examined from this many percent below the lowest threshold, because amounts in other workers' leases are
# counted a moment later.
MARGIN = 10
WHOLLY = 100
NEARLY = (80,)  # the default percentages at which a budget is reported
MAX_THRESHOLDS = 8
MAX_ROWS = 2_000
SPENT = (
    "b.settled_nusd + COALESCE((SELECT SUM(l.spent_nusd) FROM lease l WHERE l.budget = b.id "
    "AND l.generation = b.generation), 0)"
)
# The organization of a budget, by its scope.
OWNER = (
    "COALESCE(p.organization_id, m.organization_id, t.organization_id, k.organization_id, "
    "CASE WHEN b.scope = 'organization' THEN b.scope_id END, '')"
)
NAME = "COALESCE(a.description, u.email, t.name, k.label, o.name, '')"
JOINS = (
    "LEFT JOIN api_key a ON b.scope = 'key' AND a.id = b.scope_id LEFT JOIN project p ON p.id = a.project_id "
    "LEFT JOIN member m ON b.scope = 'member' AND m.id = b.scope_id LEFT JOIN \"user\" u ON u.id = m.user_id "
    "LEFT JOIN team t ON b.scope = 'team' AND t.id = b.scope_id "
    "LEFT JOIN provider_key k ON b.scope = 'provider_key' AND k.id = b.scope_id "
    "LEFT JOIN organization o ON b.scope = 'organization' AND o.id = b.scope_id"
)
BUDGETS = (
    f"SELECT b.scope, b.scope_id, b.kind, {OWNER}, {NAME}, b.limit_nusd, {SPENT}, b.period, b.window_start, "
    f"b.alert_at "
    f"FROM budget b {JOINS} WHERE b.kind <> 'credits' AND b.limit_nusd > 0 "
    f"AND b.begun_at IS NULL "
    f"AND (b.alert_at <> '' OR b.settled_nusd >= b.limit_nusd / 100 * ?) ORDER BY b.id LIMIT {MAX_ROWS}"
)
CREDIT = (
    f"SELECT b.scope, b.scope_id, b.kind, {OWNER}, {NAME}, b.limit_nusd, {SPENT}, b.period, b.window_start, "
    f"b.alert_at "
    f"FROM budget b {JOINS} WHERE b.kind = 'credits' AND b.limit_nusd > 0 "
    f"AND b.limit_nusd - b.settled_nusd < ? ORDER BY b.id LIMIT {MAX_ROWS}"
)


class SpentBudget(NamedTuple):
    """A limit of which little is left, in nano-dollars. `scope` is key, member, team, provider_key or organization,
    `kind` total, window or credits; `resets_at` is ISO 8601, "" if it never resets; `reached` is the highest threshold
    in percent that was reached."""

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
    from_percent = max(0, min(thresholds, default=WHOLLY) - MARGIN)
    rows = database.report(
        lambda: [
            *database.execute(BUDGETS, (from_percent,)).fetchall(),
            *database.execute(CREDIT, (credits_low_nusd,)).fetchall(),
        ]
    )
    return [budget for row in rows if (budget := _read(row, now, thresholds)) is not None]


def _read(row: tuple, now_us: int, usual: Sequence[int]) -> SpentBudget | None:
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
