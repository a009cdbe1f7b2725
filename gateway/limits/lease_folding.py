"""Folding of leases: what they spent is counted in their budgets, and unused amounts are returned."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from gateway.limits.leases import MAX_COUNTER_NUSD, is_window, lock_budgets, marks, read_leases
from gateway.store.database import Database


class LeaseChange(NamedTuple):
    """Changes to a lease during a fold: amounts to return, amounts to add for an overrun, or the end of the lease."""

    budget: str
    lease: int
    give_nusd: int = 0
    add_nusd: int = 0
    close: bool = False


def fold(database: Database, moves: Sequence[LeaseChange]) -> None:
    """Count what the leases spent in their budgets and apply the moves. Idempotent, except for `give` and `add`."""
    if moves:
        database.write(partial(fold_inside, database, moves))


def fold_inside(database: Database, moves: Sequence[LeaseChange], keep_rows: bool = False) -> None:
    """Run `fold` within a write. `keep_rows`: ended leases leave an empty row for later settlements of their worker."""
    lock_budgets(database, sorted({move.budget for move in moves}))
    leases = read_leases(database, [move.lease for move in moves])
    changes: dict[tuple[str, int], list[int]] = {}
    kept_rows: list[tuple[int, int]] = []
    closed: list[int] = []
    for move in moves:
        if move.lease not in leases:
            continue
        budget, generation, granted, spent = leases.pop(move.lease)
        # An overrun may be spent before its `add` arrives: the excess over the grant is part of that `add`.
        if move.close:
            remainder = 0
        else:
            remainder = max(0, granted - spent - move.give_nusd + move.add_nusd)
        if move.close:
            closed.append(move.lease)
        else:
            kept_rows.append((remainder, move.lease))
        change = changes.setdefault((budget, generation), [0, 0])
        change[0] += spent
        change[1] += remainder - granted
    _write_leases(database, kept_rows, closed, keep_rows)
    _write_budgets(database, changes)


def _write_leases(database: Database, open_leases: list[tuple[int, int]], closed: list[int], keep_rows: bool) -> None:
    if open_leases:
        database.execute_many("UPDATE lease SET granted_nusd = ?, spent_nusd = 0 WHERE id = ?", open_leases)
    if closed and keep_rows:
        now = database.now_us()
        sql = "UPDATE lease SET granted_nusd = 0, spent_nusd = 0, returned_at = ? WHERE id = ?"
        database.execute_many(sql, [(now, lease) for lease in closed])
    elif closed:
        database.execute(f"DELETE FROM lease WHERE id IN ({marks(closed)})", closed)


def _write_budgets(database: Database, changes: dict[tuple[str, int], list[int]]) -> None:
    moved = [(*amounts, *place) for place, amounts in sorted(changes.items()) if any(amounts)]
    if moved:
        database.execute_many(
            # A counter at the end of its range stays there: an overflow must not block the counting of other budgets.
            f"UPDATE budget SET settled_nusd = CASE WHEN settled_nusd > {MAX_COUNTER_NUSD} - ? "
            f"THEN {MAX_COUNTER_NUSD} ELSE settled_nusd + ? END, leased_nusd = leased_nusd + ? "
            "WHERE id = ? AND generation = ?",
            [(row[0], *row) for row in moved],
        )
    for budget, generation in changes:
        if is_window(budget):
            _reset_empty_window(database, budget, generation)


def _reset_empty_window(database: Database, budget: str, generation: int) -> None:
    """Treat a window in which nothing was settled as never started."""
    database.execute(
        "UPDATE budget SET window_start = NULL WHERE id = ? AND generation = ? AND window_start IS NOT NULL "
        "AND settled_nusd = 0 AND leased_nusd = 0 "
        "AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.budget = budget.id AND lease.generation = budget.generation)",
        (budget, generation),
    )
