"""Counts and prices of one tenant that pass every bound: they are capped and marked, and everybody's books hold."""

import pytest
from support.billing import DOLLAR, attempt_at, target

from gateway.billing.reconciliation import doctor
from gateway.catalogue.entries import Mapping, Prices, Provider, TokenRates
from gateway.clock import HOUR_US
from gateway.errors import SpendingLimitReached, UpstreamFailed
from gateway.limits.models import TOTAL, budget_id
from gateway.metering.activity import Owners, Span, measure
from gateway.metering.models import CAPPED
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.queries import at_once
from gateway.money import MAX_CALL_NUSD, MAX_SETTLED_NUSD, MILLION
from gateway.neutral.usage import MAX_UNITS, Usage
from gateway.providers.protocol import Credential, Target

DEAR = (Prices(TokenRates(prompt=1000 * DOLLAR * MILLION, completion=1000 * DOLLAR * MILLION)),)


def own_target(prices: tuple[Prices, ...] = DEAR) -> Target:
    mapping = Mapping("custom:own", "m-1", "m-1", prices=prices, price_version="p1")
    return Target(Provider("custom:own", "Own", "openai"), mapping, Credential("", "byok", "ident"), "http://x")


def spend(one, account, usage: Usage, place: Target):
    settlement = one.admit(account, credits=False)
    settlement.begin(0, place)
    attempt = settlement.settle(attempt_at(place, usage=usage, finish="stop", status=200))
    settlement.close()
    return attempt


@pytest.mark.parametrize("tokens", [2**31, 2**40, 2**63, 2**64])
def test_a_row_with_more_tokens_than_there_can_be_is_capped_and_marked(start_billing, account, tokens) -> None:
    process = start_billing()
    usage = Usage(tokens, tokens, tokens, tokens, output=tokens, reasoning=tokens, output_audio=tokens, pages=tokens)
    attempt = spend(process, account, usage, own_target())
    (row,) = process.rows()
    assert row.flags & CAPPED and row.cost_nusd == MAX_CALL_NUSD == attempt.charge.total
    assert max(row.input, row.cache_read, row.output) == MAX_UNITS and row.cache_write == 2 * MAX_UNITS
    parts = row.input_nusd + row.output_nusd + row.cached_nusd + row.cache_write_nusd
    assert parts + sum(row.details.get("nusd", {}).values()) == row.cost_nusd
    process.rest()
    assert doctor(process.database) == []
    assert process.budgets.status(account.key).usage_nusd == MAX_CALL_NUSD


def test_a_usual_row_is_not_marked(start_billing, account, used) -> None:
    process = start_billing()
    spend(process, account, used, target("byok"))
    assert not process.rows()[0].flags & CAPPED


def test_activity_adds_up_what_no_column_could_hold(start_billing, account) -> None:
    process = start_billing()
    for _ in range(3):
        spend(process, account, Usage(MAX_UNITS, MAX_UNITS, MAX_UNITS, output=MAX_UNITS), own_target())
    # As a release before the bounds wrote them.
    process.database.write(lambda: process.database.execute("UPDATE usage SET cost_nusd = ?", (2**63 - 1,)))
    hour = 1_750_000_000_000_000 // HOUR_US * HOUR_US
    Rollups(process.database).catch_up()
    span = Span(hour // HOUR_US, hour // HOUR_US + 1, "all")
    rows = at_once(process.database, lambda: measure(process.database, Owners((account.project,)), span, "model"))
    assert len(rows) == 1 and rows[0].figures.input_tokens == 9 * MAX_UNITS
    assert rows[0].figures.cost_nusd == pytest.approx(3 * 2**63)
    assert doctor(process.database)  # it reports the difference and does not crash


def test_a_budget_at_its_end_does_not_keep_others_from_being_counted(start_billing, account) -> None:
    from support.billing import BillingIdentity

    one, other = start_billing(), BillingIdentity()
    spend(one, account, Usage(MAX_UNITS), own_target())
    full = budget_id(account.key, TOTAL)
    one.database.write(
        lambda: one.database.execute("UPDATE budget SET settled_nusd = ? WHERE id = ?", (2**63 - 10, full))
    )
    spend(one, other, Usage(10, output=5), target("byok"))
    one.rest()
    sql = "SELECT settled_nusd FROM budget WHERE id = ?"
    read = one.database.read(lambda: one.database.execute(sql, (full,)).fetchone())
    assert one.budgets.status(other.key).usage_nusd == 20_000
    assert isinstance(read[0], int) and read[0] >= 2**62


def test_an_unlimited_key_ends_where_counters_would(start_billing, account) -> None:
    process = start_billing()
    spend(process, account, Usage(10), own_target())
    process.rest()
    change = "UPDATE budget SET settled_nusd = ? WHERE id = ?"
    row = (MAX_SETTLED_NUSD, budget_id(account.key, TOTAL))
    process.database.write(lambda: process.database.execute(change, row))
    with pytest.raises(SpendingLimitReached):
        process.admit(account, credits=False)


def test_a_busy_unlimited_key_comes_back_to_the_store(start_billing, account) -> None:
    """The slice of this key has no upper bound, so the store is read again once the key has spent much."""
    process = start_billing()
    change = "UPDATE budget SET settled_nusd = ? WHERE id = ?"
    for _ in range(120):
        spend(process, account, Usage(MAX_UNITS), own_target())
    row = (MAX_SETTLED_NUSD, budget_id(account.key, TOTAL))
    process.database.write(lambda: process.database.execute(change, row))
    process.settlements.maintain()
    with pytest.raises(SpendingLimitReached):
        process.admit(account, credits=False)


def test_a_text_that_a_store_refuses_costs_no_row(start_billing, account) -> None:
    process = start_billing()
    settlement = process.admit(account, credits=False)
    settlement.begin(0, own_target())
    error = UpstreamFailed("no", code="bro\0ken", upstream_status=500)
    settlement.failed(attempt_at(own_target(), error=error, finish="error", status=500))
    settlement.close()
    process.rest()
    assert process.rows()[0].error == "broken"
