"""Numbered schema steps: one transaction each, one runner at a time, verified by checksum."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType

import peewee
from msgspec import Struct

from gateway import errors
from gateway.configuration import settings
from gateway.configuration.file import SettingsError
from gateway.runtime.lazy_import import LazyImport
from gateway.store.database import Database
from gateway.store.statements import is_denied

# Only a step that is applied needs it.
migrate_tools = LazyImport("playhouse.migrate")
DIRECTORY = settings.ROOT / "migrations"
STARTED = "started"
APPLIED = "applied"
TABLE = """CREATE TABLE IF NOT EXISTS migration (
    name VARCHAR(255) NOT NULL PRIMARY KEY, checksum VARCHAR(64) NOT NULL, state VARCHAR(16) NOT NULL)"""
# Held until the end of a transaction, so it also works behind PgBouncer. SQLite has only one writer.
LOCK = "SELECT pg_advisory_xact_lock(7236118044)"


class Step(Struct, frozen=True):
    """One script: name, path, source, and the SHA-256 of the source with LF line ends."""

    name: str
    path: Path
    source: bytes
    checksum: str


def verify(database: Database, directory: Path = DIRECTORY) -> list[str]:
    """Return why this code cannot serve on the current schema, one line per reason; empty when it can.

    Steps that the code does not know are accepted: the schema is ahead while a newer release rolls out.
    """
    state = _read_state(database)
    return [problem for step in _list_steps(directory) if (problem := _judge(step, state))]


class SchemaMismatch(SettingsError):
    """The database is there, but its schema is not the one of this code."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(f"The database schema does not match this version: {problems[0]}")


class SchemaState(Struct, frozen=True):
    """The progress of a database: its newest step ("" = none), the steps of this code that it lacks, and the steps that
    only a newer release knows."""

    newest: str
    pending: tuple[str, ...]
    ahead: tuple[str, ...]


def read_state(database: Database, directory: Path = DIRECTORY) -> SchemaState:
    """Return the progress of the database. Unavailable."""
    applied = sorted(name for name, (_, state) in _read_state(database).items() if state == APPLIED)
    known = [step.name for step in _list_steps(directory)]
    pending = tuple(name for name in known if name not in applied)
    return SchemaState(applied[-1] if applied else "", pending, tuple(name for name in applied if name not in known))


@contextmanager
def refuse_foreign(database: Database, directory: Path = DIRECTORY) -> Iterator[None]:
    """Raise Conflict for a database that no gateway has made, or that lacks a table or column that the block uses."""
    first = _list_steps(directory)[0]
    try:
        if _read_state(database).get(first.name) != (first.checksum, APPLIED):
            raise errors.Conflict("The file is not a database of the gateway.")
        yield
    except peewee.PeeweeException as error:
        raise errors.Conflict(f"The file is not a database of the gateway, or not a complete one: {error}.") from None


def migrate(database: Database, directory: Path = DIRECTORY) -> list[str]:
    """Apply the missing steps in order and return their names.

    Safe to run from several processes at once and to repeat after a crash. SettingsError when the store's user may not
    create tables; Internal when an applied step has changed or a step fails (it is rolled back).
    """
    steps = _list_steps(directory)
    state = _read_state(database)
    _refuse_changed(steps, state)
    missing = [step for step in steps if state.get(step.name, ("", ""))[1] != APPLIED]
    try:
        if missing:
            database.write(partial(_prepare, database))
        return [step.name for step in missing if _apply(database, step)]
    except peewee.ProgrammingError as error:
        if not is_denied(error):
            raise
        reason = str(error).strip().splitlines()[0]
        raise SettingsError(
            f"DATABASE_URL: {reason}; make its user the owner of the database, or grant it CREATE on the schema"
        ) from None


def _apply(database: Database, step: Step) -> bool:
    """Run one step unless another process has applied it; returns whether this call did."""
    if not database.write(partial(_begin, database, step)):
        return False
    return database.write(partial(_finish, database, step), patient=True)


def _begin(database: Database, step: Step) -> bool:
    """Record that a step started, so that an interrupted step is noticed; False when it is already applied."""
    if _is_applied(database, step):
        return False
    database.execute(
        "INSERT INTO migration (name, checksum, state) VALUES (?, ?, ?) ON CONFLICT (name) "
        "DO UPDATE SET checksum = excluded.checksum",
        (step.name, step.checksum, STARTED),
    )
    return True


def _finish(database: Database, step: Step) -> bool:
    if _is_applied(database, step):
        return False
    _load(step)(migrate_tools.SchemaMigrator.from_database(database.peewee), database.peewee)
    database.execute("UPDATE migration SET state = ? WHERE name = ?", (APPLIED, step.name))
    return True


def _is_applied(database: Database, step: Step) -> bool:
    _lock(database)
    row = database.execute("SELECT state FROM migration WHERE name = ?", (step.name,)).fetchone()
    return row is not None and row[0] == APPLIED


def _prepare(database: Database) -> None:
    _lock(database)
    database.execute(TABLE)


def _lock(database: Database) -> None:
    if database.kind == "postgresql":
        database.execute(LOCK)


def _load(step: Step) -> Callable[..., None]:
    """Return the step's `up`, compiled from the source with the recorded checksum.

    A cached bytecode file may be stale: Python detects an edit only by the file's time in seconds and its length.
    """
    module = ModuleType(f"migration_{step.name}")
    exec(compile(step.source, step.path, "exec"), module.__dict__)
    up: Callable[..., None] = module.up
    return up


def _list_steps(directory: Path) -> list[Step]:
    """Return the scripts NNNN_name.py ordered by number."""
    return [_read_step(path) for path in sorted(directory.glob("[0-9][0-9][0-9][0-9]_*.py"))]


def _read_step(path: Path) -> Step:
    source = path.read_bytes()
    return Step(path.stem, path, source, hashlib.sha256(source.replace(b"\r\n", b"\n")).hexdigest())


def _read_state(database: Database) -> dict[str, tuple[str, str]]:
    """Return name → (checksum, state) of every recorded step."""

    def read() -> dict[str, tuple[str, str]]:
        if not database.peewee.table_exists("migration"):
            return {}
        rows = database.execute("SELECT name, checksum, state FROM migration").fetchall()
        return {name: (checksum, state) for name, checksum, state in rows}

    return database.read(read)


def _judge(step: Step, state: dict[str, tuple[str, str]]) -> str:
    if step.name not in state:
        return f"migration {step.name} is missing; run: {settings.MANAGE} migrate"
    checksum, reached = state[step.name]
    if reached != APPLIED:
        return f"migration {step.name} was interrupted; run again: {settings.MANAGE} migrate"
    if checksum != step.checksum:
        return f"migration {step.name} has changed since it was applied"
    return ""


def _refuse_changed(steps: list[Step], state: dict[str, tuple[str, str]]) -> None:
    for step in steps:
        checksum, reached = state.get(step.name, ("", ""))
        if reached == APPLIED and checksum != step.checksum:
            raise errors.Internal(
                f"Migration {step.name} has changed since it was applied; restore the file and add a new step instead."
            )
