"""Outcomes and latency of a provider by hour and day, from usage rows."""

from collections.abc import Callable, Iterator

import pytest

from gateway import ids
from gateway.clock import DAY_US, HOUR_US, SECOND_US
from gateway.metering.activity import Owners, Span
from gateway.metering.models import CACHED, MODELS
from gateway.metering.usage_table import UsageRecord, raw_id, write_row
from gateway.reports.provider_latency import LatencyStep, read_latency
from gateway.store.database import Database
from gateway.store.journal import Journal
from gateway.store.partitions import id_at

HOUR = 490_000
PROJECT = ids.new("proj")
OTHERS = {name: raw_id(ids.new("x")) for name in ("organization", "api_key", "member")}


@pytest.fixture
def database(database_url: str, open_store: Callable[..., Database], clock) -> Iterator[Database]:
    opened = open_store(database_url)
    opened.bind(MODELS)
    journal = Journal(opened, clock)
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
    journal.append(*map(write_row, rows)).wait(60)
    journal.close()
    yield opened


def call(second: int, **more: object) -> UsageRecord:
    at = HOUR * HOUR_US + second * SECOND_US
    values = dict.fromkeys(UsageRecord._fields[:20], 0) | OTHERS | {"project": raw_id(PROJECT), "at": at}
    values |= {"posted_at": at, "request": id_at(at)[:12] + bytes(4), "operation": "chat", "provider": "acme"}
    values |= {"asked": "m", "served": "m", "source": "", "finish": "stop", "price_version": ""}
    return UsageRecord(**values | more)


def test_steps_have_outcomes_and_averages_of_answered_calls(database: Database) -> None:
    owners = Owners((PROJECT,))
    by_hour = read_latency(database, owners, "acme", Span(HOUR, HOUR + 2, "hour"), HOUR_US)
    assert by_hour == [LatencyStep(HOUR, 3, 1, 200.0, 2000.0), LatencyStep(HOUR + 1, 1, 0, 700.0, 700.0)]
    (day,) = read_latency(database, owners, "acme", Span(HOUR, HOUR + 2, "day"), DAY_US)
    assert (day.answered, day.failed) == (4, 1)


def test_nothing_is_read_without_projects_and_keys(database: Database) -> None:
    assert read_latency(database, Owners(), "acme", Span(HOUR, HOUR + 2, "hour"), HOUR_US) == []
