"""Numbered schema steps: one transaction each, one runner at a time, checked by content, refused on any doubt."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import peewee
from playhouse.migrate import SchemaMigrator

from gateway import errors
from gateway.configuration import settings
from gateway.store.database import Database
from gateway.store.faults import is_denied

DIRECTORY = settings.ROOT / "migrations"
STARTED = "started"
APPLIED = "applied"
TABLE = """CREATE TABLE IF NOT EXISTS migration (
    name VARCHAR(255) NOT NULL PRIMARY KEY, checksum VARCHAR(64) NOT NULL, state VARCHAR(16) NOT NULL)"""
# Held to the end of a transaction, so it works behind PgBouncer too; SQLite has one writer anyway.
LOCK = "SELECT pg_advisory_xact_lock(7236118044)"


@dataclass(frozen=True, slots=True)
class Step:
    """One script: its name, where it lies, its source, and the SHA-256 of that source by any kind of line ends."""

    name: str
    path: Path
    source: bytes
    checksum: str


def verify(database: Database, directory: Path = DIRECTORY) -> list[str]:
    """Why this code may not serve on the schema as it is, one line a reason; empty when it may.

    Steps that the code does not know are fine: the schema is ahead of it while a newer release rolls out.
    """
    state = _read_state(database)
    return [problem for step in _list_steps(directory) if (problem := _judge(step, state))]


@dataclass(frozen=True, slots=True)
class SchemaState:
    """How far a database is: the newest step that it has ("" = none), the steps of this code that it lacks, and those
    that only a newer release knows."""

    newest: str
    pending: tuple[str, ...]
    ahead: tuple[str, ...]


def look(database: Database, directory: Path = DIRECTORY) -> SchemaState:
    """How far the database is. Unavailable."""
    applied = sorted(name for name, (_, state) in _read_state(database).items() if state == APPLIED)
    known = [step.name for step in _list_steps(directory)]
    pending = tuple(name for name in known if name not in applied)
    return SchemaState(applied[-1] if applied else "", pending, tuple(name for name in applied if name not in known))


def migrate(database: Database, directory: Path = DIRECTORY) -> list[str]:
    """Apply what is missing, in order, and return the names. Safe to run at once from many processes and to repeat
    after a crash. SettingsError where the store's user may make no tables; Internal when an applied step has changed
    since, or a step fails (it is then undone whole).
    """
    steps = _list_steps(directory)
    state = _read_state(database)
    _refuse_changed(steps, state)
    missing = [step for step in steps if state.get(step.name, ("", ""))[1] != APPLIED]
    try:
        if missing:
            database.write(lambda: _prepare(database))
        return [step.name for step in missing if _apply(database, step)]
    except peewee.ProgrammingError as error:
        if not is_denied(error):
            raise
        reason = str(error).strip().splitlines()[0]
        raise settings.SettingsError(
            f"DATABASE_URL: {reason}; make its user the owner of the database, or grant it CREATE on the schema"
        ) from None


def _apply(database: Database, step: Step) -> bool:
    """Run one step unless another process did meanwhile; whether this call did."""
    if not database.write(lambda: _begin(database, step)):
        return False
    return database.write(lambda: _finish(database, step), patient=True)


def _begin(database: Database, step: Step) -> bool:
    """Write the mark that distinguishes a killed step from one that never ran; False when it is applied already."""
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
    _load(step)(SchemaMigrator.from_database(database.peewee), database.peewee)
    database.execute("UPDATE migration SET state = ? WHERE name = ?", (APPLIED, step.name))
    return True


def _is_applied(database: Database, step: Step) -> bool:
    _lock(database)
    found = database.execute("SELECT state FROM migration WHERE name = ?", (step.name,)).fetchone()
    return found is not None and found[0] == APPLIED


def _prepare(database: Database) -> None:
    _lock(database)
    database.execute(TABLE)


def _lock(database: Database) -> None:
    if database.kind == "postgresql":
        database.execute(LOCK)


def _load(step: Step):
    """The step's `up`, from the very source whose checksum is on record: a cached bytecode file may belong to another,
    since Python tells an edit only by the second of the file's time and by its length."""
    module = ModuleType(f"migration_{step.name}")
    exec(compile(step.source, step.path, "exec"), module.__dict__)
    return module.up


def _list_steps(directory: Path) -> list[Step]:
    """The scripts NNNN_name.py in order of number."""
    return [_read_step(path) for path in sorted(directory.glob("[0-9][0-9][0-9][0-9]_*.py"))]


def _read_step(path: Path) -> Step:
    source = path.read_bytes()
    return Step(path.stem, path, source, hashlib.sha256(source.replace(b"\r\n", b"\n")).hexdigest())


def _read_state(database: Database) -> dict[str, tuple[str, str]]:
    """name → (checksum, state) of every step on record."""

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
