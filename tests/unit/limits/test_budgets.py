from itertools import count

import pytest
from support.limits import age

from gateway.errors import InvalidRequest, SpendingLimitReached
from gateway.limits.budgets import Limits
from gateway.limits.periods import read_period
from gateway.limits.spending import CostBound

DOLLAR = 10**9
NUMBERS = count()


def spend(books, payer, nusd):
    books.ledger.grant(payer.organization_id, nusd, f"more:{next(NUMBERS)}")
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


DAY = read_period("1d")
EDITS = {
    "raised": [Limits(None, 6 * DOLLAR, DAY)],
    "lowered": [Limits(None, 2 * DOLLAR, DAY)],
    "with another total": [Limits(50 * DOLLAR, 5 * DOLLAR, DAY)],
    "with other alerts": [Limits(None, 5 * DOLLAR, DAY, (10,))],
    "in other units": [Limits(None, 5 * DOLLAR, read_period("24h"))],
    "removed and set again": [Limits(), Limits(None, 5 * DOLLAR, DAY)],
    "removed and set to another amount": [Limits(), Limits(None, 7 * DOLLAR, DAY)],
    "edited six times": [Limits(None, (5 + number % 2) * DOLLAR, DAY) for number in range(6)],
}


@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS)
def test_an_edited_period_limit_forgets_nothing(books, payer, edits):
    books.budgets.set_limits("key", payer.key_id, Limits(None, 5 * DOLLAR, DAY))
    for edit in edits:
        spend(books, payer, DOLLAR // 4)
        books.budgets.set_limits("key", payer.key_id, edit)
    status = books.budgets.status(payer.key_id)
    assert status.period_usage_nusd == status.usage_nusd == len(edits) * DOLLAR // 4
    left = edits[-1].period_nusd - status.period_usage_nusd
    spend(books, payer, left)
    with pytest.raises(SpendingLimitReached):
        books.worker.spending.reserve(payer, CostBound(1, 0, 0, True), patient=False)


def test_a_period_that_is_over_begins_anew_although_its_limit_was_removed_meanwhile(books, payer):
    books.budgets.set_limits("key", payer.key_id, Limits(None, DOLLAR, DAY))
    spend(books, payer, DOLLAR)
    books.budgets.set_limits("key", payer.key_id, Limits())
    spend(books, payer, 3 * DOLLAR)
    age(books, payer, 86_401)
    spend(books, payer, 2 * DOLLAR)
    books.budgets.set_limits("key", payer.key_id, Limits(None, DOLLAR, DAY))
    assert books.budgets.status(payer.key_id).period_usage_nusd == 0
    spend(books, payer, DOLLAR)
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
