import os
import py_compile
import subprocess
import sys

import gevent
import pytest

from gateway import errors
from gateway.configuration.settings import ROOT, SettingsError
from gateway.store.migrations import migrate, verify

FIRST = "def up(migrator, db):\n    db.execute_sql('CREATE TABLE one (n INTEGER)')\n"
SECOND = "def up(migrator, db):\n    db.execute_sql('CREATE TABLE two (n INTEGER)')\n"
BROKEN = SECOND + "    raise RuntimeError('cut')\n"
COLUMN = (
    "import peewee\n"
    "def up(migrator, db):\n"
    "    migrator.migrate(migrator.add_column('one', 'extra', peewee.IntegerField(default=3)))\n"
)

# Applies the steps of argv[2] to the database argv[1] in a separate process.
RUNNER = """
import sys
from pathlib import Path
from gateway.configuration import settings
from gateway.clock import Clock
from gateway.store.database import open_database
from gateway.store.migrations import migrate
from gateway.runtime.threads import Threads
database = open_database(settings.DatabaseSettings(sys.argv[1], "", 2, 5.0), Clock(), Threads())
migrate(database, Path(sys.argv[2]))
"""
KILLED = """
import os, signal
def up(migrator, db):
    for number, sql in enumerate(("CREATE TABLE two (n INTEGER)", "INSERT INTO two VALUES (1)")):
        db.execute_sql(sql)
        if number == %d:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def steps(tmp_path):
    folder = tmp_path / "steps"
    folder.mkdir()
    (folder / "9001_first.py").write_text(FIRST)
    (folder / "__init__.py").write_text("")
    return folder


def _tables(database):
    return set(database.read(database.peewee.get_tables)) & {"one", "two"}


def test_steps_are_applied_once_and_in_order(database, steps):
    (steps / "9002_second.py").write_text(SECOND)
    assert migrate(database, steps) == ["9001_first", "9002_second"]
    assert migrate(database, steps) == []
    assert _tables(database) == {"one", "two"}
    assert verify(database, steps) == []


def test_a_step_older_than_the_newest_applied_one_is_applied_next(database, steps):
    (steps / "9003_third.py").write_text(COLUMN)
    assert migrate(database, steps) == ["9001_first", "9003_third"]
    (steps / "9002_second.py").write_text(SECOND)
    assert verify(database, steps) == ["migration 9002_second is missing; run: ./manage migrate"]
    assert migrate(database, steps) == ["9002_second"]
    assert _tables(database) == {"one", "two"} and verify(database, steps) == []


def test_a_missing_step_forbids_serving(database, steps):
    migrate(database, steps)
    (steps / "9002_second.py").write_text(SECOND)
    assert verify(database, steps) == ["migration 9002_second is missing; run: ./manage migrate"]


def test_a_step_that_fails_leaves_nothing_and_completes_when_run_again(database, steps):
    (steps / "9002_second.py").write_text(BROKEN)
    with pytest.raises(RuntimeError):
        migrate(database, steps)
    assert _tables(database) == {"one"}
    assert "9002_second was interrupted" in verify(database, steps)[0]
    (steps / "9002_second.py").write_text(SECOND)
    assert migrate(database, steps) == ["9002_second"]
    assert verify(database, steps) == []


@pytest.mark.parametrize("statement", [0, 1])
def test_a_run_that_was_killed_completes_when_run_again(database, database_url, steps, statement):
    path = steps / "9002_second.py"
    path.write_text(KILLED % statement)
    done = subprocess.run([sys.executable, "-c", RUNNER, database_url, str(steps)], cwd=ROOT, capture_output=True)
    assert done.returncode == -9, done.stderr
    assert _tables(database) == {"one"} and len(verify(database, steps)) == 1
    path.write_text(KILLED % 9)
    assert migrate(database, steps) == ["9002_second"]
    assert database.read(lambda: database.execute("SELECT n FROM two").fetchall()) == [(1,)]


def test_a_step_edited_after_it_was_applied_is_refused(database, steps):
    migrate(database, steps)
    (steps / "9001_first.py").write_text(SECOND)
    assert verify(database, steps) == ["migration 9001_first has changed since it was applied"]
    with pytest.raises(errors.Internal, match="9001_first"):
        migrate(database, steps)


def test_a_step_edited_within_the_second_runs_as_it_now_is(database, steps):
    path = steps / "9002_second.py"
    path.write_text(SECOND)
    seen = path.stat()
    py_compile.compile(str(path))
    path.write_text(SECOND.replace("TABLE two", "TABLE tow"))
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    migrate(database, steps)
    assert set(database.read(database.peewee.get_tables)) & {"two", "tow"} == {"tow"}


def test_other_line_ends_are_no_change(database, steps):
    migrate(database, steps)
    (steps / "9001_first.py").write_bytes(FIRST.replace("\n", "\r\n").encode())
    assert verify(database, steps) == []


def test_a_schema_ahead_of_the_code_may_be_served(database, steps):
    (steps / "9002_second.py").write_text(SECOND)
    migrate(database, steps)
    (steps / "9002_second.py").unlink()
    assert verify(database, steps) == []


def test_two_runners_at_once_apply_each_step_once(database_url, open_store, steps):
    (steps / "9002_second.py").write_text(SECOND)
    runs = [gevent.spawn(migrate, open_store(database_url), steps) for _ in range(3)]
    gevent.joinall(runs, raise_error=True)
    assert sorted(name for run in runs for name in run.value) == ["9001_first", "9002_second"]


def test_a_step_may_use_the_schema_migrator(database, steps):
    (steps / "9002_column.py").write_text(COLUMN)
    migrate(database, steps)
    database.write(lambda: database.execute("INSERT INTO one (n, extra) VALUES (1, 4)"))


def test_an_empty_database_is_not_ready(tmp_path, open_store):
    database = open_store(f"sqlite:///{tmp_path}/empty.db")
    assert any("0001_store is missing" in problem for problem in verify(database))


def test_nothing_to_do_is_one_look_and_no_write(database, monkeypatch):
    migrate(database)
    said, execute = [], database.execute
    monkeypatch.setattr(database, "execute", lambda sql, params=(): said.append(sql) or execute(sql, params))
    monkeypatch.setattr(database, "write", lambda work, patient=False: said.append("a transaction"))
    assert migrate(database) == []
    assert said == ["SELECT name, checksum, state FROM migration"]


def test_a_database_user_without_create_permission_gets_the_missing_permission(postgresql_url, open_store, steps):
    owner = open_store(postgresql_url)
    owner.write(lambda: owner.execute("DROP TABLE IF EXISTS migration"))
    for sql in ("CREATE ROLE reader LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC"):
        owner.write(lambda sql=sql: owner.execute(sql))
    try:
        reader = open_store(postgresql_url.replace("postgres@", "reader@"))
        with pytest.raises(SettingsError, match="DATABASE_URL: permission denied for schema public; make its user"):
            migrate(reader, steps)
    finally:
        owner.write(lambda: owner.execute("DROP ROLE reader"))
