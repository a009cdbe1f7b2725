"""`credentials`: a saved list of what is valid, which shows after a restore what became valid again."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import click

from gateway.clock import to_iso
from gateway.errors import InvalidRequest
from gateway.operator.installation_commands import opened
from gateway.operator.output import AS_JSON, is_json, print_json
from gateway.store.database import Database

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
    revived = find_revived(saved["valid"], now)
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


def find_revived(saved: dict[str, dict[str, str]], now: Snapshot) -> dict[str, list[str]]:
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
