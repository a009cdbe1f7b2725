"""Percentiles of latency by provider and model, from usage rows."""

from collections.abc import Callable, Iterator

import pytest

from gateway import ids
from gateway.clock import HOUR_US, SECOND_US
from gateway.metering.activity import ActivityScope, Span
from gateway.metering.models import CACHED, MODELS
from gateway.metering.usage_table import UsageRecord, raw_id, write_row
from gateway.reports import latency_percentiles
from gateway.reports.latency_percentiles import ModelLatency, Percentiles, read_percentiles
from gateway.store.database import Database
from gateway.store.journal import Journal
from gateway.store.partitions import id_at

HOUR = 490_000
PROJECT, OTHER_PROJECT = ids.new("proj"), ids.new("proj")
MEMBER = ids.new("mem")
OTHERS = {name: raw_id(ids.new("x")) for name in ("organization", "api_key", "member")}
SPAN = Span(HOUR, HOUR + 2, "all")


@pytest.fixture
def database(database_url: str, open_store: Callable[..., Database], clock) -> Iterator[Database]:
    opened = open_store(database_url)
    opened.bind(MODELS)
    journal = Journal(opened, clock)
    rows = [call(second, duration_ms=10 * (second + 1), ttft_ms=second % 2 * (second + 1)) for second in range(100)]
    rows += [
        call(200, error="upstream_error", duration_ms=90_000, ttft_ms=90_000),
        call(201, flags=CACHED, duration_ms=90_000),
        call(-10, duration_ms=90_000),
        call(202, served="slow", duration_ms=7000, member=raw_id(MEMBER)),
        call(203, provider="other", duration_ms=7, ttft_ms=3, project=raw_id(OTHER_PROJECT)),
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
    monkeypatch.setattr(latency_percentiles, "FEWEST", 1)
    # Of the newest 13 rows three are a failure, a cached answer and a call of another model.
    newest = next(one for one in read_percentiles(database, [ActivityScope((PROJECT,))], SPAN) if one.model == "m")
    assert (newest.calls, newest.duration) == (10, Percentiles(950, 1000))
