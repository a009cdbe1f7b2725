"""Leases of the members of a limit for each: kept for minutes, returned when other workers need what they hold."""

import pytest
from support.limits import DOLLAR

from gateway import ids
from gateway.accounts.limit_drafts import LimitDraft
from gateway.accounts.spending_limits import SpendingLimits
from gateway.errors import BudgetInUse, SpendingLimitReached
from gateway.limits.cost_bound import CostBound, Payer
from gateway.limits.lease_keeping import LOOK_S, RESTING_S, ROUND_S
from gateway.limits.limit_rules import LimitSet, Subject

CALLS = 200
PRICE = DOLLAR // CALLS
CALL = CostBound(PRICE, 0, 0, True)


class EndUsers:
    """The end users of an organization, who have a dollar each; all share a key."""

    def __init__(self, books) -> None:
        self.organization = ids.new("org")
        self.key = ids.new("key")
        limits = SpendingLimits(books.worker.database, books.worker.control)
        draft = LimitDraft((Subject("user", each=True),), DOLLAR, "1d")
        self.rule = limits.put(self.organization, "users", draft, actor="operator").rule

    def payer(self, user: str) -> Payer:
        share = self.rule.share_of([user])
        return Payer(self.key, "", self.organization, False, limits=LimitSet([share]))

    def pay(self, worker, user: str, nusd: int = PRICE) -> None:
        worker.pay(worker.spending.reserve(self.payer(user), CostBound(nusd, 0, 0, True), patient=False), nusd)

    def spend_all(self, worker, user: str) -> int:
        """Return how many calls are admitted."""
        for number in range(CALLS + 1):
            try:
                self.pay(worker, user)
            except (SpendingLimitReached, BudgetInUse):
                return number
        raise AssertionError("no limit refused")


@pytest.fixture
def users(books) -> EndUsers:
    return EndUsers(books)


def rounds(worker, clock, seconds: float) -> None:
    worker.journal.flush(60)
    for _ in range(int(seconds / ROUND_S)):
        clock.advance(ROUND_S)
        worker.spending.maintain()


def commits(worker, monkeypatch) -> list:
    done = []
    write = worker.money.write
    monkeypatch.setattr(worker.money, "write", lambda work, *more: done.append(work) or write(work, *more))
    return done


def test_an_end_user_who_comes_back_after_minutes_costs_no_commit(make_worker, users, clock, monkeypatch):
    worker = make_worker()
    for number in range(20):
        users.pay(worker, f"user-{number}")
    for _ in range(12):
        users.pay(worker, "busy", 1)  # the key is in use
        rounds(worker, clock, 5.0)
    done = commits(worker, monkeypatch)
    for number in range(20):
        users.pay(worker, f"user-{number}")
    assert not done


def test_resting_leases_are_counted_and_returned_in_the_end(make_worker, users, clock):
    worker = make_worker()
    for number in range(20):
        users.pay(worker, f"user-{number}")
    rounds(worker, clock, RESTING_S + 2 * LOOK_S)
    budgets = worker.database.query_rows("SELECT settled_nusd, leased_nusd FROM budget WHERE member <> ''")
    assert budgets == [(PRICE, 0)] * 20
    assert not any(held.hold.share for held in worker.spending._keeper.held.values())


def test_a_resting_lease_goes_to_the_worker_that_needs_it(make_worker, users, clock):
    first, second = make_worker(), make_worker()
    users.pay(first, "ann")
    rounds(first, clock, 5.0)
    admitted = users.spend_all(second, "ann")
    assert CALLS - 5 <= admitted < CALLS - 1
    rounds(first, clock, 2 * LOOK_S)
    rounds(second, clock, 2.0)
    assert 1 + admitted + users.spend_all(second, "ann") == CALLS
    first.be_idle()
    second.be_idle()
    assert users.spend_all(first, "ann") == 0


def test_a_lease_too_small_for_a_request_is_returned_at_once(make_worker, users, clock):
    worker = make_worker()
    users.pay(worker, "ann", DOLLAR // 10)
    worker.pay(worker.spending.reserve(users.payer("bob"), CostBound(DOLLAR // 10, 0, 0, True), patient=False), PRICE)
    rounds(worker, clock, 2.0)
    reserved = worker.database.query_rows("SELECT leased_nusd FROM budget WHERE member IN ('ann', 'bob')")
    assert reserved == [(0,), (0,)]


def test_a_lease_in_use_forgets_end_users_after_their_leases_ended(make_worker, users, clock):
    worker = make_worker()
    for number in range(50):
        users.pay(worker, f"user-{number}")
    for _ in range(3):
        rounds(worker, clock, RESTING_S / 2)
        users.pay(worker, "ann")
    keeper = worker.spending._keeper
    [held] = [one for one in keeper.held.values() if one.hold.scope == "key" and one.hold.kind == "total"]
    assert len(held.payers) == len(keeper.budget_sets) == 1


def test_an_overrun_of_a_resting_lease_is_counted_at_once(make_worker, users, clock):
    worker = make_worker()
    users.pay(worker, "ann")
    rounds(worker, clock, 3.0)
    worker.pay(worker.spending.reserve(users.payer("ann"), CALL, patient=False), DOLLAR // 2)
    rounds(worker, clock, 1.0)
    [(settled, leased)] = worker.database.query_rows(
        "SELECT settled_nusd, leased_nusd FROM budget WHERE member = 'ann'"
    )
    assert settled == DOLLAR // 2 + PRICE and leased >= 0
