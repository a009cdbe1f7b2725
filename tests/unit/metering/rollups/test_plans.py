"""No step of the work on rollups reads a table from end to end: each would do so thousands of times."""

import re

import pytest
from support.usage import insert_rows, usage_row

from gateway.clock import DAY_US, HOUR_US
from gateway.metering.rollups import purge
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.purge import UsagePurge
from gateway.store.database import Database

# As SQLite names its ways: a whole table, all rows of a series, all rows posted before a moment.
WASTEFUL = re.compile(r"SCAN (w|u|t|r|v|usage|team_usage|rollup)\b|\(series=\?\)$|\(posted_at<\?\)")
# Once, at the beginning, and when an operator asks for hours to be computed anew.
RANGES = f"SELECT at / {HOUR_US}, MIN(lower(hex(request))), MAX(lower(hex(request))) FROM usage WHERE at >= ?"
ALLOWED = ("SELECT 1 FROM usage WHERE posted_at <", RANGES)


@pytest.mark.parametrize("most", [8_000, 20], ids=["whole hours", "pieces of hours"])
def test_every_statement_finds_its_rows_by_an_index(sqlite_url, open_store, clock, monkeypatch, most) -> None:
    monkeypatch.setattr(purge, "STEP_ROWS", most)
    database = open_store(sqlite_url)
    rollups, now_us = Rollups(database), database.now_us()
    rollups.catch_up()
    old = [usage_row(now_us - 5 * DAY_US - n * HOUR_US // 40, posted_at=now_us, cost_nusd=n) for n in range(100)]
    insert_rows(database, *old, *(usage_row(now_us - n, posted_at=now_us) for n in range(50)))
    statements: set[str] = set()
    for name in ("execute", "execute_many"):
        method = getattr(Database, name)

        def noting(self, sql, *params, run=method):
            statements.add(sql)
            return run(self, sql, *params)

        monkeypatch.setattr(Database, name, noting)
    rollups.catch_up()
    rollups.rebuild(now_us // HOUR_US - 2, now_us // HOUR_US)
    assert UsagePurge(database, clock, 3, "%never%").run() == 100
    monkeypatch.undo()
    assert len(statements) > 25
    for sql in statements:
        if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)", sql) and not sql.startswith(ALLOWED):
            explain = f"EXPLAIN QUERY PLAN {sql}", (b"",) * sql.count("?")
            lines = [row[3] for row in database.read(lambda asked=explain: database.execute(*asked).fetchall())]
            assert not [line for line in lines if WASTEFUL.search(line)], (sql, lines)
