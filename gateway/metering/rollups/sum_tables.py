"""Tables whose rows have a key and sums: how rows are added to what is there, or written where nothing is."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.metering.figures import FIGURES, RARE
from gateway.runtime.threads import pause
from gateway.store.database import Database

# Of a row: how many usage rows it sums up, and the figures.
VALUES = ("rows", *FIGURES)
COMMON = VALUES[: -len(RARE)]  # of the others most rows have nothing
COMMON_END = len(COMMON)
LEAST_BEYOND = 2**63  # is no whole number of the store any more: it keeps the nearest double
PIECE_ROWS = 200


class Insertion(NamedTuple):
    """The statements that write rows of a table with so many of VALUES: `plain` where nothing is, `adding` else.
    `places` is what PostgreSQL has other words for: many rows at once, as `arrays` of the columns."""

    plain: str
    adding: str
    places: str
    arrays: str


class SumTable(NamedTuple):
    """How rows with all of VALUES are written, and those that have only COMMON."""

    whole: Insertion
    narrow: Insertion


def sum_table(name: str, keys: Mapping[str, str], beside: tuple[str, str, str]) -> SumTable:
    """`keys` are the columns of the key and their types on PostgreSQL, `beside` one more behind them: its name, type,
    and what becomes of it where a row is `excluded` by another."""
    return SumTable(_insertion(name, keys, beside, VALUES), _insertion(name, keys, beside, COMMON))


def _insertion(table: str, keys: Mapping[str, str], beside: tuple[str, str, str], values: tuple[str, ...]) -> Insertion:
    column, column_type, merged = beside
    columns = (*keys, column, *values)
    places = f"VALUES ({', '.join('?' * len(columns))})"
    plain = f"INSERT INTO {table} ({', '.join(columns)}) {places}"
    added = ", ".join(f"{v} = NULLIF(COALESCE({table}.{v}, 0) + COALESCE(excluded.{v}, 0), 0)" for v in values)
    adding = f"{plain} ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {column} = {merged}, {added}"
    # Of PostgreSQL a sum of amounts may leave 64 bits.
    types = (*keys.values(), column_type, *("numeric" if v.endswith("_nusd") else "bigint" for v in values))
    arrays = ", ".join(f"CAST(? AS {kind}[])" for kind in types)
    return Insertion(plain, adding, places, f"SELECT * FROM unnest({arrays})")


def write_rows(
    database: Database, table: SumTable, rows: Iterable[tuple[tuple[Any, ...], Sequence[int]]], adding: bool
) -> None:
    """Write rows, each its key with the column beside and its VALUES, within an open transaction."""
    whole: list[tuple[Any, ...]] = []
    narrow: list[tuple[Any, ...]] = []
    # In the order of the key, so that writers lock alike and pages are visited once.
    for head, sums in sorted(rows, key=lambda row: row[0][:-1]):
        values: Sequence[int | float] = sums
        into = narrow
        if any(values[COMMON_END:]):
            into = whole
        else:
            values = values[:COMMON_END]
        if max(values) >= LEAST_BEYOND or min(values) <= -LEAST_BEYOND:
            values = [float(value) if abs(value) >= LEAST_BEYOND else value for value in values]
        # Zero takes no room.
        into.append((*head, *[value or None for value in values]))
    for form, some in ((table.whole, whole), (table.narrow, narrow)):
        _run_rows(database, form.adding if adding else form.plain, form, some)


def _run_rows(database: Database, sql: str, form: Insertion, rows: Sequence[Sequence[Any]]) -> None:
    """Rows of a table: on PostgreSQL many in a statement, as arrays of its columns."""
    if database.kind == "sqlite":
        run_many(database, sql, rows)
        return
    many = sql.replace(form.places, form.arrays, 1)
    for start in range(0, len(rows), PIECE_ROWS):
        database.execute(many, [list(column) for column in zip(*rows[start : start + PIECE_ROWS], strict=True)])
        pause(0)


def run_many(database: Database, sql: str, rows: Sequence[Sequence[Any]]) -> None:
    """A statement for each of `rows`, within an open transaction."""
    if database.kind == "sqlite":
        if rows:
            database.execute_many(sql, rows)
        return
    # PostgreSQL's rows are written out on the event loop, which others need meanwhile.
    for start in range(0, len(rows), PIECE_ROWS):
        database.execute_many(sql, rows[start : start + PIECE_ROWS])
        pause(0)
