"""Statements with many rows, as a transaction runs them."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from gateway import errors


class StatementBatch(Struct, frozen=True, eq=False):
    """A statement with `?` placeholders and the rows of its parameters. `exact`: each row must change exactly one row
    of the table, else the transaction fails."""

    name: str
    sql: str
    rows: Sequence[Sequence[Any]]
    exact: bool = False

    def conflict(self, changed: int) -> errors.Conflict:
        """Return the error of an exact batch that changed another number of rows than it has."""
        return errors.Conflict(f"{self.name}: {len(self.rows)} rows were to change, {changed} did.")
