"""Sessions with a budget in the books: crash recovery, and budgets that are forgotten after their days."""

import pytest
from support.billing import DOLLAR, admission_of, attempt_at, target

from gateway.billing import session_budgets
from gateway.billing.reconciliation import doctor
from gateway.billing.session_budgets import KEPT_DAYS, budget_of, forget_old
from gateway.clock import DAY_US
from gateway.limits.spending import CostBound
from gateway.metering.usage_table import find
from gateway.money import MILLION

BOUND = CostBound(100_000, 2000 * MILLION, 100, True)


@pytest.fixture
def one(start_billing, account):
    made = start_billing()
    made.ledger.grant(account.organization, 10 * DOLLAR, "start")
    return made


def begin(one, account):
    context = account.context()
    context.session = "s-1"
    context.metadata = {"team": "search", "run": "r-1"}
    context.session_nusd = DOLLAR
    context.run_nusd = 2 * DOLLAR
    context.attribute()
    settlement = one.settlements.admit(admission_of(context, BOUND))
    settlement.begin(0, target())
    return context, settlement


def settled(one, account, used):
    context, settlement = begin(one, account)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    settlement.close()
    one.rest()
    return context


def counted(one, budget):
    sql = "SELECT settled_nusd FROM budget WHERE id = ?"
    row = one.database.read(lambda: one.database.execute(sql, (f"{budget}:total",)).fetchone())
    return row and row[0]


def budgets_of(account):
    return [budget_of(scope, account.project, name) for scope, name in (("session", "s-1"), ("run", "r-1"))]


def test_a_settled_request_counts_for_its_session_and_its_run(one, account, used):
    context = settled(one, account, used)
    assert [counted(one, budget) for budget in budgets_of(account)] == [20_000, 20_000]
    (row,) = find(one.database, context.request_id)
    assert (row.session, row.tags) == ("s-1", '{"team":"search","run":"r-1"}')
    assert doctor(one.database) == []


def test_a_crash_leaves_the_session_in_the_row_and_its_cost_in_the_budget(start_billing, one, account):
    context, _ = begin(one, account)
    one.die()
    heir = start_billing()
    assert heir.recovery.run() == 1
    (row,) = find(heir.database, context.request_id)
    assert (row.session, row.tags, row.finish) == ("s-1", '{"team":"search","run":"r-1"}', "interrupted")
    assert [counted(heir, budget) for budget in budgets_of(account)] == [row.cost_nusd] * 2
    assert doctor(heir.database) == []


def test_old_budgets_are_forgotten_unless_a_request_is_in_progress(one, account, used, monkeypatch):
    settled(one, account, used)
    assert forget_old(one.database) == 0
    sql = "UPDATE budget SET begun_at = begun_at - ? WHERE begun_at IS NOT NULL"
    one.database.write(lambda: one.database.execute(sql, ((KEPT_DAYS + 1) * DAY_US,)))
    _, running = begin(one, account)
    assert forget_old(one.database) == 0
    running.close()
    one.rest()
    monkeypatch.setattr(session_budgets, "AT_ONCE", 1)
    assert forget_old(one.database) == 2
    assert [counted(one, budget) for budget in budgets_of(account)] == [None, None]
    assert doctor(one.database) == []
    settled(one, account, used)
    assert [counted(one, budget) for budget in budgets_of(account)] == [20_000, 20_000]
    assert doctor(one.database) == []
