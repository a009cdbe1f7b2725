"""Tables with a key and sums: statements that insert rows, or add to existing ones."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from gateway.metering.figures import FIGURES, RARE
from gateway.runtime.threads import pause
from gateway.store.database import Database

# The values of a row: the number of summed usage rows, and the figures.
VALUES = ("rows", *FIGURES)
COMMON = VALUES[: -len(RARE)]  # most rows have only these values
COMMON_END = len(COMMON)
LEAST_BEYOND = 2**63  # beyond the store's integers, which then become the nearest double
PIECE_ROWS = 200
NONE: Mapping[str, str] = MappingProxyType({})


class Insertion(NamedTuple):
    """The statements that write rows with some of VALUES: `plain` inserts, `adding` adds to existing rows. PostgreSQL
    writes many rows at once: `arrays` of columns replace `places`."""

    plain: str
    adding: str
    places: str
    arrays: str


class SumTable(NamedTuple):
    """The statements for rows with all of VALUES, and for rows with only COMMON; and the number of key columns."""

    whole: Insertion
    narrow: Insertion
    keys: int


def sum_table(name: str, keys: Mapping[str, str], newest: tuple[str, str], fixed: Mapping[str, str] = NONE) -> SumTable:
    """Return the statements of a table. `keys` are the key columns with their types on PostgreSQL. `newest` is a column
    and its type that has the value of the row that was added last, `fixed` are columns that are equal for equal
    keys."""
    beside = {**dict([newest]), **fixed}
    whole = _insertion(name, keys, newest[0], beside, VALUES)
    return SumTable(whole, _insertion(name, keys, newest[0], beside, COMMON), len(keys))


def _insertion(
    table: str, keys: Mapping[str, str], newest: str, beside: Mapping[str, str], values: tuple[str, ...]
) -> Insertion:
    columns = (*keys, *beside, *values)
    places = f"VALUES ({', '.join('?' * len(columns))})"
    plain = f"INSERT INTO {table} ({', '.join(columns)}) {places}"
    added = ", ".join(f"{v} = NULLIF(COALESCE({table}.{v}, 0) + COALESCE(excluded.{v}, 0), 0)" for v in values)
    adding = f"{plain} ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {newest} = excluded.{newest}, {added}"
    # On PostgreSQL, a sum of amounts may exceed 64 bits.
    types = (*keys.values(), *beside.values(), *("numeric" if v.endswith("_nusd") else "bigint" for v in values))
    arrays = ", ".join(f"CAST(? AS {kind}[])" for kind in types)
    return Insertion(plain, adding, places, f"SELECT * FROM unnest({arrays})")


def write_rows(
    database: Database, table: SumTable, rows: Iterable[tuple[tuple[Any, ...], Sequence[int]]], adding: bool
) -> None:
    """Write rows (each with its key and the columns beside it, and its VALUES) within an open transaction."""
    whole: list[tuple[Any, ...]] = []
    narrow: list[tuple[Any, ...]] = []
    # Sorted by key, so that writers lock in the same order and each page is visited once.
    for head, sums in sorted(rows, key=lambda row: row[0][: table.keys]):
        values: Sequence[int | float] = sums
        into = narrow
        if any(values[COMMON_END:]):
            into = whole
        else:
            values = values[:COMMON_END]
        if max(values) >= LEAST_BEYOND or min(values) <= -LEAST_BEYOND:
            values = [float(value) if abs(value) >= LEAST_BEYOND else value for value in values]
        # Zero is stored as NULL, which takes no space.
        into.append((*head, *[value or None for value in values]))
    for form, some in ((table.whole, whole), (table.narrow, narrow)):
        _run_rows(database, form.adding if adding else form.plain, form, some)


def _run_rows(database: Database, sql: str, form: Insertion, rows: Sequence[Sequence[Any]]) -> None:
    """Write rows of a table; on PostgreSQL many per statement, as arrays of its columns."""
    if database.kind == "sqlite":
        run_many(database, sql, rows)
        return
    many = sql.replace(form.places, form.arrays, 1)
    for start in range(0, len(rows), PIECE_ROWS):
        database.execute(many, [list(column) for column in zip(*rows[start : start + PIECE_ROWS], strict=True)])
        pause(0)


def run_many(database: Database, sql: str, rows: Sequence[Sequence[Any]]) -> None:
    """Run a statement for each of `rows`, within an open transaction."""
    if database.kind == "sqlite":
        if rows:
            database.execute_many(sql, rows)
        return
    # PostgreSQL's driver encodes rows on the event loop, so other greenlets need a turn in between.
    for start in range(0, len(rows), PIECE_ROWS):
        database.execute_many(sql, rows[start : start + PIECE_ROWS])
        pause(0)
