"""Usage rows in ClickHouse (its real engine): each counts once whatever fails, and reports are those of the rollups."""

import re
from typing import Any

import pytest
from support.clickhouse_site import Site
from support.usage import KEYS, PROJECTS, insert_rows

from gateway.clock import DAY_US, HOUR_US, MINUTE_US
from gateway.errors import Unavailable
from gateway.metering.activity import Owners, Span
from gateway.metering.clickhouse.clickhouse_http import open_client
from gateway.metering.clickhouse.clickhouse_reports import ClickHouseAnswers
from gateway.metering.clickhouse.sink import COMMIT_LAG_US
from gateway.metering.figures import FIGURES
from gateway.metering.models import LATE_CORRECTION
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.queries import RollupQuestion, StepColumns, at_once, fetch_columns, fetch_rows
from gateway.metering.rollups.rollup_table import Series
from gateway.reports.shares import ShareQuestion, read_shares
from gateway.surfaces.console.grouping import GROUPS, GroupName
from gateway.surfaces.console.usage_measures import MEASURES
from gateway.surfaces.console.usage_reader import PeriodUsage, UsageQuestion, read_usage
from gateway.surfaces.visitors.report_windows import read_window

pytestmark = pytest.mark.slow  # the engine takes seconds to start


def test_rows_are_delivered_in_batches_and_once(site: Site) -> None:
    site.add(250)
    site.deliver()
    site.check()
    site.clock.advance(30)
    site.add(40)
    site.deliver()
    site.deliver()
    site.check()


def test_rows_count_once_when_answers_of_inserts_are_lost_and_inserts_are_refused(site: Site) -> None:
    site.add(450)
    for fault in ("lose 1", "refuse 1", "lose 1", "refuse 2", "lose 2"):
        site.server.fail(fault)
        with pytest.raises(Unavailable):
            site.deliver()
        assert site.states.firing("clickhouse") == "analytics.away"
        site.sink = site.make_sink()  # after a restart
        site.server.fail("")
        site.clock.advance(1)
    site.deliver()
    assert site.states.is_healthy("clickhouse")
    site.check()


def test_a_delivery_that_is_stopped_goes_on_where_it_was(site: Site) -> None:
    site.add(400)
    steps = iter([True, True])
    site.sink.run(lambda: next(steps, False))
    assert 0 < site.counted()[0] < 400
    site.sink = site.make_sink()
    site.deliver()
    site.check()


def test_a_lost_progress_delivers_everything_again_and_counts_it_once(site: Site) -> None:
    site.add(120)
    site.deliver()
    site.database.change_rows("DELETE FROM document WHERE kind = 'usage_sink'")
    site.deliver()
    site.check()


def test_a_later_attempt_takes_the_request_from_the_earlier(site: Site) -> None:
    first = site.row(site.clock.now_us() - COMMIT_LAG_US - 10, attempt=0, error="timeout")
    insert_rows(site.database, first)
    site.deliver()
    site.clock.advance(20)
    posted_us = site.clock.now_us() - COMMIT_LAG_US - 10
    again = first._replace(attempt=1, error=None, posted_at=posted_us)
    correction = again._replace(kind=LATE_CORRECTION, cost_nusd=-5, posted_at=posted_us + 1)
    insert_rows(site.database, again, correction)
    site.deliver()
    rows = site.server.query(f"SELECT attempt, kind, requests, errors FROM {site.table} FINAL ORDER BY attempt, kind")
    assert rows == [[0, 0, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0]]
    site.check()


def test_rows_that_were_committed_behind_the_progress_are_found(site: Site) -> None:
    rollups = Rollups(site.database)
    site.add(30)
    rollups.catch_up()
    site.deliver()
    site.clock.advance(60)
    # Behind by a minute, found by counting; and by hours, found by the mark of the journal.
    site.add(5, ago_us=MINUTE_US)
    site.add(5, ago_us=5 * HOUR_US)
    now_us = site.clock.now_us()
    mark = "INSERT INTO late_commit (writer, since, at) VALUES ('w', ?, ?)"
    site.database.change_rows(mark, (now_us - 6 * HOUR_US, now_us))
    site.clock.advance(11 * 60)
    rollups.catch_up()
    site.clock.advance(60)
    site.deliver()
    rows, _ = site.counted()
    assert rows == site.count() == 40
    site.check()


def test_the_check_names_hours_that_differ(site: Site) -> None:
    site.add(50)
    site.deliver()
    client = site.sink.client
    assert client is not None
    kept_us = site.clock.now_us() - DAY_US
    client.execute(f"DELETE FROM {site.table} WHERE at_us < {kept_us}")
    missing = 50 - site.counted()[0]
    assert missing > 0
    site.sink = site.make_sink()
    lines = site.sink.check()
    assert sum(int(re.findall(r"database (\d+) of", line)[0]) for line in lines) >= missing
    assert all(line.startswith("ClickHouse has ") for line in lines)


def test_rows_wait_for_their_delivery_before_they_are_removed(site: Site) -> None:
    min_us = site.clock.now_us() - 30 * DAY_US
    assert site.sink.kept_from_us(min_us) == min_us
    site.add(5)
    site.deliver()
    delivered = site.sink.state()
    assert delivered is not None
    site.clock.advance(10 * 86_400)
    assert site.sink.kept_from_us(site.clock.now_us() - 30 * DAY_US) == delivered.cursor_us - DAY_US
    site.clock.advance(90 * 86_400)
    min_us = site.clock.now_us() - 30 * DAY_US
    assert site.sink.kept_from_us(min_us) == min_us


BUCKETS = [
    (series, bucket, dimensions)
    for series, dimensions in (
        (Series.PROJECT, ()),
        (Series.PROJECT_MODEL, ("name", "provider")),
        (Series.KEY, ("owner",)),
        (Series.KEY_SOURCE, ("name",)),
        (Series.PROJECT_SOURCE, ("name",)),
    )
    for bucket in ("hour", "day", "week", "all")
]


def as_lines(rows: list[Any], names: tuple[str, ...]) -> list[Any]:
    return sorted((row.step, row.value, [getattr(row.figures, name) for name in names]) for row in rows)


def as_cells(columns: list[StepColumns]) -> dict[tuple[Any, ...], list[int]]:
    """Return the figures by step and dimensions; a step may come in pieces."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for column in columns:
        for at in range(len(column.figures[0])):
            place = (column.step, *(values[at] for values in column.dimensions))
            known = found.get(place, [0] * len(column.figures))
            found[place] = [total + numbers[at] for total, numbers in zip(known, column.figures, strict=True)]
    return found


def test_reports_are_those_of_the_rollups(site: Site) -> None:
    site.add(600)
    site.deliver()
    Rollups(site.database).catch_up()
    client = site.sink.client
    assert client is not None
    engine = ClickHouseAnswers(site.sink, client, site.clock)
    assert engine.is_usable()
    end = site.clock.now_us() // HOUR_US + 1
    zone = ((end - 72, 330), (end - 20, -210))
    for series, bucket, dimensions in BUCKETS:
        owners = KEYS if series in (Series.KEY, Series.KEY_SOURCE) else PROJECTS
        for shifts in ((), zone) if bucket in ("day", "week") else ((),):
            question = RollupQuestion(series, owners, end - 72, end, bucket, dimensions, FIGURES, shifts)
            site.database.statistics = None
            kept = at_once(site.database, lambda: fetch_rows(site.database, question))  # noqa: B023
            kept_columns = at_once(site.database, lambda: fetch_columns(site.database, question))  # noqa: B023
            site.database.statistics = engine
            found = at_once(site.database, lambda: fetch_rows(site.database, question))  # noqa: B023
            columns = at_once(site.database, lambda: fetch_columns(site.database, question))  # noqa: B023
            assert as_lines(found, FIGURES) == as_lines(kept, FIGURES) != []
            assert as_cells(columns) == as_cells(kept_columns)


def as_sums(usage: PeriodUsage) -> list[Any]:
    steps = {label: vars(figures) for label, figures in usage.steps.items()}
    names = {ident: vars(named.figures) for ident, named in usage.names.items()}
    return [steps, names, usage.series]


def name_value(values: tuple[Any, ...]) -> GroupName:
    return GroupName(values[0], values[0])


@pytest.mark.parametrize("maximum", [1_000, 1])
def test_shares_by_tag_and_session_are_those_of_the_rows(
    site: Site, monkeypatch: pytest.MonkeyPatch, maximum: int
) -> None:
    monkeypatch.setattr("gateway.reports.shares.MAX_VALUES", maximum)
    site.add(300)
    site.deliver()
    Rollups(site.database).catch_up()
    client = site.sink.client
    assert client is not None
    engine = ClickHouseAnswers(site.sink, client, site.clock)
    assert engine.is_usable()
    end = site.clock.now_us() // HOUR_US + 1
    owners = Owners((f"proj_{PROJECTS[0].hex()}",), (f"key_{KEYS[1].hex()}",))
    for group, tag in (("session", ""), ("tag", "team"), ("tag", "user"), ("tag", "no'ne")):
        question = ShareQuestion(owners, Span(end - 72, end, "all"), group, tag)
        site.database.statistics = None
        kept = read_shares(site.database, question)
        site.database.statistics = engine
        found = read_shares(site.database, question)
        assert [(one.id, vars(one.figures)) for one in found] == [(one.id, vars(one.figures)) for one in kept] != []
        window = read_window({"timeRange": "30d"}, site.clock.now_us())
        for bars in (window, window.by_week()):
            page = UsageQuestion(
                owners, owners, window, bars, GROUPS[group].dimension, name_value, MEASURES["spend"], tag
            )
            site.database.statistics = None
            sums = as_sums(read_usage(site.database, page))
            site.database.statistics = engine
            assert as_sums(read_usage(site.database, page)) == sums and all(sums)


def test_the_rollups_answer_while_clickhouse_fails_lags_or_lacks_rows(site: Site) -> None:
    site.add(50)
    site.deliver()
    Rollups(site.database).catch_up()
    end = site.clock.now_us() // HOUR_US + 1
    question = RollupQuestion(Series.PROJECT, PROJECTS, end - 72, end, figures=("requests", "cost_nusd"))
    kept = as_lines(at_once(site.database, lambda: fetch_rows(site.database, question)), ("requests", "cost_nusd"))

    def ask(engine: ClickHouseAnswers) -> list[Any]:
        site.database.statistics = engine
        return as_lines(at_once(site.database, lambda: fetch_rows(site.database, question)), ("requests", "cost_nusd"))

    away = open_client(site.transport, "http://127.0.0.1:9/default", site.table)
    assert away is not None
    lost = ClickHouseAnswers(site.sink, away, site.clock)
    assert not lost.is_usable() and ask(lost) == kept
    client = site.sink.client
    assert client is not None
    site.server.execute(f"RENAME TABLE {site.table} TO {site.table}_away")
    failing = ClickHouseAnswers(site.sink, client, site.clock)
    assert failing.is_usable() and ask(failing) == kept and not failing.is_usable()
    with site.server.paused():
        hanging = ClickHouseAnswers(site.sink, client, site.clock)
        assert not hanging.is_usable() and ask(hanging) == kept
    engine = ClickHouseAnswers(site.sink, client, site.clock)
    site.clock.advance(3600)
    assert not engine.is_usable() and ask(engine) == kept
