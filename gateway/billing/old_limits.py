"""Removes the counters of limits that nothing needs any more: those of deleted limits, and of members that spend no
longer."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from gateway.clock import DAY_US
from gateway.limits.leases import lock_budgets, marks
from gateway.limits.limit_rules import OTHERS, scope_id_of
from gateway.limits.models import group_of
from gateway.limits.periods import read_period
from gateway.metering.usage_table import raw_id
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.store.database import Database

# Counters of a deleted limit stay for the requests that were in progress; those of a member until this long after its
# window ended.
RETENTION_US = DAY_US
BATCH_SIZE = 200
DELETED = (
    "SELECT b.id FROM budget b JOIN limits l ON l.id = b.limit_id WHERE l.deleted_at < ? AND b.leased_nusd = 0 "
    "AND NOT EXISTS (SELECT 1 FROM lease x WHERE x.budget = b.id) ORDER BY b.id LIMIT ?"
)
EMPTY = "DELETE FROM limits WHERE deleted_at < ? AND NOT EXISTS (SELECT 1 FROM budget b WHERE b.limit_id = limits.id)"
MEMBERS = (
    "SELECT b.id, b.limit_id, b.scope_id, b.period, b.window_start, b.settled_nusd + b.past_nusd FROM budget b "
    "WHERE b.limit_id <> '' AND b.scope_id <> b.limit_id AND b.leased_nusd = 0 "
    "AND NOT EXISTS (SELECT 1 FROM lease x WHERE x.budget = b.id) AND b.id {} ORDER BY b.id LIMIT ?"
)


def forget_limits(database: Database, should_continue: ShouldContinue = always) -> int:
    """Delete such counters, their usage rows of groups, and deleted limits without any; return how many counters. A
    member that comes back is counted from zero in a new window."""
    before = database.now_us() - RETENTION_US
    count = 0
    while should_continue() and database.read(partial(database.fetch, DELETED, (before, 1))):
        count += database.write(partial(_forget_deleted, database, before))
    if database.read(partial(database.fetch, "SELECT 1 FROM limits WHERE deleted_at < ? LIMIT 1", (before,))):
        database.write(partial(database.execute, EMPTY, (before,)))
    last = ""
    while should_continue():
        rows = database.read(partial(database.fetch, MEMBERS.format("> ?"), (last, BATCH_SIZE)))
        over = [row for row in rows if _is_over(row, before)]
        if over:
            count += database.write(partial(_forget_members, database, over, before))
        if len(rows) < BATCH_SIZE:
            break
        last = rows[-1][0]
    return count


def _is_over(row: Sequence[Any], before: int) -> bool:
    """Return whether a member counted nothing, or its window ended long ago."""
    _, _, _, period, start, counted = row
    if not counted:
        return True
    return bool(period) and (start is None or read_period(period).end(start) < before)


def _forget_deleted(database: Database, before: int) -> int:
    lock_budgets(database, [row[0] for row in database.fetch(DELETED, (before, BATCH_SIZE))])
    # Once locked, no lease of them can be taken.
    budgets = [row[0] for row in database.fetch(DELETED, (before, BATCH_SIZE))]
    _delete(database, budgets)
    return len(budgets)


def _forget_members(database: Database, over: Sequence[Sequence[Any]], before: int) -> int:
    for limit_id in sorted({row[1] for row in over}):
        database.execute("UPDATE limits SET members = members WHERE id = ?", (limit_id,))  # locked before its budgets
    ids = [row[0] for row in over]
    lock_budgets(database, ids)
    rows = database.fetch(MEMBERS.format(f"IN ({marks(ids)})"), (*ids, len(ids)))
    gone = [row for row in rows if _is_over(row, before)]
    for _, limit_id, scope_id, *_ in gone:
        if scope_id != scope_id_of(limit_id, (), OTHERS):
            database.execute("UPDATE limits SET members = members - 1 WHERE id = ?", (limit_id,))
    _delete(database, [row[0] for row in gone])
    return len(gone)


def _delete(database: Database, budgets: Sequence[str]) -> None:
    for budget in budgets:
        group = raw_id(group_of(budget))
        database.execute("DELETE FROM group_usage WHERE team = ?", (group,))
        database.execute("DELETE FROM removed_spend WHERE kind = 'team' AND owner = ?", (group.hex(),))
        database.execute("DELETE FROM budget WHERE id = ?", (budget,))
