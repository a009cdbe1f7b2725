import os
from urllib.parse import urlsplit

import orjson
import pytest

from gateway import ids
from gateway.errors import Unavailable
from gateway.metering.usage_table import RECORD, UsageRecord, find, known, raw_id, write_row
from gateway.store.journal import Journal

ROWS = 20_000
NOW_MS = 1_790_000_000_000


def record(request=None, attempt=0, **more):
    """A row as a usual request of a coding client leaves it."""
    values = dict.fromkeys(UsageRecord._fields[:20], 3) | {
        "at": 1_790_000_000_000_000,
        "posted_at": 1_790_000_002_000_000 + attempt,
        "cost_nusd": 12_345_678,
        "input_nusd": 5_345_678,
        "output_nusd": 7_000_000,
        "input": 12_345,
        "output": 1_234,
        "cache_read": 45_678,
        "duration_ms": 23_456,
        "ttft_ms": 789,
        "attempt": attempt,
        "kind": 0,
        "status": 200,
    }
    names = ("organization", "project", "api_key", "member")
    values |= {name: raw_id(ids.new("x")) for name in names}
    values |= {"request": request or bytes.fromhex(ids.new_hex()), "operation": "chat", "provider": "anthropic"}
    values |= {"asked": "claude-sonnet-4-5", "served": "claude-sonnet-4-5-20250929", "finish": "tool_calls"}
    return UsageRecord(**(values | {"source": "claude.com/claude-code", "price_version": "2026-09-01"} | more))


@pytest.fixture
def journal(database, clock):
    made = Journal(database, clock)
    yield made
    made.close()


def test_a_record_is_found_by_its_request_id_at_once(database, journal):
    first = record(extra=orjson.dumps({"units": {"searches": 2}}).decode(), label="mine")
    second = record(first.request, 1, error="upstream_error")
    journal.append(write_row(second), write_row(first)).wait(60)
    assert find(database, first.request_id) == [first, second]
    assert first.details["units"] == {"searches": 2}


@pytest.mark.parametrize("more", [{}, {"label": "mine"}, {"storage_nusd": 0}, {"discount_ppm": 1, "discount_nusd": 7}])
def test_a_record_is_read_as_it_was_written(database, journal, more):
    one = record(**more)
    journal.append(write_row(one)).wait(60)
    assert find(database, one.request_id) == [one]


def test_a_usual_row_is_written_without_the_columns_that_most_rows_leave_empty():
    whole = write_row(record(label="mine"))
    usual = write_row(record())
    assert len(usual[1]) < len(whole[1]) == len(UsageRecord._fields) + 1 and len(usual[0].sql) < len(whole[0].sql)


def test_a_second_row_of_an_attempt_is_refused_whatever_it_carries(database, journal):
    one = record()
    journal.append(write_row(one)).wait(60)
    for again in (one, one._replace(label="again")):
        with pytest.raises(Unavailable):
            journal.append(write_row(again)).wait(60)
    assert find(database, one.request_id) == [one]


def test_an_unknown_or_malformed_request_id_finds_nothing(database):
    assert find(database, ids.new_hex()) == [] == find(database, "none")


def test_recorded_attempts_are_distinguished_from_others(database, journal):
    one = record()
    journal.append(write_row(one)).wait(60)
    keys = [(one.request, 0), (one.request, 1), (b"x" * 16, 0)]
    assert database.read(lambda: known(database, keys)) == {(one.request, 0)}


def test_an_id_is_its_sixteen_bytes():
    ident = ids.new("key")
    assert raw_id(ident).hex() == ident[4:] and raw_id("") == b""


@pytest.mark.slow
def test_a_row_with_all_its_indexes_takes_less_than_450_bytes(database, database_url):
    # Their ids in order, as of a request a millisecond: pages fill up as they do in service.
    requests = [(NOW_MS + number).to_bytes(6, "big") + os.urandom(10) for number in range(ROWS)]

    def fill():
        database.execute_many(RECORD.sql, [(*record(request), None) for request in requests])

    if database.kind == "postgresql":
        # Else pages count that rows of earlier tests left behind.
        database.write(lambda: database.execute("TRUNCATE usage"))
    database.write(fill, patient=True)
    assert size(database, database_url) / ROWS < 450


def size(database, url):
    if database.kind == "postgresql":
        return database.read(lambda: database.execute("SELECT pg_total_relation_size('usage')").fetchone()[0])
    path = urlsplit(url).path
    before = os.path.getsize(path)
    database.read(lambda: database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
    return os.path.getsize(path) - before
