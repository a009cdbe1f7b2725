"""Sessions with a budget in the books: crash recovery, and budgets that are forgotten after their days."""

import pytest
from support.billing import DOLLAR, admission_of, attempt_at, target

from gateway.billing import session_budgets
from gateway.billing.context import HeaderOptions
from gateway.billing.reconciliation import doctor
from gateway.billing.session_budgets import RETENTION_DAYS, budget_of, forget_old
from gateway.clock import DAY_US
from gateway.limits.spending import CostBound
from gateway.metering.usage_table import find
from gateway.money import MILLION

BOUND = CostBound(100_000, 2000 * MILLION, 100, True)


@pytest.fixture
def process(start_billing, account):
    started = start_billing()
    started.ledger.grant(account.organization, 10 * DOLLAR, "start")
    return started


def begin(process, account):
    context = account.context()
    context.session = "s-1"
    context.metadata = {"team": "search", "run": "r-1"}
    context.options = HeaderOptions(session_nusd=DOLLAR, run_nusd=2 * DOLLAR)
    context.attribute()
    settlement = process.settlements.admit(admission_of(context, BOUND))
    settlement.begin(0, target())
    return context, settlement


def settled(process, account, used):
    context, settlement = begin(process, account)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    settlement.close()
    process.rest()
    return context


def counted(process, budget):
    sql = "SELECT settled_nusd FROM budget WHERE id = ?"
    row = process.database.read(lambda: process.database.execute(sql, (f"{budget}:total",)).fetchone())
    return row and row[0]


def budgets_of(account):
    return [budget_of(scope, account.project, name) for scope, name in (("session", "s-1"), ("run", "r-1"))]


def test_a_settled_request_counts_for_its_session_and_its_run(process, account, used):
    context = settled(process, account, used)
    assert [counted(process, budget) for budget in budgets_of(account)] == [20_000, 20_000]
    (row,) = find(process.database, context.request_id)
    assert (row.session, row.tags) == ("s-1", '{"team":"search","run":"r-1"}')
    assert doctor(process.database) == []


def test_a_crash_leaves_the_session_in_the_row_and_its_cost_in_the_budget(start_billing, process, account):
    context, _ = begin(process, account)
    process.die()
    heir = start_billing()
    assert heir.recovery.run() == 1
    (row,) = find(heir.database, context.request_id)
    assert (row.session, row.tags, row.finish) == ("s-1", '{"team":"search","run":"r-1"}', "interrupted")
    assert [counted(heir, budget) for budget in budgets_of(account)] == [row.cost_nusd] * 2
    assert doctor(heir.database) == []


def test_old_budgets_are_forgotten_unless_a_request_is_in_progress(process, account, used, monkeypatch):
    settled(process, account, used)
    assert forget_old(process.database) == 0
    sql = "UPDATE budget SET begun_at = begun_at - ? WHERE begun_at IS NOT NULL"
    process.database.write(lambda: process.database.execute(sql, ((RETENTION_DAYS + 1) * DAY_US,)))
    _, running = begin(process, account)
    assert forget_old(process.database) == 0
    running.close()
    process.rest()
    monkeypatch.setattr(session_budgets, "BATCH_SIZE", 1)
    assert forget_old(process.database) == 2
    assert [counted(process, budget) for budget in budgets_of(account)] == [None, None]
    assert doctor(process.database) == []
    settled(process, account, used)
    assert [counted(process, budget) for budget in budgets_of(account)] == [20_000, 20_000]
    assert doctor(process.database) == []
