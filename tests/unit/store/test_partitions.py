"""Tables in partitions by ranges of the request id: conversion under load, ranges ahead, dropping."""

import itertools
import threading
from functools import partial

import pytest

from gateway import ids
from gateway.clock import DAY_US
from gateway.errors import Unavailable
from gateway.runtime.threads import spawn
from gateway.store import partitions as module
from gateway.store.partitions import Partitions, id_at, time_of

INSERT = "INSERT INTO decision (request, project, record) VALUES (?, ?, ?) ON CONFLICT (request) DO NOTHING"


@pytest.fixture
def store(postgresql_url, open_store):
    return open_store(postgresql_url)


@pytest.fixture
def decisions(store):
    return Partitions(store, "decision", ("request",), 7 * DAY_US)


def put(store, *requests):
    return store.write(lambda: store.execute_many(INSERT, [(request, b"p", b"r") for request in requests]))


def count(store, table="decision"):
    return store.read(lambda: store.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def now(store, days=0.0):
    return id_at(store.now_us() + round(days * DAY_US))[:6] + bytes.fromhex(ids.new_hex())[6:]


def test_a_table_becomes_the_first_of_its_partitions_and_keeps_its_unique_keys(store, decisions):
    old, new = now(store, -400), now(store)
    put(store, old, new)
    decisions.keep_ready()
    decisions.keep_ready()
    first, rest = decisions.ranges()
    assert (first.name, first.low, rest.name, rest.high) == ("decision_first", b"", "decision_rest", None)
    assert first.high == rest.low and count(store) == count(store, "decision_first") == 2
    assert put(store, old, new, now(store, 30)) == 1
    assert count(store, "decision_rest") == 1


def test_the_next_range_is_ready_before_it_begins(store, decisions, monkeypatch):
    decisions.keep_ready()
    end = time_of(decisions.ranges()[-1].low)
    real = store.now_us()
    monkeypatch.setattr(store, "now_us", lambda: end - 2 * DAY_US if end - 2 * DAY_US > real else end - DAY_US - 1)
    assert len(decisions.ranges()) == 2
    put(store, id_at(end + DAY_US))
    monkeypatch.setattr(store, "now_us", lambda: end - DAY_US // 2)
    decisions.keep_ready()
    decisions.keep_ready()
    found = decisions.ranges()
    assert len(found) == 3 and all(a.high == b.low for a, b in itertools.pairwise(found))
    assert count(store, found[1].name) == 1 and time_of(found[2].low) == end + 7 * DAY_US


@pytest.mark.parametrize("small", [10, 10_000])
def test_a_table_with_ids_of_a_clock_that_is_years_ahead_is_converted(store, decisions, monkeypatch, small):
    """PostgreSQL refused the first range because of such a row, in every round."""
    monkeypatch.setattr(module, "SMALL_ROWS", small)
    put(store, *(now(store, -n) for n in range(50)), now(store, 3650))
    decisions.keep_ready()
    first, rest = decisions.ranges()
    assert time_of(first.high) < store.now_us() + 30 * DAY_US
    assert (count(store, first.name), count(store, rest.name)) == (50, 1)


def test_a_clock_that_is_years_ahead_lengthens_no_range(store, decisions, monkeypatch):
    """The ids of one node made a range that ended in 2036 and was never dropped."""
    decisions.keep_ready()
    ahead = [now(store, days=3650 + number) for number in range(3)]
    put(store, *ahead)
    for _ in range(3):
        end = time_of(decisions.ranges()[-1].low)
        timely = id_at(end + DAY_US)
        put(store, timely)
        monkeypatch.setattr(store, "now_us", lambda end=end: end - DAY_US // 2)
        decisions.keep_ready()
        monkeypatch.undo()
        *_, newest, rest = decisions.ranges()
        assert (time_of(newest.low), time_of(newest.high)) == (end, end + 7 * DAY_US)
        assert count(store, newest.name) == 1 and count(store, rest.name) == 3
        assert put(store, *ahead, timely) == 0, "unique keys hold over all ranges"
    assert len(decisions.ended(id_at(end + 7 * DAY_US))) == 4


def test_old_ranges_are_removed_whole_and_late_rows_for_them_have_a_place(store, decisions, monkeypatch):
    decisions.keep_ready()
    end = time_of(decisions.ranges()[-1].low)
    old, newer = now(store, -20), id_at(end + DAY_US)
    put(store, old, newer)
    monkeypatch.setattr(store, "now_us", lambda: end)
    decisions.keep_ready()
    monkeypatch.undo()
    assert decisions.ended(id_at(end - 1)) == []
    for _ in range(2):
        for one in decisions.ended(id_at(end + 40 * DAY_US))[:1]:
            store.write(lambda one=one: decisions.drop(one))
    assert [partition.name for partition in decisions.ranges()] == ["decision_past", "decision_rest"]
    assert decisions.ended(id_at(end + 40 * DAY_US)) == [] and count(store) == 0
    assert put(store, old, newer, now(store, 60)) == 3 and count(store, "decision_past") == 2
    assert put(store, old) == 0


def test_a_large_table_is_converted_while_rows_come_in(store, decisions, monkeypatch):
    monkeypatch.setattr(module, "SMALL_ROWS", 10)
    put(store, *(now(store, -n) for n in range(50)))
    stop, written = threading.Event(), []

    def write():
        while not stop.is_set():
            one = now(store)
            put(store, one)
            written.append(one)

    writer = spawn(write)
    try:
        for _ in range(20):
            try:
                decisions.keep_ready()
                break
            except Unavailable:
                continue
    finally:
        stop.set()
        writer.join()
    assert decisions.exist() and writer.successful() and count(store) == 50 + len(written)
    first, _ = decisions.ranges()
    assert (
        time_of(first.high) > store.now_us() + 8 * DAY_US
    )  # a version that knows nothing of it may run alone for days


def test_a_conversion_that_was_cut_short_goes_on(store, decisions, monkeypatch):
    monkeypatch.setattr(module, "SMALL_ROWS", 10)
    put(store, *(now(store, -n) for n in range(50)))
    decisions.keep_ready(lambda: False)
    assert not decisions.exist()
    put(store, now(store))
    real = store.now_us()
    monkeypatch.setattr(store, "now_us", lambda: real + 14 * DAY_US)  # its bound is near: it is put off
    decisions.keep_ready(lambda: False)
    put(store, now(store))
    decisions.keep_ready()
    assert decisions.exist() and count(store) == 52
    assert time_of(decisions.ranges()[-1].low) > real + 22 * DAY_US


def test_the_holder_of_the_table_does_not_wait(store, postgresql_url, open_store, decisions):
    other = open_store(postgresql_url)

    def hold():
        other.execute("SELECT count(*) FROM decision")
        with pytest.raises(Unavailable):
            decisions.keep_ready()

    other.write(hold)
    decisions.keep_ready()
    assert decisions.exist()


def test_ranges_made_and_dropped_by_several_processes_at_once_lose_no_row(store, postgresql_url, open_store):
    """Reading the ranges failed while another process detached one, and dropping an already dropped one failed too."""
    stores = [store, *(open_store(postgresql_url) for _ in range(3))]
    real, days = store.now_us(), [0]
    for each in stores:
        each.now_us = lambda: real + days[0] * DAY_US
    made = [Partitions(store, "decision", ("request",), 7 * DAY_US) for store in stores]
    kept, faults = [], []

    def maintain(number: int) -> None:
        each, partitions = stores[number], made[number]
        try:
            partitions.keep_ready()
            for one in partitions.ended(id_at(each.now_us() - 20 * DAY_US))[:1]:
                each.write(partial(partitions.drop, one))
        except Unavailable:
            pass
        except Exception as error:
            faults.append(repr(error))

    def work(number: int) -> None:
        while days[0] < 200:
            maintain(number)
            row = now(stores[number], (0, 0, -3, 12)[number])
            try:
                put(stores[number], row)
                kept.append(row)
            except Unavailable:
                pass
            days[0] += 1

    for job in [spawn(work, number) for number in range(4)]:
        job.join()
    ranges = made[0].ranges()
    assert faults == [] and all(one.high == two.low for one, two in itertools.pairwise(ranges))
    newest = [row for row in kept if row >= id_at(store.now_us() - 15 * DAY_US)]
    assert newest and count(store) >= len(newest)


def test_sqlite_has_none(sqlite_url, open_store):
    store = open_store(sqlite_url)
    partitions = Partitions(store, "decision", ("request",), DAY_US)
    partitions.keep_ready()
    assert partitions.ranges() == [] and partitions.ended(b"\xff" * 16) == [] and not partitions.exist()
