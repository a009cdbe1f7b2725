"""The drift of the ledger: measured by one worker, reported by all, and without blocking requests."""

import pytest
from support.billing import DOLLAR, attempt_at, target

from gateway.billing.reconciliation import MAX_GAUGE_LOAD, ReconciliationGauge
from gateway.clock import HOUR_US
from gateway.errors import Unavailable
from gateway.metering.rollups.job import Rollups
from gateway.store.documents import Documents


@pytest.fixture
def process(start_billing, account):
    started = start_billing()
    started.ledger.grant(account.organization, DOLLAR, "start")
    return started


def drift_of(start_billing) -> ReconciliationGauge:
    return ReconciliationGauge(
        start_billing.database, Documents(start_billing.database), start_billing.clock, Rollups(start_billing.database)
    )


def lose(start_billing, nusd: int) -> None:
    sql = "UPDATE budget SET limit_nusd = limit_nusd - ? WHERE kind = 'credits'"
    start_billing.database.write(lambda: start_billing.database.execute(sql, (nusd,)))


def reported(drift: ReconciliationGauge) -> float | None:
    return drift.gauges().get("ledger_drift_usd", ("", None))[1]


def test_every_worker_reports_the_measurement_of_one_worker(process, start_billing):
    leader, other_gauge = drift_of(process), drift_of(start_billing())
    assert other_gauge.gauges() == {}
    leader.measure()
    assert reported(other_gauge) == 0
    lose(process, 7)
    process.clock.advance(60)
    leader.measure()
    process.clock.advance(1)
    assert reported(leader) == reported(other_gauge) == 7e-9
    assert 0 < other_gauge.gauges()["ledger_drift_age_seconds"][1] < 10


def test_measuring_pauses_in_proportion_to_its_cost(process):
    drift = drift_of(process)
    drift.measure()
    lose(process, 7)
    drift._backoff_until = process.clock.monotonic() + 1 / MAX_GAUGE_LOAD
    drift.measure()
    assert reported(drift) == 0
    process.clock.advance(1 / MAX_GAUGE_LOAD)
    drift.measure()
    assert reported(drift) == 7e-9


def test_a_row_of_a_slow_clock_is_no_difference(process, account, used):
    Rollups(process.database).catch_up()
    settlement = process.admit(account)
    attempt = attempt_at(target(), usage=used, finish="stop")
    attempt.at_us = process.clock.now_us() - 2 * HOUR_US
    settlement.begin(0, target())
    settlement.settle(attempt)
    settlement.close()
    process.database.write(lambda: process.database.execute("UPDATE usage SET posted_at = at"))
    drift = drift_of(process)
    drift.measure()
    assert reported(drift) == 0


def test_a_worker_that_leaves_measures_no_more(process):
    drift = drift_of(process)
    with pytest.raises(Unavailable):
        drift.measure(lambda: False)
    assert drift.gauges() == {}


def test_without_a_store_nothing_is_reported_at_once(process):
    drift = drift_of(process)
    drift.measure()

    def away(work):
        raise Unavailable()

    process.database.read = away
    assert drift.gauges() == {}


def test_a_difference_is_logged_once_with_what_to_do(process, caplog):
    drift = drift_of(process)
    lose(process, 7)
    for _ in range(2):
        drift.measure()
        process.clock.advance(86_400)
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.getMessage() == "the books differ in 1 place by 0.000000007 USD" and "manage doctor" in record.remedy


def test_a_difference_that_the_next_examination_does_not_find_is_not_reported(process, caplog):
    drift = drift_of(process)
    lose(process, 7)
    drift.measure()
    assert reported(drift) != 0
    lose(process, -7)
    for _ in range(2):
        process.clock.advance(86_400)
        drift.measure()
    assert reported(drift) == 0
    assert [record.getMessage() for record in caplog.records if "books" in record.getMessage()] == []


def test_how_far_statistics_are_behind_is_reported_by_every_worker(process, start_billing):
    leader = drift_of(process)
    other_gauge = drift_of(start_billing())
    rollups = Rollups(process.database)
    assert "rollups_lag_seconds" not in other_gauge.gauges()
    rollups.catch_up()
    now_us = process.database.now_us
    process.database.now_us = lambda: now_us() + 90_000_000
    try:
        assert 85 < leader.gauges()["rollups_lag_seconds"][1] < 120
        rollups.catch_up()
        assert leader.gauges()["rollups_lag_seconds"][1] < 30 and leader.gauges()["rollups_filling"][1] == 0
        # The lag is unknown until existing rows are summed.
        process.database.write(lambda: process.database.execute("UPDATE rollup_state SET filled = ''"))
        found = leader.gauges()
        assert found["rollups_filling"][1] == 1 and "rollups_lag_seconds" not in found
    finally:
        del process.database.now_us
