import pytest

from gateway.errors import InvalidRequest
from gateway.limits.budgets import Limits
from gateway.limits.periods import read_period
from gateway.limits.spending import CostBound

DOLLAR = 10**9


def spend(books, payer, nusd):
    books.ledger.grant(payer.organization_id, nusd, f"more:{nusd}")
    books.worker.pay(books.worker.spending.reserve(payer, CostBound(nusd, 0, 0, True)), nusd)
    books.worker.be_idle()


def test_a_key_without_limits_shows_its_usage(books, payer):
    spend(books, payer, DOLLAR)
    status = books.budgets.status(payer.key_id)
    assert (status.usage_nusd, status.limits, status.period_resets_us) == (DOLLAR, Limits(), None)


def test_an_unknown_key_has_spent_nothing(books, payer):
    assert books.budgets.status(payer.key_id).usage_nusd == 0


def test_limits_read_back_as_they_were_set(books, payer):
    limits = Limits(5 * DOLLAR, DOLLAR, read_period("2w"))
    books.budgets.set_limits("key", payer.key_id, limits)
    assert books.budgets.status(payer.key_id).limits == limits


def test_a_changed_period_starts_at_zero_and_the_total_goes_on(books, payer):
    books.budgets.set_limits("key", payer.key_id, Limits(None, 5 * DOLLAR, read_period("1mo")))
    spend(books, payer, DOLLAR)
    books.budgets.set_limits("key", payer.key_id, Limits(None, 5 * DOLLAR, read_period("1d")))
    status = books.budgets.status(payer.key_id)
    assert (status.usage_nusd, status.period_usage_nusd, status.period_started_us) == (DOLLAR, 0, None)


def test_an_unchanged_period_keeps_its_usage(books, payer):
    month = read_period("1mo")
    books.budgets.set_limits("key", payer.key_id, Limits(None, 5 * DOLLAR, month))
    spend(books, payer, DOLLAR)
    books.budgets.set_limits("key", payer.key_id, Limits(9 * DOLLAR, 5 * DOLLAR, month))
    assert books.budgets.status(payer.key_id).period_usage_nusd == DOLLAR


def test_cleared_limits_leave_the_counters(books, payer):
    books.budgets.set_limits("member", payer.member_id, Limits(DOLLAR, DOLLAR, read_period("1h")))
    spend(books, payer, DOLLAR)
    books.budgets.set_limits("member", payer.member_id, Limits())
    status = books.budgets.status(payer.member_id)
    assert (status.limits, status.usage_nusd, status.period_usage_nusd) == (Limits(), DOLLAR, 0)


@pytest.mark.parametrize("limits", [Limits(-1), Limits(None, 5), Limits(None, None, read_period("1d"))])
def test_half_a_period_limit_or_a_negative_one_is_refused(books, payer, limits):
    with pytest.raises(InvalidRequest):
        books.budgets.set_limits("key", payer.key_id, limits)
