"""Tables with a key and sums: statements that insert rows, or add to existing ones."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from gateway.metering.figures import FIGURES, RARE
from gateway.runtime.threads import pause
from gateway.store.database import Database

# The values of a row: the number of summed usage rows, and the figures.
VALUES = ("rows", *FIGURES)
# Rows are written with the smallest of these sets of values that has all of theirs. Most rows have only the first.
COMMON_COLUMN_SETS = (
    *("rows", "requests", "input_tokens", "output_tokens", "cached_tokens"),
    *("cost_nusd", "input_nusd", "output_nusd", "cached_nusd"),
)
COMMON = VALUES[: -len(RARE)]
FIRST_OUT_OF_RANGE = 2**63  # beyond the store's integers, which then become the nearest double
PIECE_ROWS = 200
NO_COLUMNS: Mapping[str, str] = MappingProxyType({})


class Insertion(NamedTuple):
    """The statements that write rows with some of VALUES: `plain` inserts, `adding` adds to existing rows. PostgreSQL
    writes many rows at once: `arrays` of columns replace `places`. `pick` returns those values of VALUES, `others` the
    remaining ones."""

    plain: str
    adding: str
    places: str
    arrays: str
    pick: Callable[[Sequence[int]], tuple[int, ...]]
    others: Callable[[Sequence[int]], tuple[int, ...]]


class SumTable(NamedTuple):
    """The statements for rows with COMMON_COLUMN_SETS, COMMON and all of VALUES; and the number of key columns."""

    usual: Insertion
    common: Insertion
    whole: Insertion
    keys: int


def sum_table(
    name: str, keys: Mapping[str, str], newest: tuple[str, str], fixed: Mapping[str, str] = NO_COLUMNS
) -> SumTable:
    """Return the statements of a table. `keys` are the key columns with their types on PostgreSQL. `newest` is a column
    and its type that has the value of the row that was added last, `fixed` are columns that are equal for equal
    keys."""
    beside = {**dict([newest]), **fixed}
    usual, common, whole = (
        _insertion(name, keys, newest[0], beside, values) for values in (COMMON_COLUMN_SETS, COMMON, VALUES)
    )
    return SumTable(usual, common, whole, len(keys))


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
    others = tuple(name for name in VALUES if name not in values)
    return Insertion(plain, adding, places, f"SELECT * FROM unnest({arrays})", _picker(values), _picker(others))


def _picker(names: Sequence[str]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """Return a function that returns the values with these names of VALUES; there are none or several."""
    if not names:
        return _pick_none
    return itemgetter(*(VALUES.index(name) for name in names))


def _pick_none(values: Sequence[int]) -> tuple[int, ...]:
    return ()


def write_rows(
    database: Database, table: SumTable, rows: Iterable[tuple[tuple[Any, ...], Sequence[int]]], adding: bool
) -> None:
    """Write rows (each with its key and the columns beside it, and its VALUES) within an open transaction."""
    usual: list[tuple[Any, ...]] = []
    common: list[tuple[Any, ...]] = []
    whole: list[tuple[Any, ...]] = []
    # Sorted by key, so that writers lock in the same order and each page is visited once.
    for head, sums in sorted(rows, key=lambda row: row[0][: table.keys]):
        form, into = table.usual, usual
        if any(form.others(sums)):
            form, into = table.common, common
        if any(form.others(sums)):
            form, into = table.whole, whole
        values: Sequence[int | float] = form.pick(sums)
        if max(values) >= FIRST_OUT_OF_RANGE or min(values) <= -FIRST_OUT_OF_RANGE:
            values = [float(value) if abs(value) >= FIRST_OUT_OF_RANGE else value for value in values]
        # Zero is stored as NULL, which takes no space.
        into.append((*head, *[value or None for value in values]))
    for form, some in ((table.usual, usual), (table.common, common), (table.whole, whole)):
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
