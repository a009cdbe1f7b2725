import dataclasses
import random

import gevent
import pytest
from support.billing import DOLLAR, admission_of, attempt_at, target
from support.spending import until

from gateway.billing import settlement as settlement_module
from gateway.billing.reconciliation import doctor
from gateway.billing.rerating import rerate
from gateway.billing.retained_payload import fee_of
from gateway.callers.vault import Vault
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Model, Prices, TokenRates
from gateway.engine.payload_collection import HEAD_BYTES, MAX_BODY_BYTES
from gateway.engine.retention import Retention
from gateway.errors import BudgetInUse, Cancelled, OutOfCredits, Unavailable, UpstreamFailed
from gateway.limits.spending import CostBound
from gateway.metering.payload_table import pack
from gateway.money import MILLION
from gateway.neutral.hosted_uses import HostedUse
from gateway.neutral.usage import Usage
from gateway.runtime.allowances import Allowances

ASK = CostBound(100_000, 2000 * MILLION, 100, True, input_tokens=400)
FEE = (10 + 5) * 10  # of `used`: 10 tokens in, 5 out
VAULT = Vault(["an-encryption-key-of-tests"])


@pytest.fixture
def process(start_billing, account):
    started = start_billing()
    started.ledger.grant(account.organization, DOLLAR, "start")
    return started


@pytest.fixture
def retention(process, threads):
    return Retention(process.database, process.journal, VAULT, threads, 5.0, process.clock)


def payload_of(process, account, retention, **settings):
    """The payload of a new request, and its admitted settlement with one attempt begun."""
    process.context = account.context()
    settings = {"retention": "retain", "retention_days": 3650} | settings
    process.context.caller = dataclasses.replace(process.context.caller, **settings)
    payload = retention.begin(process.context, "/v1/chat/completions", b"asked")
    process.context.payload = payload
    settlement = process.settlements.admit(admission_of(process.context, ASK))
    settlement.begin(0, target())
    return payload, settlement


def stored(process, retention):
    """(answer, fee) of the request's log; None without one."""
    info = retention.find(process.context.request_id)
    return None if info is None else (retention.read(info).answer, info.storage_nusd)


def spent(process, account):
    balance = process.ledger.balance(account.organization)
    return (
        process.budgets.status(account.key).usage_nusd,
        process.budgets.status(account.member).usage_nusd,
        balance.spent_nusd,
    )


def test_the_fee_counts_every_token_once():
    assert fee_of(Usage(input=1000, output=500, reasoning=200)) == 15_000  # 0.000015 USD
    assert fee_of(Usage(input=1, cache_read=2, cache_write=3, cache_write_1h=4, input_audio=5, output_image=6)) == 210
    assert fee_of(None) == 0


def test_usage_fee_and_payload_are_one_entry_at_the_end_of_the_answer(process, account, used, retention):
    payload, settlement = payload_of(process, account, retention)
    attempt = settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    settlement.close()
    process.journal.flush(60)
    assert process.rows() == [] and attempt.charge.total == 20_000 and payload.fee_nusd == FEE
    assert process.spending.reserved_nusd() > 0  # it is not settled yet
    payload.add(b"answered")
    payload.finish(200)
    assert stored(process, retention) == (b"answered", FEE) and process.rows()[0].storage_nusd == FEE
    assert spent(process, account) == (20_000, 20_000, 20_000 + FEE)
    process.rest()
    assert doctor(process.database) == [] and process.spending.reserved_nusd() == 0


def test_a_crash_before_the_end_of_the_answer_leaves_neither_fee_nor_payload(
    process, account, used, retention, start_billing
):
    payload, settlement = payload_of(process, account, retention)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    payload.add(b"answered")
    process.die()
    heir = start_billing()
    assert heir.recovery.run() == 1
    (row,) = process.rows()
    assert (row.finish, row.storage_nusd) == ("interrupted", None) and stored(process, retention) is None
    assert doctor(heir.database) == []


def test_a_caller_who_left_early_pays_for_the_delivered_part(process, account, retention):
    payload, settlement = payload_of(process, account, retention)
    payload.add(b"half")
    attempt = attempt_at(target(), error=Cancelled("gone"), finish="client_disconnect")
    settlement.keep(attempt)  # the upstream's answer is read on
    settlement.close()
    payload.end(200)
    attempt.usage = Usage(input=10, output=5, basis="drained")
    settlement.abandon(attempt)
    settlement.close()
    process.rest()
    assert stored(process, retention) == (b"half", FEE) and doctor(process.database) == []


def test_a_failure_without_usage_is_stored_at_no_cost(process, account, retention):
    payload, settlement = payload_of(process, account, retention)
    settlement.failed(attempt_at(target(), error=UpstreamFailed("no"), finish="error", status=500))
    settlement.close()
    payload.add(b"sorry")
    payload.finish(502)
    process.rest()
    assert stored(process, retention) == (b"sorry", 0) and spent(process, account) == (0, 0, 0)
    assert process.spending.reserved_nusd() == 0


def test_failed_requests_are_stored_whole_as_far_as_their_organization_has_room(
    process, account, retention, monkeypatch
):
    monkeypatch.setattr(retention, "_free_bytes", Allowances(250_000, 0.0, 250_000, 0.0, process.clock.monotonic))
    lengths = []
    for _ in range(4):
        payload, settlement = payload_of(process, account, retention)
        settlement.failed(attempt_at(target(), error=UpstreamFailed("no"), finish="error", status=500))
        settlement.close()
        payload.add(b"x" * 100_000)
        payload.finish(502)
        until(lambda: stored(process, retention) is not None)
        lengths.append(len(stored(process, retention)[0]))
        assert retention.find(process.context.request_id).answer_bytes == 100_000
    assert lengths == [100_000, 100_000, HEAD_BYTES, HEAD_BYTES]


def test_an_answer_without_tokens_and_cost_counts_as_free(process, account, retention, monkeypatch):
    monkeypatch.setattr(retention, "_free_bytes", Allowances(0, 0.0, 0, 0.0, process.clock.monotonic))
    monkeypatch.setattr(retention, "_free_heads", Allowances(1, 0.0, 1, 0.0, process.clock.monotonic))
    monkeypatch.setattr(settlement_module, "fee_of", lambda usage: 0)  # as of operations that count no tokens
    found = []
    for _ in range(2):
        process.context = account.context()
        process.context.caller = dataclasses.replace(process.context.caller, retention="retain", retention_days=3650)
        payload = process.context.payload = retention.begin(process.context, "/", b"asked")
        settlement = process.settlements.admit(admission_of(process.context, ASK, credits=False))
        settlement.begin(0, target("byok"))
        settlement.settle(attempt_at(target("byok"), usage=Usage(images=1)))
        settlement.close()
        payload.add(b"x" * 100_000)
        payload.finish(200)
        process.rest()
        found.append(stored(process, retention))
    assert found == [(b"x" * HEAD_BYTES, 0), None]


def test_an_unreported_end_is_stored_at_no_cost(process, account, retention):
    payload, settlement = payload_of(process, account, retention)
    settlement.close()
    payload.finish(500)
    process.rest()
    assert process.rows()[0].finish == "interrupted" and stored(process, retention) == (b"", 0)
    assert doctor(process.database) == []


def test_the_end_reported_twice_counts_once(process, account, used, retention):
    payload, settlement = payload_of(process, account, retention)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    for _ in range(2):
        payload.finish(200)
        settlement.close()
    process.rest()
    assert spent(process, account)[2] == 20_000 + FEE and doctor(process.database) == []


def test_pricing_again_leaves_the_fee_alone(process, account, used, retention):
    payload, settlement = payload_of(process, account, retention)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    payload.finish(200)
    dear = dataclasses.replace(target().mapping, prices=(Prices(TokenRates(prompt=3000 * MILLION)),))
    at = process.context.at_us
    report = rerate(process.database, Catalogue([Model("m-1", mappings=(dear,))], [], {}, "v1"), at, at + 1, now_us=at)
    assert report.adjustments() == {account.organization: 10 * 3000 - 20_000}


def test_without_credits_for_the_fee_nothing_is_held(process, account, retention):
    with pytest.raises(OutOfCredits, match="retention to none"):
        payload_of_own_key(process, account, retention)
    assert process.spending.reserved_nusd() == 0


@pytest.mark.parametrize(("others", "error"), [(0, OutOfCredits), (1, BudgetInUse)])
def test_credits_for_the_fee_are_in_use_only_if_another_request_has_reserved_them(
    process, account, retention, others: int, error: type[Exception]
):
    credits_nusd = (others + 1) * ASK.bound_nusd + 1
    process.ledger.post(account.organization, "adjustment", credits_nusd - DOLLAR, "a few")
    running = [process.settlements.admit(admission_of(account.context(), ASK)) for _ in range(others)]
    with pytest.raises(error):
        payload_of(process, account, retention)
    for settlement in running:
        settlement.close()
    assert process.spending.reserved_nusd() == 0


def payload_of_own_key(process, account, retention):
    process.ledger.post(account.organization, "adjustment", -DOLLAR, "all of it")
    process.context = account.context()
    process.context.caller = dataclasses.replace(process.context.caller, retention="retain")
    payload = retention.begin(process.context, "/", b"asked")
    process.context.payload = payload
    process.settlements.admit(admission_of(process.context, ASK, credits=False))


def test_the_bound_of_the_fee_is_reserved_from_the_credits_alone(process, account, retention):
    payload_of(process, account, retention)
    assert process.ledger.balance(account.organization).reserved_nusd >= ASK.bound_nusd + (400 + 100) * 10
    own = {
        held.hold.scope: held.reserved for held in process.spending._keeper.held.values() if held.hold.kind != "window"
    }
    assert own == {"key": 300_000, "member": 300_000, "organization": 300_000 + 5000}


def test_a_caller_who_leaves_while_a_large_payload_is_packed_is_settled(process, account, used, retention):
    payload, settlement = payload_of(process, account, retention)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    payload.add(random.Random(1).randbytes(MAX_BODY_BYTES))
    leaving = gevent.spawn(payload.finish, 200)
    gevent.sleep(0)
    leaving.kill()
    settlement.close()
    assert until(lambda: stored(process, retention) is not None)
    process.rest()
    assert len(stored(process, retention)[0]) == MAX_BODY_BYTES and doctor(process.database) == []


def test_a_payload_too_many_is_left_out_and_not_paid(process, account, used, threads):
    retention = Retention(process.database, process.journal, VAULT, threads, 5.0, process.clock, max_waiting=10)
    payload, settlement = payload_of(process, account, retention)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    payload.finish(200)
    assert process.rows()[0].storage_nusd is None and stored(process, retention) is None
    assert spent(process, account) == (20_000, 20_000, 20_000) and payload.fee_nusd == 0


def test_an_answer_that_cannot_be_settled_in_time_is_reported(process, account, used, threads):
    retention = Retention(process.database, process.journal, VAULT, threads, 0.01, process.clock)
    payload, settlement = payload_of(process, account, retention)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    process.fail_once(after=False)
    with pytest.raises(Unavailable):
        payload.finish(200)
    process.rest()
    assert stored(process, retention) == (b"", FEE) and doctor(process.database) == []


def test_payloads_count_as_waiting_until_they_are_written(process, account, used, threads):
    size = len(pack(VAULT, b"asked")) + len(pack(VAULT, b""))
    retention = Retention(process.database, process.journal, VAULT, threads, 5.0, process.clock, max_waiting=2 * size)
    ids, leaving = [], []
    for _ in range(3):
        payload, settlement = payload_of(process, account, retention)
        ids.append(process.context.request_id)
        settlement.settle(attempt_at(target(), usage=used, finish="stop"))
        leaving.append(gevent.spawn(payload.finish, 200))
    gevent.joinall(leaving, raise_error=True)
    assert [retention.find(ident) is not None for ident in ids] == [True, True, False]
    payload, settlement = payload_of(process, account, retention)
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    payload.finish(200)
    assert stored(process, retention) == (b"", FEE)


def test_containers_of_an_answer_with_a_retained_payload_belong_to_its_organization(process, account, used, retention):
    use = HostedUse("", "code_interpreter", "object", ident="cntr_1")
    payload, settlement = payload_of(process, account, retention)
    settlement.settle(attempt_at(target(), usage=used, finish="stop", given=("cntr_1",)))
    settlement.close()
    assert process.objects.without_own(account.organization, (use,)) == (use,)
    payload.finish(200)
    process.journal.flush(60)
    assert process.objects.without_own(account.organization, (use,)) == ()
