"""An hour with many rows goes piece by piece: what it says stays provable after each, and moves with the last one."""

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from support.usage import count_removed, insert_rows, request_at, stored_sums, sum_up, usage_row

from gateway.clock import DAY_US, HOUR_US
from gateway.metering.rollups import late, purge, row_sums
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.proof import compare_rollups
from gateway.metering.rollups.purge import UsagePurge
from gateway.metering.rollups.rollup_table import MAX_SOURCES
from gateway.store.database import Database
from gateway.store.partitions import time_of

ROWS = 400


class Hour:
    """A store with one full hour of five days ago, of which each round of the purge takes one piece."""

    def __init__(self, database: Database, clock, monkeypatch) -> None:
        monkeypatch.setattr(purge, "STEP_ROWS", 100)
        monkeypatch.setattr(purge, "ROUND_STEPS", 1)
        self.database, self.dice = database, random.Random(4)
        self.start_us = database.now_us() // HOUR_US * HOUR_US - 5 * DAY_US
        self.rollups, self.purge = (
            Rollups(database),
            UsagePurge(database, clock, 3, "%never%", lambda: database.now_us()),
        )
        self.rows = [self.row(n * (HOUR_US // ROWS)) for n in range(ROWS)]
        insert_rows(database, *self.rows)
        self.rollups.catch_up()

    def row(self, after_us: int, **given):
        names = {"api_key": bytes([self.dice.randrange(5)]) * 16, "served": self.dice.choice("abc"), "source": "app"}
        names |= {"session": self.dice.choice((None, "first")), "tags": self.dice.choice((None, '{"team":"search"}'))}
        counts = {"cost_nusd": self.dice.randrange(99), "posted_at": self.database.now_us() - 1}
        return usage_row(self.start_us + after_us, **(names | counts | given))

    def add(self, after_us: int = 0, **given) -> None:
        """A row that comes late."""
        self.rows.append(self.row(after_us or self.dice.randrange(HOUR_US), **given))
        insert_rows(self.database, self.rows[-1])

    def count(self, table: str) -> int:
        return self.fetch(f"SELECT COUNT(*) FROM {table}")[0][0]

    def fetch(self, sql: str) -> list:
        return self.database.read(lambda: self.database.fetch(sql))

    def run_to_the_end(self) -> Iterator[int]:
        while gone := self.purge.run():
            yield gone

    def check(self) -> None:
        assert stored_sums(self.database) == sum_up(self.rows)
        assert count_removed(self.database) + self.count("usage") == len(self.rows)
        assert self.differences() == []

    def differences(self) -> list:
        return differences(self.database)


def differences(database: Database) -> list:
    return [
        row
        for sql, params, _ in database.read(lambda: list(compare_rollups(database, 0)))
        for row in database.report(lambda asked=(sql, params): database.fetch(*asked))
    ]


@pytest.fixture(params=["sqlite", "postgresql"])
def hour(request, open_store, clock, monkeypatch):
    made = Hour(open_store(request.getfixturevalue(f"{request.param}_url")), clock, monkeypatch)
    monkeypatch.setattr(
        made.purge.partitions, "keep_ready", lambda should_continue: None
    )  # there, partitions would go whole
    return made


def test_no_piece_but_the_last_writes_sums(hour, monkeypatch) -> None:
    written: list[int] = []
    move = UsagePurge._move_hour
    monkeypatch.setattr(UsagePurge, "_move_hour", lambda self, at: written.append(at) or move(self, at))
    before = hour.fetch("SELECT * FROM rollup ORDER BY series, owner, name")
    steps = list(hour.run_to_the_end())
    assert len(steps) >= 4 and sum(steps) == ROWS and written == [hour.start_us // HOUR_US]
    assert (
        hour.database.read(lambda: hour.database.fetch("SELECT * FROM rollup ORDER BY series, owner, name")) == before
    )
    hour.check()


def test_between_two_pieces_the_hour_gets_late_rows_and_is_computed_again(hour) -> None:
    number = hour.start_us // HOUR_US
    first = hour.rows[0]
    retried = {name: getattr(first, name) for name in ("request", "api_key", "served")} | {"attempt": 1}
    for _ in hour.run_to_the_end():
        hour.check()
        if len(hour.rows) < ROWS + 3:
            hour.add(**(retried if len(hour.rows) == ROWS else {}))
        assert hour.rollups.rebuild(number, number) == 1
        hour.check()
    assert hour.count("usage") == 0 and len(hour.rows) == ROWS + 3
    assert hour.count("removed_piece") == 0


def test_an_hour_that_was_counted_wrongly_is_mended_and_moves_all_the_same(hour) -> None:
    hour.database.write(lambda: hour.database.execute("UPDATE rollup SET rows = rows - 1, cost_nusd = 5"))
    list(hour.run_to_the_end())
    assert hour.count("usage") == 0 and hour.count("removed_piece") > 0 and hour.differences() != []
    hour.rollups.catch_up()
    hour.check()
    hour.purge.run()
    hour.purge.run()
    assert hour.count("removed_piece") == 0
    hour.check()


def test_names_beyond_the_bound_stay_left_out_when_the_hour_is_computed_again_between_two_pieces(hour) -> None:
    for number in range(MAX_SOURCES + 20):
        hour.add(number * 2000, source=f"made-up-{number}")
        hour.add(source=f"made-up-{number}")
    hour.rollups.catch_up()
    before = stored_sums(hour.database)
    hour.purge.run()
    hour.purge.run()
    assert 0 < hour.count("usage") < len(hour.rows)
    hour.rollups.rebuild(0, 10**9)
    assert stored_sums(hour.database) == before and hour.differences() == []


def test_obsolete_pieces_are_swept_in_small_steps(hour, monkeypatch) -> None:
    monkeypatch.setattr(row_sums, "SWEEP_ROWS", 10)
    while hour.count("usage"):
        hour.purge.run()
    left = [hour.count("removed_piece")]
    while left[-1]:
        hour.purge.run()
        left.append(hour.count("removed_piece"))
        hour.check()
    assert len(left) > 3 and max(more - less for more, less in pairwise(left)) <= 2 * 11


def test_an_hour_that_moves_twice_in_a_round_counts_no_piece_of_the_first_time(hour, monkeypatch) -> None:
    monkeypatch.setattr(purge, "ROUND_STEPS", 1000)

    def more_rows_than_it_had_come_late() -> bool:
        if not hour.count("usage"):
            more = [hour.row(hour.dice.randrange(HOUR_US)) for _ in range(2 * ROWS + 1 - len(hour.rows))]
            insert_rows(hour.database, *more)
            hour.rows += more
            hour.rollups.catch_up()
        return True

    assert hour.purge.run(more_rows_than_it_had_come_late) == 2 * ROWS + 1
    hour.check()


def test_a_row_that_comes_between_two_pieces_makes_no_work_but_its_own(hour, monkeypatch) -> None:
    hour.purge.run()
    hour.add()
    hour.rollups.catch_up()
    monkeypatch.setattr(late, "REPEAT_EVERY_US", 1)  # the rows of the last hour are compared in each round
    state = hour.rollups.state()
    assert state is not None
    late.find_late_rows(hour.database, state)
    assert late.list_dirty(hour.database) == []


def test_an_hour_of_two_partitions_goes_with_the_second_and_is_right_in_between(
    postgresql_url, open_store, clock
) -> None:
    database = open_store(postgresql_url)
    rollups = Rollups(database)
    going = UsagePurge(database, clock, 3, "%never%", lambda: database.now_us())
    going.partitions.keep_ready()
    high = going.partitions.ranges()[0].high
    assert high is not None
    bound_us, now = time_of(high), database.now_us
    ahead_us = bound_us - now() + HOUR_US
    database.now_us = lambda: now() + ahead_us
    rollups.catch_up()
    rows = [
        usage_row(bound_us + at_us, request=request_at(bound_us + id_us), posted_at=database.now_us(), cost_nusd=id_us)
        for id_us in (-5000, -4000, 4000, 5000)
        for at_us in (-7000, 7000)
    ]
    insert_rows(database, *rows)
    left = []
    for days in (0, 4, 4, 20):
        ahead_us += days * DAY_US
        rollups.catch_up()
        going.run()
        left.append(database.read(lambda: database.fetch("SELECT COUNT(*) FROM usage"))[0][0])
        assert stored_sums(database) == sum_up(rows) and differences(database) == []
        assert count_removed(database) == len(rows) - left[-1]
    assert left == [8, 4, 0, 0]
    going.run()
    assert database.read(lambda: database.fetch("SELECT 1 FROM removed_piece")) == []


def test_a_partition_goes_whole_with_an_hour_of_which_pieces_went_before(
    postgresql_url, open_store, clock, monkeypatch
) -> None:
    hour = Hour(open_store(postgresql_url), clock, monkeypatch)
    hour.purge.partitions.keep_ready()
    assert 0 < hour.purge.run() < ROWS
    now = hour.database.now_us
    hour.database.now_us = lambda: now() + 20 * DAY_US
    hour.rollups.catch_up()
    first = hour.purge.partitions.ranges()[0]
    hour.purge.run()
    assert first not in hour.purge.partitions.ranges() and hour.count("usage") == 0
    hour.check()
