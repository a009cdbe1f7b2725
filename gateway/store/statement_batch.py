"""Statements with many rows, as a transaction runs them."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class StatementBatch(NamedTuple):
    """A statement with `?` placeholders and the rows of its parameters. `exact`: each row must change exactly one row
    of the table, else the transaction fails."""

    name: str
    sql: str
    rows: Sequence[Sequence[Any]]
    exact: bool = False
