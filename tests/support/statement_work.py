"""The statements that the code under test runs, and the work that they are for SQLite."""

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.store.database import Database

Statements = list[tuple[str, Any]]


def note_statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    """Record all statements from now on, with their params."""
    noted: Statements = []
    for name in ("execute", "execute_many"):
        method = getattr(Database, name)

        def noting(self, sql, params=(), run=method):
            noted.append((sql, params))
            return run(self, sql, params)

        monkeypatch.setattr(Database, name, noting)
    return noted


def count_steps(database: Database, reads: Sequence[tuple[str, Any]]) -> int:
    """Run statements on SQLite and return how many hundreds of steps of its virtual machine they take."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    def run() -> None:
        connection = database.peewee.connection()
        connection.set_progress_handler(count, 100)
        for sql, params in reads:
            database.fetch(sql, params)
        connection.set_progress_handler(None, 0)

    database.read(run)
    return steps
