"""`transfer`: copy all rows from SQLite to PostgreSQL and compare the totals."""

from graphlib import TopologicalSorter
from typing import Any

import click

from gateway.billing.reconciliation import doctor
from gateway.configuration.file import SettingsError
from gateway.control.version import Control
from gateway.errors import Conflict, InvalidRequest
from gateway.money import format_usd
from gateway.operator.backup import SECRETS, path_of
from gateway.operator.installation_commands import Installation, opened
from gateway.operator.output import AS_JSON, is_json, print_json
from gateway.store import migrations
from gateway.store.database import Database

# Tables that belong to one store: its migrations and running workers.
STORE_TABLES = {"migration", "worker", "leader"}
ROWS = 1_000  # rows of a batch
BOOLEANS = "SELECT column_name FROM information_schema.columns WHERE table_name = ? AND data_type = 'boolean'"
TOTALS = """SELECT (SELECT count(*) FROM usage), (SELECT coalesce(sum(cost_nusd), 0) FROM usage),
(SELECT coalesce(sum(amount_nusd), 0) FROM ledger), (SELECT coalesce(sum(settled_nusd), 0) FROM budget)"""


@click.command()
@click.argument("url", metavar="POSTGRESQL_URL")
@AS_JSON
@click.pass_context
def transfer(ctx: click.Context, url: str) -> None:
    """Copy the SQLite database into an empty PostgreSQL database in one transaction, then compare the totals.

    Stop the gateway first. With PostgreSQL the secrets come from variables: set them to those of this installation.
    """
    source = ctx.with_resource(opened())
    path_of(source.settings.database)
    target = ctx.with_resource(opened(url))
    if target.settings.database.scheme != "postgresql":
        raise InvalidRequest("The target must be postgresql://user:password@host/database.")
    _check(source)
    migrations.migrate(target.raw_database)
    source.rollups.catch_up()
    source.hours.close()
    counts = copy_rows(source.database, target.database)
    facts = {"tables": len(counts), "rows": sum(counts.values()), **_compare(source.database, target.database)}
    if is_json():
        print_json(facts)
        return
    click.echo(f"{facts['rows']:,} rows of {facts['tables']} tables were copied. All totals are equal.")
    click.echo(f"Spent: {facts['spent_usd']} USD. Now set DATABASE_URL to the new database and start the gateway.")


def copy_rows(source: Database, target: Database) -> dict[str, int]:
    """Copy all rows in one transaction. Return the numbers of rows by table. Raises Conflict for a target with data."""

    def copy() -> dict[str, int]:
        if target.execute("SELECT count(*) FROM organization").fetchone()[0]:
            raise Conflict("The target database is not empty. Use an empty database.")
        return {table: _copy_table(source, target, table) for table in tables_of(source)}

    return target.write(copy, patient=True)


def tables_of(source: Database) -> list[str]:
    """Return the tables to copy, in the order of their foreign keys."""

    def read() -> list[str]:
        names = source.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        kept = [name for (name,) in names if name not in STORE_TABLES and not name.startswith("sqlite_")]
        needs = {name: {row[2] for row in source.execute(f'PRAGMA foreign_key_list("{name}")')} for name in kept}
        return list(TopologicalSorter(needs).static_order())

    return source.read(read)


def _copy_table(source: Database, target: Database, table: str) -> int:
    booleans = {row[0] for row in target.execute(BOOLEANS, (table,)).fetchall()}
    if target.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]:  # rows from migrations
        target.execute(f'DELETE FROM "{table}"')
    columns = [row[1] for row in source.read(lambda: source.execute(f'PRAGMA table_info("{table}")').fetchall())]
    flags = [name in booleans for name in columns]
    names = ", ".join(f'"{name}"' for name in columns)
    places = ", ".join("?" * len(columns))
    sql = f'INSERT INTO "{table}" ({names}) VALUES ({places})'

    def copy() -> int:
        cursor = source.execute(f'SELECT {names} FROM "{table}"')
        copied = 0
        while rows := cursor.fetchmany(ROWS):
            target.execute_many(sql, [_fit(row, flags) for row in rows])
            copied += len(rows)
        return copied

    return source.read(copy)


def _fit(row: tuple[Any, ...], flags: list[bool]) -> tuple[Any, ...]:
    pairs = zip(row, flags, strict=True)
    return tuple(bool(value) if flag and value is not None else value for value, flag in pairs)


def _check(source: Installation) -> None:
    for name in SECRETS:
        if not source.settings.secret(name):
            raise SettingsError(f"{name} (or {name}_FILE) is required with PostgreSQL. Use the file in the data folder")
    if source.secrets and Control.observer(source.database).live_epochs():
        raise Conflict("Workers use this database. Stop the gateway first.")
    differences = doctor(source.database)
    if differences:
        raise Conflict("\n".join(["The ledger is not consistent. Correct that first:", *differences]))


def _compare(source: Database, target: Database) -> dict[str, Any]:
    """Return the totals. Raises Conflict if those of the two databases differ."""
    ours = _totals(source)
    differences = doctor(target)
    if ours != _totals(target) or differences:
        raise Conflict("\n".join(["The totals in PostgreSQL differ. Do not use that database:", *differences]))
    return {"usage": ours[0], "spent_usd": format_usd(ours[1]), "credited_usd": format_usd(ours[2])}


def _totals(database: Database) -> tuple[int, ...]:
    return tuple(int(value) for value in database.read(lambda: database.execute(TOTALS).fetchone()))
