"""Rows of old requests go in small steps, or with their partitions."""

from support.requests import attempt

from gateway.clock import DAY_US
from gateway.metering.log.log_entries import STORE, LogEntry, log_tables
from gateway.store.partitions import AgingTables, id_at


def put(store, table: str, *moments: int) -> None:
    rows = [(id_at(at)[:6] + number.to_bytes(10, "big"),) for number, at in enumerate(moments)]
    sql = f"INSERT INTO {table} (request, project, record) VALUES (?, ?, ?)"
    store.write(lambda: store.execute_many(sql, [(request, b"p", b"r") for (request,) in rows]))


def count(store, table: str) -> int:
    return store.read(lambda: store.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_partitions_of_old_requests_go_whole_and_newer_ones_stay(postgresql_url, open_store, monkeypatch) -> None:
    store = open_store(postgresql_url)
    steps: list[bytes] = []
    tables = AgingTables(store, {"decision": ("request",)}, 7, lambda oldest: steps.append(oldest) or 0)
    now_us = store.now_us()
    for day in range(4):
        monkeypatch.setattr(store, "now_us", lambda day=day: now_us + day * DAY_US)
        tables.purge(now_us)
        put(store, "decision", now_us + day * DAY_US)
    names = [partition.name for partition in tables.partitions[0].ranges()]
    assert names[0] == "decision_first" and names[-1] == "decision_rest" and len(names) >= 4
    first_end = tables.partitions[0].ranges()[0].high
    assert steps[-1] <= first_end
    tables.purge(now_us + 10 * DAY_US)
    left = [partition.name for partition in tables.partitions[0].ranges()]
    assert left[0] == "decision_past" and len(left) < len(names) and 0 < count(store, "decision") < 4


def test_entries_and_what_finds_them_lie_in_partitions_on_postgresql(postgresql_url, open_store) -> None:
    store = open_store(postgresql_url)
    tables = log_tables(store, 90)
    tables.purge(store.now_us())
    assert [partition.exist() for partition in tables.partitions] == [True, True]
    row = attempt()
    entry = LogEntry(row.request, row.organization, row.project, row.api_key, row.member, 1, 402, "", "", "", "", "e")
    for _ in range(2):  # the second of a request changes nothing there either
        store.write(lambda: store.execute_many(STORE.sql, [entry[:]]))
    assert count(store, "log_entry") == 1
    tables.purge(store.now_us())
    assert count(store, "log_entry") == 0
