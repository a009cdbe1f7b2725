"""A query of any period returns the sums of its rows, from hours, days, blocks or days of a time zone."""

import random
from collections import Counter, defaultdict
from datetime import UTC, date, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.clock import FakeClock
from support.usage import insert_rows, usage_row

from gateway.clock import DAY_US, HOUR_US
from gateway.configuration.settings import DatabaseSettings
from gateway.metering.rollups import job
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.queries import RollupQuestion, at_once, fetch_columns, fetch_rows, sum_tokens, week_of
from gateway.metering.rollups.rollup_table import BLOCK_DAYS, Series
from gateway.runtime.threads import Threads
from gateway.store.database import open_database
from gateway.store.migrations import migrate
from gateway.surfaces.visitors.report_windows import read_window

PROJECT, KEYS = bytes([1]) * 16, [bytes([n]) * 16 for n in (7, 8)]
LONG = 3 * BLOCK_DAYS
ZONES = ("Europe/Berlin", "Asia/Kolkata", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Tokyo")


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def told(request, tmp_path_factory, postgres_databases):
    """A store with rows of a hundred days around a change of clocks, and the rows."""
    url = f"sqlite:///{tmp_path_factory.mktemp('reading')}/gateway.db"
    if request.param == "postgresql":
        url = postgres_databases.take()
        request.addfinalizer(lambda: postgres_databases.give(url))
    threads = Threads()
    database = open_database(DatabaseSettings(url, "", 3, 5.0), FakeClock(), threads)
    request.addfinalizer(threads.close)
    request.addfinalizer(database.close)
    migrate(database)
    clock, dice = FakeClock(), random.Random(4)
    end_us = int(datetime(2026, 4, 20, 11, 20, tzinfo=UTC).timestamp()) * 1_000_000
    clock.freeze()
    clock.set(end_us)
    database.now_us = clock.now_us
    rows = [
        usage_row(
            end_us - dice.randrange(LONG * DAY_US),
            posted_at=end_us - DAY_US * 2,
            project=PROJECT,
            api_key=dice.choice(KEYS),
            served=dice.choice("ab"),
            provider=dice.choice("pq"),
            source=dice.choice(("x", "")),
            tags=dice.choice(('{"team":"a"}', '{"team":"b"}')),
            cost_nusd=dice.randrange(10**9),
            input=dice.randrange(100),
            cache_read=dice.randrange(900),
            output=dice.randrange(20),
        )
        for _ in range(1500)
    ]
    insert_rows(database, *rows)
    patch = pytest.MonkeyPatch()
    for place in ("job", "days"):
        patch.setattr(f"gateway.metering.rollups.{place}.pause", lambda s: None)
    Rollups(database).catch_up()
    # One day is open again, and its block with it.
    late = usage_row(end_us - 50 * DAY_US, posted_at=end_us - 1000, project=PROJECT, api_key=KEYS[0], served="a")
    insert_rows(database, late)
    patch.setattr(job.days, "sum_up", lambda *_: None)
    clock.advance(10)
    Rollups(database).catch_up()
    patch.undo()
    return database, [*rows, late]


def plain(rows, question: RollupQuestion) -> dict:
    """(step, value) → (requests, cost), of the rows alone."""
    found: dict = defaultdict(lambda: [0, 0])
    for row in rows:
        hour = row.at // HOUR_US
        if not question.first <= hour < question.end or row.project not in question.owners:
            continue
        minutes = [0, *(ahead for begin, ahead in question.shifts if begin <= hour)][-1]
        day = (hour * 60 + minutes) // 1440
        monday = date(1970, 1, 1) + timedelta(days=day)
        monday -= timedelta(days=monday.weekday())
        week = (monday - date(1969, 12, 29)).days // 7
        step = {"hour": hour, "day": day, "week": week, "all": 0}[question.bucket]
        value = tuple({"name": row.served, "provider": row.provider}[name] for name in question.dimensions)
        found[step, value][0] += 1
        found[step, value][1] += row.cost_nusd
    return dict(found)


def by_columns(database, question: RollupQuestion) -> dict:
    """The same of the columns, which may tell a step and value in pieces."""
    found: dict = defaultdict(lambda: [0, 0])
    for step, dimensions, figures in at_once(database, lambda: fetch_columns(database, question)):
        for *value, requests, cost in zip(*dimensions, *figures, strict=True):
            known = found[step, tuple(value)]
            known[:] = [known[0] + requests, known[1] + cost]
    return dict(found)


def check(told, question: RollupQuestion) -> None:
    database, rows = told
    wanted = plain(rows, question)
    found = at_once(database, lambda: fetch_rows(database, question))
    assert {(row.step, row.value): [row.figures.requests, row.figures.cost_nusd] for row in found} == wanted
    assert by_columns(database, question) == wanted


@settings(max_examples=2 * settings().max_examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.integers(0, LONG * 24),
    hours=st.integers(1, LONG * 24),
    bucket=st.sampled_from(["hour", "day", "week", "all"]),
    dimensions=st.sampled_from([(), ("name",), ("name", "provider")]),
)
def test_any_period_is_reported_as_its_rows_say(told, start, hours, bucket, dimensions) -> None:
    first = max(row.at for row in told[1]) // HOUR_US - LONG * 24 + start
    series = Series.PROJECT_MODEL if dimensions else Series.PROJECT
    figures = ("requests", "cost_nusd")
    check(told, RollupQuestion(series, [PROJECT], first, first + hours, bucket, dimensions, figures))


@pytest.mark.parametrize("zone", ["UTC", *ZONES])
def test_weeks_are_the_sums_of_their_days_over_a_change_of_clocks(told, zone) -> None:
    now_us = max(row.at for row in told[1])
    window = read_window({"first": "2026-02-18", "last": "2026-04-15", "timezone": zone}, now_us)
    sums = []
    for span in (window.span, window.by_week().span):
        figures = ("requests", "cost_nusd")
        question = RollupQuestion(
            Series.PROJECT_MODEL, [PROJECT], span.first, span.end, span.step, ("name",), figures, span.shifts
        )
        check(told, question)
        sums.append(by_columns(told[0], question))
    days, weeks = sums
    of_days: dict = defaultdict(lambda: [0, 0])
    for (day, value), (requests, cost) in days.items():
        known = of_days[week_of(day), value]
        known[:] = [known[0] + requests, known[1] + cost]
    assert of_days == weeks and len(days) > 2 * len(weeks)
    assert {window.by_week().label(week) for week, _ in weeks} <= set(window.by_week().padding)
    assert {date.fromisoformat(label).weekday() for label in window.by_week().padding} == {0}


@pytest.mark.parametrize("zone", ZONES)
def test_days_of_a_zone_are_reported_as_its_clock_says_and_add_up_to_those_of_utc(told, zone) -> None:
    now_us = max(row.at for row in told[1])
    span = read_window({"first": "2026-03-01", "last": "2026-04-15", "timezone": zone}, now_us).span
    question = RollupQuestion(
        Series.PROJECT_MODEL, [PROJECT], span.first, span.end, "day", ("name",), ("requests", "cost_nusd"), span.shifts
    )
    check(told, question)
    days = defaultdict(int)
    for row in told[1]:
        if span.first <= (hour := row.at // HOUR_US) < span.end:
            begins = datetime.fromtimestamp(hour * 3600, UTC).astimezone(ZoneInfo(zone)).date()
            days[(begins - datetime(1970, 1, 1).date()).days] += 1
    told_days = defaultdict(int)
    for (step, _), (requests, _) in by_columns(told[0], question).items():
        told_days[step] += requests
    assert told_days == days


def test_a_year_is_read_by_blocks_and_its_ends_by_days_and_hours(told) -> None:
    database, rows = told
    statements = []
    fetch = database.fetch
    database.fetch = lambda sql, params=(): statements.append((sql, params)) or fetch(sql, params)
    try:
        last = max(row.at for row in rows) // HOUR_US
        check(
            told, RollupQuestion(Series.PROJECT, [PROJECT], last - LONG * 24, last, figures=("requests", "cost_nusd"))
        )
    finally:
        del database.fetch
    series = {params[0] for sql, params in statements if " FROM rollup WHERE series" in sql}
    assert series == {0, 8, 16}


@pytest.mark.parametrize("dimensions", [(), ("name",), ("provider",), ("name", "provider")])
@pytest.mark.parametrize("series", Series)
def test_columns_of_precomputed_days_repeat_no_value(told, series, dimensions) -> None:
    database, rows = told
    owner = PROJECT if series.name.startswith("PROJECT") else KEYS[0]
    first = (min(row.at for row in rows) // DAY_US + 1) * 24
    end = first + 9 * 24
    question = RollupQuestion(series, [owner], first, end, "day", dimensions, ("requests",), tag="team")
    found = at_once(database, partial(fetch_columns, database, question))
    assert found
    for columns in found:
        values = set(zip(*columns.dimensions, strict=True)) or {()}
        assert len(columns.figures[0]) == len(values)


def test_columns_name_owners_in_hexadecimal(told) -> None:
    database, rows = told
    hours = [row.at // HOUR_US for row in rows]
    question = RollupQuestion(Series.KEY, KEYS, min(hours), max(hours) + 1, "all", ("owner",), ("requests",))
    found: Counter[str] = Counter()
    for columns in at_once(database, partial(fetch_columns, database, question)):
        found.update(dict(zip(columns.dimensions[0], columns.figures[0], strict=True)))
    assert found == Counter(row.api_key.hex() for row in rows)


def test_tokens_are_summed_by_project_and_model_over_the_last_three_days(told):
    database, rows = told[0], told[1]
    now_hour = database.now_us() // HOUR_US
    expected: dict[str, list[int]] = {}
    for row in rows:
        if row.at // HOUR_US >= now_hour - 72:
            sums = expected.setdefault(row.served, [0, 0, 0])
            sums[0] += row.input + row.cache_read
            sums[1] += row.cache_read
            sums[2] += row.output
    found = {sums.model: list(sums[2:]) for sums in sum_tokens(database, now_hour, 1)}
    assert found == expected and len(found) == 2
    assert {sums.project_id for sums in sum_tokens(database, now_hour, 1)} == {"proj_" + PROJECT.hex()}
    highest = max(sums[0] for sums in expected.values())
    assert len(sum_tokens(database, now_hour, highest)) == 1
