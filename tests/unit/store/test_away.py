"""An outage of the store is reported once with a remedy, and its end once."""

import sqlite3
from collections.abc import Callable
from typing import Any

import peewee
import pytest

from gateway.errors import Unavailable
from gateway.runtime.state_changes import StateChange, StateLog
from gateway.store.database import RECOVERY_S, Database


class Backend:
    """A store with configurable failures of reads and writes."""

    kind = "sqlite"

    def __init__(self) -> None:
        self.peewee = peewee.SqliteDatabase(":memory:")
        self.reads: Exception | None = None
        self.writes: Exception | None = None

    def read(self, work: Callable[[], Any], timeout_s: float | None) -> Any:
        return self._answer(self.reads)

    def write(self, work: Callable[[], Any], timeout_s: float | None) -> Any:
        return self._answer(self.writes)

    @staticmethod
    def _answer(error: Exception | None) -> None:
        if error is not None:
            raise error


def failure(code: int, text: str) -> peewee.OperationalError:
    cause = sqlite3.OperationalError(text)
    cause.sqlite_errorcode = code
    error = peewee.OperationalError(text)
    error.__context__ = cause  # as peewee leaves it
    return error


FULL = failure(13, "database or disk is full")
BROKEN = failure(10, "disk I/O error")


@pytest.fixture
def changes() -> list[StateChange]:
    return []


@pytest.fixture
def store(clock, changes: list[StateChange]) -> tuple[Database, Backend]:
    states, backend = StateLog(), Backend()
    states.subscribe(changes.append)
    return Database(backend, 1.0, clock, states), backend


def start_after(run: Callable[[Callable[[], None]], None]) -> bool:
    try:
        run(lambda: None)
    except Unavailable:
        return False
    return True


def test_a_full_disk_is_reported_once_although_reads_go_on(store, changes: list[StateChange], clock) -> None:
    database, backend = store
    backend.writes = FULL
    for _ in range(5):
        assert not start_after(database.write) and start_after(database.read)
        clock.advance(RECOVERY_S)
    assert [change.event for change in changes] == ["database.away"] and changes[0].remedy.startswith(
        "make room on its disk"
    )
    backend.writes = None
    assert start_after(database.write)
    assert [change.event for change in changes] == ["database.away", "database.back"]


def test_small_writes_that_still_fit_do_not_end_it(store, changes: list[StateChange], clock) -> None:
    database, backend = store
    for _ in range(5):
        backend.writes = FULL
        assert not start_after(database.write)
        backend.writes = None
        assert start_after(database.write)
        clock.advance(RECOVERY_S / 2)
    assert [change.event for change in changes] == ["database.away"]


def test_a_store_that_could_not_be_read_is_back_with_the_first_answer(store, changes: list[StateChange], clock) -> None:
    database, backend = store
    backend.reads = BROKEN
    assert not start_after(database.read) and "make room" not in changes[0].remedy
    backend.reads = None
    clock.advance(RECOVERY_S)
    assert start_after(database.read)
    assert [change.event for change in changes] == ["database.away", "database.back"]


def test_that_it_is_away_is_reported_once_over_the_tries_of_a_start(changes: list[StateChange], clock) -> None:
    first, backend = StateLog(), Backend()
    first.subscribe(changes.append)
    backend.reads = BROKEN
    assert not start_after(Database(backend, 1.0, clock, first).read)
    second = StateLog(first)
    second.subscribe(changes.append)
    database = Database(backend, 1.0, clock, second)
    assert not start_after(database.read) and [change.event for change in changes] == ["database.away"]
    backend.reads = None
    clock.advance(RECOVERY_S)
    assert start_after(database.read) and [change.event for change in changes] == ["database.away", "database.back"]
