"""The used amounts of limits: that of their one budget, or for a limit for each, of the members that used most."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from gateway.limits.budgets import SPENT
from gateway.limits.leases import marks
from gateway.limits.limit_book import COLUMNS, rule_of
from gateway.limits.limit_rules import LimitRule
from gateway.limits.periods import read_period
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.store.database import Database

# Members of one limit among which each listing finds the one that used most; of a limit with more, a job finds it.
MAX_SORTED = 1_000
MANY = f"SELECT {COLUMNS} FROM limits WHERE members > {MAX_SORTED} AND deleted_at IS NULL ORDER BY id"


class MemberState(NamedTuple):
    """The amounts that were used of one budget in its present window and that requests in progress and workers hold.
    `renews_us` is when the window ends, 0 for a total and before the first request."""

    member: str
    limit_nusd: int | None
    used_nusd: int
    held_nusd: int
    renews_us: int = 0
    started_us: int = 0

    def left_nusd(self, amount_nusd: int) -> int:
        limit = amount_nusd if self.limit_nusd is None else self.limit_nusd
        return max(0, limit - self.used_nusd - self.held_nusd)


def read_states(
    database: Database, rule: LimitRule, now: int, maximum: int = 1, *, budget: str | None = None
) -> tuple[MemberState, ...]:
    """Return the states of the members that used most in the windows that run, or that of one budget. Inside a
    read."""
    order = f"ORDER BY {_use(rule, now)} DESC, b.id LIMIT {maximum}"
    place = "b.limit_id = ?" if budget is None else "b.limit_id = ? AND b.id = ?"
    sql = (
        f"SELECT b.member, b.limit_nusd, {SPENT}, b.settled_nusd + b.leased_nusd, b.period, b.window_start "
        f"FROM budget b WHERE {place} {order}"
    )
    values = (rule.id,) if budget is None else (rule.id, budget)
    states = [read_state(row, now) for row in database.fetch(sql, values)]
    return tuple(sorted(states, key=_by_use))


def read_single_states(database: Database, limits: Sequence[str], now: int) -> dict[str, tuple[MemberState, ...]]:
    """Return the states of limits with one budget, by id, in one statement. Inside a read."""
    if not limits:
        return {}
    sql = (
        f"SELECT b.limit_id, b.member, b.limit_nusd, {SPENT}, b.settled_nusd + b.leased_nusd, b.period, b.window_start "
        f"FROM budget b WHERE b.limit_id IN ({marks(limits)})"
    )
    return {limit: (read_state(row, now),) for limit, *row in database.fetch(sql, tuple(limits))}


def note_top_members(database: Database, should_continue: ShouldContinue = always) -> None:
    """Store which member used most of each limit with many members, so that a list of limits need not sort them."""
    for row in database.read(partial(database.fetch, MANY, ())):
        if not should_continue():
            break
        rule = rule_of(row)
        order = f"ORDER BY {_use(rule, database.now_us())} DESC, b.id LIMIT 1"
        sql = f"SELECT b.id FROM budget b WHERE b.limit_id = ? {order}"
        top = database.report(partial(database.fetch, sql, (rule.id,)))
        if top:
            change = "UPDATE limits SET top_budget = ? WHERE id = ? AND top_budget <> ?"
            database.write(partial(database.execute, change, (top[0][0], rule.id, top[0][0])))


def _use(rule: LimitRule, now: int) -> str:
    """Return the expression of the amount that a budget counted and holds in the present window."""
    present = "b.settled_nusd + b.leased_nusd"
    if not rule.period:
        return present
    return f"CASE WHEN b.window_start >= {read_period(rule.period).earliest_start(now)} THEN {present} ELSE 0 END"


def read_state(row: Sequence[Any], now: int) -> MemberState:
    member, limit_nusd, used, whole, period, start = row
    end = read_period(period).end(start) if period and start is not None else 0
    if period and end <= now:
        return MemberState(member, limit_nusd, 0, 0)
    return MemberState(member, limit_nusd, int(used), max(0, int(whole) - int(used)), end, start or 0)


def _by_use(state: MemberState) -> int:
    return -(state.used_nusd + state.held_nusd)
