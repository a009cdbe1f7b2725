"""How the accounts are changed: one transaction that raises the control version, then the wait for all workers."""

from collections.abc import Callable
from typing import TypeVar

from gateway.control.version import Control
from gateway.store.database import Database

T = TypeVar("T")

OPERATOR = "operator"  # the actor of a change made by the operator command


def commit(database: Database, control: Control, work: Callable[[int], T], *, confirm: bool = True) -> T:
    """Run `work(now_us)` in one transaction and return its result once every worker knows of it.

    The version is raised first: its row lock makes changes happen one after the other, so what `work` reads cannot
    move under it. `work` must be repeatable. `confirm=False` skips the wait, for changes that only add.
    """

    def transaction() -> T:
        control.bump()
        return work(database.now_us())

    result = database.write(transaction)
    if confirm:
        control.confirm()
    return result
