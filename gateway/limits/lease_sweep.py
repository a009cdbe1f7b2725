"""The sweep of leases held by dead workers: counts late costs, and returns unused amounts to their budgets.

Leases of holds are skipped: they belong to a job, which ends them (holds.py).
"""

from collections.abc import Sequence
from functools import partial

from gateway.limits.lease_folding import LeaseChange, fold_inside
from gateway.limits.leases import SPEND, lock_budgets
from gateway.store.database import Database
from gateway.store.outage_journal import DEDUPLICATION_US

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
    if after_us is None:
        alive = ""
    else:
        alive = f" AND expires_at + {after_us} < {database.moment_sql()}"
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
