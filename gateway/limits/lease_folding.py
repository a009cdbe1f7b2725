"""Folding of leases: what they spent is counted in their budgets, and unused amounts are returned."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from gateway.limits.leases import MAX_COUNTER_NUSD, SPEND, is_window, lock_budgets, marks, read_leases
from gateway.limits.models import LIMIT_PREFIX
from gateway.store.database import Database
from gateway.store.outage_journal import DEDUPLICATION_US


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
        remainder = 0 if move.close else max(0, granted - spent - move.give_nusd + move.add_nusd)
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
    past = [(amounts[0], *place) for place, amounts in sorted(changes.items()) if amounts[0] and _keeps_past(place[0])]
    if past:
        # A window that ended counts what its last requests cost beside what it counted before.
        sql = "UPDATE budget SET past_nusd = past_nusd + ? WHERE id = ? AND generation > ?"
        database.execute_many(sql, past)
    for budget, generation in changes:
        if is_window(budget):
            _reset_empty_window(database, budget, generation)


def _keeps_past(budget: str) -> bool:
    return is_window(budget) and budget.startswith(LIMIT_PREFIX)


def _reset_empty_window(database: Database, budget: str, generation: int) -> None:
    """Treat a window in which nothing was settled as never started."""
    database.execute(
        "UPDATE budget SET window_start = NULL WHERE id = ? AND generation = ? AND window_start IS NOT NULL "
        "AND settled_nusd = 0 AND leased_nusd = 0 "
        "AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.budget = budget.id AND lease.generation = budget.generation)",
        (budget, generation),
    )


# The sweep of leases held by dead workers: counts late costs, and returns unused amounts to their budgets.
#
# Leases of holds are skipped: they belong to a job, which ends them (holds.py).

BATCH_SIZE = 200


def charge(database: Database, costs: Sequence[tuple[int, str, int]]) -> None:
    """Count (lease, budget, nano-dollars) as spent; directly in the budget if its lease is deleted. Inside a write."""
    lock_budgets(database, sorted({budget for _, budget, _ in costs}))
    sums: dict[tuple[int, str], int] = {}
    for lease, budget, nusd in costs:
        sums[lease, budget] = sums.get((lease, budget), 0) + nusd
    for (lease, budget), nusd in sorted(sums.items()):
        if not database.execute(SPEND.sql, (nusd, lease)).rowcount:
            database.execute("UPDATE budget SET settled_nusd = settled_nusd + ? WHERE id = ?", (nusd, budget))


def return_leases(database: Database, epoch: int, keep_rows: bool, after_us: int | None = None) -> int:
    """Return everything that a dead worker leased; return the number of leases.

    The worker's row is deleted first, in the same transaction, so that a worker that was only suspended continues under
    another epoch. `keep_rows`: the worker may still settle into its leases, so the empty rows stay and count for the
    budget at a later fold. `after_us` skips a worker that renewed its row within that time.
    """
    count = 0
    while True:
        done = database.write(partial(_give_up_some, database, epoch, keep_rows, after_us))
        count += done
        if done < BATCH_SIZE:
            return count


def list_lost(database: Database, longest_us: int) -> list[int]:
    """Return the workers with leases that have been silent so long that none of their requests can still be running."""
    now = database.moment_sql()
    sql = (
        "SELECT l.worker FROM lease l LEFT JOIN worker w ON w.epoch = l.worker "
        "WHERE l.hold IS NULL AND (l.returned_at IS NULL OR l.spent_nusd > 0) GROUP BY l.worker, w.expires_at "
        f"HAVING COALESCE(w.expires_at, MAX(l.taken_at)) + {longest_us} < {now}"
    )
    return [row[0] for row in database.read(partial(database.fetch, sql))]


def forget_returned(database: Database) -> int:
    """Delete the rows of lost workers that did not come back."""
    before = f"{database.moment_sql()} - {DEDUPLICATION_US}"
    sql = f"DELETE FROM lease WHERE returned_at < {before} AND spent_nusd = 0 AND granted_nusd = 0"
    any_returned = "SELECT 1 FROM lease WHERE returned_at IS NOT NULL LIMIT 1"
    if database.read(lambda: database.execute(any_returned).fetchone()) is None:
        return 0
    return database.write(lambda: database.execute(sql).rowcount)


def _give_up_some(database: Database, epoch: int, keep_rows: bool, after_us: int | None) -> int:
    alive = "" if after_us is None else f" AND expires_at + {after_us} < {database.moment_sql()}"
    database.execute(f"DELETE FROM worker WHERE epoch = ?{alive}", (epoch,))
    if database.execute("SELECT 1 FROM worker WHERE epoch = ?", (epoch,)).fetchone() is not None:
        return 0
    sql = (
        "SELECT id, budget FROM lease WHERE worker = ? AND (returned_at IS NULL OR spent_nusd > 0) "
        f"ORDER BY id LIMIT {BATCH_SIZE}"
    )
    moves = [LeaseChange(budget, lease, close=True) for lease, budget in database.execute(sql, (epoch,)).fetchall()]
    if moves:
        fold_inside(database, moves, keep_rows)
    return len(moves)
