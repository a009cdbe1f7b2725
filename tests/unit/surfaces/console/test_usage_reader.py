"""The figures of Explore: sums by name, and bars that add up to all usage."""

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace
from support.clock import FakeClock
from support.usage import insert_rows, usage_row

from gateway.clock import DAY_US, HOUR_US, SECOND_US
from gateway.configuration.settings import DatabaseSettings
from gateway.metering.activity import Dimension, Owners
from gateway.metering.models import BYOK, CACHED, CREDITS
from gateway.metering.rollups.job import Rollups
from gateway.metering.usage_table import UsageRecord
from gateway.runtime.threads import Threads
from gateway.store.database import Database, open_database
from gateway.store.migrations import migrate
from gateway.surfaces.console import usage_reader
from gateway.surfaces.console.grouping import GROUPS, GroupName, UsageValues, find_tag
from gateway.surfaces.console.plots import MAX_SERIES, OTHER_SERIES
from gateway.surfaces.console.usage_measures import MEASURES
from gateway.surfaces.console.usage_reader import PeriodUsage, UsageQuestion, read_usage
from gateway.surfaces.visitors.report_windows import read_window

NOW_US = int(datetime(2026, 4, 20, 11, 20, tzinfo=UTC).timestamp()) * SECOND_US
DAYS = 200
PROJECTS = [bytes([number]) * 16 for number in (1, 2)]
KEYS = [bytes([number]) * 16 for number in range(10, 20)]
OWNERS = Owners(tuple(f"proj_{raw.hex()}" for raw in PROJECTS))
BY_KEY = Owners(key_ids=tuple(f"key_{raw.hex()}" for raw in KEYS))
# Part of the rows → the value by which a grouping names them.
VALUES: dict[str, Callable[[UsageRecord], tuple[object, ...]]] = {
    "model": lambda row: (row.served, row.provider),
    "apiKey": lambda row: (row.api_key,),
    "project": lambda row: (row.project,),
    "app": lambda row: (row.source,),
    "tag": lambda row: (row.tags.split('"')[3] if row.tags else "",),
    "session": lambda row: (row.session or "",),
    "operation": lambda row: ("" if row.operation == "chat" else row.operation,),
    "error": lambda row: (row.error or "",),
    "endUser": lambda row: (row.tags.split('"')[7] if row.tags else "",),
}


@pytest.fixture(scope="module")
def rows() -> list[UsageRecord]:
    dice = random.Random(7)
    return [
        usage_row(
            NOW_US - dice.randrange(DAYS * DAY_US),
            posted_at=NOW_US - HOUR_US,
            project=dice.choice(PROJECTS),
            api_key=dice.choice(KEYS),
            served=f"m{dice.randrange(9)}",
            source=dice.choice(("", "x", "y")),
            session=dice.choice((None, *(f"s{number}" for number in range(9)))),
            tags=dice.choice((None, *(f'{{"team":"t{number}","user":"u{number % 4}"}}' for number in range(9)))),
            cost_nusd=dice.randrange(10**9),
            input=dice.randrange(100),
            output=dice.randrange(100),
            error=dice.choice((None, "upstream_timeout")),
            operation=("chat", "chat", "embeddings", "images")[number % 4],
            mode=dice.choice((CREDITS, BYOK)),
            flags=dice.choice((0, CACHED)),
            discount_nusd=dice.randrange(100),
        )
        for number in range(600)
    ]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    postgres_databases: Any,
    rows: list[UsageRecord],
) -> Iterator[Database]:
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path_factory.mktemp('usage')}/gateway.db"
        if request.param == "postgresql":
            url = postgres_databases.take()
            stack.callback(postgres_databases.give, url)
        threads = Threads()
        stack.callback(threads.close)
        opened = stack.enter_context(
            contextlib.closing(open_database(DatabaseSettings(url, "", 3, 5.0), FakeClock(), threads))
        )
        migrate(opened)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(opened, "now_us", lambda: NOW_US)
            for place in ("job", "days"):
                patch.setattr(f"gateway.metering.rollups.{place}.pause", lambda s: None)
            insert_rows(opened, *rows)
            Rollups(opened).catch_up()
            yield opened


def read(database: Database, group: str, time: dict[str, str], weekly: bool = False) -> PeriodUsage:
    window = read_window(time, NOW_US)
    bars = window.by_week() if weekly else window
    parts = BY_KEY if group == "apiKey" else OWNERS
    tag = find_tag(group, "", {}, "team")

    def name(values: tuple[object, ...]) -> GroupName:
        ident = values[0] if isinstance(values[0], str) else ""
        return GroupName(ident, repr(values))

    earlier = window.earlier(window.span.end - window.span.first)
    question = UsageQuestion(OWNERS, parts, window, bars, GROUPS[group].dimension, name, MEASURES["spend"], tag)
    return read_usage(database, replace(question, earlier=earlier.by_week() if weekly else earlier))


@pytest.mark.parametrize("group", VALUES)
def test_names_and_bars_are_the_sums_of_the_rows(database: Database, rows: list[UsageRecord], group: str) -> None:
    time = {"first": "2025-12-24", "last": "2026-04-20"}
    first_us = int(datetime(2025, 12, 24, tzinfo=UTC).timestamp()) * SECOND_US
    costs: Counter[str] = Counter()
    before: Counter[str] = Counter()
    for row in rows:
        costs[repr(VALUES[group](row))] += row.cost_nusd if row.at >= first_us else 0
        before[repr(VALUES[group](row))] += row.cost_nusd if first_us - 118 * DAY_US <= row.at < first_us else 0
    for weekly in (False, True):
        usage = read(database, group, time, weekly)
        assert {name: usage.figures.cost_nusd for (name, _), usage in usage.names.items()} == costs
        if group != "session":
            assert {name: usage.figures.cost_nusd for (name, _), usage in usage.names_before.items()} == before
        assert usage.before.cost_nusd == sum(before.values())
        assert sum(figures.cost_nusd for figures in usage.steps.values()) == sum(costs.values())
        sums = {name: sum(series) for name, series in usage.series.items()}
        largest = dict(costs.most_common(MAX_SERIES))
        rest = sum(costs.values()) - sum(largest.values())
        assert sums == largest | ({OTHER_SERIES: rest} if rest else {})
        bars = [sum(bar) for bar in zip(*usage.series.values(), strict=True)]
        assert len(bars) == (18 if weekly else 118) and sum(bars) == sum(costs.values())


@pytest.mark.parametrize(("group", "names"), [("apiKey", KEYS), ("project", PROJECTS)])
def test_usage_of_keys_and_projects_is_read_as_one_row_for_each(
    database: Database, group: str, names: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An organization may have thousands of keys: a row for each of them and each bar would be too many."""
    read_rows = usage_reader.measure
    counts = []

    def count(database: Database, owners: Owners, span: Any, dimension: Any, *rest: Any) -> Any:
        found = read_rows(database, owners, span, dimension, *rest)
        if dimension == GROUPS[group].dimension:
            counts.append(len(found))
        return found

    monkeypatch.setattr(usage_reader, "measure", count)
    read(database, group, {"timeRange": "365d"}, weekly=True)
    assert counts == [len(names)]


def test_the_totals_are_the_sums_of_the_rows(database: Database, rows: list[UsageRecord]) -> None:
    usage = read(database, "model", {"timeRange": "365d"})
    expected = {
        "requests": len(rows),
        "input_tokens": sum(row.input for row in rows),
        "output_tokens": sum(row.output for row in rows),
        "errors": sum(row.error is not None for row in rows),
        "cached_requests": sum(row.flags == CACHED for row in rows),
        "byok_nusd": sum(row.cost_nusd for row in rows if row.mode == BYOK),
        "discount_nusd": sum(row.discount_nusd or 0 for row in rows),
    }
    assert {name: sum(getattr(step, name) for step in usage.steps.values()) for name in expected} == expected
    named = [usage.figures for usage in usage.names.values()]
    for name in ("requests", "input_tokens", "output_tokens"):
        assert sum(getattr(figures, name) for figures in named) == expected[name]


def test_values_of_a_tag_beyond_the_most_expensive_are_one_name(
    database: Database, rows: list[UsageRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_reader, "MAX_VALUES_SHOWN", 2)
    for group in ("tag", "session"):
        usage = read(database, group, {"timeRange": "365d"}, weekly=True)
        assert len(usage.names) == 4 and len(usage.series) == 4
        others = usage.names["('(other)',)", "(other)"].figures
        assert others.cost_nusd == sum(usage.series[OTHER_SERIES])
        assert sum(named.figures.requests for named in usage.names.values()) == len(rows)


def test_a_tag_that_no_request_has_is_one_name(database: Database, rows: list[UsageRecord]) -> None:
    window = read_window({"timeRange": "24h"}, NOW_US)
    named = GroupName("none", "none")
    requests = MEASURES["requests"]
    question = UsageQuestion(OWNERS, OWNERS, window, window, "tag", lambda _: named, requests, "no-such")
    usage = read_usage(database, question)
    of_day = [row for row in rows if row.at >= window.span.start_us]
    assert usage.series == {
        "none": [usage.steps[label].requests if label in usage.steps else 0 for label in window.padding]
    }
    assert sum(usage.series["none"]) == len(of_day) > 0


# Dimension of pairs → the values of a row in it.
PAIRS: dict[Dimension, Callable[[UsageRecord], tuple[object, ...]]] = {
    "api_key_model": lambda row: (row.api_key, row.served, row.provider),
    "api_key_source": lambda row: (row.api_key, row.source),
    "api_key_tag": lambda row: (row.api_key, *VALUES["tag"](row)),
}


@pytest.mark.parametrize("weekly", [False, True])
@pytest.mark.parametrize("dimension", PAIRS)
def test_pairs_of_keys_and_values_are_the_sums_of_the_rows(
    database: Database, rows: list[UsageRecord], dimension: Dimension, weekly: bool
) -> None:
    """The plot names half of the keys with their values: several keys have one name."""

    def name(values: tuple[Any, ...]) -> GroupName:
        text = f"{values[0][0] % 2} {values[1:]}"
        return GroupName(text, text)

    window = read_window({"timeRange": "365d"}, NOW_US)
    bars = window.by_week() if weekly else window
    question = UsageQuestion(OWNERS, BY_KEY, window, bars, dimension, name, MEASURES["spend"], "team")
    usage = read_usage(database, question)
    costs: Counter[str] = Counter()
    for row in rows:
        costs[name(PAIRS[dimension](row)).name] += row.cost_nusd
    assert {name: usage.figures.cost_nusd for (name, _), usage in usage.names.items()} == costs
    largest = dict(costs.most_common(MAX_SERIES))
    sums = {name: sum(values) for name, values in usage.series.items()}
    rest = sum(costs.values()) - sum(largest.values())
    assert sums == largest | ({OTHER_SERIES: rest} if rest else {})
    assert usage.before.requests == 0 and usage.names_before == {} and usage.line == []


FILTERED: dict[str, tuple[UsageValues, Callable[[UsageRecord], bool]]] = {
    "model": (UsageValues("model", lambda values: values[0] == "m3"), lambda row: row.served == "m3"),
    "source": (UsageValues("source", lambda values: values == ("x",)), lambda row: row.source == "x"),
    "tag": (UsageValues("tag", lambda values: True, ("t3",)), lambda row: '"t3"' in (row.tags or "")),
}


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.parametrize("dimension", FILTERED)
def test_a_filter_reads_only_some_values(
    database: Database, rows: list[UsageRecord], dimension: Dimension, by_key: bool
) -> None:
    only, matches = FILTERED[dimension]
    window = read_window({"timeRange": "365d"}, NOW_US)
    read_by: Dimension = dimension
    if by_key:
        read_by = next(pair for pair in PAIRS if pair.endswith(dimension))

    def name(values: tuple[Any, ...]) -> GroupName:
        return GroupName(repr(values), repr(values))

    parts = BY_KEY if by_key else OWNERS
    earlier = window.earlier(100 * 24)
    question = UsageQuestion(OWNERS, parts, window, window, read_by, name, MEASURES["requests"], "team")
    usage = read_usage(database, replace(question, filter=only, earlier=earlier))
    found = [row for row in rows if matches(row)]
    assert sum(step.requests for step in usage.steps.values()) == len(found) > 0
    assert sum(named.figures.cost_nusd for named in usage.names.values()) == sum(row.cost_nusd for row in found)
    assert sum(value or 0 for values in usage.series.values() for value in values) == len(found)
    before = [row for row in found if row.at < earlier.span.end_us]
    assert usage.before.requests == sum(value or 0 for value in usage.line) == len(before)
    assert sum(named.figures.requests for named in usage.names_before.values()) == len(before)


def test_shares_have_gaps_where_there_is_nothing(database: Database, rows: list[UsageRecord]) -> None:
    window = read_window({"first": "2026-04-01", "last": "2026-04-20"}, NOW_US)
    named = GroupName("all", "all")
    question = UsageQuestion(OWNERS, OWNERS, window, window, "owner", lambda _: named, MEASURES["errorRate"])
    [values] = read_usage(database, question).series.values()
    for label, value in zip(window.padding, values, strict=True):
        first_us = int(datetime.fromisoformat(f"{label}T00:00+00:00").timestamp()) * SECOND_US
        of_day = [row for row in rows if first_us <= row.at < first_us + DAY_US]
        failed = sum(row.error is not None for row in of_day)
        assert value == (round(failed * 10_000 / len(of_day)) if of_day else None)
