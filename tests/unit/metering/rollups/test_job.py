"""Rollups tell what plain Python makes of the rows, whatever happens between: crashes, late commits, second attempts,
removals."""

import random

import gevent
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
from gateway.metering.models import LATE_CORRECTION
from gateway.metering.rollups import days as days_module
from gateway.metering.rollups import job, late
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.purge import UsagePurge
from gateway.metering.rollups.rollup_table import BLOCK_DAYS, BLOCK_HOURS, MAX_SOURCES, Series
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
def make_world(sqlite_url, open_store, clock, monkeypatch):
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


def test_new_rows_are_reported_of_once_they_are_a_moment_old(make_world):
    world = make_world()
    world.rollups.advance()
    world.clock.advance(3)
    world.post()
    world.rollups.advance()
    assert stored_sums(world.database) == {}
    world.clock.advance(3)
    world.rollups.advance()
    world.rollups.advance()
    world.check()
    world.rollups.advance()
    world.check()


def test_existing_rows_are_counted_in_one_pass_that_may_be_interrupted(make_world):
    world = make_world()
    for days in (40, 3, 0):
        world.post(12, ago_us=days * DAY_US)
    world.clock.advance(1)
    asked = iter([True, False])
    world.rollups.advance(lambda: next(asked, False), lag_us=0)
    assert world.rollups.state().filling
    world.post(5)
    world.retry()
    world.settle()
    assert not world.rollups.state().filling
    world.check()


def test_nothing_is_removed_before_it_is_counted(make_world):
    world = make_world()
    world.post(30, ago_us=40 * DAY_US)
    world.clock.advance(1)
    asked = iter([True, False])
    world.rollups.advance(lambda: next(asked, False), lag_us=0)
    assert world.rollups.state().filling and world.purge.run() == 0
    world.settle()
    world.clock.advance(2 * 86_400)  # of which nothing is counted yet
    assert world.purge.run() == 0
    world.settle()
    assert world.purge.run() == 30
    world.check()


def test_a_second_attempt_takes_the_request_from_the_first(make_world):
    world = make_world()
    world.rollups.catch_up()
    world.clock.advance(1)
    world.post(20)
    world.settle()
    world.retry()
    world.settle()
    world.check()


def test_a_later_correction_adds_cost_and_no_request(make_world):
    world = make_world()
    world.post(1)
    first = world.rows[0]
    world.add(first._replace(kind=LATE_CORRECTION, cost_nusd=7, input=1, output=0, posted_at=first.posted_at + 1))
    world.settle()
    world.check()


@pytest.mark.parametrize("before", [0, 12])
def test_a_row_that_was_on_its_way_when_rollups_began_is_counted(make_world, before):
    world = make_world()
    world.post(before, ago_us=DAY_US)
    world.rollups.catch_up()
    world.post(3, late_us=5 * SECOND_US)
    world.settle()
    world.check()


def test_a_row_that_was_committed_behind_the_watermark_is_noticed_by_counting(make_world):
    world = make_world()
    world.rollups.catch_up()
    world.clock.advance(60)
    world.post()
    world.settle()
    world.post(3, late_us=30 * SECOND_US)
    world.rollups.advance()
    world.check()


def test_a_row_that_waited_for_hours_is_noticed_by_the_mark_of_its_journal(make_world):
    world = make_world()
    world.rollups.catch_up()
    for _ in range(60):
        world.clock.advance(300)
        world.rollups.advance()
    since_us = world.clock.now_us() - 4 * HOUR_US
    world.post(3, late_us=4 * HOUR_US)
    mark = "INSERT INTO late_commit (writer, since, at) VALUES ('w', ?, 1)"
    world.database.write(lambda: world.database.execute(mark, (since_us,)))
    world.rollups.advance()
    world.check()
    assert world.database.read(lambda: world.database.execute("SELECT * FROM late_commit").fetchall()) == []


@pytest.mark.parametrize("slow_us", [20 * MINUTE_US, 2 * HOUR_US])
def test_a_row_of_a_slow_clock_is_found_within_minutes(make_world, slow_us):
    world = make_world()
    world.rollups.catch_up()
    for _ in range(10):
        world.clock.advance(60)
        world.rollups.advance()
    world.post(3, late_us=slow_us)
    for _ in range(10):
        world.clock.advance(60)
        world.rollups.advance()
    world.check()


def test_a_row_of_a_slow_clock_is_found_at_once_by_who_compares(make_world):
    world = make_world()
    world.rollups.catch_up()
    world.clock.advance(60)
    world.rollups.catch_up()
    world.post(3, late_us=2 * HOUR_US)
    world.rollups.catch_up()
    world.check()


def test_rows_count_although_the_clock_was_ahead_for_a_while(make_world):
    world = make_world()
    world.rollups.advance()
    for _ in range(3):
        world.clock.advance(3)
        world.post()
        world.retry()
    world.clock.advance(1000 * 3600)
    for _ in range(15):  # until what was counted last is forgotten
        world.post(2)
        world.clock.advance(20)
        world.retry()
        world.rollups.advance()
    world.clock.advance(-1000 * 3600)
    world.post()
    world.clock.advance(5)
    world.retry()
    world.settle()
    before = [row for row in world.rows if row.posted_at < world.clock.now_us()]
    assert 30 < len(before) < len(world.rows) and stored_sums(world.database) == sum_up(before)
    world.clock.advance(1001 * 3600)
    world.settle()
    world.check()


def test_two_who_work_on_it_at_once_count_nothing_twice(make_world, open_store, sqlite_url):
    world = make_world()
    world.rollups.catch_up()
    world.clock.advance(1)
    world.post(20)
    other = Rollups(open_store(sqlite_url))
    write = world.database.write

    def overtaken(work, patient=False):
        world.database.write = write
        other.catch_up()
        return write(work, patient)

    world.clock.advance(5)
    world.database.write = overtaken
    world.rollups.advance()
    world.settle()
    world.check()


def test_names_of_sources_are_bounded_and_the_rest_counts_everywhere_else(make_world):
    world = make_world()
    hour_us = world.clock.now_us() // HOUR_US * HOUR_US
    for number in range(MAX_SOURCES + 50):
        world.add(
            random_row(
                world.dice, hour_us + number * 2000, source=f"made-up-{number}", project=PROJECTS[0], posted_at=1
            )
        )
    world.add(random_row(world.dice, hour_us + 999_999, source="", project=PROJECTS[0], posted_at=1))
    world.settle()
    found = stored_sums(world.database)
    names = {key[3] for key in found if key[0] == Series.PROJECT_SOURCE}
    assert names == {"", *(f"made-up-{number}" for number in range(MAX_SOURCES))}
    everywhere = {key: value for key, value in sum_up(world.rows).items() if key[0] % 3 != 2}
    assert {key: value for key, value in found.items() if key[0] % 3 != 2} == everywhere
    world.rollups.rebuild(0, 10**9)
    assert stored_sums(world.database) == found
    world.clock.advance(5 * 86_400)
    world.settle()
    assert world.purge.run() == MAX_SOURCES + 51
    assert stored_sums(world.database) == found


def test_rebuilding_repairs_wrong_sums(make_world):
    world = make_world()
    world.post(30)
    world.settle()
    world.database.write(lambda: world.database.execute("UPDATE rollup SET requests = 1000, cost_nusd = 3"))
    hour = world.clock.now_us() // HOUR_US
    assert world.rollups.rebuild(hour - 3, hour) >= 2
    world.check()


def test_rebuilding_of_many_hours_ends_when_all_are_computed(make_world, monkeypatch):
    world = make_world()
    for days in (3, 2, 0):
        world.post(12, ago_us=days * DAY_US)
    world.settle()
    world.database.write(lambda: world.database.execute("UPDATE rollup SET requests = 1000, cost_nusd = 3"))
    hour = world.clock.now_us() // HOUR_US
    monkeypatch.setattr(job, "MAX_RECOMPUTE_S", -1.0)  # a round of the recurring job ends after a time
    assert world.rollups.rebuild(hour - 100, hour) >= 3
    assert late.list_dirty(world.database) == []
    world.check()


def test_rebuilding_finds_hours_that_nothing_shows_of(make_world):
    world = make_world()
    world.post(30)
    world.settle()
    for table in ("rollup", "rollup_hour"):
        world.database.write(lambda name=table: world.database.execute(f"DELETE FROM {name}"))
    hour = world.clock.now_us() // HOUR_US
    assert world.rollups.rebuild(hour - 3, hour) >= 2
    world.check()


@pytest.mark.parametrize("begun_us", [-50 * MINUTE_US, 55 * MINUTE_US], ids=["before the hour", "by a fast clock"])
def test_rebuilding_an_hour_finds_an_attempt_of_a_request_of_another_hour(make_world, begun_us):
    world = make_world()
    hour = world.clock.now_us() // HOUR_US - 5
    at_us = hour * HOUR_US + 10 * MINUTE_US
    world.add(random_row(world.dice, at_us, request=request_at(at_us + begun_us), posted_at=at_us))
    world.settle()
    for table in ("rollup", "rollup_hour"):
        world.database.write(lambda name=table: world.database.execute(f"DELETE FROM {name}"))
    assert world.rollups.rebuild(hour, hour) == 1
    world.check()


STEPS = ["post", "retry", "late", "old", "advance", "advance", "purge", "rebuild", "break", "break_after", "days"]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), steps=st.lists(st.sampled_from(STEPS), max_size=25))
def test_any_sequence_of_rows_crashes_removals_and_rebuilding_gives_the_plain_sums(make_world, seed, steps):
    world = make_world(seed)
    for step in steps:
        world.clock.advance(world.dice.randrange(1, 4000))
        try:
            act(world, step)
        except Unavailable:
            continue
    world.settle()
    world.check()
    assert count_removed(world.database) + count(world.database) == len(world.rows)


def act(world: World, step: str) -> None:
    hour = world.clock.now_us() // HOUR_US
    if step.startswith("break"):
        world.break_writes(world.dice.randrange(12), step.endswith("after"))
        return
    if step in ("purge", "days"):
        world.open = []  # no attempt follows after days
    acts = {
        "post": lambda: world.post(world.dice.randrange(1, 20)),
        "retry": world.retry,
        "late": lambda: world.post(3, late_us=60 * SECOND_US),
        # A row of a node that returns after weeks.
        "old": lambda: world.add(
            random_row(world.dice, world.clock.now_us() - 20 * DAY_US, posted_at=world.clock.now_us())
        ),
        "advance": world.rollups.advance,
        "purge": world.purge.run,
        "rebuild": lambda: world.rollups.rebuild(hour - world.dice.randrange(100), hour),
        "days": lambda: world.clock.advance(86_400 * world.dice.randrange(1, 40)),
    }
    acts[step]()


def count(database: Database) -> int:
    return database.read(lambda: database.execute("SELECT COUNT(*) FROM usage").fetchone()[0])


def test_on_postgresql_rows_become_the_same_sums(postgresql_url, open_store, monkeypatch):
    monkeypatch.setattr(job, "BATCH_ROWS", 7)
    database = open_store(postgresql_url)
    world = World(database, FakeClock(), 3)
    world.clock.set(database.now_us())
    world.post(20, ago_us=3 * DAY_US)
    world.rollups.catch_up()
    world.post(20)
    world.rollups.catch_up()
    world.retry()
    world.rollups.catch_up()
    world.check()
    world.rollups.rebuild(0, 10**9)
    world.check()
    assert world.purge.run() > 0
    world.check()
    assert late.list_dirty(database) == []
    assert request_at(0)[:6] == bytes(6)


def test_two_workers_compute_a_day_at_once_on_postgresql(postgresql_url, open_store, monkeypatch):
    database, other = open_store(postgresql_url), open_store(postgresql_url)
    world = World(database, FakeClock(), 3)
    world.clock.set(database.now_us())
    world.post(20, ago_us=(BLOCK_DAYS * 2 + 3) * DAY_US)
    world.post(20, ago_us=3 * DAY_US)
    run, others = days_module.run_sums, list[gevent.Greenlet]()

    def run_beside(*given) -> None:
        """Write sums that are not committed yet, while another worker computes all days too."""
        run(*given)
        if not others:
            others.append(gevent.spawn(Rollups(other).advance, lag_us=0))
            gevent.sleep(0.3)

    monkeypatch.setattr(days_module, "run_sums", run_beside)
    world.rollups.advance(lag_us=0)
    others[0].get(timeout=10)
    world.rollups.catch_up()
    world.check()


def tag_names(database: Database) -> dict[str, set[str]]:
    rows = database.report(lambda: database.fetch("SELECT provider, name FROM rollup WHERE series = 6"))
    names: dict[str, set[str]] = {}
    for tag, name in rows:
        names.setdefault(tag, set()).add(name)
    return names


def test_values_of_tags_are_bounded_and_the_others_are_one_value(make_world, monkeypatch):
    for name, maximum in (("MAX_SESSIONS", 3), ("MAX_VALUES", 2), ("MAX_TAGS", 3)):
        monkeypatch.setattr(f"gateway.metering.rollups.job.{name}", maximum)
    world = make_world()
    hour_us = world.clock.now_us() // HOUR_US * HOUR_US
    for number in range(12):
        tags = {"team": f"t{number % 5}", "user": f"u{number}", f"tag-{number}": "x"}
        given = {"session": f"s{number}", "tags": orjson.dumps(tags).decode(), "posted_at": 1, "project": PROJECTS[0]}
        given |= {"error": "timeout", "operation": "embeddings"}
        world.add(random_row(world.dice, hour_us + number * 2000, **given))
    world.settle()
    found = stored_sums(world.database)
    assert tag_names(world.database) == {
        "": {"s0", "s1", "s2", "(other)"},
        "team": {"t0", "t1", "(other)"},
        "user": {"u0", "u1", "(other)"},
        "tag-0": {"x"},
        " operation": {"embeddings"},
        " error": {"timeout"},
    }
    for series in (Series.PROJECT_TAG, Series.KEY_TAG):
        for tag in ("", "team", "user", " operation", " error"):
            assert sum(values[0] for key, values in found.items() if key[0] == series and key[4] == tag) == 12
    world.rollups.rebuild(0, 10**9)
    assert stored_sums(world.database) == found
    world.clock.advance(5 * 86_400)
    world.settle()
    assert world.purge.run() == 12
    assert stored_sums(world.database) == found


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_tags_with_a_nul_and_long_values_are_counted(request, open_store, kind):
    database = open_store(request.getfixturevalue(f"{kind}_url"))
    tags = orjson.dumps({"a\0b": "c\0d", "long": "x" * 256, "empty": ""}).decode()
    world = World(database, FakeClock(), 1)
    world.clock.set(database.now_us())
    world.add(random_row(world.dice, world.clock.now_us() - HOUR_US, tags=tags, session=None, error=None, posted_at=1))
    world.rollups.catch_up()
    assert tag_names(database) == {"a\ufffdb": {"c\ufffdd"}, "long": {"x" * 256}}


def forget_tags(database: Database) -> None:
    """Make the store one that a release left behind that does not know sums of tags."""
    database.execute("DELETE FROM rollup WHERE series IN (6, 7, 14, 15, 22, 23)")
    database.execute("UPDATE rollup_state SET named = 0, named_until = 0")


def test_after_an_update_the_tags_of_existing_rows_are_summed_before_any_is_removed(make_world, monkeypatch):
    world = make_world()
    for days in (70, 9, 3, 0):
        world.post(12, ago_us=days * DAY_US)
    world.settle()
    world.database.write(lambda: forget_tags(world.database))
    assert world.purge.run() == 0
    world.post(5)
    monkeypatch.setattr(job, "MAX_RECOMPUTE_S", -1.0)
    world.clock.advance(5)
    world.rollups.advance()
    assert late.list_dirty(world.database) != [] and world.purge.run() == 0
    monkeypatch.undo()
    world.settle()
    world.check()
    assert world.purge.run() > 0
    world.check()


def test_tags_of_rows_that_an_older_release_summed_meanwhile_are_added(make_world, monkeypatch):
    world = make_world()
    world.post(10)
    world.settle()
    world.clock.advance(60)
    world.post(10)
    with monkeypatch.context() as older:
        older.setattr("gateway.metering.rollups.row_sums.list_tags", lambda group: [])
        older.setattr("gateway.metering.rollups.job.list_tags", lambda group: [])
        before = world.rollups.state()
        world.settle()
    same = "UPDATE rollup_state SET named = ?, named_until = ?"
    world.database.write(lambda: world.database.execute(same, (before.named, before.named_until)))
    world.settle()
    world.check()


def test_a_step_stays_small_after_rounds_with_few_rows(sqlite_url, open_store, clock, monkeypatch):
    clock.freeze()
    database = open_store(sqlite_url)
    monkeypatch.setattr(job, "SUMS", 20)
    monkeypatch.setattr(job, "MIN_ROWS", 1)
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
