"""Rollups tell what plain Python makes of the rows, whatever happens between: crashes, late commits, second attempts,
removals."""

import random

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.clock import FakeClock
from support.usage import (
    INSERT,
    PROJECTS,
    by_day,
    by_steps,
    count_removed,
    made_blocks,
    random_row,
    request_at,
    stored_blocks,
    stored_days,
    stored_sums,
    sum_up,
    usage_row,
)

from gateway.clock import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from gateway.errors import Unavailable
from gateway.metering.models import LATE
from gateway.metering.rollups import job, late
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.purge import UsagePurge
from gateway.metering.rollups.rollup_table import BLOCK_DAYS, BLOCK_HOURS, MOST_SOURCES, Series
from gateway.store.database import Database


class World:
    """A store with rows, its job, and all rows that there ever were."""

    def __init__(self, database: Database, clock: FakeClock, seed: int) -> None:
        self.database, self.clock, self.dice = database, clock, random.Random(seed)
        self.rollups, self.rows = Rollups(database), []
        self.purge = UsagePurge(database, clock, 3, "%never%", lambda: database.now_us())
        self.open: list = []

    def post(self, count: int = 8, ago_us: int = 0, late_us: int = 0) -> None:
        """New rows, of requests up to two hours old, some of which have a second attempt later."""
        now_us = self.clock.now_us() - ago_us
        for _ in range(count):
            at_us = now_us - self.dice.randrange(2 * HOUR_US)
            row = random_row(self.dice, at_us, posted_at=now_us - late_us)
            self.add(row)
            if not self.dice.randrange(3):
                self.open.append(row)

    def retry(self) -> None:
        now_us = self.clock.now_us()
        for row in self.open:
            at_us = row.at + self.dice.randrange(2 * HOUR_US)
            self.add(random_row(self.dice, at_us, request=row.request, attempt=row.attempt + 1, posted_at=now_us,
                              project=row.project, api_key=row.api_key))  # fmt: skip
        self.open = []

    def add(self, row) -> None:
        Database.write(self.database, lambda: self.database.execute_many(INSERT, [row]))
        self.rows.append(row)

    def break_writes(self, countdown: int, after: bool) -> None:
        """One of the next writes fails: before it did anything, or when its commit was done already."""
        write = self.database.write

        def fail(work, patient=False):
            nonlocal countdown
            countdown -= 1
            if countdown >= 0:
                return write(work, patient)
            self.database.write = write
            if after:
                write(work, patient)
            raise Unavailable("injected")

        self.database.write = fail

    def settle(self) -> None:
        self.database.__dict__.pop("write", None)
        self.clock.advance(1)
        self.rollups.catch_up()
        self.rollups.catch_up()

    def check(self) -> None:
        wanted = sum_up(self.rows)
        assert stored_sums(self.database) == wanted
        state = self.rollups.state()
        days = {key[2] // 24 for key in wanted}
        open_days = {
            day for (day,) in self.database.read(lambda: self.database.execute("SELECT day FROM rollup_day").fetchall())
        }
        made = {day for day in days if day < state.days_through and day not in open_days}
        assert stored_days(self.database) == by_day(wanted, made)
        blocks = made_blocks(self.database)
        assert stored_blocks(self.database) == by_steps(wanted, blocks, BLOCK_HOURS)
        whole = {
            block for block in {day // BLOCK_DAYS for day in days} if (block + 1) * BLOCK_DAYS <= state.days_through
        }
        assert blocks == {block for block in whole if not any(day // BLOCK_DAYS == block for day in open_days)}


@pytest.fixture
def world(sqlite_url, open_store, clock, monkeypatch):
    """A factory on a fresh store each time: worlds of one test follow each other."""
    monkeypatch.setattr(job, "BATCH_ROWS", 5)
    monkeypatch.setattr("gateway.metering.rollups.purge.STEP_ROWS", 4)
    monkeypatch.setattr(job, "pause", lambda s: None)
    monkeypatch.setattr("gateway.metering.rollups.purge.pause", lambda s: None)
    monkeypatch.setattr("gateway.metering.rollups.days.pause", lambda s: None)
    clock.freeze()

    database = open_store(sqlite_url)

    def make(seed: int = 0) -> World:
        database.__dict__.pop("write", None)

        def clear() -> None:
            for name in (
                "usage",
                "rollup",
                "rollup_hour",
                "rollup_day",
                "rollup_block",
                "rollup_state",
                "removed_spend",
                "removed_piece",
            ):
                database.execute(f"DELETE FROM {name}")

        database.write(clear)
        return World(database, clock, seed)

    return make


def test_new_rows_are_reported_of_once_they_are_a_moment_old(world):
    one = world()
    one.rollups.advance()
    one.clock.advance(3)
    one.post()
    one.rollups.advance()
    assert stored_sums(one.database) == {}
    one.clock.advance(3)
    one.rollups.advance()
    one.rollups.advance()
    one.check()
    one.rollups.advance()
    one.check()


def test_existing_rows_are_counted_in_one_pass_that_may_be_interrupted(world):
    one = world()
    for days in (40, 3, 0):
        one.post(12, ago_us=days * DAY_US)
    one.clock.advance(1)
    asked = iter([True, False])
    one.rollups.advance(lambda: next(asked, False), lag_us=0)
    assert one.rollups.state().filling
    one.post(5)
    one.retry()
    one.settle()
    assert not one.rollups.state().filling
    one.check()


def test_nothing_is_removed_before_it_is_counted(world):
    one = world()
    one.post(30, ago_us=40 * DAY_US)
    one.clock.advance(1)
    asked = iter([True, False])
    one.rollups.advance(lambda: next(asked, False), lag_us=0)
    assert one.rollups.state().filling and one.purge.run() == 0
    one.settle()
    one.clock.advance(2 * 86_400)  # of which nothing is counted yet
    assert one.purge.run() == 0
    one.settle()
    assert one.purge.run() == 30
    one.check()


def test_a_second_attempt_takes_the_request_from_the_first(world):
    one = world()
    one.rollups.catch_up()
    one.clock.advance(1)
    one.post(20)
    one.settle()
    one.retry()
    one.settle()
    one.check()


def test_a_later_correction_adds_cost_and_no_request(world):
    one = world()
    one.post(1)
    first = one.rows[0]
    one.add(first._replace(kind=LATE, cost_nusd=7, input=1, output=0, posted_at=first.posted_at + 1))
    one.settle()
    one.check()


@pytest.mark.parametrize("before", [0, 12])
def test_a_row_that_was_on_its_way_when_rollups_began_is_counted(world, before):
    one = world()
    one.post(before, ago_us=DAY_US)
    one.rollups.catch_up()
    one.post(3, late_us=5 * SECOND_US)
    one.settle()
    one.check()


def test_a_row_that_was_committed_behind_the_watermark_is_noticed_by_counting(world):
    one = world()
    one.rollups.catch_up()
    one.clock.advance(60)
    one.post()
    one.settle()
    one.post(3, late_us=30 * SECOND_US)
    one.rollups.advance()
    one.check()


def test_a_row_that_waited_for_hours_is_noticed_by_the_mark_of_its_journal(world):
    one = world()
    one.rollups.catch_up()
    for _ in range(60):
        one.clock.advance(300)
        one.rollups.advance()
    since_us = one.clock.now_us() - 4 * HOUR_US
    one.post(3, late_us=4 * HOUR_US)
    mark = "INSERT INTO late_commit (writer, since, at) VALUES ('w', ?, 1)"
    one.database.write(lambda: one.database.execute(mark, (since_us,)))
    one.rollups.advance()
    one.check()
    assert one.database.read(lambda: one.database.execute("SELECT * FROM late_commit").fetchall()) == []


@pytest.mark.parametrize("slow_us", [20 * MINUTE_US, 2 * HOUR_US])
def test_a_row_of_a_slow_clock_is_found_within_minutes(world, slow_us):
    one = world()
    one.rollups.catch_up()
    for _ in range(10):
        one.clock.advance(60)
        one.rollups.advance()
    one.post(3, late_us=slow_us)
    for _ in range(10):
        one.clock.advance(60)
        one.rollups.advance()
    one.check()


def test_a_row_of_a_slow_clock_is_found_at_once_by_who_compares(world):
    one = world()
    one.rollups.catch_up()
    one.clock.advance(60)
    one.rollups.catch_up()
    one.post(3, late_us=2 * HOUR_US)
    one.rollups.catch_up()
    one.check()


def test_rows_count_although_the_clock_was_ahead_for_a_while(world):
    one = world()
    one.rollups.advance()
    for _ in range(3):
        one.clock.advance(3)
        one.post()
        one.retry()
    one.clock.advance(1000 * 3600)
    for _ in range(15):  # until what was counted last is forgotten
        one.post(2)
        one.clock.advance(20)
        one.retry()
        one.rollups.advance()
    one.clock.advance(-1000 * 3600)
    one.post()
    one.clock.advance(5)
    one.retry()
    one.settle()
    before = [row for row in one.rows if row.posted_at < one.clock.now_us()]
    assert 30 < len(before) < len(one.rows) and stored_sums(one.database) == sum_up(before)
    one.clock.advance(1001 * 3600)
    one.settle()
    one.check()


def test_two_who_work_on_it_at_once_count_nothing_twice(world, open_store, sqlite_url):
    one = world()
    one.rollups.catch_up()
    one.clock.advance(1)
    one.post(20)
    other = Rollups(open_store(sqlite_url))
    write = one.database.write

    def overtaken(work, patient=False):
        one.database.write = write
        other.catch_up()
        return write(work, patient)

    one.clock.advance(5)
    one.database.write = overtaken
    one.rollups.advance()
    one.settle()
    one.check()


def test_names_of_sources_are_bounded_and_the_rest_counts_everywhere_else(world):
    one = world()
    hour_us = one.clock.now_us() // HOUR_US * HOUR_US
    for number in range(MOST_SOURCES + 50):
        one.add(
            random_row(one.dice, hour_us + number * 2000, source=f"made-up-{number}", project=PROJECTS[0], posted_at=1)
        )
    one.add(random_row(one.dice, hour_us + 999_999, source="", project=PROJECTS[0], posted_at=1))
    one.settle()
    found = stored_sums(one.database)
    names = {key[3] for key in found if key[0] == Series.PROJECT_SOURCE}
    assert names == {"", *(f"made-up-{number}" for number in range(MOST_SOURCES))}
    everywhere = {key: value for key, value in sum_up(one.rows).items() if key[0] % 3 != 2}
    assert {key: value for key, value in found.items() if key[0] % 3 != 2} == everywhere
    one.rollups.rebuild(0, 10**9)
    assert stored_sums(one.database) == found
    one.clock.advance(5 * 86_400)
    one.settle()
    assert one.purge.run() == MOST_SOURCES + 51
    assert stored_sums(one.database) == found


def test_rebuilding_repairs_wrong_sums(world):
    one = world()
    one.post(30)
    one.settle()
    one.database.write(lambda: one.database.execute("UPDATE rollup SET requests = 1000, cost_nusd = 3"))
    hour = one.clock.now_us() // HOUR_US
    assert one.rollups.rebuild(hour - 3, hour) >= 2
    one.check()


def test_rebuilding_of_many_hours_ends_when_all_are_computed(world, monkeypatch):
    one = world()
    for days in (3, 2, 0):
        one.post(12, ago_us=days * DAY_US)
    one.settle()
    one.database.write(lambda: one.database.execute("UPDATE rollup SET requests = 1000, cost_nusd = 3"))
    hour = one.clock.now_us() // HOUR_US
    monkeypatch.setattr(job, "LONGEST_S", -1.0)  # a round of the recurring job ends after a time
    assert one.rollups.rebuild(hour - 100, hour) >= 3
    assert late.list_dirty(one.database) == []
    one.check()


def test_rebuilding_finds_hours_that_nothing_shows_of(world):
    one = world()
    one.post(30)
    one.settle()
    for table in ("rollup", "rollup_hour"):
        one.database.write(lambda name=table: one.database.execute(f"DELETE FROM {name}"))
    hour = one.clock.now_us() // HOUR_US
    assert one.rollups.rebuild(hour - 3, hour) >= 2
    one.check()


@pytest.mark.parametrize("begun_us", [-50 * MINUTE_US, 55 * MINUTE_US], ids=["before the hour", "by a fast clock"])
def test_rebuilding_an_hour_finds_an_attempt_of_a_request_of_another_hour(world, begun_us):
    one = world()
    hour = one.clock.now_us() // HOUR_US - 5
    at_us = hour * HOUR_US + 10 * MINUTE_US
    one.add(random_row(one.dice, at_us, request=request_at(at_us + begun_us), posted_at=at_us))
    one.settle()
    for table in ("rollup", "rollup_hour"):
        one.database.write(lambda name=table: one.database.execute(f"DELETE FROM {name}"))
    assert one.rollups.rebuild(hour, hour) == 1
    one.check()


STEPS = ["post", "retry", "late", "old", "advance", "advance", "purge", "rebuild", "break", "break_after", "days"]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), steps=st.lists(st.sampled_from(STEPS), max_size=25))
def test_any_sequence_of_rows_crashes_removals_and_rebuilding_gives_the_plain_sums(world, seed, steps):
    one = world(seed)
    for step in steps:
        one.clock.advance(one.dice.randrange(1, 4000))
        try:
            act(one, step)
        except Unavailable:
            continue
    one.settle()
    one.check()
    assert count_removed(one.database) + count(one.database) == len(one.rows)


def act(one: World, step: str) -> None:
    hour = one.clock.now_us() // HOUR_US
    if step.startswith("break"):
        one.break_writes(one.dice.randrange(12), step.endswith("after"))
        return
    if step in ("purge", "days"):
        one.open = []  # no attempt follows after days
    acts = {
        "post": lambda: one.post(one.dice.randrange(1, 20)),
        "retry": one.retry,
        "late": lambda: one.post(3, late_us=60 * SECOND_US),
        # A row of a node that returns after weeks.
        "old": lambda: one.add(random_row(one.dice, one.clock.now_us() - 20 * DAY_US, posted_at=one.clock.now_us())),
        "advance": one.rollups.advance,
        "purge": one.purge.run,
        "rebuild": lambda: one.rollups.rebuild(hour - one.dice.randrange(100), hour),
        "days": lambda: one.clock.advance(86_400 * one.dice.randrange(1, 40)),
    }
    acts[step]()


def count(database: Database) -> int:
    return database.read(lambda: database.execute("SELECT COUNT(*) FROM usage").fetchone()[0])


def test_on_postgresql_rows_become_the_same_sums(postgresql_url, open_store, monkeypatch):
    monkeypatch.setattr(job, "BATCH_ROWS", 7)
    database = open_store(postgresql_url)
    one = World(database, FakeClock(), 3)
    one.clock.set(database.now_us())
    one.post(20, ago_us=3 * DAY_US)
    one.rollups.catch_up()
    one.post(20)
    one.rollups.catch_up()
    one.retry()
    one.rollups.catch_up()
    one.check()
    one.rollups.rebuild(0, 10**9)
    one.check()
    assert one.purge.run() > 0
    one.check()
    assert late.list_dirty(database) == []
    assert request_at(0)[:6] == bytes(6)


def tag_names(database: Database) -> dict[str, set[str]]:
    rows = database.report(lambda: database.fetch("SELECT provider, name FROM rollup WHERE series = 6"))
    names: dict[str, set[str]] = {}
    for tag, name in rows:
        names.setdefault(tag, set()).add(name)
    return names


def test_values_of_tags_are_bounded_and_the_others_are_one_value(world, monkeypatch):
    for name, most in (("MOST_SESSIONS", 3), ("MOST_VALUES", 2), ("MOST_TAGS", 3)):
        monkeypatch.setattr(f"gateway.metering.rollups.name_limits.{name}", most)
    one = world()
    hour_us = one.clock.now_us() // HOUR_US * HOUR_US
    for number in range(12):
        tags = {"team": f"t{number % 5}", "user": f"u{number}", f"tag-{number}": "x"}
        given = {"session": f"s{number}", "tags": orjson.dumps(tags).decode(), "posted_at": 1, "project": PROJECTS[0]}
        one.add(random_row(one.dice, hour_us + number * 2000, **given))
    one.settle()
    found = stored_sums(one.database)
    assert tag_names(one.database) == {
        "": {"s0", "s1", "s2", "(other)"},
        "team": {"t0", "t1", "(other)"},
        "user": {"u0", "u1", "(other)"},
        "tag-0": {"x"},
    }
    for series in (Series.PROJECT_TAG, Series.KEY_TAG):
        for tag in ("", "team", "user"):
            assert sum(values[0] for key, values in found.items() if key[0] == series and key[4] == tag) == 12
    one.rollups.rebuild(0, 10**9)
    assert stored_sums(one.database) == found
    one.clock.advance(5 * 86_400)
    one.settle()
    assert one.purge.run() == 12
    assert stored_sums(one.database) == found


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_tags_with_a_nul_and_long_values_are_counted(request, open_store, kind):
    database = open_store(request.getfixturevalue(f"{kind}_url"))
    tags = orjson.dumps({"a\0b": "c\0d", "long": "x" * 256, "empty": ""}).decode()
    one = World(database, FakeClock(), 1)
    one.clock.set(database.now_us())
    one.add(random_row(one.dice, one.clock.now_us() - HOUR_US, tags=tags, session=None, posted_at=1))
    one.rollups.catch_up()
    assert tag_names(database) == {"a\ufffdb": {"c\ufffdd"}, "long": {"x" * 256}}


def forget_tags(database: Database) -> None:
    """Make the store one that a release left behind that does not know sums of tags."""
    database.execute("DELETE FROM rollup WHERE series IN (6, 7, 14, 15, 22, 23)")
    database.execute("UPDATE rollup_state SET tagged = 0, tagged_until = 0")


def test_after_an_update_the_tags_of_existing_rows_are_summed_before_any_is_removed(world, monkeypatch):
    one = world()
    for days in (70, 9, 3, 0):
        one.post(12, ago_us=days * DAY_US)
    one.settle()
    one.database.write(lambda: forget_tags(one.database))
    assert one.purge.run() == 0
    one.post(5)
    monkeypatch.setattr(job, "LONGEST_S", -1.0)
    one.clock.advance(5)
    one.rollups.advance()
    assert late.list_dirty(one.database) != [] and one.purge.run() == 0
    monkeypatch.undo()
    one.settle()
    one.check()
    assert one.purge.run() > 0
    one.check()


def test_tags_of_rows_that_an_older_release_summed_meanwhile_are_added(world, monkeypatch):
    one = world()
    one.post(10)
    one.settle()
    one.clock.advance(60)
    one.post(10)
    with monkeypatch.context() as older:
        older.setattr("gateway.metering.rollups.fold.list_tags", lambda session, tags: [])
        older.setattr("gateway.metering.rollups.name_limits.list_tags", lambda session, tags: [])
        before = one.rollups.state()
        one.settle()
    same = "UPDATE rollup_state SET tagged = ?, tagged_until = ?"
    one.database.write(lambda: one.database.execute(same, (before.tagged, before.tagged_until)))
    one.settle()
    one.check()


def test_a_step_stays_small_after_rounds_with_few_rows(sqlite_url, open_store, clock, monkeypatch):
    clock.freeze()
    database = open_store(sqlite_url)
    monkeypatch.setattr(job, "SUMS", 20)
    monkeypatch.setattr(job, "LEAST_ROWS", 1)
    written = []
    add_sums = job.add_sums

    def record(database, sums, *more):
        written.append(len(sums))
        add_sums(database, sums, *more)

    monkeypatch.setattr(job, "add_sums", record)
    rollups = Rollups(database)
    rollups.catch_up()
    for count in (1, 1, 1, 1, 1, 60):
        clock.advance(1)
        now_us = clock.now_us()
        rows = [
            usage_row(now_us - 1000 + n, posted_at=now_us - 1000 + n, session=f"{count} {n}", api_key=bytes([n]) * 16)
            for n in range(count)
        ]
        database.write(lambda rows=rows: database.execute_many(INSERT, rows))
        rollups.catch_up()
    assert len(written) > 10 and max(written) <= 2 * job.SUMS
