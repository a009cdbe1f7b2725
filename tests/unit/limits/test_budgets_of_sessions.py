"""Budgets of sessions and runs: shared by every worker, with the limit that each request brings."""

import gevent
import pytest
from support.limits import CALL, CENT, DOLLAR, attempt, counters, fund

from gateway import ids
from gateway.errors import SpendingLimitReached

SESSION = "session_" + "a" * 32
RUN = "run_" + "b" * 32


def in_session(payer, limit=DOLLAR // 2, scope="session", ident=SESSION):
    return payer._replace(sessions=(*payer.sessions, (scope, ident, limit)))


def spend_all(workers, payers, calls=50):
    """Return how many of parallel calls, and of calls after them, were admitted."""
    jobs = [
        gevent.spawn(attempt, workers[n % len(workers)], payers[n // len(workers) % len(payers)]) for n in range(calls)
    ]
    admitted = sum(job.get(timeout=60) for job in jobs)
    while attempt(workers[0], payers[0]):
        admitted += 1
    for worker in workers:
        worker.be_idle()
    return admitted


@pytest.mark.slow
def test_fifty_parallel_sub_agents_of_two_workers_share_exactly_one_session(make_worker, books, payer):
    fund(books, payer)
    first = in_session(payer)
    second = first._replace(key_id=ids.new("key"), member_id=ids.new("member"))
    assert spend_all([make_worker(), make_worker()], [first, second]) == 16
    assert counters(books, f"{SESSION}:total") == (48 * CENT, 0)


def test_each_request_has_the_limit_that_it_brings_and_all_spending_counts(make_worker, books, payer):
    fund(books, payer)
    workers = [make_worker(), make_worker()]
    assert spend_all(workers, [in_session(payer, 6 * CENT)]) == 2
    assert spend_all(workers, [in_session(payer, 12 * CENT)]) == 2
    with pytest.raises(SpendingLimitReached) as caught:
        workers[1].spending.reserve(in_session(payer, 6 * CENT), CALL)
    assert caught.value.code == "session_budget_reached" and "start a new session" in caught.value.message
    assert counters(books, f"{SESSION}:total") == (12 * CENT, 0)
    assert attempt(workers[1], in_session(payer, 15 * CENT))
    assert not attempt(workers[0], in_session(payer, 15 * CENT))


@pytest.mark.slow
def test_requests_with_different_limits_in_parallel_never_exceed_their_own(make_worker, books, payer):
    fund(books, payer)
    low = in_session(payer, 9 * CENT)
    high = in_session(payer, 30 * CENT)
    workers = [make_worker(), make_worker()]
    jobs = [gevent.spawn(attempt, workers[n % 2], (low, high)[n // 2 % 2]) for n in range(40)]
    gevent.joinall(jobs, timeout=60)
    for one in workers:
        one.be_idle()
    while attempt(workers[0], high):
        pass
    workers[0].be_idle()
    assert counters(books, f"{SESSION}:total") == (30 * CENT, 0)
    assert not attempt(workers[1], low)


def test_a_run_bounds_all_of_its_sessions(make_worker, books, payer):
    fund(books, payer)
    agents = [
        in_session(in_session(payer, DOLLAR, ident="session_" + f"{n:032x}"), 20 * CENT, "run", RUN) for n in range(5)
    ]
    assert spend_all([make_worker(), make_worker()], agents) == 6
    assert counters(books, f"{RUN}:total") == (18 * CENT, 0)
    with pytest.raises(SpendingLimitReached) as caught:
        make_worker().spending.reserve(agents[0], CALL)
    assert caught.value.code == "run_budget_reached"
