"""The sum of what routes saved is read once in five minutes, since it is shown on a page that people open often."""

import pytest
from support.clock import FakeClock

from gateway.metering import route_usage
from gateway.metering.route_usage import TOTAL_KEPT_S, SavingsTotals
from gateway.store.database import Database

ORGANIZATION, OTHER = f"org_{'1' * 32}", f"org_{'2' * 32}"


def save(database: Database, request: int, reference_nusd: int, organization: str = ORGANIZATION) -> None:
    key = (request.to_bytes(16, "big"), 0, route_usage.raw_id(organization), bytes(16))
    figures = (900, 1_000, reference_nusd, database.now_us())
    row = (*key, "house", 3, "hard", "gpt-4o", "stop", 0, *figures)
    database.write(lambda: database.execute(route_usage.RECORD.sql, row))


def test_the_sum_is_read_once_in_five_minutes(database: Database) -> None:
    clock = FakeClock()
    clock.freeze()
    totals = SavingsTotals(database, clock)
    assert totals.find(ORGANIZATION, 30) == 0
    clock.advance(TOTAL_KEPT_S)
    save(database, 1, 3_500)
    save(database, 2, 1_200)
    save(database, 3, 9_000, OTHER)
    assert totals.find(ORGANIZATION, 30) == 2_700
    save(database, 4, 2_000)
    assert totals.find(ORGANIZATION, 30) == 2_700
    clock.advance(TOTAL_KEPT_S)
    assert totals.find(ORGANIZATION, 30) == 3_700


def test_sums_of_many_organizations_are_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_usage, "MAX_TOTALS", 1)
    clock = FakeClock()
    clock.freeze()
    totals = SavingsTotals(database, clock)
    assert totals.find(ORGANIZATION, 30) == totals.find(OTHER, 30) == 0
    save(database, 1, 3_500)
    assert (totals.find(OTHER, 30), totals.find(ORGANIZATION, 30)) == (0, 2_500)
