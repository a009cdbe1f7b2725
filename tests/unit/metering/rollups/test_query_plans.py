"""No step of the work on rollups reads a table from end to end: each would do so thousands of times."""

import re

import pytest
from support.statement_work import count_steps, note_statements
from support.usage import insert_rows, usage_row

from gateway.clock import DAY_US, HOUR_US
from gateway.metering.rollups import late, purge
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.purge import UsagePurge
from gateway.metering.rollups.queries import RollupQuestion, at_once, fetch_top
from gateway.metering.rollups.rollup_table import Series

# As SQLite names its ways: a whole table, all rows of a series, all rows posted before a moment.
WASTEFUL = re.compile(r"SCAN (w|u|t|r|v|usage|group_usage|rollup)\b|\(series=\?\)$|\(posted_at<\?\)")
# Once, at the beginning.
ALLOWED = "SELECT 1 FROM usage WHERE posted_at <"


@pytest.mark.parametrize("maximum", [8_000, 20], ids=["whole hours", "pieces of hours"])
def test_every_statement_finds_its_rows_by_an_index(sqlite_url, open_store, clock, monkeypatch, maximum) -> None:
    monkeypatch.setattr(purge, "STEP_ROWS", maximum)
    database = open_store(sqlite_url)
    rollups, now_us = Rollups(database), database.now_us()
    rollups.catch_up()
    old_us = now_us - 5 * DAY_US
    given = {"posted_at": now_us, "session": "s", "tags": '{"team":"search"}'}
    old = [usage_row(old_us - n * HOUR_US // 40, cost_nusd=n, **given) for n in range(100)]
    insert_rows(database, *old, *(usage_row(now_us - n, posted_at=now_us) for n in range(50)))
    noted = note_statements(monkeypatch)
    rollups.catch_up()
    rollups.rebuild(now_us // HOUR_US - 2, now_us // HOUR_US)
    assert UsagePurge(database, clock, 3, "%never%", lambda: database.now_us()).run() == 100
    monkeypatch.undo()
    statements = {sql for sql, _ in noted}
    assert len(statements) > 25
    for sql in statements:
        if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)", sql) and not sql.startswith(ALLOWED):
            explain = f"EXPLAIN QUERY PLAN {sql}", (b"",) * sql.count("?")
            lines = [row[3] for row in database.read(lambda asked=explain: database.execute(*asked).fetchall())]
            assert not [line for line in lines if WASTEFUL.search(line)], (sql, lines)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_computing_an_hour_again_reads_the_rows_of_about_that_hour_in_small_steps(
    request, open_store, monkeypatch, kind
) -> None:
    monkeypatch.setattr(late, "STEP_ROWS", 7)
    database = open_store(request.getfixturevalue(f"{kind}_url"))
    rollups, now_us = Rollups(database), database.now_us() // HOUR_US * HOUR_US
    rows = [usage_row(now_us - n * HOUR_US // 5, posted_at=now_us - HOUR_US) for n in range(1, 1000)]
    insert_rows(database, *rows)
    rollups.catch_up()
    noted = note_statements(monkeypatch)
    hour = now_us // HOUR_US - 50
    assert rollups.rebuild(hour, hour) == 1
    monkeypatch.undo()
    reads = [one for one in noted if one[0].startswith("SELECT at /") and "request >=" in one[0]]
    sizes = []
    for sql, params in reads:
        low, end = [value for value in params if isinstance(value, bytes)][:2]
        sizes.append(len([row for row in rows if low <= row.request < end]))
        if kind == "postgresql":
            explain = f"EXPLAIN {sql}"
            database.read(lambda: database.execute("SET enable_seqscan = off"))
            plan = database.read(lambda asked=(explain, params): database.fetch(*asked))
            assert "request >=" in str(plan) and "Index Cond" in str(plan), plan
    assert len(sizes) > 2 and sum(sizes) <= 5 * 3 and max(sizes) <= 7


def test_the_most_expensive_sessions_are_found_without_grouping_all_figures(sqlite_url, open_store) -> None:
    database = open_store(sqlite_url)
    now_us = database.now_us()
    project = bytes([1]) * 16
    given = {"posted_at": now_us, "project": project}
    insert_rows(
        database,
        *[usage_row(now_us - n % 3 * HOUR_US, session=f"s{n % 4000}", cost_nusd=n, **given) for n in range(8000)],
    )
    Rollups(database).catch_up()
    hour = now_us // HOUR_US
    question = RollupQuestion(Series.PROJECT_TAG, [project], hour - 5, hour + 1, "all", ("name",))
    with pytest.MonkeyPatch.context() as patch:
        noted = note_statements(patch)
        found = at_once(database, lambda: fetch_top(database, question, 10))
    assert [row.value[0] for row in found][:2] == ["s3999", "s3998"]
    reads = [(sql, params) for sql, params in noted if "FROM rollup WHERE" in sql]
    costs = "SELECT name, sum(cost_nusd) FROM rollup WHERE series = ? AND owner = ? GROUP BY name"
    minimum = count_steps(database, [(costs, (Series.PROJECT_TAG, project))])
    assert count_steps(database, reads) < 2 * minimum
