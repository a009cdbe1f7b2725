import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import gevent
import peewee
import pytest
from support import cheap_disks

from gateway import errors
from gateway.configuration.settings import ROOT, SettingsError
from gateway.configuration.settings import DatabaseSettings as Config
from gateway.runtime.loop_turns import low_priority
from gateway.store import sqlite
from gateway.store.database import WHOLE, Base, ListSlice, NanoField, open_database
from gateway.store.database_addresses import check_scheme
from gateway.store.pool import DRIVER_ERRORS


class BudgetSet(Base):
    name = peewee.CharField(primary_key=True)
    held_nusd = NanoField()


@pytest.fixture
def budget_sets(database):
    database.bind()
    database.write(lambda: database.peewee.create_tables([BudgetSet]))
    database.write(lambda: BudgetSet.create(name="a", held_nusd=0))
    return database


def _add(amount=1):
    BudgetSet.update(held_nusd=BudgetSet.held_nusd + amount).where(BudgetSet.name == "a").execute()


def _held(database):
    return database.read(lambda: BudgetSet.get_by_id("a").held_nusd)


def test_writes_of_many_greenlets_are_all_kept(budget_sets):
    gevent.joinall([gevent.spawn(budget_sets.write, _add) for _ in range(60)], raise_error=True)
    assert _held(budget_sets) == 60


def test_a_failed_write_leaves_nothing_behind(budget_sets):
    def work():
        _add()
        raise ValueError("stop")

    with pytest.raises(ValueError):
        budget_sets.write(work)
    budget_sets.write(_add)
    assert _held(budget_sets) == 1


def test_a_duplicate_key_stays_an_integrity_error(budget_sets):
    with pytest.raises(peewee.IntegrityError):
        budget_sets.write(lambda: BudgetSet.create(name="a", held_nusd=5))


def test_a_mistake_in_sql_is_not_called_an_outage(database):
    with pytest.raises(peewee.PeeweeException):
        database.read(lambda: database.execute("SELECT nothing FROM nowhere"))


def test_a_nested_write_joins_the_outer_transaction(budget_sets):
    def work():
        budget_sets.write(_add)
        raise ValueError("stop")

    with pytest.raises(ValueError):
        budget_sets.write(work)
    assert _held(budget_sets) == 0


def test_a_read_inside_a_write_sees_its_rows(budget_sets):
    def work():
        _add()
        return _held(budget_sets)

    assert budget_sets.write(work) == 1


def test_a_write_inside_a_read_needs_no_second_connection(database_url, open_store):
    database = open_store(database_url, pool_size=1, pool_wait_s=0.5)
    database.bind()
    database.write(lambda: database.peewee.create_tables([BudgetSet]))
    database.read(lambda: database.write(lambda: BudgetSet.create(name="b", held_nusd=2)))
    assert database.read(lambda: BudgetSet.select().count()) == 1


def test_a_report_of_several_reads_lets_other_work_through(database):
    """A report of ten reads held the event loop of SQLite for some milliseconds."""
    order = []

    def report():
        with low_priority():
            gevent.spawn(order.append, "model call")
            assert database.read(lambda: database.read(lambda: 1)) == 1
            order.append("report")

    gevent.spawn(report).join()
    assert order == ["model call", "report"]


def test_a_query_outside_of_any_work_is_refused(budget_sets):
    with pytest.raises(peewee.InterfaceError):
        BudgetSet.get_by_id("a")


def test_the_pool_gives_up_after_its_wait(database_url, open_store):
    database = open_store(database_url, pool_size=1, pool_wait_s=0.1)
    release = threading.Event()
    holder = gevent.spawn(database.read, lambda: release.wait(60))
    gevent.sleep(0.02)
    with pytest.raises(errors.Unavailable):
        database.read(lambda: None)
    release.set()
    holder.join()
    assert database.read(lambda: 1) == 1


def test_a_killed_greenlet_gives_its_connection_back(database_url, open_store):
    database = open_store(database_url, pool_size=1, pool_wait_s=0.5)
    reader = gevent.spawn(database.read, lambda: gevent.sleep(5))
    gevent.sleep(0.02)
    reader.kill()
    assert database.read(lambda: database.execute("SELECT 1").fetchone()[0]) == 1


def test_a_killed_greenlet_does_not_tear_a_write(budget_sets):
    writer = gevent.spawn(budget_sets.write, lambda: [_add(), budget_sets.execute("SELECT 1")])
    gevent.sleep(0)
    writer.kill()
    budget_sets.write(_add)
    assert _held(budget_sets) in (1, 2)


def test_a_report_reads_like_a_read(budget_sets):
    assert budget_sets.report(lambda: BudgetSet.select().count()) == 1


def test_the_clock_of_the_store_is_in_microseconds(database, clock):
    assert abs(database.now_us() - clock.now_us()) < 5_000_000
    found = database.read(lambda: database.execute(f"SELECT {database.moment_sql()}").fetchone()[0])
    assert abs(found - clock.now_us()) < 5_000_000


def test_two_processes_share_one_file_in_turns(sqlite_url, open_store):
    first, second = open_store(sqlite_url), open_store(sqlite_url)
    bump = "UPDATE control SET version = version + 1"
    tasks = [gevent.spawn(d.write, lambda d=d: d.execute(bump)) for d in (first, second) for _ in range(40)]
    gevent.joinall(tasks, raise_error=True)
    assert first.read(lambda: first.execute("SELECT version FROM control").fetchone()[0]) == 81


def test_a_busy_writer_lets_another_process_through(sqlite_url, open_store):
    first, second = open_store(sqlite_url), open_store(sqlite_url)
    bump = "UPDATE control SET version = version + 1"
    ended = threading.Event()

    def write_all_the_time():
        while not ended.is_set():
            first.write(lambda: first.execute(bump))

    busy = gevent.spawn(write_all_the_time)
    for _ in range(5):
        second.write(lambda: second.execute(bump))  # without turns it would wait until it is Unavailable
    ended.set()
    busy.join()


def test_a_stuck_writer_of_another_process_is_waited_for_only_so_long(sqlite_url, open_store):
    first, second = open_store(sqlite_url), open_store(sqlite_url, pool_wait_s=0.1)
    stuck = threading.Event()
    holder = gevent.spawn(first.write, lambda: stuck.wait(60))
    gevent.sleep(0.05)
    with pytest.raises(errors.Unavailable):
        second.write(lambda: None)
    stuck.set()
    holder.join()
    assert second.write(lambda: 7) == 7
    assert first.write(lambda: 8) == 8


def test_sqlite_keeps_committed_rows_whatever_its_build_has_as_default(sqlite_url, open_store, monkeypatch):
    connect = sqlite3.connect

    def connect_hastily(*args, **options):
        connection = connect(*args, **options)
        connection.execute("PRAGMA synchronous = normal")
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_hastily)
    monkeypatch.setattr(sqlite, "PRAGMAS", cheap_disks.REAL)
    sqlite_database = open_store(sqlite_url)

    def pragma(name):
        return sqlite_database.execute(f"PRAGMA {name}").fetchone()[0]

    names = ("synchronous", "foreign_keys", "temp_store")
    found = sqlite_database.write(lambda: [pragma(n) for n in ("journal_mode", *names)])
    assert found == ["wal", 2, 1, 2]
    assert sqlite_database.read(lambda: [pragma(n) for n in names]) == [2, 1, 2]


def test_a_new_data_dir_and_file_are_private(tmp_path, clock, threads):
    database = open_database(Config("", str(tmp_path / "data"), 2, 1.0), clock, threads)
    database.write(lambda: database.execute("CREATE TABLE t (n INTEGER)"))
    assert os.stat(tmp_path / "data").st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "data").iterdir()} == {0o600}
    database.close()


def test_a_folder_that_cannot_be_made_is_named(clock, threads):
    with pytest.raises(errors.Unavailable, match="/proc/nowhere"):
        open_database(Config("", "/proc/nowhere", 2, 1.0), clock, threads)


def test_an_unknown_scheme_is_refused(clock, threads):
    with pytest.raises(SettingsError, match="mysql"):
        open_database(Config("mysql://x/y", "", 2, 1.0), clock, threads)


def test_a_sign_that_would_make_a_host_of_a_part_of_the_password_is_refused(clock, threads):
    with pytest.raises(SettingsError, match="write an @ in the user or password as %40") as caught:
        open_database(Config("postgresql://gateway:ge@heim@db.example/gateway", "", 2, 1.0), clock, threads)
    assert "heim" not in str(caught.value)


def test_a_server_that_is_not_there_is_unavailable(tmp_path, open_store):
    database = open_store(f"postgresql://postgres@/x?host={tmp_path}")
    with pytest.raises(errors.Unavailable) as caught:
        database.read(lambda: None)
    assert caught.value.retry_after


def test_a_connection_that_died_while_idle_is_replaced(postgresql_url, open_store):
    database, other = open_store(postgresql_url), open_store(postgresql_url)
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> ?"
    own = "SELECT pg_backend_pid()"
    for use in (database.read, database.write):
        use(lambda: None)
        other.read(lambda: other.execute(kill, (other.execute(own).fetchone()[0],)))
        assert use(lambda: database.execute("SELECT 1").fetchone()[0]) == 1


def test_a_statement_without_an_answer_ends_as_unavailable(postgresql_url, open_store):
    database = open_store(postgresql_url, pool_wait_s=0.3)
    start = time.monotonic()
    with pytest.raises(errors.Unavailable):
        database.read(lambda: database.execute("SELECT pg_sleep(60)"))
    assert time.monotonic() - start < 30
    assert database.read(lambda: database.execute("SELECT 1").fetchone()[0]) == 1


def test_a_statement_that_the_operator_interrupts_ends_at_the_server_too(postgresql_url, open_store):
    database, other = open_store(postgresql_url), open_store(postgresql_url)
    running = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(9)' AND state = 'active'"
    count = lambda: other.read(lambda: other.execute(running).fetchone()[0])  # noqa: E731
    loop, here = gevent.get_hub().loop, gevent.getcurrent()
    interrupt = loop.timer(0.3)
    interrupt.start(here.throw, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        database.read(lambda: database.execute("SELECT pg_sleep(9)"))
    until = time.monotonic() + 3
    while count() and time.monotonic() < until:
        gevent.sleep(0.05)
    assert count() == 0


def test_a_greenlet_that_is_killed_within_a_statement_is_no_outage(postgresql_url, open_store):
    database = open_store(postgresql_url)
    writer = gevent.spawn(database.write, lambda: database.execute("SELECT pg_sleep(5)"))
    gevent.sleep(0.05)
    writer.kill()
    assert isinstance(writer.value, gevent.GreenletExit)
    assert database._states.is_healthy("database")
    assert database.read(lambda: database.execute("SELECT 1").fetchone()[0]) == 1


def test_queries_of_a_killed_greenlet_are_canceled_on_the_server(postgresql_url, open_store):
    database, slept = open_store(postgresql_url), "SELECT pg_sleep(7)"
    running = "SELECT count(*) FROM pg_stat_activity WHERE query = ? AND state = 'active'"
    count = lambda: database.read(lambda: database.execute(running, (slept,)).fetchone()[0])  # noqa: E731
    reader = gevent.spawn(database.report, lambda: database.execute(slept))
    with gevent.Timeout(60):
        while not count():
            gevent.sleep(0.01)
    reader.kill()
    with gevent.Timeout(60):
        while count():
            gevent.sleep(0.01)


def test_a_deadlock_is_tried_again(postgresql_url, open_store):
    database = open_store(postgresql_url)
    database.write(lambda: database.execute("INSERT INTO installation (name, value) VALUES ('a', '0'), ('b', '0')"))

    def swap(first, second):
        for name in (first, second):
            database.execute("UPDATE installation SET value = value || 'x' WHERE name = ?", (name,))
            gevent.sleep(0.05)

    tasks = [gevent.spawn(database.write, lambda a=a, b=b: swap(a, b)) for a, b in ("ab", "ba")]
    gevent.joinall(tasks, raise_error=True)
    found = database.read(
        lambda: database.execute("SELECT value FROM installation WHERE name IN ('a', 'b')").fetchall()
    )
    assert found == [("0xx",), ("0xx",)]


def test_a_child_process_does_not_use_its_parents_connections(sqlite_database):
    sqlite_database.write(lambda: None)
    pool = sqlite_database.peewee
    pool._owner = -1
    inherited = list(pool._idle)
    sqlite_database.read(lambda: None)
    assert not set(map(id, inherited)) & set(map(id, pool._idle))


def test_the_writers_lock_ends_with_its_process(sqlite_url, open_store, tmp_path):
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    hold = f"import fcntl, time; f = open('{path}.writer.lock', 'w'); fcntl.flock(f, fcntl.LOCK_EX)"
    code = f"{hold}; print(1, flush=True); time.sleep(9)"
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    holder.stdout.readline()
    database = open_store(sqlite_url, pool_wait_s=3.0)
    gevent.spawn_later(0.1, holder.kill)
    assert database.write(lambda: 3) == 3
    holder.wait()
    holder.stdout.close()


def test_writes_that_may_have_succeeded_are_not_repeated(database):
    """After an error that leaves it open whether the transaction was committed."""
    runs = []

    def work():
        runs.append(1)
        cause = sqlite3.OperationalError("disk I/O error")
        cause.sqlite_errorcode = 10
        with DRIVER_ERRORS:
            raise cause

    with pytest.raises(errors.Unavailable):
        database.write(work)
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("url", "replica", "refusal"),
    [
        ("", "postgresql://one@replica/gateway", "must both be postgresql"),
        ("postgresql://one@primary/gateway", "sqlite:///copy.db", "must both be postgresql"),
        ("postgresql://one@primary/gateway", "postgresql://one:sec@ret@replica/gateway", "write an @"),
    ],
)
def test_a_replica_that_cannot_be_one_is_refused(tmp_path, url: str, replica: str, refusal: str) -> None:
    config = Config(url, str(tmp_path), 2, 1.0, replica_url=replica)
    with pytest.raises(SettingsError, match=f"GATEWAY_DATABASE_REPLICA_URL: .*{refusal}") as caught:
        check_scheme(config)
    assert "sec" not in str(caught.value)


# A slice of a list begins after a row, whether or not the row still exists.


class Item(peewee.Model):
    id = peewee.CharField(primary_key=True)

    class Meta:
        database = peewee.SqliteDatabase(":memory:")


@pytest.fixture(scope="module", autouse=True)
def rows() -> None:
    Item.create_table()
    Item.insert_many([{"id": letter} for letter in "abcde"]).execute()
    Item.delete().where(Item.id == "c").execute()


@pytest.mark.parametrize(
    ("part", "newest_first", "expected"),
    [
        (WHOLE, False, "abde"),
        (ListSlice(limit=2), False, "ab"),
        (ListSlice("c", 1), False, "d"),
        (ListSlice("c"), False, "de"),
        (ListSlice("c", 1), True, "b"),
        (ListSlice("e"), False, ""),
    ],
)
def test_a_slice_has_the_rows_after_a_row(part: ListSlice, newest_first: bool, expected: str) -> None:
    order = Item.id.desc() if newest_first else Item.id
    query = part.narrow(Item.select().order_by(order), Item.id, newest_first=newest_first)
    assert "".join(row.id for row in query) == expected
