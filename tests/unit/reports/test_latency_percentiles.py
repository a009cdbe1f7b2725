"""Percentiles of latency by provider and model, from usage rows."""

from collections.abc import Callable, Iterator

import pytest
from support.upstream_calls import HOUR, PROJECT, call, store_calls

from gateway import ids
from gateway.metering.activity import ActivityScope, Span
from gateway.metering.models import CACHED
from gateway.metering.usage_table import raw_id
from gateway.reports import latency_percentiles
from gateway.reports.latency_percentiles import ModelLatency, Percentiles, read_percentiles
from gateway.store.database import Database

OTHER_PROJECT = ids.new("proj")
MEMBER = ids.new("mem")
SPAN = Span(HOUR, HOUR + 2, "all")


@pytest.fixture
def database(database_url: str, open_store: Callable[..., Database], clock) -> Iterator[Database]:
    opened = open_store(database_url)
    rows = [call(second, duration_ms=10 * (second + 1), ttft_ms=second % 2 * (second + 1)) for second in range(100)]
    rows += [
        call(200, error="upstream_error", duration_ms=90_000, ttft_ms=90_000),
        call(201, flags=CACHED, duration_ms=90_000),
        call(-10, duration_ms=90_000),
        call(202, served="slow", duration_ms=7000, member=raw_id(MEMBER)),
        call(203, provider="other", duration_ms=7, ttft_ms=3, project=raw_id(OTHER_PROJECT)),
    ]
    store_calls(opened, clock, rows)
    yield opened


def test_percentiles_are_those_of_answered_calls(database: Database) -> None:
    found = read_percentiles(database, [ActivityScope((PROJECT,))], SPAN)
    assert found == [
        ModelLatency("acme", "m", 100, Percentiles(500, 950), Percentiles(50, 96)),
        ModelLatency("acme", "slow", 1, Percentiles(7000, 7000), None),
    ]


def test_several_projects_are_one_report(database: Database) -> None:
    found = read_percentiles(database, [ActivityScope((PROJECT, OTHER_PROJECT))], SPAN)
    assert [(one.provider, one.model, one.calls) for one in found] == [
        ("acme", "m", 100),
        ("acme", "slow", 1),
        ("other", "m", 1),
    ]
    assert read_percentiles(database, [], SPAN) == []


def test_a_member_sees_their_own_calls(database: Database) -> None:
    (found,) = read_percentiles(database, [ActivityScope((PROJECT,), MEMBER)], SPAN)
    assert (found.model, found.calls) == ("slow", 1)


def test_only_the_newest_calls_are_read(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency_percentiles, "NEWEST", 13)
    monkeypatch.setattr(latency_percentiles, "MIN_ROWS", 1)
    # The newest 13 rows include a failure, a cached answer and a call of another model.
    newest = next(one for one in read_percentiles(database, [ActivityScope((PROJECT,))], SPAN) if one.model == "m")
    assert (newest.calls, newest.duration) == (10, Percentiles(950, 1000))
