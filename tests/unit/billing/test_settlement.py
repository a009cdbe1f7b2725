import dataclasses
from functools import partial

import gevent
import gevent.event
import pytest
from support.billing import DOLLAR, WRITES, admission_of, attempt_at, request_of, target
from support.limits import set_rate_limit

from gateway.billing.batch_reservation import SentLine
from gateway.billing.output_reservation import MAX_TEXT_BYTES
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
def process(start_billing, account):
    started = start_billing()
    started.ledger.grant(account.organization, 10 * DOLLAR, "start")
    return started


def begin(process, account, **more):
    settlement = process.admit(account, **more)
    settlement.begin(0, target())
    return settlement


def spent(process, account):
    return (
        process.budgets.status(account.key).usage_nusd,
        process.budgets.status(account.member).usage_nusd,
        process.ledger.balance(account.organization).spent_nusd,
    )


def test_a_settled_request_is_durable_and_in_every_counter(process, account, used):
    settlement = begin(process, account)
    attempt = settlement.settle(attempt_at(target(), usage=used, finish="stop", status=200))
    settlement.close()
    assert attempt.charge.total == 20_000 and not attempt.overrun
    (row,) = process.rows()
    assert (row.cost_nusd, row.input, row.output, row.finish) == (20_000, 10, 5, "stop")
    assert spent(process, account) == (20_000, 20_000, 20_000)
    assert doctor(process.database) == []


def test_an_intent_ends_once_its_row_is_durable(process, account, used):
    settlement = begin(process, account)
    assert process.intents.open_count() == 1
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    assert process.intents.open_count() == 0


def away(*arguments):
    raise Unavailable("injected")


@pytest.mark.parametrize("by_deadline", [False, True])
@pytest.mark.slow
def test_after_a_timeout_the_intent_ends_with_the_row(process, account, used, monkeypatch, by_deadline):
    settlement = begin(process, account)
    if by_deadline:
        process.settlements.wait_s = 600.0
        process.context.deadline = process.clock.monotonic()
    else:
        process.settlements.wait_s = 0.01
    with monkeypatch.context() as patch:
        for name in WRITES:
            patch.setattr(process.money, name, away)
        with gevent.Timeout(60), pytest.raises(Unavailable):
            settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    settlement.close()
    assert process.intents.open_count() == 1
    process.rest()
    assert process.intents.open_count() == 0 and spent(process, account) == (20_000, 20_000, 20_000)


def settle_once(process, account, used):
    """Settle a request that comes alone, after which the journal commits the next one at once."""
    settlement = begin(process, account)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    settlement.close()


def test_an_early_settlement_is_written_while_its_answer_is_prepared(process, account, used, monkeypatch):
    settle_once(process, account, used)
    settlement = begin(process, account)
    process.context.settles_early = True
    began, held = gevent.event.Event(), gevent.event.Event()

    def write_later(write, *arguments):
        began.set()
        held.wait()
        return write(*arguments)

    with monkeypatch.context() as patch:
        for name in WRITES:
            patch.setattr(process.money, name, partial(write_later, getattr(process.money, name)))
        settlement.settle(attempt_at(target(), usage=used, finish="stop"))
        assert began.is_set() and process.rows() == []
        waiting = gevent.spawn(process.settlements.await_record, process.context)
        gevent.sleep(0)
        assert not waiting.ready()
        held.set()
        waiting.get(timeout=60)
    assert len(process.rows()) == 1
    settlement.close()
    process.rest()
    assert process.intents.open_count() == 0 and spent(process, account) == (40_000, 40_000, 40_000)


@pytest.mark.slow
def test_an_early_settlement_that_is_not_written_in_time_is_an_error(process, account, used, monkeypatch):
    settle_once(process, account, used)
    settlement = begin(process, account)
    process.context.settles_early = True
    process.settlements.wait_s = 0.01
    with monkeypatch.context() as patch:
        for name in WRITES:
            patch.setattr(process.money, name, away)
        settlement.settle(attempt_at(target(), usage=used, finish="stop"))
        with gevent.Timeout(60), pytest.raises(Unavailable):
            process.settlements.await_record(process.context)
    settlement.close()
    process.rest()
    assert process.intents.open_count() == 0 and spent(process, account) == (40_000, 40_000, 40_000)


def test_a_settlement_that_may_be_early_waits_while_the_journal_gathers_others(process, account, used):
    settlement = begin(process, account)
    process.context.settles_early = True
    assert not process.journal.commits_at_once
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    assert len(process.rows()) == 1 and process.context.record is None


def test_settling_twice_counts_once(process, account, used):
    settlement = begin(process, account)
    attempt = attempt_at(target(), usage=used, finish="stop")
    settlement.settle(attempt)
    settlement.settle(attempt)
    settlement.abandon(attempt)
    settlement.close()
    settlement.close()
    assert spent(process, account) == (20_000, 20_000, 20_000)
    assert process.spending.reserved_nusd() == 0


def test_a_second_row_of_an_attempt_is_refused_with_its_spends(process, account, used):
    settlement = begin(process, account)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    (row,) = process.rows()
    with pytest.raises(Unavailable):
        process.journal.append(write_row(row), *settlement._reservation.rows(20_000)).wait(60)
    assert spent(process, account) == (20_000, 20_000, 20_000)


def test_own_provider_keys_cost_no_credits_but_count_for_limits(process, account, used):
    settlement = process.admit(account)
    settlement.begin(0, target("byok"))
    settlement.settle(attempt_at(target("byok"), usage=used, finish="stop"))
    settlement.close()
    assert spent(process, account) == (20_000, 20_000, 0)
    assert process.rows()[0].byok
    assert doctor(process.database) == []


def test_missing_usage_is_estimated_and_marked(process, account):
    settlement = begin(process, account)
    attempt = settlement.settle(attempt_at(target(), finish="stop", output_length=41))
    assert attempt.usage == Usage(input=100, output=11, basis="estimated")
    assert process.rows()[0].usage_basis == "estimated"


def test_zeros_for_an_answer_are_no_usage(process, account):
    """Usage of a provider with invalid counts, or without counts."""
    settlement = begin(process, account)
    attempt = settlement.settle(attempt_at(target(), usage=Usage(), finish="stop", output_length=41))
    assert attempt.usage == Usage(input=100, output=11, basis="estimated")
    assert process.rows()[0].usage_basis == "estimated" and process.rows()[0].cost_nusd == 122_000


def test_a_failure_without_usage_is_free_and_the_next_attempt_pays(process, account, used):
    settlement = begin(process, account)
    settlement.failed(attempt_at(target(), error=UpstreamFailed("no"), finish="error", status=500))
    settlement.begin(1, target())
    settlement.settle(attempt_at(target(), 1, usage=used, finish="stop"))
    settlement.close()
    first, second = process.rows()
    assert (first.cost_nusd, first.error, first.status) == (0, "upstream_error", 500)
    assert second.cost_nusd == 20_000 and second.flags & RETRIED


def test_a_billed_failure_leaves_the_next_attempt_its_whole_reservation_or_none_follows(process, account, used):
    process.budgets.set_limits("key", account.key, Limits(total_nusd=330_000))
    settlement = begin(process, account)
    failure = attempt_at(target(), error=UpstreamFailed("no"), finish="error", usage=used)
    assert settlement.failed(failure) is None
    assert settlement._reservation.amount_nusd == 300_000
    settlement.begin(1, target())
    again = attempt_at(target(), 1, error=UpstreamFailed("no"), finish="error", usage=used)
    short = settlement.failed(again)
    assert (type(short), short.code) == (SpendingLimitReached, "key_limit_reached")
    settlement.close()
    process.rest()
    assert spent(process, account)[0] == 40_000 and doctor(process.database) == []


def test_an_attempt_that_was_never_sent_leaves_no_row(process, account):
    settlement = begin(process, account)
    settlement.unused(attempt_at(target()))
    settlement.close()
    process.rest()
    assert process.rows() == [] and process.intents.open_count() == 0


def test_a_hang_up_bills_the_part_that_was_delivered(process, account):
    settlement = begin(process, account)
    attempt = attempt_at(target(), error=Cancelled("gone"), finish="client_disconnect", output_length=40)
    attempt.usage = Usage(input=10, output=1)
    settlement.abandon(attempt)
    settlement.close()
    process.rest()
    (row,) = process.rows()
    assert (row.input, row.output, row.usage_basis, row.finish) == (10, 10, "estimated", "client_disconnect")
    assert doctor(process.database) == []


def test_drained_usage_is_billed_as_reported(process, account):
    settlement = begin(process, account)
    attempt = attempt_at(target(), error=Cancelled("gone"), finish="client_disconnect", output_length=4000)
    settlement.keep(attempt)
    attempt.usage = Usage(input=10, output=5, basis="drained")
    settlement.close()
    settlement.abandon(attempt)
    settlement.close()
    process.rest()
    assert (process.rows()[0].cost_nusd, process.rows()[0].usage_basis) == (20_000, "drained")


def test_a_cost_above_the_reservation_settles_in_full_and_is_marked(process, account):
    settlement = begin(process, account)
    attempt = settlement.settle(attempt_at(target(), usage=Usage(input=10_000), finish="stop"))
    settlement.close()
    process.rest()
    assert attempt.overrun and process.rows()[0].flags & OVERRUN
    assert spent(process, account) == (10_000_000,) * 3
    assert doctor(process.database) == []


def test_nothing_is_reserved_after_a_refusal(start_billing, account):
    process = start_billing()
    with pytest.raises(OutOfCredits):
        process.admit(account)
    assert process.spending.reserved_nusd() == 0


def test_an_answer_that_outgrows_its_budget_ends_typed(process, account):
    process.budgets.set_limits("key", account.key, Limits(total_nusd=300_000))
    settlement = begin(process, account)
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
    process.rest()
    (row,) = process.rows()
    # A hundred tokens are what the reservation pays for, at eight bytes each; and the prompt by estimate.
    assert (row.output, row.input, row.usage_basis, row.finish) == (100, 100, "estimated", "error")
    assert spent(process, account)[0] == row.cost_nusd == 300_000 and not row.flags & OVERRUN


def test_a_text_that_no_model_gives_ends_and_costs_at_most_its_reservation(process, account):
    settlement = begin(process, account)
    attempt = attempt_at(target(), first_at=1.0, output_length=MAX_TEXT_BYTES)
    settlement.record_progress(attempt)
    attempt.output_length += 1
    with pytest.raises(UpstreamFailed) as caught:
        settlement.grow(attempt)
    assert caught.value.code == "response_too_large"
    attempt.error, attempt.finish = caught.value, "error"
    settlement.abandon(attempt)
    settlement.close()
    process.rest()
    (row,) = process.rows()
    assert row.output and not row.flags & OVERRUN and doctor(process.database) == []


def test_reported_usage_of_an_answer_cut_off_here_is_billed_in_full(process, account):
    process.budgets.set_limits("key", account.key, Limits(total_nusd=300_000))
    settlement = begin(process, account)
    attempt = attempt_at(target(), output_length=100_000, usage=Usage(input=10, output=150))
    with pytest.raises(SpendingLimitReached):
        settlement.foresee(attempt)
    assert (attempt.usage.input, attempt.usage.output) == (10, 150)


def test_an_answer_that_outgrows_its_reservation_extends_it(process, account):
    settlement = begin(process, account)
    before = settlement.output_length_foreseen
    settlement.foresee(attempt_at(target(), output_length=before + 1))
    assert settlement.output_length_foreseen > before
    assert settlement.enlarge(290_000) is None and settlement.enlarge(10**12).code == "budget_exhausted_mid_stream"


def test_the_cap_of_a_small_budget_goes_upstream(process, account):
    process.budgets.set_limits("key", account.key, Limits(total_nusd=2_000_000))
    settlement = process.admit(account, cost_bound=CostBound(0, 2000 * MILLION, 4096, False))
    assert settlement.output_cap == 500


def test_no_byte_goes_upstream_after_the_leases_ran_out(process, account, clock):
    settlement = process.admit(account)
    process.control.stop()
    with pytest.raises(Unavailable):
        settlement.begin(0, target())
    settlement.close()
    assert process.spending.reserved_nusd() == 0 and process.intents.open_count() == 0


@pytest.mark.parametrize(("finish", "error"), [("stop", None), ("client_disconnect", Cancelled("gone"))])
def test_unreported_usage_is_billed_in_the_units_of_its_operation(process, account, finish, error):
    where = target()
    prices = (Prices(TokenRates(prompt=1000 * MILLION, character=15_000 * MILLION)),)
    where = dataclasses.replace(where, mapping=dataclasses.replace(where.mapping, prices=prices))
    usage = Usage(characters=400)
    settlement = process.admit(account, CostBound(6_000_016, 0, 0, True), units=Units(usage, usage))
    settlement.begin(0, where)
    end = settlement.settle if error is None else settlement.abandon
    end(attempt_at(where, finish=finish, error=error))
    settlement.close()
    process.rest()
    (row,) = process.rows()
    assert (row.cost_nusd, row.usage_basis, row.input, row.details["units"]) == (
        6_000_000,
        "estimated",
        0,
        {"characters": 400},
    )


def test_an_unreported_end_is_recorded_as_interrupted(process, account):
    settlement = begin(process, account)
    settlement.close()
    process.rest()
    (row,) = process.rows()
    assert (row.finish, row.cost_nusd, row.usage_basis) == ("interrupted", 100_000, "estimated")
    assert doctor(process.database) == []


def test_an_unreported_end_of_a_batch_line_costs_nothing_and_returns_what_its_call_reserved(process, account):
    cost_bound = CostBound(8 * DOLLAR, 0, 0, True)
    for _ in range(2):  # the credits cover one of them
        process.context = account.context()
        process.context.job = SentLine(None)
        settlement = process.settlements.admit(admission_of(process.context, cost_bound, credits=False))
        settlement.begin(0, target())
        settlement.close()
    process.rest()
    assert process.rows() == [] and spent(process, account) == (0, 0, 0)


def test_a_stopped_process_leaves_no_lease_and_no_file(process, account, used, tmp_path):
    settlement = begin(process, account)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    settlement.close()
    process.settlements.stop()
    assert process.database.read(lambda: process.database.execute("SELECT count(*) FROM lease").fetchone()) == (0,)
    assert list((tmp_path / "journal").iterdir()) == []


def test_an_intent_stays_until_its_row_is_durable(process, account, used, monkeypatch):
    settlement = begin(process, account)

    with monkeypatch.context() as patch:
        for name in WRITES:
            patch.setattr(process.money, name, away)
        attempt = attempt_at(target(), usage=used, error=Cancelled("gone"), finish="client_disconnect")
        settlement.abandon(attempt)
        settlement.close()
        process.settlements.reap()
        assert process.intents.open_count() == 1
    process.rest()
    assert process.intents.open_count() == 0 and len(process.rows()) == 1


def test_unreported_usage_never_costs_more_than_was_reserved(process, account):
    settlement = begin(process, account, cost_bound=CostBound(50_000, 0, 0, True))
    settlement.close()
    process.rest()
    assert process.rows()[0].cost_nusd == 50_000 and doctor(process.database) == []


@pytest.mark.parametrize(
    "requirements",
    [
        {"media": 1, "likely_media_tokens": 900},
        {"units": Units(Usage(input_audio=2000), Usage(input_audio=900))},
    ],
    ids=["media of a chat", "sound of a transcript"],
)
def test_token_rate_limits_count_media_at_admission(process, account, requirements):
    """Only the text was counted, so parallel requests with large files passed a limit of tokens."""
    limits = RateLimits(process.database, process.control)
    set_rate_limit(limits, "key", account.key, "tokens", 1500)
    process.settlements.rates = RateLimiter(limits, process.clock)

    def admit():
        context = account.context()
        context.request = request_of(**requirements)
        return process.settlements.admit(admission_of(context, CostBound(0, 0, 0, True)))

    first = admit()
    assert first.rate_limits[0].remaining == 500
    with pytest.raises(RateLimited):
        admit()
    first.close()


def test_a_second_call_reserves_what_any_further_attempt_may_cost(process, account):
    settlement = begin(process, account)
    reserved = process.spending.reserved_nusd()
    second = settlement.second(1, target(), CostBound(1_000, 1, 1, True))  # its provider is the cheapest
    assert process.spending.reserved_nusd() == 2 * reserved > 0
    settlement.failed(attempt_at(target(), finish="error"))
    settlement.close()
    second.failed(attempt_at(target(), 1, finish="error"))
    second.begin(2, target())
    attempt = second.settle(attempt_at(target(), 2, usage=Usage(input=50, output=20), finish="stop"))
    second.close()
    assert attempt.charge.total > 1_000 and not attempt.overrun and process.spending.reserved_nusd() == 0


def test_a_second_call_reserves_nothing_when_its_caller_leaves_before_it_began(process, account, monkeypatch):
    settlement = begin(process, account)
    reserved = process.spending.reserved_nusd()

    def leave(*arguments):
        raise gevent.GreenletExit

    monkeypatch.setattr(process.intents, "begin", leave)
    with pytest.raises(gevent.GreenletExit):
        settlement.second(1, target(), CostBound(1_000, 1, 1, True))
    assert process.spending.reserved_nusd() == reserved
    settlement.close()


@pytest.mark.parametrize("serves", ["first", "second"])
def test_only_the_serving_call_of_two_releases_the_cached_prompt_of_its_session(process, account, monkeypatch, serves):
    released = []
    monkeypatch.setattr(process.settlements.likely_prompts, "release", released.append)
    settlement = begin(process, account)
    second = settlement.second(1, target(), CostBound(1_000, 1, 1, True))
    winner, loser = (settlement, second) if serves == "first" else (second, settlement)
    if winner is second:
        settlement.pass_on(second)
    loser.abandon(attempt_at(target(), int(loser is second), finish="superseded"))
    loser.close()
    assert released == []
    winner.close()
    assert released == [process.context]
