"""`backup` and `restore`: a database of SQLite as one file. The two secrets of the installation are never in it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import click

from gateway.billing.reconciliation import doctor
from gateway.configuration.settings import DatabaseSettings
from gateway.control.version import Control
from gateway.errors import Conflict, InvalidRequest
from gateway.operator.installation_commands import Installation, opened
from gateway.operator.output import AS_JSON, is_json, print_json
from gateway.operator.running import SQLITE, announce
from gateway.store import migrations
from gateway.store.database import Database
from gateway.store.installation_identity import ENCRYPTION_KEY, HASH_SECRET
from gateway.store.sqlite import FILE

BESIDE = ("-wal", "-shm")
# Rows that may be active in a backup and not in the database that it replaces: name, table, the column that names a row
# to the operator, and the one that changes when the row's secret or owner does.
REVIVED = (
    ("keys", "api_key", "id", "token_hash"),
    ("members", "member", "id", "user_id"),
    ("users", "user", "email", "password_hash"),
    ("provider_keys", "provider_key", "id", "secret"),
)
SECRETS = (HASH_SECRET, ENCRYPTION_KEY)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@AS_JSON
@click.pass_context
def backup(ctx: click.Context, file: Path) -> None:
    """Copy the database into FILE (mode 0600), as of one moment and while the gateway runs.

    The secrets are not in it: a backup opens nothing without them, and they belong into a backup of their own."""
    installation = ctx.with_resource(opened())
    source = path_of(installation.settings.database)
    if file.exists():
        raise InvalidRequest(f"{file} is there already; choose another name.")
    if not source.exists():
        raise InvalidRequest(f"There is no database at {source.absolute()}.")
    announce(installation.settings.database)
    copy(source, file)
    size = file.stat().st_size
    places = {name: _place_of(installation, name) for name in SECRETS}
    if is_json():
        print_json({"file": str(file.absolute()), "bytes": size, "secrets": places})
        return
    click.echo(f"{file} holds the database ({size:,} bytes).")
    for name, place in places.items():
        click.echo(f"Not included, back it up separately: {name} ({place}).")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--verify", is_flag=True, help="Only verify that FILE can be restored; changes nothing.")
@AS_JSON
@click.pass_context
def restore(ctx: click.Context, file: Path, verify: bool) -> None:
    """Put FILE in the place of the database once it is proven: whole, of a version that this code can bring to its own,
    opened by the secrets of this installation, with books that agree. The gateway must not run meanwhile; the database
    that was there is kept beside it."""
    current = Installation()
    ctx.call_on_close(current.close)
    target = path_of(current.settings.database)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    announce(current.settings.database)
    if verify or not target.exists():
        epoch = 0
    else:
        epoch = _epoch_at_rest(current)
    current.close()
    draft = target.with_name(f".{target.name}.restore-{os.getpid()}")
    try:
        copy(file, draft)
        facts = prove(draft, epoch)
        revived = find_revived(target, draft)
        if not verify and target.exists():
            _check_unused_since(epoch)
        if verify:
            kept = ""
        else:
            kept = _replace(target, draft)
    finally:
        for name in ("", *BESIDE, ".writer.gate", ".writer.lock"):
            Path(f"{draft}{name}").unlink(missing_ok=True)
    if is_json():
        print_json({**facts, "restored": not verify, "kept": kept or None, "revived": revived})
        return
    held = f"{facts['organizations']} organizations, {facts['usage']} usage rows"
    click.echo(f"{file} is whole: {held}; the books agree.")
    for name, shown in revived.items():
        click.echo(
            f"Ended or replaced since the backup, and valid again by it: {name.replace('_', ' ')} {', '.join(shown)}.",
            err=True,
        )
    if not verify:
        click.echo(f"The backup is the database now.{f' The one before is {kept}.' if kept else ''}")


def copy(source: Path, target: Path) -> None:
    """A copy of a database as of one moment, whole or not there at all. InvalidRequest for what is none; writers of the
    source are not held up."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        reader = sqlite3.connect(f"file:{source.absolute()}?mode=ro", uri=True)
        with closing(reader) as one, closing(sqlite3.connect(draft)) as other:
            one.backup(other)
            other.execute("PRAGMA journal_mode = delete").close()  # one file, nothing beside it
            (state,) = other.execute("PRAGMA integrity_check").fetchone()
        if state != "ok":
            raise InvalidRequest(f"{source} is damaged: {state}.")
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.rename(target)
    except sqlite3.DatabaseError as error:
        raise InvalidRequest(f"{source} is no database that can be read: {error}.") from None
    except OSError as error:
        raise InvalidRequest(f"Cannot write {target}: {error.strerror}.") from None
    finally:
        draft.unlink(missing_ok=True)


def prove(path: Path, epoch: int) -> dict[str, int]:
    """Bring a copy to the version of this code and examine it; what it holds. Its epochs go on after `epoch`, so that
    no worker is taken for one whose journal lies in the data folder. Conflict or SettingsError when it is not fit."""
    with opened(f"{SQLITE}{path.absolute()}") as copied:
        raw = copied.raw_database
        if not _has_table(raw, "migration"):
            raise Conflict("That is not a database of the gateway.")
        migrations.migrate(raw)
        database = copied.database
        if copied.secrets:  # those that it was used with, or SettingsError
            copied.rollups.catch_up()
            copied.hours.close()
        differences = doctor(database)
        if differences:
            raise Conflict("\n".join(["The books of that backup differ:", *differences]))

        def settle() -> None:
            database.execute("UPDATE control SET epoch = max(epoch, ?) + 1, version = version + 1", (epoch,))

        database.write(settle)
        count = "SELECT (SELECT count(*) FROM organization), (SELECT count(*) FROM usage)"
        organizations, usage = database.read(lambda: database.execute(count).fetchone())
    return {"organizations": organizations, "usage": usage}


def find_revived(current: Path, draft: Path) -> dict[str, list[str]]:
    """What was ended or replaced after a backup was made, and would be valid again by it, under the names of REVIVED;
    nothing where the database that is replaced cannot be read."""
    found: dict[str, list[str]] = {}
    if not current.exists():
        return found
    with closing(sqlite3.connect(f"file:{draft.absolute()}?mode=ro", uri=True)) as connection:
        try:
            connection.execute("ATTACH ? AS current", (f"file:{current.absolute()}?mode=ro",))
            for name, table, shown, content in REVIVED:
                sql = (
                    f'SELECT old.{shown} FROM "{table}" AS old LEFT JOIN current."{table}" AS now ON now.id = old.id '
                    f"WHERE old.status = 'active' "
                    f"AND (now.id IS NULL OR now.status <> 'active' OR now.{content} <> old.{content}) ORDER BY 1"
                )
                rows = [str(row[0]) for row in connection.execute(sql)]
                found |= {name: rows} if rows else {}
        except sqlite3.Error:
            return {}  # it is damaged, or not the gateway's: the reason for a restore
    return found


def path_of(chosen: DatabaseSettings) -> Path:
    """The file of a SQLite database. InvalidRequest for another store."""
    if chosen.scheme != "sqlite":
        raise InvalidRequest("That is for SQLite; PostgreSQL has pg_dump and pg_restore, which work while it serves.")
    if chosen.url:
        return Path(chosen.url.removeprefix(SQLITE))
    return Path(chosen.data_dir) / FILE


def _has_table(database: Database, name: str) -> bool:
    sql = "SELECT 1 FROM sqlite_master WHERE name = ?"
    return database.read(lambda: database.execute(sql, (name,)).fetchone()) is not None


def _epoch_at_rest(current: Installation) -> int:
    """The newest epoch of the database that is to be replaced, 0 for one that cannot be read. Conflict where a gateway
    runs on it."""
    database = current.raw_database
    if not _has_table(database, "worker"):
        return 0
    workers = Control.observer(database).live_epochs()
    if workers:
        raise Conflict(f"{len(workers)} workers serve from this database; stop the gateway first.")
    return int(database.read(lambda: database.execute("SELECT epoch FROM control WHERE id = 1").fetchone()[0]))


def _check_unused_since(epoch: int) -> None:
    """Conflict where a gateway was started on the database since it had `epoch`: the proof of a large one takes
    minutes."""
    with opened() as again:
        if _epoch_at_rest(again) != epoch:
            raise Conflict("A gateway was started on this database meanwhile; stop it and restore again.")


def _replace(target: Path, draft: Path) -> str:
    """Put a proven copy in place; where the database of before is now, "" where there was none."""
    with closing(sqlite3.connect(draft)) as connection:
        connection.execute("PRAGMA journal_mode = delete").close()  # nothing of it in a file beside it
    kept = ""
    if target.exists():
        number = 1
        while (before := target.with_name(f"{target.name}.before-{number}")).exists():
            number += 1
        for name in ("", *BESIDE):
            if Path(f"{target}{name}").exists():
                Path(f"{target}{name}").rename(f"{before}{name}")
        kept = str(before)
    draft.rename(target)
    return kept


def _place_of(installation: Installation, name: str) -> str:
    """Where a secret comes from, never what it is."""
    chosen = installation.settings
    named = chosen.environment.get(f"{name}_FILE", "")
    if named or chosen.secret(name):
        return named or "a variable or the configuration file"
    return str(Path(chosen.database.data_dir).absolute() / name.lower())
