"""Outcomes and latency of a provider by hour and day, from usage rows."""

from collections.abc import Callable, Iterator

import pytest
from support.upstream_calls import HOUR, PROJECT, call, store_calls

from gateway import ids
from gateway.clock import DAY_US, HOUR_US, SECOND_US
from gateway.metering.activity import Owners, Span
from gateway.metering.models import CACHED
from gateway.metering.usage_table import raw_id
from gateway.reports.latency_percentiles import LatencyStep, read_latency
from gateway.store.database import Database


@pytest.fixture
def database(database_url: str, open_store: Callable[..., Database], clock) -> Iterator[Database]:
    opened = open_store(database_url)
    rows = [
        call(0, ttft_ms=100, duration_ms=1000),
        call(1, ttft_ms=300, duration_ms=2000),
        call(2, error="upstream_error", ttft_ms=9000, duration_ms=9000),
        call(3, ttft_ms=0, duration_ms=3000),
        call(HOUR_US // SECOND_US + 1, ttft_ms=700, duration_ms=700),
        call(4, provider="other", ttft_ms=5),
        call(5, flags=CACHED, ttft_ms=5),
        call(6, project=raw_id(ids.new("proj")), ttft_ms=5),
        call(-10, ttft_ms=5),
    ]
    store_calls(opened, clock, rows)
    yield opened


def test_steps_have_outcomes_and_averages_of_answered_calls(database: Database) -> None:
    owners = Owners((PROJECT,))
    by_hour = read_latency(database, owners, "acme", Span(HOUR, HOUR + 2, "hour"), HOUR_US)
    assert by_hour == [LatencyStep(HOUR, 3, 1, 200.0, 2000.0), LatencyStep(HOUR + 1, 1, 0, 700.0, 700.0)]
    (day,) = read_latency(database, owners, "acme", Span(HOUR, HOUR + 2, "day"), DAY_US)
    assert (day.answered, day.failed) == (4, 1)


def test_nothing_is_read_without_projects_and_keys(database: Database) -> None:
    assert read_latency(database, Owners(), "acme", Span(HOUR, HOUR + 2, "hour"), HOUR_US) == []
