"""Helpers for tests of spending limits and rate limits."""

from functools import partial

import gevent

from gateway.errors import BudgetInUse, OutOfCredits, SpendingLimitReached
from gateway.limits.rate_rules import RateLimits
from gateway.limits.spending import CostBound

DOLLAR = 10**9
CENT = 10**7
CALL = CostBound(3 * CENT, 0, 0, True)


def fund(books, payer, nusd=100 * DOLLAR):
    books.ledger.grant(payer.organization_id, nusd, f"test:{payer.organization_id}")


def counters(books, budget):
    sql = "SELECT settled_nusd, leased_nusd FROM budget WHERE id = ?"
    return tuple(books.worker.database.read(lambda: books.worker.database.execute(sql, (budget,)).fetchone()))


def age(books, payer, seconds):
    """Move the start of the key's window back by `seconds` on the store's clock."""
    sql = "UPDATE budget SET window_start = window_start - ? WHERE id = ?"
    params = (seconds * 10**6, f"{payer.key_id}:window")
    books.worker.database.write(lambda: books.worker.database.execute(sql, params))


def set_rate_limit(limits: RateLimits, scope: str, subject: str, kind: str, amount: int | None) -> None:
    """Set the operator's limit, or remove it with None; it is in force when this returns."""
    limits._database.write(partial(limits.write_limit, scope, subject, kind, amount))
    limits._control.confirm()


def attempt(worker, payer, bound=CALL):
    """Whether a call was admitted; its cost equals its reservation."""
    try:
        reservation = worker.spending.reserve(payer, bound)
    except (SpendingLimitReached, OutOfCredits, BudgetInUse):
        return False
    gevent.sleep(0.01)
    worker.pay(reservation, reservation.amount_nusd)
    return True
