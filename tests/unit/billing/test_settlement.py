import dataclasses
from functools import partial

import gevent
import gevent.event
import pytest
from support.billing import DOLLAR, WRITES, admission_of, attempt_at, request_of, target

from gateway.billing.reconciliation import doctor
from gateway.catalogue.entries import Prices, TokenRates
from gateway.errors import Cancelled, OutOfCredits, RateLimited, SpendingLimitReached, Unavailable, UpstreamFailed
from gateway.limits.budgets import Limits
from gateway.limits.rate_limits import RateLimiter
from gateway.limits.rate_rules import RateLimits
from gateway.limits.spending import CostBound
from gateway.metering.models import OVERRUN, RETRIED
from gateway.metering.usage_table import write_row
from gateway.money import MILLION
from gateway.neutral.usage import Units, Usage


@pytest.fixture
def one(start_billing, account):
    made = start_billing()
    made.ledger.grant(account.organization, 10 * DOLLAR, "start")
    return made


def begun(one, account, **more):
    settlement = one.admit(account, **more)
    settlement.begin(0, target())
    return settlement


def spent(one, account):
    return (
        one.budgets.status(account.key).usage_nusd,
        one.budgets.status(account.member).usage_nusd,
        one.ledger.balance(account.organization).spent_nusd,
    )


def test_a_settled_request_is_durable_and_in_every_counter(one, account, used):
    settlement = begun(one, account)
    attempt = settlement.settle(attempt_at(target(), usage=used, finish="stop", status=200))
    settlement.close()
    assert attempt.charge.total == 20_000 and not attempt.overrun
    (row,) = one.rows()
    assert (row.cost_nusd, row.input, row.output, row.finish) == (20_000, 10, 5, "stop")
    assert spent(one, account) == (20_000, 20_000, 20_000)
    assert doctor(one.database) == []


def test_an_intent_ends_once_its_row_is_durable(one, account, used):
    settlement = begun(one, account)
    assert one.intents.open_count() == 1
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    assert one.intents.open_count() == 0


def away(*given):
    raise Unavailable("injected")


@pytest.mark.parametrize("by_deadline", [False, True])
def test_after_a_timeout_the_intent_ends_with_the_row(one, account, used, monkeypatch, by_deadline):
    settlement = begun(one, account)
    if by_deadline:
        one.settlements.wait_s = 600.0
        one.context.deadline = one.clock.monotonic()
    else:
        one.settlements.wait_s = 0.01
    with monkeypatch.context() as patch:
        for name in WRITES:
            patch.setattr(one.money, name, away)
        with gevent.Timeout(60), pytest.raises(Unavailable):
            settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    settlement.close()
    assert one.intents.open_count() == 1
    one.rest()
    assert one.intents.open_count() == 0 and spent(one, account) == (20_000, 20_000, 20_000)


def settle_once(one, account, used):
    """Settle a request that comes alone, after which the journal commits the next one at once."""
    settlement = begun(one, account)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    settlement.close()


def test_an_early_settlement_is_written_while_its_answer_is_prepared(one, account, used, monkeypatch):
    settle_once(one, account, used)
    settlement = begun(one, account)
    one.context.settles_early = True
    began, held = gevent.event.Event(), gevent.event.Event()

    def write_later(write, *given):
        began.set()
        held.wait()
        return write(*given)

    with monkeypatch.context() as patch:
        for name in WRITES:
            patch.setattr(one.money, name, partial(write_later, getattr(one.money, name)))
        settlement.settle(attempt_at(target(), usage=used, finish="stop"))
        assert began.is_set() and one.rows() == []
        waiting = gevent.spawn(one.settlements.await_record, one.context)
        gevent.sleep(0)
        assert not waiting.ready()
        held.set()
        waiting.get(timeout=60)
    assert len(one.rows()) == 1
    settlement.close()
    one.rest()
    assert one.intents.open_count() == 0 and spent(one, account) == (40_000, 40_000, 40_000)


def test_an_early_settlement_that_is_not_written_in_time_is_an_error(one, account, used, monkeypatch):
    settle_once(one, account, used)
    settlement = begun(one, account)
    one.context.settles_early = True
    one.settlements.wait_s = 0.01
    with monkeypatch.context() as patch:
        for name in WRITES:
            patch.setattr(one.money, name, away)
        settlement.settle(attempt_at(target(), usage=used, finish="stop"))
        with gevent.Timeout(60), pytest.raises(Unavailable):
            one.settlements.await_record(one.context)
    settlement.close()
    one.rest()
    assert one.intents.open_count() == 0 and spent(one, account) == (40_000, 40_000, 40_000)


def test_a_settlement_that_may_be_early_waits_while_the_journal_gathers_others(one, account, used):
    settlement = begun(one, account)
    one.context.settles_early = True
    assert not one.journal.commits_at_once
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    assert len(one.rows()) == 1 and one.context.record is None


def test_settling_twice_counts_once(one, account, used):
    settlement = begun(one, account)
    attempt = attempt_at(target(), usage=used, finish="stop")
    settlement.settle(attempt)
    settlement.settle(attempt)
    settlement.abandon(attempt)
    settlement.close()
    settlement.close()
    assert spent(one, account) == (20_000, 20_000, 20_000)
    assert one.spending.reserved_nusd() == 0


def test_a_second_row_of_an_attempt_is_refused_with_its_spends(one, account, used):
    settlement = begun(one, account)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    (row,) = one.rows()
    with pytest.raises(Unavailable):
        one.journal.append(write_row(row), *settlement._reservation.rows(20_000)).wait(60)
    assert spent(one, account) == (20_000, 20_000, 20_000)


def test_own_provider_keys_cost_no_credits_but_count_for_limits(one, account, used):
    settlement = one.admit(account)
    settlement.begin(0, target("byok"))
    settlement.settle(attempt_at(target("byok"), usage=used, finish="stop"))
    settlement.close()
    assert spent(one, account) == (20_000, 20_000, 0)
    assert one.rows()[0].byok
    assert doctor(one.database) == []


def test_missing_usage_is_estimated_and_marked(one, account):
    settlement = begun(one, account)
    attempt = settlement.settle(attempt_at(target(), finish="stop", output_length=41))
    assert attempt.usage == Usage(input=100, output=11, basis="estimated")
    assert one.rows()[0].usage_basis == "estimated"


def test_zeros_for_an_answer_are_no_usage(one, account):
    """Usage of a provider with invalid counts, or without counts."""
    settlement = begun(one, account)
    attempt = settlement.settle(attempt_at(target(), usage=Usage(), finish="stop", output_length=41))
    assert attempt.usage == Usage(input=100, output=11, basis="estimated")
    assert one.rows()[0].usage_basis == "estimated" and one.rows()[0].cost_nusd == 122_000


def test_a_failure_without_usage_is_free_and_the_next_attempt_pays(one, account, used):
    settlement = begun(one, account)
    settlement.failed(attempt_at(target(), error=UpstreamFailed("no"), finish="error", status=500))
    settlement.begin(1, target())
    settlement.settle(attempt_at(target(), 1, usage=used, finish="stop"))
    settlement.close()
    first, second = one.rows()
    assert (first.cost_nusd, first.error, first.status) == (0, "upstream_error", 500)
    assert second.cost_nusd == 20_000 and second.flags & RETRIED


def test_a_billed_failure_leaves_the_next_attempt_its_whole_reservation_or_none_follows(one, account, used):
    one.budgets.set_limits("key", account.key, Limits(total_nusd=330_000))
    settlement = begun(one, account)
    failure = attempt_at(target(), error=UpstreamFailed("no"), finish="error", usage=used)
    assert settlement.failed(failure) is None
    assert settlement._reservation.amount_nusd == 300_000
    settlement.begin(1, target())
    again = attempt_at(target(), 1, error=UpstreamFailed("no"), finish="error", usage=used)
    short = settlement.failed(again)
    assert (type(short), short.code) == (SpendingLimitReached, "key_limit_reached")
    settlement.close()
    one.rest()
    assert spent(one, account)[0] == 40_000 and doctor(one.database) == []


def test_an_attempt_that_was_never_sent_leaves_no_row(one, account):
    settlement = begun(one, account)
    settlement.unused(attempt_at(target()))
    settlement.close()
    one.rest()
    assert one.rows() == [] and one.intents.open_count() == 0


def test_a_hang_up_bills_the_part_that_was_delivered(one, account):
    settlement = begun(one, account)
    gone = attempt_at(target(), error=Cancelled("gone"), finish="client_disconnect", output_length=40)
    gone.usage = Usage(input=10, output=1)
    settlement.abandon(gone)
    settlement.close()
    one.rest()
    (row,) = one.rows()
    assert (row.input, row.output, row.usage_basis, row.finish) == (10, 10, "estimated", "client_disconnect")
    assert doctor(one.database) == []


def test_drained_usage_is_billed_as_reported(one, account):
    settlement = begun(one, account)
    gone = attempt_at(target(), error=Cancelled("gone"), finish="client_disconnect", output_length=4000)
    settlement.keep(gone)
    gone.usage = Usage(input=10, output=5, basis="drained")
    settlement.close()
    settlement.abandon(gone)
    settlement.close()
    one.rest()
    assert (one.rows()[0].cost_nusd, one.rows()[0].usage_basis) == (20_000, "drained")


def test_a_cost_above_the_reservation_settles_in_full_and_is_marked(one, account):
    settlement = begun(one, account)
    attempt = settlement.settle(attempt_at(target(), usage=Usage(input=10_000), finish="stop"))
    settlement.close()
    one.rest()
    assert attempt.overrun and one.rows()[0].flags & OVERRUN
    assert spent(one, account) == (10_000_000,) * 3
    assert doctor(one.database) == []


def test_nothing_is_reserved_after_a_refusal(start_billing, account):
    one = start_billing()
    with pytest.raises(OutOfCredits):
        one.admit(account)
    assert one.spending.reserved_nusd() == 0


def test_an_answer_that_outgrows_its_budget_ends_typed(one, account):
    one.budgets.set_limits("key", account.key, Limits(total_nusd=300_000))
    settlement = begun(one, account)
    assert settlement.output_length_foreseen == 400
    attempt = attempt_at(target(), output_length=401)
    settlement.foresee(attempt)
    assert settlement.output_length_foreseen == 800
    attempt.output_length = 801
    with pytest.raises(SpendingLimitReached) as caught:
        settlement.foresee(attempt)
    assert caught.value.code == "budget_exhausted_mid_stream"
    attempt.error, attempt.finish = caught.value, "error"
    settlement.abandon(attempt)
    settlement.close()
    one.rest()
    (row,) = one.rows()
    # A hundred tokens are what the reservation pays for, at eight bytes each; and the prompt by estimate.
    assert (row.output, row.input, row.usage_basis, row.finish) == (100, 100, "estimated", "error")
    assert spent(one, account)[0] == row.cost_nusd == 300_000 and not row.flags & OVERRUN


def test_reported_usage_of_an_answer_cut_off_here_is_billed_in_full(one, account):
    one.budgets.set_limits("key", account.key, Limits(total_nusd=300_000))
    settlement = begun(one, account)
    attempt = attempt_at(target(), output_length=100_000, usage=Usage(input=10, output=150))
    with pytest.raises(SpendingLimitReached):
        settlement.foresee(attempt)
    assert (attempt.usage.input, attempt.usage.output) == (10, 150)


def test_an_answer_that_outgrows_its_reservation_extends_it(one, account):
    settlement = begun(one, account)
    before = settlement.output_length_foreseen
    settlement.foresee(attempt_at(target(), output_length=before + 1))
    assert settlement.output_length_foreseen > before
    assert settlement.enlarge(290_000) is None and settlement.enlarge(10**12).code == "budget_exhausted_mid_stream"


def test_the_cap_of_a_small_budget_goes_upstream(one, account):
    one.budgets.set_limits("key", account.key, Limits(total_nusd=2_000_000))
    settlement = one.admit(account, cost_bound=CostBound(0, 2000 * MILLION, 4096, False))
    assert settlement.output_cap == 500


def test_no_byte_goes_upstream_after_the_leases_ran_out(one, account, clock):
    settlement = one.admit(account)
    one.control.stop()
    with pytest.raises(Unavailable):
        settlement.begin(0, target())
    settlement.close()
    assert one.spending.reserved_nusd() == 0 and one.intents.open_count() == 0


@pytest.mark.parametrize(("finish", "error"), [("stop", None), ("client_disconnect", Cancelled("gone"))])
def test_unreported_usage_is_billed_in_the_units_of_its_operation(one, account, finish, error):
    where = target()
    prices = (Prices(TokenRates(prompt=1000 * MILLION, character=15_000 * MILLION)),)
    where = dataclasses.replace(where, mapping=dataclasses.replace(where.mapping, prices=prices))
    asked = Usage(characters=400)
    settlement = one.admit(account, CostBound(6_000_016, 0, 0, True), units=Units(asked, asked))
    settlement.begin(0, where)
    end = settlement.settle if error is None else settlement.abandon
    end(attempt_at(where, finish=finish, error=error))
    settlement.close()
    one.rest()
    (row,) = one.rows()
    assert (row.cost_nusd, row.usage_basis, row.input, row.details["units"]) == (
        6_000_000,
        "estimated",
        0,
        {"characters": 400},
    )


def test_an_unreported_end_is_recorded_as_interrupted(one, account):
    settlement = begun(one, account)
    settlement.close()
    one.rest()
    (row,) = one.rows()
    assert (row.finish, row.cost_nusd, row.usage_basis) == ("interrupted", 100_000, "estimated")
    assert doctor(one.database) == []


def test_a_stopped_process_leaves_no_lease_and_no_file(one, account, used, tmp_path):
    settlement = begun(one, account)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    settlement.close()
    one.settlements.stop()
    assert one.database.read(lambda: one.database.execute("SELECT count(*) FROM lease").fetchone()) == (0,)
    assert list((tmp_path / "journal").iterdir()) == []


def test_an_intent_stays_until_its_row_is_durable(one, account, used, monkeypatch):
    settlement = begun(one, account)

    with monkeypatch.context() as patch:
        for name in WRITES:
            patch.setattr(one.money, name, away)
        gone = attempt_at(target(), usage=used, error=Cancelled("gone"), finish="client_disconnect")
        settlement.abandon(gone)
        settlement.close()
        one.settlements.reap()
        assert one.intents.open_count() == 1
    one.rest()
    assert one.intents.open_count() == 0 and len(one.rows()) == 1


def test_unreported_usage_never_costs_more_than_was_reserved(one, account):
    settlement = begun(one, account, cost_bound=CostBound(50_000, 0, 0, True))
    settlement.close()
    one.rest()
    assert one.rows()[0].cost_nusd == 50_000 and doctor(one.database) == []


@pytest.mark.parametrize(
    "requirements",
    [
        {"media": 1, "likely_media_tokens": 900},
        {"units": Units(Usage(input_audio=2000), Usage(input_audio=900))},
    ],
    ids=["media of a chat", "sound of a transcript"],
)
def test_token_rate_limits_count_media_at_admission(one, account, requirements):
    """Only the text was counted, so parallel requests with large files passed a limit of tokens."""
    limits = RateLimits(one.database, one.control)
    limits.set_limit("key", account.key, "tokens", 1500)
    one.settlements.rates = RateLimiter(limits, one.clock)

    def admit():
        context = account.context()
        context.request = request_of(**requirements)
        return one.settlements.admit(admission_of(context, CostBound(0, 0, 0, True)))

    first = admit()
    assert first.rate_limits[0].remaining == 500
    with pytest.raises(RateLimited):
        admit()
    first.close()
