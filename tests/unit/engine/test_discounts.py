"""Discounts on what credits pay: in the row, in every counter, and again when usage is priced anew."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.billing import DOLLAR, attempt_at, target

from gateway.billing.reconciliation import doctor
from gateway.billing.rerating import rerate
from gateway.callers.discount_book import ALL_SCOPES, DiscountInfo
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Model
from gateway.errors import UpstreamFailed
from gateway.neutral.usage import Usage

AT = 1_750_000_000_000_000
CATALOGUE = Catalogue([Model("m-1", mappings=(target().mapping,))], [target().provider], {}, "v1")


@pytest.fixture
def process(start_billing, account):
    started = start_billing()
    started.ledger.grant(account.organization, 10 * DOLLAR, "start")
    return started


def set_discount(process, ppm, organization=ALL_SCOPES, **more):
    """As the operator does, without the organization's row, which these tests have none of."""
    return process.discounts.put(DiscountInfo(organization, "mock", "m-1", ppm, **more), CATALOGUE, actor="operator")


def serve(process, account, where=None, **facts):
    where = where or target()
    settlement = process.admit(account)
    settlement.begin(0, where)
    attempt = attempt_at(where, **({"usage": Usage(input=10, output=5), "finish": "stop"} | facts))
    settlement.settle(attempt)
    settlement.close()
    process.rest()
    return attempt


def spent(process, account):
    status = process.budgets.status
    return (
        status(account.key).usage_nusd,
        status(account.member).usage_nusd,
        process.ledger.balance(account.organization).spent_nusd,
    )


def test_a_discount_is_in_the_row_and_in_every_counter(process, account):
    set_discount(process, 250_000)
    attempt = serve(process, account)
    # 10 × 1,000 + 5 × 2,000 at list, a quarter off each.
    assert (attempt.charge.input, attempt.charge.output, attempt.charge.total) == (7500, 7500, 15_000)
    (row,) = process.rows()
    assert (row.cost_nusd, row.discount_nusd, row.discount_ppm) == (15_000, 5000, 250_000)
    assert spent(process, account) == (15_000,) * 3
    assert doctor(process.database) == []


def test_own_provider_keys_are_never_discounted(process, account):
    set_discount(process, 250_000)
    assert serve(process, account, target("byok")).charge.total == 20_000
    assert (process.rows()[0].discount_ppm, process.rows()[0].discount_nusd) == (None, None)


def test_a_discount_counts_by_when_the_request_came_in(process, account):
    set_discount(process, 250_000, ends_us=AT)
    assert serve(process, account).charge.total == 20_000
    set_discount(process, 250_000, starts_us=AT)
    assert serve(process, account).charge.total == 15_000


def test_a_call_keeps_the_discount_that_it_began_with(process, account):
    discount = set_discount(process, 500_000)
    settlement = process.admit(account)
    settlement.begin(0, target())
    process.discounts.remove(discount.id, actor="operator")
    assert settlement.settle(attempt_at(target(), usage=Usage(input=10), finish="stop")).charge.total == 5000
    settlement.close()
    assert doctor(process.database) == []


def test_a_failure_that_is_billed_is_discounted_too(process, account):
    set_discount(process, 500_000)
    settlement = process.admit(account)
    settlement.begin(0, target())
    settlement.failed(attempt_at(target(), usage=Usage(input=10), error=UpstreamFailed("no"), finish="error"))
    settlement.close()
    process.rest()
    assert process.rows()[0].cost_nusd == 5000 and doctor(process.database) == []


def test_usage_of_a_dead_worker_is_billed_with_its_discount(start_billing, account):
    dead = start_billing()
    dead.ledger.grant(account.organization, 10 * DOLLAR, "start")
    set_discount(dead, 100_000)
    settlement = dead.admit(account)
    settlement.begin(0, target())
    dead.die()
    alive = start_billing()
    alive.recovery.run()
    (row,) = dead.rows()
    # 400 bytes are estimated as 100 tokens of 1,000 n$.
    assert (row.finish, row.cost_nusd, row.discount_nusd, row.discount_ppm) == ("interrupted", 90_000, 10_000, 100_000)
    assert doctor(alive.database) == []


def test_priced_again_a_row_counts_the_discount_that_it_was_billed_with(process, account):
    discount = set_discount(process, 333_333)
    serve(process, account)
    process.discounts.remove(discount.id, actor="operator")
    report = rerate(process.database, CATALOGUE, AT, AT + 1)
    assert [(line.rows, line.difference_nusd) for line in report.lines.values()] == [(1, 0)]


def test_with_prices_of_now_the_discounts_of_now_count(process, account):
    set_discount(process, 250_000)
    serve(process, account)
    serve(process, account, target("byok"))
    set_discount(process, 500_000)
    report = rerate(process.database, CATALOGUE, AT, AT + 1, now_us=AT, discounts=process.discounts)
    found = {place.billed: (line.recorded_nusd, line.rated_nusd) for place, line in report.lines.items()}
    assert found == {True: (15_000, 10_000), False: (20_000, 20_000)}
    assert report.adjustments() == {account.organization: -5000}


COUNTS, SOME = st.integers(0, 30), st.integers(1, 30)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    ppm=st.integers(1, 999_999),
    used=st.builds(Usage, input=SOME, output=COUNTS, cache_read=COUNTS, cache_write=COUNTS, searches=COUNTS),
)
def test_any_discounted_row_adds_up_and_is_priced_alike_again(process, account, ppm, used):
    set_discount(process, ppm)
    serve(process, account, usage=used)
    (row,) = process.rows()
    rare = sum(row.details.get("nusd", {}).values())
    assert row.cost_nusd == row.input_nusd + row.output_nusd + row.cached_nusd + row.cache_write_nusd + rare
    tokens = used.input + used.cache_read + used.cache_write
    assert row.cost_nusd + row.discount_nusd == tokens * 1000 + used.output * 2000
    assert rerate(process.database, CATALOGUE, AT, AT + 1).adjustments() == {} and doctor(process.database) == []
