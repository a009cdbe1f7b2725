"""`backup` and `restore` of an SQLite database as one file, which never contains the installation's two secrets."""

import hashlib
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import click

from gateway.billing.reconciliation import doctor
from gateway.clock import to_iso
from gateway.configuration.settings import DatabaseSettings
from gateway.control.version import Control
from gateway.errors import Conflict, InvalidRequest
from gateway.files.file_rows import FileRows
from gateway.files.opened_contents import describe_place
from gateway.operator.installation_commands import Installation, opened
from gateway.operator.output import AS_JSON, is_json, print_json
from gateway.operator.running import SQLITE, announce
from gateway.runtime.plurals import many, plural
from gateway.store import migrations
from gateway.store.database import Database
from gateway.store.installation_identity import ENCRYPTION_KEY, HASH_SECRET
from gateway.store.sqlite import DATABASE_FILE
from gateway.worker.installation_state import note_backup

# `credentials`: a saved list of what is valid, which shows after a restore what became valid again.

FORMAT = 1


class CredentialKind(NamedTuple):
    """Rows that grant access: the name and table, the column to display, the column that changes with the secret or
    owner, and the condition that a row is valid."""

    name: str
    table: str
    shown: str
    content: str
    condition: str = "status = 'active'"


KINDS = (
    CredentialKind("keys", "api_key", "id", "token_hash"),
    CredentialKind("members", "member", "id", "user_id"),
    CredentialKind("users", "user", "email", "password_hash"),
    CredentialKind("provider_keys", "provider_key", "id", "secret"),
    CredentialKind("service_accounts", "service_account", "id", "token_hash"),
    CredentialKind("scim_tokens", "scim_token", "id", "token_hash", "1 = 1"),
)


class ValidRow(NamedTuple):
    ident: str
    shown: str
    digest: str


class Snapshot(NamedTuple):
    """The valid rows at one moment, by kind, and the number of the newest audit entry."""

    entry: int
    rows: dict[str, list[ValidRow]]


@click.group()
def credentials() -> None:
    """Save a list of the valid credentials, and compare a restored database with it."""


@credentials.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@AS_JSON
@click.pass_context
def save(ctx: click.Context, file: Path) -> None:
    """Save ids and digests of all valid credentials in FILE (mode 0600), replacing it.

    FILE has no secrets. Save it regularly, and keep it outside the database.
    """
    installation = ctx.with_resource(opened())
    database = installation.database
    taken = take(database)
    digests = {name: {row.ident: row.digest for row in rows} for name, rows in taken.rows.items()}
    saved = {"format": FORMAT, "saved_at": to_iso(database.now_us()), "audit_entry": taken.entry, "valid": digests}
    _write(file, json.dumps(saved))
    counts = {name: len(rows) for name, rows in taken.rows.items()}
    if is_json():
        print_json({"file": str(file.absolute()), "saved": counts})
        return
    click.echo(f"Saved in {file}: {', '.join(f'{count:,} {_title(name)}' for name, count in counts.items())}.")


@credentials.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@AS_JSON
@click.pass_context
def compare(ctx: click.Context, file: Path) -> int:
    """List what is valid now and was not when FILE was saved: a restore made it valid again.

    The exit status is 1 if there is anything. FILE should be newer than the restored backup.
    """
    saved = _read(file)
    installation = ctx.with_resource(opened())
    now = take(installation.database)
    if now.entry > saved["audit_entry"]:
        click.echo(
            f"The database has changes that are newer than {file}: what they created is listed too. Use a list that is "
            "newer than the backup, and compare before the gateway starts.",
            err=True,
        )
    revived = read_revived_credentials(saved["valid"], now)
    if is_json():
        print_json({"saved_at": saved["saved_at"], "revived": revived})
    elif not revived:
        click.echo(f"Nothing is valid that was not valid at {saved['saved_at']}.")
    else:
        for name, shown in revived.items():
            click.echo(f"Revoked or replaced since the backup, and now valid again: {_title(name)} {', '.join(shown)}.")
    return int(bool(revived))


def take(database: Database) -> Snapshot:
    """Return what is valid now, in one snapshot of the database."""

    def read() -> Snapshot:
        rows = {kind.name: _load(database, kind) for kind in KINDS}
        newest = database.execute("SELECT max(seq) FROM audit_head").fetchone()[0]
        return Snapshot(int(newest or 0), rows)

    return database.read(read)


def read_revived_credentials(saved: dict[str, dict[str, str]], now: Snapshot) -> dict[str, list[str]]:
    """Return by kind what is valid now and is not in the saved list, or has another content there."""
    revived = {}
    for name, rows in now.rows.items():
        known = saved.get(name, {})
        shown = sorted(row.shown for row in rows if known.get(row.ident) != row.digest)
        if shown:
            revived[name] = shown
    return revived


def _load(database: Database, kind: CredentialKind) -> list[ValidRow]:
    sql = f'SELECT id, {kind.shown}, {kind.content} FROM "{kind.table}" WHERE {kind.condition} ORDER BY id'
    return [
        ValidRow(ident, shown, hashlib.sha256(content.encode()).hexdigest()[:32])
        for ident, shown, content in database.execute(sql).fetchall()
    ]


def _read(file: Path) -> dict[str, Any]:
    try:
        saved: dict[str, Any] = json.loads(file.read_text())
        if saved["format"] == FORMAT and saved.keys() >= {"saved_at", "audit_entry", "valid"}:
            return saved
    except (ValueError, LookupError, TypeError):
        pass
    raise InvalidRequest(f"{file} is not a list that this version of `credentials save` wrote.")


def _write(file: Path, text: str) -> None:
    """Replace a file at once, so that an interrupted run leaves the former list."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as target:
            target.write(text)
            target.flush()
            os.fsync(target.fileno())
        draft.rename(file)
    except OSError as error:
        raise InvalidRequest(f"Cannot write {file}: {error.strerror}.") from None
    finally:
        draft.unlink(missing_ok=True)


def _title(name: str) -> str:
    return name.replace("_", " ")


SQLITE_SUFFIXES = ("-wal", "-shm")
SECRETS = (HASH_SECRET, ENCRYPTION_KEY)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@AS_JSON
@click.pass_context
def backup(ctx: click.Context, file: Path) -> None:
    """Copy a consistent snapshot of the database into FILE (mode 0600), even while the gateway runs.

    The secrets are not included. The backup is useless without them, so back them up separately, and the contents of
    files too.
    """
    installation = ctx.with_resource(opened())
    source = path_of(installation.settings.database)
    if file.exists():
        raise InvalidRequest(f"{file} already exists. Choose another name.")
    if not source.exists():
        raise InvalidRequest(f"There is no database at {source.absolute()}.")
    announce(installation.settings.database)
    copy(source, file)
    size = file.stat().st_size
    note_backup(installation.database, file, size)
    places = {name: _place_of(installation, name) for name in SECRETS}
    contents, stored_bytes = FileRows(installation.database).totals()
    folder = describe_place(installation.settings)
    if is_json():
        stored = {"place": folder, "contents": contents, "bytes": stored_bytes}
        print_json({"file": str(file.absolute()), "bytes": size, "secrets": places, "files": stored})
        return
    click.echo(f"The database was copied to {file} ({size:,} bytes).")
    for name, place in places.items():
        click.echo(f"Not included, back it up separately: {name} ({place}).")
    if contents:
        click.echo(
            f"Not included, back them up separately: {many(contents, 'file')} ({stored_bytes:,} bytes) in {folder}."
        )


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--verify", is_flag=True, help="Only verify that FILE can be restored; changes nothing.")
@AS_JSON
@click.pass_context
def restore(ctx: click.Context, file: Path, verify: bool) -> None:
    """Replace the database by FILE after verifying it. Stop the gateway first.

    The backup must be undamaged, migratable to this version and readable with the secrets of this installation, and
    its ledger must be consistent. The replaced database is kept in the same folder.
    """
    current = Installation()
    ctx.call_on_close(current.close)
    target = path_of(current.settings.database)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    announce(current.settings.database)
    epoch = 0 if verify or not target.exists() else _epoch_at_rest(current)
    current.close()
    draft = target.with_name(f".{target.name}.restore-{os.getpid()}")
    try:
        copy(file, draft)
        facts = prove(draft, epoch)
        revived = find_revived(target, draft)
        if not verify and target.exists():
            _check_unused_since(epoch)
        kept = "" if verify else _replace(target, draft)
    finally:
        for name in ("", *SQLITE_SUFFIXES, ".writer.gate", ".writer.lock"):
            Path(f"{draft}{name}").unlink(missing_ok=True)
    if is_json():
        print_json({**facts, "restored": not verify, "kept": kept or None, "revived": revived})
        return
    held = f"{facts['organizations']} organizations, {facts['usage']} usage rows"
    click.echo(f"{file} is valid: {held}; the ledger is consistent.")
    for name, shown in revived.items():
        click.echo(
            f"Revoked or replaced since the backup, and now valid again: {name.replace('_', ' ')} {', '.join(shown)}.",
            err=True,
        )
    if facts["files"]:
        place = describe_place(current.settings)
        count = int(facts["files"])
        needed = f"{many(count, 'file')}, which {plural(count, 'is', 'are')} not part of it"
        click.echo(f"It needs the contents of {needed}, in {place}.")
    if not verify:
        click.echo("The database was replaced by the backup.")
        if kept:
            click.echo(f"The previous database is {kept}.")


def copy(source: Path, target: Path) -> None:
    """Copy a consistent snapshot of a database to `target` atomically, without blocking writers.

    Raises InvalidRequest if the source is not a valid database.
    """
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        reader = sqlite3.connect(f"file:{source.absolute()}?mode=ro", uri=True)
        with closing(reader) as original, closing(sqlite3.connect(draft)) as copied:
            original.backup(copied)
            copied.execute("PRAGMA journal_mode = delete").close()  # a single file without a write-ahead log
            (state,) = copied.execute("PRAGMA integrity_check").fetchone()
        if state != "ok":
            raise InvalidRequest(f"{source} is damaged: {state}.")
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.rename(target)
    except sqlite3.DatabaseError as error:
        raise InvalidRequest(f"{source} is not a readable database: {error}.") from None
    except OSError as error:
        raise InvalidRequest(f"Cannot write {target}: {error.strerror}.") from None
    finally:
        draft.unlink(missing_ok=True)


def prove(path: Path, epoch: int) -> dict[str, int]:
    """Migrate and verify a copy. Return the numbers of organizations, usage rows and contents of files.

    Its worker epochs continue after `epoch`, because journals in the data folder belong to earlier epochs. Raises
    Conflict or SettingsError if the copy is not usable.
    """
    with opened(f"{SQLITE}{path.absolute()}") as copied, migrations.refuse_foreign(copied.raw_database):
        return _prove(copied, epoch)


def _prove(copied: Installation, epoch: int) -> dict[str, int]:
    migrations.migrate(copied.raw_database)
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
    return {"organizations": organizations, "usage": usage, "files": FileRows(database).totals()[0]}


def find_revived(current: Path, draft: Path) -> dict[str, list[str]]:
    """Return rows that were revoked or replaced after the backup and would be valid again, by kind.

    Returns nothing if the database to be replaced cannot be read.
    """
    revived: dict[str, list[str]] = {}
    if not current.exists():
        return revived
    with closing(sqlite3.connect(f"file:{draft.absolute()}?mode=ro", uri=True)) as connection:
        try:
            connection.execute("ATTACH ? AS current", (f"file:{current.absolute()}?mode=ro",))
            for kind in KINDS:
                valid = f'SELECT id, {kind.content} AS content FROM current."{kind.table}" WHERE {kind.condition}'
                sql = (
                    f'SELECT old.{kind.shown} FROM "{kind.table}" AS old LEFT JOIN ({valid}) AS now ON now.id = old.id '
                    f"WHERE {kind.condition} "
                    f"AND (now.id IS NULL OR now.content <> old.{kind.content}) ORDER BY 1"
                )
                rows = [str(row[0]) for row in connection.execute(sql)]
                if rows:
                    revived[kind.name] = rows
        except sqlite3.Error:
            return {}  # the current database is damaged, which may be the reason for the restore
    return revived


def path_of(chosen: DatabaseSettings) -> Path:
    """Return the file of an SQLite database. Raises InvalidRequest for PostgreSQL."""
    if chosen.scheme != "sqlite":
        raise InvalidRequest("This command is for SQLite. Use pg_dump and pg_restore for PostgreSQL.")
    if chosen.url:
        return Path(chosen.url.removeprefix(SQLITE))
    return Path(chosen.data_dir) / DATABASE_FILE


def _has_table(database: Database, name: str) -> bool:
    sql = "SELECT 1 FROM sqlite_master WHERE name = ?"
    return database.read(lambda: database.execute(sql, (name,)).fetchone()) is not None


def _epoch_at_rest(current: Installation) -> int:
    """Return the newest epoch of the database to be replaced, 0 if it has no table of workers.

    Raises Conflict if a gateway is running on it.
    """
    database = current.raw_database
    if not _has_table(database, "worker"):
        return 0
    workers = Control.observer(database).live_epochs()
    if workers:
        using = f"{many(len(workers), 'worker')} {plural(len(workers), 'uses', 'use')}"
        raise Conflict(f"{using} this database. Stop the gateway first.")
    return int(database.read(lambda: database.execute("SELECT epoch FROM control WHERE id = 1").fetchone()[0]))


def _check_unused_since(epoch: int) -> None:
    """Raise Conflict if a gateway was started on the database since `epoch`: verifying a large backup takes minutes."""
    with opened() as again:
        if _epoch_at_rest(again) != epoch:
            raise Conflict("A gateway was started on this database during the restore. Stop it and restore again.")


def _replace(target: Path, draft: Path) -> str:
    """Put a verified copy in place. Return the new path of the previous database, "" if there was none."""
    with closing(sqlite3.connect(draft)) as connection:
        connection.execute("PRAGMA journal_mode = delete").close()  # merges the write-ahead log into the file
    kept = ""
    if target.exists():
        number = 1
        while (before := target.with_name(f"{target.name}.before-{number}")).exists():
            number += 1
        for name in ("", *SQLITE_SUFFIXES):
            if Path(f"{target}{name}").exists():
                Path(f"{target}{name}").rename(f"{before}{name}")
        kept = str(before)
    draft.rename(target)
    return kept


def _place_of(installation: Installation, name: str) -> str:
    """Return the source of a secret, never the secret."""
    chosen = installation.settings
    named = chosen.environment.get(f"{name}_FILE", "")
    if named or chosen.secret(name):
        return named or "a variable or the configuration file"
    return str(Path(chosen.database.data_dir).absolute() / name.lower())
