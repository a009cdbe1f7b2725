"""Spending limits of own provider keys: reserved for each call with it, kept to the nano-dollar."""

import dataclasses

import pytest
from support.billing import DOLLAR, attempt_at, target

from gateway import ids
from gateway.billing.reconciliation import doctor
from gateway.errors import BudgetInUse, SpendingLimitReached, UpstreamFailed
from gateway.limits.spending import CostBound
from gateway.money import MILLION
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Credential

KEY = ids.new("pkey")
ASK = CostBound(100_000, 2000 * MILLION, 100, True)  # 300,000 n$ at most
USED = Usage(input=10, output=5)  # 20,000 n$


@pytest.fixture
def process(start_billing, account):
    started = start_billing()
    started.ledger.grant(account.organization, 10 * DOLLAR, "start")
    return started


def bind(start_billing, nusd):
    def work():
        start_billing.control.bump()
        start_billing.budgets.write_bound(KEY, nusd)

    start_billing.database.write(work)
    start_billing.control.confirm()


def own(bounded=True):
    return dataclasses.replace(target(), credential=Credential("", "byok", KEY, bounded=bounded))


def begin(start_billing, account, where=None, **more):
    settlement = start_billing.admit(account, **more)
    settlement.begin(0, where or own())
    return settlement


def spent(start_billing):
    return start_billing.budgets.status(KEY).usage_nusd


def test_the_cost_of_a_call_counts_against_the_bound_of_its_key(process, account):
    bind(process, DOLLAR)
    settlement = begin(process, account)
    assert process.spending.reserved_nusd() == 4 * 300_000  # key, member, credits and the bound
    settlement.settle(attempt_at(own(), usage=USED, finish="stop"))
    settlement.close()
    process.rest()
    assert spent(process) == 20_000 and process.spending.reserved_nusd() == 0
    assert process.rows()[0].details == {"provider_key": KEY, "bounded": True}
    assert process.ledger.balance(account.organization).spent_nusd == 0 and doctor(process.database) == []


def test_a_bound_without_room_refuses_before_anything_began(process, account):
    bind(process, 300_000 - 1)
    settlement = process.admit(account)
    with pytest.raises(SpendingLimitReached, match=r"own provider key has a spending limit of 0.000299999") as caught:
        settlement.begin(0, own())
    assert (caught.value.code, caught.value.status) == ("provider_key_limit_reached", 402)
    assert process.intents.open_count() == 0
    settlement.begin(0, target())
    settlement.settle(attempt_at(target(), usage=USED, finish="stop"))
    settlement.close()
    assert spent(process) == 0 and doctor(process.database) == []


def test_calls_at_once_never_pass_the_bound_together(process, account):
    bind(process, 700_000)
    first, second = begin(process, account), begin(process, account)
    with pytest.raises(BudgetInUse):
        begin(process, account)
    for settlement in (first, second):
        settlement.settle(attempt_at(own(), usage=Usage(input=300), finish="stop"))
        settlement.close()
    assert spent(process) == 600_000
    process.rest()
    process.clock.advance(1)  # a shortage is remembered for a moment
    with pytest.raises(SpendingLimitReached):
        begin(process, account)


def test_a_request_with_another_target_waits_for_no_other_worker(start_billing, account, monkeypatch):
    first, second = start_billing(), start_billing()
    first.ledger.grant(account.organization, DOLLAR, "start")
    bind(first, 310_000)
    held, settlement = begin(first, account), second.admit(account)
    pauses = []
    monkeypatch.setattr("gateway.limits.spending.pause", pauses.append)
    with pytest.raises(BudgetInUse):
        settlement.begin(0, own(), patient=False)
    assert pauses == []
    for entry in (settlement, held):
        entry.close()


def test_a_key_without_a_bound_has_no_budget(process, account):
    settlement = begin(process, account, own(bounded=False))
    settlement.settle(attempt_at(own(bounded=False), usage=USED, finish="stop"))
    settlement.close()
    found = process.database.read(
        lambda: process.database.execute("SELECT id FROM budget WHERE scope = 'provider_key'").fetchall()
    )
    assert found == [] and process.rows()[0].details == {"provider_key": KEY}
    assert doctor(process.database) == []


def test_a_bound_without_a_row_admits_nothing(process, account):
    with pytest.raises(SpendingLimitReached):
        begin(process, account)


def test_a_new_bound_is_in_force_at_once_and_goes_on_counting(process, account):
    bind(process, 310_000)
    begin(process, account).settle(attempt_at(own(), usage=USED, finish="stop"))
    process.rest()
    with pytest.raises(SpendingLimitReached):
        begin(process, account)
    bind(process, 320_000)
    begin(process, account).settle(attempt_at(own(), usage=USED, finish="stop"))
    bind(process, None)
    process.rest()
    assert spent(process) == 40_000 and doctor(process.database) == []


def test_the_bound_caps_an_answer_without_a_limit(process, account):
    bind(process, 2_000_000)
    settlement = begin(process, account, cost_bound=CostBound(0, 2000 * MILLION, 4096, False))
    assert (settlement.output_cap, settlement.output_length_foreseen) == (500, 2000)
    settlement.failed(attempt_at(own(), error=UpstreamFailed("no"), finish="error"))
    assert settlement.output_cap is None and settlement.output_length_foreseen == 4096 * 4
    settlement.close()


def test_the_cap_of_the_callers_budget_makes_a_call_need_less(process, account):
    bind(process, 1_100_000)
    account_ask = CostBound(0, 2000 * MILLION, 4096, False)
    process.ledger.post(account.organization, "adjustment", 2_000_000 - 10 * DOLLAR, "to 0.002 USD")
    settlement = begin(process, account, cost_bound=account_ask)
    assert settlement.output_cap == 275  # half of the bound; half of the credits would have been 500
    settlement.close()


def test_an_answer_that_outgrows_the_bound_ends_typed(process, account):
    bind(process, 300_000)
    settlement = begin(process, account)
    attempt = attempt_at(own(), output_length=401)
    settlement.foresee(attempt)
    attempt.output_length = 801
    with pytest.raises(SpendingLimitReached, match="provider key") as caught:
        settlement.foresee(attempt)
    assert caught.value.code == "budget_exhausted_mid_stream"
    settlement.abandon(attempt)
    settlement.close()
    assert doctor(process.database) == []


def test_a_call_above_the_bound_settles_in_full_and_is_marked(process, account):
    bind(process, 300_000)
    settlement = begin(process, account)
    attempt = settlement.settle(attempt_at(own(), usage=Usage(input=301), finish="stop"))
    settlement.close()
    assert attempt.overrun and spent(process) == 301_000 and doctor(process.database) == []


def test_a_call_that_was_never_sent_gives_everything_back(process, account):
    bind(process, 300_000)
    settlement = begin(process, account)
    settlement.unused(attempt_at(own()))
    settlement.begin(0, own())
    settlement.settle(attempt_at(own(), usage=USED, finish="stop"))
    settlement.close()
    assert spent(process) == 20_000


def test_a_billed_failed_call_counts_and_the_next_one_has_a_new_reservation(process, account):
    bind(process, 330_000)
    settlement = begin(process, account)
    settlement.failed(attempt_at(own(), usage=USED, error=UpstreamFailed("no"), finish="error"))
    settlement.begin(1, own())
    settlement.settle(attempt_at(own(), 1, usage=USED, finish="stop"))
    settlement.close()
    process.rest()
    assert spent(process) == 40_000 and doctor(process.database) == []


@pytest.mark.parametrize("dies", [True, False])
def test_unsettled_calls_count_against_the_bound(start_billing, account, dies):
    first = start_billing()
    bind(first, DOLLAR)
    first.ledger.grant(account.organization, DOLLAR, "start")
    settlement = begin(first, account)
    if dies:
        first.die()
        start_billing().recovery.run()
    else:
        settlement.close()
        first.rest()
    (row,) = first.rows()
    assert (row.finish, row.cost_nusd, row.byok) == ("interrupted", 100_000, True)
    assert spent(first) == 100_000 and doctor(first.database) == []


def test_doctor_shows_one_nano_dollar_of_difference(process, account):
    bind(process, DOLLAR)
    begin(process, account).settle(attempt_at(own(), usage=USED, finish="stop"))
    assert doctor(process.database) == []
    sql = "UPDATE budget SET settled_nusd = settled_nusd + 1 WHERE scope = 'provider_key'"
    process.database.write(lambda: process.database.execute(sql))
    assert len(doctor(process.database)) == 1
