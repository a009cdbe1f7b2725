"""Statements that write sums have few columns where few figures have a value."""

from support.statement_work import note_statements
from support.usage import insert_rows, usage_row

from gateway.clock import HOUR_US
from gateway.metering.rollups.job import Rollups


def test_sums_of_an_ordinary_call_are_written_without_empty_columns(sqlite_url, open_store, monkeypatch) -> None:
    database = open_store(sqlite_url)
    now_us = database.now_us()
    counts = {"input": 100, "cache_read": 50, "output": 20}
    costs = {"cost_nusd": 9, "input_nusd": 4, "cached_nusd": 2, "output_nusd": 3}
    insert_rows(database, usage_row(now_us - HOUR_US, posted_at=now_us, **counts, **costs))
    noted = note_statements(monkeypatch)
    Rollups(database).catch_up()
    written = [row for sql, rows in noted if sql.startswith("INSERT INTO rollup (") for row in rows]
    assert written and not [row for row in written if None in row]
