import orjson
from support.requests import MINUTE_US, PROJECT, START_US, attempt, entry, fill, request_at

from gateway.clock import DAY_US
from gateway.metering.log.log_entries import first_id, log_tables
from gateway.metering.log.search import LogFilter, LogScope, search
from gateway.store import partitions
from gateway.store.partitions import time_of


def count(database, table: str) -> int:
    return database.read(lambda: database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])


def test_a_moment_and_the_ids_of_it_are_the_same_thing() -> None:
    assert time_of(request_at(7)) == START_US + 7 * MINUTE_US
    assert first_id(START_US) <= request_at(0) < first_id(START_US + 1)
    assert first_id(-5000) == bytes(16) and len(first_id(2**80)) == 16


def test_old_entries_are_removed_with_their_index_in_small_steps_and_usage_stays(database, monkeypatch) -> None:
    monkeypatch.setattr(partitions, "DELETED_ROWS_PER_STEP", 20)
    tags = orjson.dumps({"team": "a", "env": "x"}).decode()
    fill(database, [*(entry(n, metadata=tags if n % 2 else None) for n in range(100)), *(attempt(n) for n in range(5))])
    now_us, tables = START_US + 70 * MINUTE_US + DAY_US, log_tables(database, 1)
    assert tables.purge(now_us) == 70
    assert (count(database, "log_entry"), count(database, "log_tag"), count(database, "usage")) == (30, 30, 5)
    found = search(database, [LogScope(PROJECT)], LogFilter(tags=(("team", "a"),)), None, 50).requests
    assert len(found) == 15 and tables.purge(now_us) == 0 == log_tables(database, 0).purge(now_us)


def test_a_purge_stops_when_another_worker_leads(database, monkeypatch) -> None:
    monkeypatch.setattr(partitions, "DELETED_ROWS_PER_STEP", 10)
    fill(database, [entry(n) for n in range(50)])
    turns = iter((True,) * 3)
    log_tables(database, 1).purge(START_US + 9 * DAY_US, lambda: next(turns, False))
    assert 10 <= 50 - count(database, "log_entry") <= 30


def test_the_second_entry_of_a_request_changes_nothing(database) -> None:
    fill(database, [entry(1)])
    fill(database, [entry(1, status=500)])
    [found] = search(database, [LogScope(PROJECT)], LogFilter(), None, 5).requests
    assert found.status == 402
