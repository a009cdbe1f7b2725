"""Reservations of jobs and sessions: they outlive workers, count in every budget, and end exactly once."""

import gevent
import pytest
from support.limits import CALL, CENT, DOLLAR, age, attempt, counters, fund

from gateway import ids
from gateway.errors import NotFound, OutOfCredits, SpendingLimitReached
from gateway.limits.budgets import Limits
from gateway.limits.cost_bound import CostBound, Payer
from gateway.limits.holds import Holds
from gateway.limits.lease_folding import list_lost, return_leases
from gateway.limits.leases import load
from gateway.limits.periods import read_period

VIDEO = CostBound(30 * CENT, 0, 0, True)


@pytest.fixture
def holds(books):
    return Holds(books.worker.database)


@pytest.fixture
def job():
    return ids.new("video")


def every(books, payer):
    """(settled, leased) of the key's total, the member's total and the credits."""
    places = (f"{payer.key_id}:total", f"{payer.member_id}:total", f"{payer.organization_id}:credits")
    return [counters(books, place) for place in places]


def limit_all(books, payer, nusd=DOLLAR):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=nusd))
    books.budgets.set_limits("member", payer.member_id, Limits(total_nusd=nusd))


def test_a_hold_counts_as_leased_in_every_budget(holds, books, payer, job):
    limit_all(books, payer)
    assert holds.place(job, payer, VIDEO).amount_nusd == 30 * CENT
    assert every(books, payer) == [(0, 30 * CENT)] * 3


def test_the_cost_of_a_job_is_counted_once_by_concurrent_pollers(holds, books, payer, job):
    limit_all(books, payer)
    holds.place(job, payer, VIDEO)
    written = []
    pollers = [gevent.spawn(holds.settle, job, 20 * CENT, True, lambda: written.append(1)) for _ in range(8)]
    assert sorted(poller.get(timeout=30) for poller in pollers) == [False] * 7 + [True]
    assert written == [1] and every(books, payer) == [(20 * CENT, 0)] * 3
    assert holds.find(job) is None


def test_a_hold_outlives_the_worker_that_placed_it(make_worker, holds, books, payer, job):
    limit_all(books, payer)
    dead = make_worker()
    Holds(dead.database).place(job, payer, VIDEO)
    epoch = dead.control.epoch
    dead.stop()
    return_leases(books.worker.database, epoch, keep_rows=False)
    assert list_lost(books.worker.database, 0) == []
    assert every(books, payer) == [(0, 30 * CENT)] * 3
    assert holds.settle(job, 25 * CENT, True, lambda: None) and every(books, payer) == [(25 * CENT, 0)] * 3


def test_a_hold_without_an_owner_is_never_swept_as_lost(holds, books, payer, job):
    limit_all(books, payer)
    holds.place(job, payer, VIDEO)
    sql = "UPDATE lease SET taken_at = 0"
    books.worker.database.write(lambda: books.worker.database.execute(sql))
    assert list_lost(books.worker.database, 0) == []


def test_a_job_given_up_costs_nothing(holds, books, payer, job):
    limit_all(books, payer)
    holds.place(job, payer, VIDEO)
    assert holds.release(job) and not holds.release(job)
    assert every(books, payer) == [(0, 0)] * 3


def test_placing_again_is_the_same_hold(holds, books, payer, job):
    limit_all(books, payer)
    assert holds.place(job, payer, VIDEO) == holds.place(job, payer, VIDEO)
    assert every(books, payer) == [(0, 30 * CENT)] * 3


def test_two_who_place_one_job_at_once_get_the_same_hold(holds, books, payer, job, monkeypatch):
    limit_all(books, payer)
    looked = []

    def load_together(database, *args, **kwargs):
        looked.append(job)
        while database.kind == "postgresql" and len(looked) < 2:
            gevent.sleep(0.005)
        return load(database, *args, **kwargs)

    monkeypatch.setattr("gateway.limits.holds.load", load_together)
    both = [gevent.spawn(holds.place, job, payer, VIDEO) for _ in range(2)]
    first, second = (one.get(timeout=60) for one in both)
    assert first == second and every(books, payer) == [(0, 30 * CENT)] * 3


def test_a_refused_hold_leaves_nothing_anywhere(holds, books, payer, job):
    limit_all(books, payer)
    books.budgets.set_limits("member", payer.member_id, Limits(total_nusd=29 * CENT))
    with pytest.raises(SpendingLimitReached) as raised:
        holds.place(job, payer, VIDEO)
    assert raised.value.code == "member_limit_reached"
    assert every(books, payer) == [(0, 0)] * 3 and holds.find(job) is None


def test_without_credits_there_is_no_hold(holds, books, payer, job):
    with pytest.raises(OutOfCredits):
        holds.place(job, payer, VIDEO)


@pytest.mark.slow
def test_holds_and_requests_share_one_limit_exactly(make_worker, holds, books, payer):
    limit_all(books, payer)
    placed = [holds.place(ids.new("video"), payer, VIDEO) for _ in range(3)]
    assert (
        attempt(make_worker(), payer, CALL)
        and attempt(make_worker(), payer, CALL)
        and attempt(make_worker(), payer, CALL)
    )
    assert not attempt(make_worker(), payer, CALL)
    assert all(holds.settle(one.id, one.amount_nusd, True, lambda: None) for one in placed)
    books.worker.be_idle()
    assert counters(books, f"{payer.key_id}:total")[0] <= 99 * CENT


def test_a_hold_waits_for_the_unused_lease_of_an_idle_worker(make_worker, holds, books, payer, job, monkeypatch):
    limit_all(books, payer, 31 * CENT)
    other_worker = make_worker()
    reservation = other_worker.spending.reserve(payer, CALL)
    other_worker.pay(reservation, CENT)
    monkeypatch.setattr("gateway.limits.holds.pause", lambda seconds: other_worker.be_idle())
    assert holds.place(job, payer, VIDEO).amount_nusd == 30 * CENT


def test_a_caller_with_own_keys_pays_no_credits(holds, books, payer, job):
    own = payer._replace(credits=False)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=DOLLAR))
    holds.place(job, own, VIDEO)
    assert holds.settle(job, 30 * CENT, False, lambda: None)
    assert counters(books, f"{payer.key_id}:total") == (30 * CENT, 0)


def test_credits_are_spared_where_an_own_key_served_after_all(holds, books, payer, job):
    limit_all(books, payer)
    holds.place(job, payer, VIDEO)
    assert holds.settle(job, 30 * CENT, False, lambda: None)
    assert every(books, payer) == [(30 * CENT, 0), (30 * CENT, 0), (0, 0)]


def test_a_cost_belongs_to_the_window_of_its_placing(holds, books, payer, job):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(period_nusd=DOLLAR, period=read_period("1d")))
    holds.place(job, payer, VIDEO)
    age(books, payer, 25 * 3600)
    other_job = ids.new("video")
    holds.place(other_job, payer, VIDEO)
    assert holds.settle(job, 30 * CENT, True, lambda: None)
    assert counters(books, f"{payer.key_id}:window") == (0, 30 * CENT)


def test_a_session_may_grow_while_the_budget_allows(holds, books, payer, job):
    limit_all(books, payer)
    holds.place(job, payer, VIDEO)
    holds.extend(job, payer, 60 * CENT)
    assert every(books, payer) == [(0, 90 * CENT)] * 3
    with pytest.raises(SpendingLimitReached) as raised:
        holds.extend(job, payer, 11 * CENT)
    assert raised.value.code == "budget_exhausted_mid_stream"
    assert every(books, payer) == [(0, 90 * CENT)] * 3
    holds.release(job)
    with pytest.raises(NotFound):
        holds.extend(job, payer, CENT)


def test_rows_that_cannot_be_written_leave_the_hold_as_it_was(holds, books, payer, job):
    limit_all(books, payer)
    holds.place(job, payer, VIDEO)

    def refuse():
        raise ValueError("no such column")

    with pytest.raises(ValueError):
        holds.settle(job, 30 * CENT, True, refuse)
    assert every(books, payer) == [(0, 30 * CENT)] * 3 and holds.find(job) is not None


def test_without_any_limit_a_job_is_still_counted(holds, books, payer, job):
    anybody = Payer(payer.key_id, "", payer.organization_id, False)
    holds.place(job, anybody, VIDEO)
    assert counters(books, f"{payer.key_id}:total") == (0, 0)
    holds.settle(job, 7 * CENT, False, lambda: None)
    assert counters(books, f"{payer.key_id}:total") == (7 * CENT, 0)
