from contextlib import nullcontext

import gevent
import pytest
from msgspec.structs import replace
from support.limits import CALL, CENT, DOLLAR, age, attempt, counters, fund

from gateway import ids
from gateway.errors import BudgetInUse, OutOfCredits, SpendingLimitReached, Unavailable
from gateway.limits.budgets import Limits
from gateway.limits.cost_bound import fit
from gateway.limits.lease_folding import LeaseChange, fold, return_leases
from gateway.limits.lease_keeping import OutageLimits
from gateway.limits.periods import read_period
from gateway.limits.spending import CostBound
from gateway.money import MILLION


@pytest.mark.slow
def test_a_dollar_key_admits_exactly_thirty_three_calls_of_three_cents(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=DOLLAR))
    workers = [make_worker() for _ in range(4)]
    jobs = [gevent.spawn(attempt, workers[number % 4], payer) for number in range(500)]
    accepted = sum(job.get(timeout=60) for job in jobs)
    assert accepted <= 33
    while attempt(workers[0], payer):
        accepted += 1
    assert accepted == 33
    for one in workers:
        one.be_idle()
    assert counters(books, f"{payer.key_id}:total") == (99 * CENT, 0)
    assert books.ledger.balance(payer.organization_id).balance_nusd == 100 * DOLLAR - 99 * CENT


def test_an_organization_without_credits_is_refused(make_worker, books, payer):
    with pytest.raises(OutOfCredits, match=r"0 USD are left.*: add credits, or make a smaller request"):
        make_worker().spending.reserve(payer, CALL)


def test_each_rejected_request_reports_its_own_cost(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=CENT))
    worker = make_worker()
    for cents in (2, 3, 50):  # within the moment for which a shortage is remembered
        with pytest.raises(SpendingLimitReached, match=rf"cost up to {cents / 100:g} USD: raise the limit, or make"):
            worker.spending.reserve(payer, CostBound(cents * CENT, 0, 0, True))


def test_a_free_call_needs_no_credits(make_worker, books, payer):
    reservation = make_worker().spending.reserve(payer, CostBound(0, 0, 1000, False))
    assert reservation.amount_nusd == 0 and reservation.output_cap is None


def test_a_caller_with_own_keys_needs_no_credits(make_worker, books, payer):
    worker = make_worker()
    worker.pay(worker.spending.reserve(payer._replace(credits=False), CALL), CENT)
    worker.be_idle()
    assert books.budgets.status(payer.key_id).usage_nusd == CENT


def test_spending_is_counted_without_any_limit(make_worker, books, payer):
    fund(books, payer)
    worker = make_worker()
    worker.pay(worker.spending.reserve(payer, CALL), CENT)
    assert books.budgets.status(payer.key_id).usage_nusd == CENT
    assert books.budgets.status(payer.member_id).usage_nusd == CENT
    assert books.ledger.balance(payer.organization_id).balance_nusd == 100 * DOLLAR - CENT


def test_the_second_request_reads_nothing_from_the_store(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=50 * DOLLAR))
    worker = make_worker()
    worker.spending.reserve(payer, CostBound(CENT, 0, 0, True)).release()
    worker.money.write = worker.money.read = None
    assert worker.spending.reserve(payer, CostBound(CENT, 0, 0, True)).amount_nusd == CENT


def test_without_max_tokens_the_output_gets_half_of_what_remains(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("member", payer.member_id, Limits(total_nusd=DOLLAR))
    bound = CostBound(0, DOLLAR, 10 * MILLION, False)
    reservation = make_worker().spending.reserve(payer, bound)
    assert reservation.output_cap == MILLION // 2
    assert reservation.amount_nusd == DOLLAR // 2


def test_too_little_for_256_tokens_is_refused(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=255))
    with pytest.raises(SpendingLimitReached) as caught:
        make_worker().spending.reserve(payer, CostBound(0, MILLION, 4096, False))
    assert caught.value.code == "key_limit_reached"


def test_refusals_show_their_limits_apart(make_worker, books, payer):
    fund(books, payer)
    month = Limits(period_nusd=CENT, period=read_period("1mo"))
    other_payer = payer._replace(key_id=ids.new("key"), member_id=ids.new("member"))
    books.budgets.set_limits("key", payer.key_id, month)
    books.budgets.set_limits("member", other_payer.member_id, Limits(total_nusd=CENT))
    worker = make_worker()
    with pytest.raises(SpendingLimitReached, match="per month") as period:
        worker.spending.reserve(payer, CALL)
    with pytest.raises(SpendingLimitReached, match="member") as member:
        worker.spending.reserve(other_payer, CALL)
    assert period.value.code == "key_period_limit_reached"
    assert member.value.code == "member_limit_reached"


def test_a_refusal_leaves_nothing_reserved_anywhere(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("member", payer.member_id, Limits(total_nusd=CENT))
    worker = make_worker()
    with pytest.raises(SpendingLimitReached):
        worker.spending.reserve(payer, CALL)
    assert worker.spending.reserved_nusd() == 0
    assert counters(books, f"{payer.organization_id}:credits") == (0, 0)


@pytest.mark.parametrize("kind", ["key", "credits"])
def test_a_budget_that_others_only_occupy_can_be_tried_again(make_worker, books, payer, clock, kind):
    """It was a 402, as if the limit were spent, although most requests cost less than they reserve."""
    fund(books, payer, 4 * CENT if kind == "credits" else 100 * DOLLAR)
    if kind == "key":
        books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=4 * CENT))
    one, two = make_worker(), make_worker()
    running = one.spending.reserve(payer, CALL)
    for each in (one, two):
        with pytest.raises(BudgetInUse, match="progress") as caught:
            each.spending.reserve(payer, CALL, patient=False)
        assert (caught.value.status, caught.value.retry_after) == (429, 2.0)
        with pytest.raises((SpendingLimitReached, OutOfCredits)):
            each.spending.reserve(payer, CostBound(5 * CENT, 0, 0, True), patient=False)
    one.pay(running, 2 * CENT)
    clock.advance(1)  # a shortage is remembered for a moment
    for each in (one, two):
        with pytest.raises((SpendingLimitReached, OutOfCredits)):
            each.spending.reserve(payer, CALL, patient=False)


def test_a_window_starts_with_the_first_spend_and_lapses(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(None, 4 * CENT, read_period("12h")))
    worker = make_worker()
    assert books.budgets.status(payer.key_id).period_started_us is None
    worker.pay(worker.spending.reserve(payer, CALL), 3 * CENT)
    status = books.budgets.status(payer.key_id)
    assert status.period_usage_nusd == 3 * CENT
    assert status.period_resets_us - status.period_started_us == 12 * 3600 * 10**6
    worker.be_idle()
    age(books, payer, 12 * 3600)
    assert books.budgets.status(payer.key_id).period_usage_nusd == 0


def test_a_window_in_which_nothing_settled_never_started(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(None, DOLLAR, read_period("1d")))
    worker = make_worker()
    worker.spending.reserve(payer, CALL).release()
    worker.be_idle()
    sql = "SELECT window_start FROM budget WHERE id = ?"
    found = worker.database.read(lambda: worker.database.execute(sql, (f"{payer.key_id}:window",)).fetchone())
    assert found == (None,)


def test_a_lapsed_window_gives_its_whole_limit_again(make_worker, books, payer, clock):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(None, 4 * CENT, read_period("1h")))
    worker = make_worker()
    running = worker.spending.reserve(payer, CALL)
    clock.advance(3601)
    age(books, payer, 3601)
    worker.control._refresh(), worker.control._beat()
    assert worker.spending.reserve(payer, CALL).amount_nusd == 3 * CENT
    worker.pay(running, 3 * CENT)  # Its cost belongs to the window of its admission.
    assert books.budgets.status(payer.key_id).period_usage_nusd == 0


def test_a_cost_above_the_reservation_counts_in_full(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=4 * CENT))
    worker = make_worker()
    assert worker.pay(worker.spending.reserve(payer, CALL), 10 * CENT) is True
    worker.be_idle()
    assert counters(books, f"{payer.key_id}:total") == (10 * CENT, 0)
    assert not attempt(worker, payer)


def test_a_cost_far_above_the_reservation_keeps_no_other_request_waiting(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=50 * DOLLAR))
    worker = make_worker()
    worker.pay(worker.spending.reserve(payer, CALL), 30 * DOLLAR)
    following = [worker.spending.reserve(payer, CALL), worker.spending.reserve(payer, CostBound(0, 0, 0, True))]
    assert worker.spending.reserve(payer, CostBound(15 * DOLLAR, 0, 0, True)).amount_nusd == 15 * DOLLAR
    with pytest.raises(BudgetInUse, match=r"20 USD left; all but 4\.97 USD of it are reserved"):
        worker.spending.reserve(payer, CostBound(5 * DOLLAR, 0, 0, True))
    for reservation in following:
        worker.pay(reservation, reservation.amount_nusd)
    worker.be_idle()
    assert counters(books, f"{payer.key_id}:total") == (30 * DOLLAR + 3 * CENT, 15 * DOLLAR)


def test_a_budget_exceeded_by_one_cost_is_reported_at_once(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=4 * CENT))
    worker = make_worker()
    worker.pay(worker.spending.reserve(payer, CALL), 10 * CENT)
    free = worker.spending.reserve(payer, CostBound(0, 0, 0, True))
    with pytest.raises(SpendingLimitReached, match="and 0 USD are left"):
        worker.spending.reserve(payer, CALL)
    free.release()
    worker.be_idle()
    assert counters(books, f"{payer.key_id}:total") == (10 * CENT, 0)


def test_an_overrun_is_not_held_against_the_budget_twice(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=6 * CENT))
    worker = make_worker()
    first, running = worker.spending.reserve(payer, CALL), worker.spending.reserve(payer, CALL)
    worker.pay(first, 10 * CENT)
    worker.be_idle()
    assert counters(books, f"{payer.key_id}:total") == (10 * CENT, running.amount_nusd)
    running.release()
    worker.be_idle()
    assert counters(books, f"{payer.key_id}:total") == (10 * CENT, 0)


def test_a_reservation_grows_while_the_budget_allows(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=10 * CENT))
    reservation = make_worker().spending.reserve(payer, CALL)
    assert reservation.extend(7 * CENT)
    assert not reservation.extend(1)
    assert reservation.amount_nusd == 10 * CENT


def test_a_reservation_that_ends_while_it_grows_holds_nothing(make_worker, books, payer, monkeypatch):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=DOLLAR))
    worker = make_worker()
    reservation = worker.spending.reserve(payer, CALL)
    enlarge = worker.spending.enlarge

    def end_meanwhile(slices, nusd):
        reservation.release()
        return enlarge(slices, nusd)

    monkeypatch.setattr(worker.spending, "enlarge", end_meanwhile)
    assert reservation.require(DOLLAR // 2) is None
    assert worker.spending.reserved_nusd() == 0 and reservation.amount_nusd == CALL.bound_nusd


def test_settling_and_releasing_twice_changes_nothing(make_worker, books, payer):
    fund(books, payer)
    worker = make_worker()
    reservation = worker.spending.reserve(payer, CALL)
    worker.pay(reservation, CENT)
    reservation.release()
    assert reservation.settle(2 * CENT) is False
    assert worker.spending.reserved_nusd() == 0
    worker.be_idle()
    assert counters(books, f"{payer.organization_id}:credits") == (CENT, 0)


def stand_still(one, clock):
    """As a machine that is paused: the worker's row runs out before its next beat."""
    one.control._stopping.set()
    gevent.sleep(0.6)
    clock.advance(2.0)


def test_a_worker_that_stood_still_serves_the_first_request_after_it(make_worker, books, payer, clock):
    fund(books, payer)
    worker = make_worker()
    reservation = worker.spending.reserve(payer, CALL)
    stand_still(worker, clock)
    reservation.check()
    assert worker.control.owns(worker.control.epoch)


def test_a_worker_that_the_others_gave_up_admits_nothing_from_its_old_leases(make_worker, books, payer, clock):
    fund(books, payer)
    worker = make_worker()
    reservation = worker.spending.reserve(payer, CALL)
    stand_still(worker, clock)
    return_leases(books.worker.database, worker.control.epoch, keep_rows=True)
    with pytest.raises(Unavailable):
        reservation.check()
    assert attempt(worker, payer)


def test_a_worker_with_an_expired_row_admits_nothing_while_the_store_is_down(
    make_worker, books, payer, clock, monkeypatch
):
    fund(books, payer)
    worker = make_worker()
    reservation = worker.spending.reserve(payer, CALL)
    stand_still(worker, clock)

    def away(work, patient=False):
        raise Unavailable("injected")

    monkeypatch.setattr(worker.database, "write", away)
    with pytest.raises(Unavailable):
        reservation.check()


def test_a_lowered_limit_is_in_force_at_once(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=50 * DOLLAR))
    worker = make_worker()
    worker.spending.reserve(payer, CostBound(CENT, 0, 0, True)).release()
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=CENT))
    assert not attempt(worker, payer)


def test_a_raised_limit_is_in_force_at_once(make_worker, books, payer):
    fund(books, payer)
    worker = make_worker()
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=CENT))
    assert not attempt(worker, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=DOLLAR))
    assert attempt(worker, payer)


def test_unused_amounts_of_one_worker_serve_another_within_a_second(make_worker, books, payer, clock, monkeypatch):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=4 * CENT))
    first, second = make_worker(), make_worker()
    first.spending.reserve(payer, CALL).release()

    def tend_meanwhile(seconds):
        clock.advance(seconds)
        first.spending.maintain()

    monkeypatch.setattr("gateway.limits.spending.pause", tend_meanwhile)
    assert attempt(second, payer)


def test_five_hundred_waiters_share_few_refills(make_worker, books, payer):
    fund(books, payer)
    worker = make_worker()
    calls, write = [], worker.money.write
    worker.money.write = lambda work: (calls.append(1), write(work))[1]
    jobs = [gevent.spawn(worker.spending.reserve, payer, CostBound(CENT, 0, 0, True)) for _ in range(500)]
    assert len([job.get(timeout=30) for job in jobs]) == 500
    assert len(calls) < 10


def test_a_caller_who_hangs_up_while_waiting_leaves_nothing_reserved(make_worker, books, payer):
    fund(books, payer)
    worker = make_worker()
    waiting = gevent.spawn(worker.spending.reserve, payer, CALL)
    gevent.sleep(0)
    waiting.kill()
    gevent.sleep(0.3)
    assert worker.spending.reserved_nusd() == 0
    worker.be_idle()
    assert counters(books, f"{payer.organization_id}:credits") == (0, 0)


def test_a_new_limit_of_the_member_holds_for_a_key_that_was_never_used_here(make_worker, books, payer):
    fund(books, payer)
    worker = make_worker()
    worker.spending.reserve(payer, CALL).release()
    books.budgets.set_limits("member", payer.member_id, Limits(total_nusd=CENT))
    assert not attempt(worker, payer._replace(key_id=ids.new("key")))


def in_team(payer, name="Research"):
    """The payer as a member of one more team with limits."""
    return payer._replace(teams=(*payer.teams, (ids.new("team"), name)))


def test_members_of_a_team_share_exactly_its_limit(make_worker, books, payer):
    fund(books, payer)
    first = in_team(payer)
    second = first._replace(key_id=ids.new("key"), member_id=ids.new("member"))
    books.budgets.set_limits("team", first.teams[0][0], Limits(total_nusd=DOLLAR))
    workers = [make_worker() for _ in range(2)]
    calls = [(workers[number % 2], (first, second)[number // 2 % 2]) for number in range(100)]
    jobs = [gevent.spawn(attempt, *call) for call in calls]
    accepted = sum(job.get(timeout=60) for job in jobs)
    while attempt(workers[0], second):
        accepted += 1
    assert accepted == 33
    for one in workers:
        one.be_idle()
    assert counters(books, f"{first.teams[0][0]}:total") == (99 * CENT, 0)


def test_a_rejection_names_the_team_with_the_reached_limit(make_worker, books, payer):
    fund(books, payer)
    both = in_team(in_team(payer, "Everyone"), "Research")
    books.budgets.set_limits("team", both.teams[1][0], Limits(None, CENT, read_period("2w")))
    with pytest.raises(SpendingLimitReached, match=r'team "Research".* per 2 weeks') as caught:
        make_worker().spending.reserve(both, CALL)
    assert caught.value.code == "team_limit_reached"


def test_a_team_that_refuses_leaves_nothing_reserved_at_the_others(make_worker, books, payer):
    fund(books, payer)
    both = in_team(in_team(payer))
    books.budgets.set_limits("team", both.teams[0][0], Limits(total_nusd=DOLLAR))
    books.budgets.set_limits("team", both.teams[1][0], Limits(total_nusd=CENT))
    worker = make_worker()
    assert not attempt(worker, both)
    assert counters(books, f"{both.teams[0][0]}:total") == (0, 0)
    assert worker.spending.reserved_nusd() == 0


def test_a_reservation_made_before_a_member_left_settles_at_the_team(make_worker, books, payer):
    fund(books, payer)
    member = in_team(payer)
    team = member.teams[0][0]
    books.budgets.set_limits("team", team, Limits(total_nusd=DOLLAR))
    worker = make_worker()
    running = worker.spending.reserve(member, CALL)
    assert attempt(worker, payer)
    worker.pay(running, CENT)
    assert books.budgets.status(team).usage_nusd == CENT


def test_a_caller_without_teams_reserves_from_no_more_budgets_than_before(make_worker, books, payer):
    fund(books, payer)
    reservation = make_worker().spending.reserve(payer, CALL)
    assert reservation.budget_set.groups == () and len(reservation.leases(True)) == 3


def test_a_limit_set_later_holds_for_members_with_shared_slices(make_worker, books, payer):
    fund(books, payer)
    first = in_team(payer)
    worker = make_worker()
    worker.spending.reserve(first, CALL).release()
    books.budgets.set_limits("team", first.teams[0][0], Limits(total_nusd=CENT))
    assert not attempt(worker, first._replace(key_id=ids.new("key"), member_id=ids.new("member")))


def test_a_lowered_limit_still_admits_what_it_has_left(make_worker, books, payer, clock, monkeypatch):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=10 * CENT))
    worker = make_worker()
    assert attempt(worker, payer)
    worker.spending.reserve(payer, CostBound(7 * CENT, 0, 0, True)).release()  # so that all the rest is in its hands
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=6 * CENT))

    def tend_meanwhile(seconds):
        clock.advance(seconds)
        worker.journal.flush(60)
        worker.spending.maintain()

    monkeypatch.setattr("gateway.limits.spending.pause", tend_meanwhile)
    assert attempt(worker, payer)
    assert not attempt(worker, payer)


@pytest.mark.parametrize("lifted", ["key", "organization"])
def test_an_answer_goes_on_when_its_limit_was_lifted_meanwhile(make_worker, books, payer, lifted):
    fund(books, payer, 6 * CENT)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=4 * CENT))
    worker = make_worker()
    running = worker.spending.reserve(payer, CALL)
    books.budgets.set_limits("key", payer.key_id, Limits())
    if lifted == "organization":
        books.ledger.set_unlimited(payer.organization_id, True)
    more = 20 * CENT if lifted == "organization" else 3 * CENT
    assert running.extend(more) and running.amount_nusd == 3 * CENT + more
    worker.pay(running, running.amount_nusd)
    worker.be_idle()
    assert counters(books, f"{payer.key_id}:total") == (3 * CENT + more, 0)
    assert counters(books, f"{payer.organization_id}:credits") == (3 * CENT + more, 0)


def test_a_request_is_admitted_under_a_limit_that_was_lifted_a_moment_ago(make_worker, books, payer):
    """Before this worker has heard of the change: its slice is of the old limit, the store knows the new one."""
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=4 * CENT))
    worker = make_worker()
    held = worker.spending.reserve(payer, CALL)
    worker.control.check = worker.spending.check = lambda version=worker.control.version: version
    books.worker.database.write(lambda: books.budgets.write_limits("key", payer.key_id, Limits()))
    assert attempt(worker, payer)
    held.release()
    worker.be_idle()
    assert counters(books, f"{payer.key_id}:total") == (3 * CENT, 0)


def test_the_remainder_of_an_ended_window_is_not_spent_in_the_next(make_worker, books, payer, clock):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(None, 4 * CENT, read_period("1h")))
    worker = make_worker()
    worker.spending.reserve(payer, CostBound(4 * CENT, 0, 0, True)).release()
    clock.advance(3601)
    age(books, payer, 3601)
    worker.control._refresh(), worker.control._beat()
    assert attempt(worker, payer) and not attempt(worker, payer)
    assert books.budgets.status(payer.key_id).period_usage_nusd == 3 * CENT


def test_a_budget_never_counts_less_than_nothing_as_leased(make_worker, books, payer):
    """An overrun that was written before what it took is reserved anew."""
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=4 * CENT))
    worker = make_worker()
    reservation = worker.spending.reserve(payer, CALL)
    worker.journal.append(*reservation.rows(10 * CENT)).wait(60)
    fold(books.worker.database, [LeaseChange(budget, lease) for lease, budget in reservation.leases(True)])
    assert counters(books, f"{payer.key_id}:total") == (10 * CENT, 0)


def test_an_unexpected_cost_of_a_free_request_counts_in_its_window(make_worker, books, payer):
    """Another worker's slice goes back meanwhile, and the window seems unused."""
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(None, DOLLAR, read_period("1d")))
    one, other = make_worker(), make_worker()
    free = one.spending.reserve(payer, CostBound(0, 0, 0, True))
    other.spending.reserve(payer, CALL).release()
    other.be_idle()
    one.pay(free, CENT)
    assert books.budgets.status(payer.key_id).period_usage_nusd == CENT
    one.be_idle()
    assert attempt(other, payer)
    assert books.budgets.status(payer.key_id).period_usage_nusd == 4 * CENT


def test_a_request_that_outlasts_its_window_begins_no_new_one_and_is_not_limited_by_it(
    make_worker, books, payer, clock
):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(None, 4 * CENT, read_period("1h")))
    worker = make_worker()
    running = worker.spending.reserve(payer, CALL)
    database, sql = books.worker.database, "SELECT generation FROM budget WHERE id = ?"

    def generation():
        return database.read(lambda: database.execute(sql, (f"{payer.key_id}:window",)).fetchone()[0])

    began = generation()
    clock.advance(3601)
    age(books, payer, 3601)
    worker.control._refresh(), worker.control._beat()
    assert not running.extend(7 * CENT) and generation() == began
    assert attempt(worker, payer) and generation() == began + 1
    assert running.extend(7 * CENT) and generation() == began + 1
    worker.pay(running, 10 * CENT)
    assert books.budgets.status(payer.key_id).period_usage_nusd == 3 * CENT


def test_a_lease_stays_until_what_was_spent_of_it_is_written(make_worker, books, payer, monkeypatch):
    fund(books, payer)
    worker = make_worker()
    reservation = worker.spending.reserve(payer, CALL)

    def away(work, patient=False):
        raise Unavailable("injected")

    with monkeypatch.context() as patch:
        for name in ("write", "write_together"):
            patch.setattr(worker.database, name, away)  # of the journal alone
        worker.journal.append(*reservation.rows(CENT))
        reservation.settle(CENT)
        worker.spending.maintain(idle_s=-1.0, keep_s=-1.0)
    worker.be_idle()
    assert counters(books, f"{payer.key_id}:total") == counters(books, f"{payer.organization_id}:credits") == (CENT, 0)


def fail_once(one, after):
    """The next write of the budgets finds no store: before it did anything, or when its commit was done."""
    write = one.money.write

    def fail(work, patient=False):
        one.money.write = write
        if after:
            write(work, patient)
        raise Unavailable("injected")

    one.money.write = fail


def leases_left(books):
    return books.worker.database.read(lambda: books.worker.database.execute("SELECT count(*) FROM lease").fetchone()[0])


@pytest.mark.parametrize("after", [False, True])
def test_leases_end_although_their_end_was_not_confirmed(make_worker, books, payer, after):
    fund(books, payer)
    worker = make_worker()
    worker.spending.reserve(payer, CALL).release()
    fail_once(worker, after)
    with pytest.raises(Unavailable):
        worker.be_idle()
    worker.be_idle()
    assert leases_left(books) == 0 and counters(books, f"{payer.organization_id}:credits") == (0, 0)


@pytest.mark.parametrize("after", [False, True])
def test_leases_with_an_unconfirmed_take_are_returned(make_worker, books, payer, after):
    fund(books, payer)
    worker = make_worker()
    fail_once(worker, after)
    with pytest.raises(Unavailable):
        worker.spending.reserve(payer, CALL)
    worker.be_idle()
    assert leases_left(books) == 0 and counters(books, f"{payer.organization_id}:credits") == (0, 0)
    assert attempt(worker, payer)


def test_a_part_that_cost_more_than_all_that_was_reserved_leaves_nothing_reserved(make_worker, books, payer):
    fund(books, payer)
    worker = make_worker()
    reservation = worker.spending.reserve(payer, CALL)
    worker.journal.append(*reservation.rows(10 * CENT)).wait(60)
    reservation.spend(10 * CENT)
    assert (reservation.amount_nusd, worker.spending.reserved_nusd()) == (0, 0)
    reservation.release()
    worker.be_idle()
    assert counters(books, f"{payer.organization_id}:credits") == (10 * CENT, 0)


def test_removed_credits_are_gone_for_every_worker(make_worker, books, payer):
    fund(books, payer)
    worker = make_worker()
    worker.spending.reserve(payer, CALL).release()
    books.ledger.post(payer.organization_id, "adjustment", -100 * DOLLAR, f"back:{payer.organization_id}")
    worker.control._refresh()
    assert not attempt(worker, payer)


def test_bounds_are_rounded_up_and_half_of_what_remains_is_the_most_without_a_limit():
    assert CostBound(0, 1, 1, True).bound_nusd == 1
    assert fit(CostBound(0, MILLION, 600, False), 1000) == (500, 500)
    assert fit(CostBound(0, MILLION, 500, False), 1000) == (500, None)
    assert fit(CostBound(0, MILLION, 600, True), 1000) == (600, None)


UNFORESEEN = CostBound(5 * DOLLAR, 0, 0, True, unforeseen_nusd=5 * DOLLAR - CENT)


@pytest.mark.parametrize("scope", ["key", "member", "team", "credits"])
def test_a_budget_without_room_for_the_unforeseen_admits_one_at_a_time(make_worker, books, payer, scope):
    fund(books, payer, DOLLAR if scope == "credits" else 100 * DOLLAR)
    if scope == "team":
        payer = payer._replace(teams=((ids.new("team"), "Research"),))
    owner = {"key": payer.key_id, "member": payer.member_id, "team": payer.teams and payer.teams[0][0]}
    if scope in owner:
        books.budgets.set_limits(scope, owner[scope], Limits(total_nusd=DOLLAR))
    workers = [make_worker() for _ in range(3)]
    workers[1].spending.reserve(payer, CostBound(CENT, 0, 0, True)).release()  # it holds an idle lease
    one = workers[0].spending.reserve(payer, UNFORESEEN)
    assert one.amount_nusd == 5 * DOLLAR
    for each in workers:
        for bound in (UNFORESEEN, CostBound(20 * CENT, 0, 0, True)):
            with pytest.raises(BudgetInUse):
                each.spending.reserve(payer, bound, patient=False)
    workers[0].pay(one, 2 * CENT)
    for each in workers:
        each.be_idle()
    two = workers[2].spending.reserve(payer, UNFORESEEN)
    workers[2].pay(two, 4 * DOLLAR)
    for each in workers:
        each.be_idle()
        with pytest.raises((SpendingLimitReached, OutOfCredits)):
            each.spending.reserve(payer, CostBound(CENT, 0, 0, True), patient=False)


LONGER = CostBound(0, 1000 * MILLION, 10_000, False, unforeseen_output=90_000)


def test_output_beyond_a_foreseen_length_is_reserved_unless_it_is_capped():
    assert LONGER.bound_nusd == 10 * CENT and LONGER.min_nusd < CENT
    assert fit(LONGER, None) == (10 * CENT, None)
    assert fit(LONGER, 2 * CENT) == (10 * CENT, None)
    assert fit(LONGER, CENT) == (CENT // 2, 5000)


def test_a_budget_without_room_for_the_longest_answer_admits_one_at_a_time(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=5 * CENT))
    workers = [make_worker() for _ in range(2)]
    one = workers[0].spending.reserve(payer, LONGER)
    assert (one.amount_nusd, one.output_cap) == (10 * CENT, None)
    for each in workers:
        with pytest.raises(BudgetInUse):
            each.spending.reserve(payer, LONGER, patient=False)
    workers[0].pay(one, CENT)


def test_amounts_reserved_beyond_a_limit_admit_no_other_request(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=DOLLAR))
    worker = make_worker()
    worker.pay(worker.spending.reserve(payer, UNFORESEEN), CENT)
    with pytest.raises(SpendingLimitReached):
        worker.spending.reserve(payer, CostBound(2 * DOLLAR, 0, 0, True), patient=False)
    worker.be_idle()
    with pytest.raises(SpendingLimitReached):
        worker.spending.reserve(payer, CostBound(DOLLAR, 0, 0, True), patient=False)
    worker.spending.reserve(payer, CostBound(DOLLAR - CENT, 0, 0, True), patient=False).release()


def test_a_budget_with_room_for_the_unforeseen_admits_several(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=11 * DOLLAR))
    worker = make_worker()
    reservations = [worker.spending.reserve(payer, UNFORESEEN) for _ in range(3)]
    assert [reservation.amount_nusd for reservation in reservations] == [5 * DOLLAR] * 3
    with pytest.raises(BudgetInUse):
        worker.spending.reserve(payer, CostBound(CENT, 0, 0, True), patient=False)


def test_no_part_of_a_known_cost_is_reserved_beyond_what_is_left():
    assert fit(CostBound(DOLLAR, 0, 0, True), DOLLAR - 1) is None
    assert fit(UNFORESEEN, CENT - 1) is None
    assert fit(UNFORESEEN, CENT).amount_nusd == 5 * DOLLAR


def test_without_the_store_a_worker_admits_requests_until_it_charged_its_amount(make_worker, books, payer):
    fund(books, payer)
    one = make_worker(OutageLimits(60.0, 2 * CALL.bound_nusd))
    first = one.spending.reserve(payer, CALL)
    one.serve_alone()
    for _ in range(2):
        one.pay(one.spending.reserve(payer, CALL), CALL.bound_nusd)
    with pytest.raises(Unavailable, match="do not cover"):
        one.spending.reserve(payer, CALL)
    assert one.spending.refused_alone == 1
    one.serve_alone(False)
    assert one.spending.reserve(payer, CALL).amount_nusd == CALL.bound_nusd
    one.pay(first, CENT)
    assert one.spending.reserved_nusd() > 0


def fail(*_: object, **__: object) -> None:
    raise Unavailable("The database is down.")


@pytest.mark.parametrize("noticed", [True, False])
def test_a_request_above_the_lease_does_not_end_serving_without_the_store(make_worker, books, payer, noticed):
    """Whether or not the worker has noticed that the store is away."""
    fund(books, payer)
    other = payer._replace(key_id=ids.new("key"), member_id=ids.new("member"))
    worker = make_worker(OutageLimits(60.0, 50 * DOLLAR))
    for each in (payer, other):
        worker.pay(worker.spending.reserve(each, CALL), CENT)
    if noticed:
        worker.serve_alone()
    write = worker.money.write
    worker.money.write = fail
    for each in (payer, other):
        with pytest.raises(Unavailable):
            worker.spending.reserve(each, CostBound(90 * DOLLAR, 0, 0, True))
        running = worker.spending.reserve(each, CALL)
        with pytest.raises(Unavailable):
            running.require(90 * DOLLAR)
        running.release()
    with pytest.raises(Unavailable) if not noticed else nullcontext():
        worker.spending.maintain()
    for each in (payer, other):
        worker.pay(worker.spending.reserve(each, CALL), CENT)
    worker.money.write = write
    worker.serve_alone(False)
    worker.spending.maintain()
    for each in (payer, other):
        worker.pay(worker.spending.reserve(each, CALL), CENT)
    worker.be_idle()
    worker.be_idle()
    assert counters(books, f"{payer.organization_id}:credits") == (6 * CENT, 0)
    assert counters(books, f"{payer.key_id}:total") == (3 * CENT, 0)


def test_an_unknown_key_is_refused_without_the_store(make_worker, books, payer):
    fund(books, payer)
    worker = make_worker(OutageLimits(60.0, 50 * DOLLAR))
    worker.serve_alone()
    with pytest.raises(Unavailable, match="no leases"):
        worker.spending.reserve(payer, CALL)


def test_without_the_store_the_output_is_limited_to_what_the_lease_covers(make_worker, books, payer):
    fund(books, payer)
    worker = make_worker(OutageLimits(60.0, 50 * DOLLAR))
    bound = CostBound(CENT, 1000 * CENT, MILLION // 100, True)
    worker.pay(worker.spending.reserve(payer, bound), CENT)
    worker.serve_alone()
    reservation = worker.spending.reserve(payer, replace(bound, max_output=MILLION))
    assert 256 < reservation.output_cap < MILLION
    assert reservation.amount_nusd == bound.priced(reservation.output_cap)


def test_a_lease_in_use_grows_in_advance_of_an_outage(make_worker, books, payer):
    fund(books, payer)
    worker = make_worker(OutageLimits(60.0, 50 * DOLLAR))
    large = CostBound(2 * DOLLAR, 0, 0, True)
    running = [worker.spending.reserve(payer, large)]
    worker.spending.maintain()
    worker.serve_alone()
    running += [worker.spending.reserve(payer, large) for _ in range(3)]
    assert len(running) == 4


def test_an_idle_lease_for_an_outage_does_not_keep_an_exhausted_budget_from_others(make_worker, books, payer):
    fund(books, payer)
    books.budgets.set_limits("key", payer.key_id, Limits(total_nusd=5 * CALL.bound_nusd))
    outage = OutageLimits(60.0, 50 * DOLLAR)
    one, two = make_worker(outage), make_worker(outage)
    one.pay(one.spending.reserve(payer, CostBound(3 * CALL.bound_nusd, 0, 0, True)), CALL.bound_nusd)
    gevent.sleep(0.4)
    one.spending.maintain()
    for _ in range(4):
        two.pay(two.spending.reserve(payer, CALL), CALL.bound_nusd)
    with pytest.raises(SpendingLimitReached):
        two.spending.reserve(payer, CALL)


def test_leases_are_kept_and_nothing_is_folded_without_the_store(make_worker, books, payer):
    fund(books, payer)
    worker = make_worker()
    worker.pay(worker.spending.reserve(payer, CALL), CENT)
    version = worker.control.check()
    worker.serve_alone()
    worker.spending.maintain(idle_s=-1.0, keep_s=-1.0)
    assert worker.spending.find(payer, CALL, version) is not None
    with pytest.raises(Unavailable):
        worker.spending.close()
    worker.serve_alone(False)
