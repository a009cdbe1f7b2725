"""Errors of the stores: which are tried again at once, and which mean that the store cannot serve."""

import peewee
import pytest

from gateway.store.statements import Verdict, judge


class DriverError(Exception):
    def __init__(self, **facts: object) -> None:
        super().__init__("x")
        vars(self).update(facts)


def failed(**facts: object) -> peewee.OperationalError:
    """Return the error as peewee raises it while it handles that of the driver."""
    error = peewee.OperationalError("x")
    error.__context__ = DriverError(**facts)
    return error


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        ("40001", Verdict.RETRY),  # serialization failure
        ("40P01", Verdict.RETRY),  # deadlock
        ("55P03", Verdict.RETRY),  # lock not available
        ("08006", Verdict.AWAY),  # connection failure
        ("28P01", Verdict.AWAY),  # invalid password
        ("3D000", Verdict.AWAY),  # no such database
        ("53300", Verdict.AWAY),  # too many connections
        ("57P01", Verdict.AWAY),  # administrator shutdown
        ("58030", Verdict.AWAY),  # error of input or output
        ("XX001", Verdict.AWAY),  # corrupted data
        ("25006", Verdict.AWAY),  # read-only transaction
        ("25P03", Verdict.AWAY),  # idle transaction timeout
        ("42P01", Verdict.OTHER),  # no such table
        ("22003", Verdict.OTHER),  # number out of range
    ],
)
def test_an_error_of_postgresql_is_judged_by_its_state(state: str, verdict: Verdict) -> None:
    assert judge(failed(sqlstate=state)) is verdict


@pytest.mark.parametrize(
    ("name", "code", "verdict"),
    [
        *(("BUSY", 5, Verdict.RETRY), ("LOCKED", 6, Verdict.RETRY), ("BUSY_SNAPSHOT", 517, Verdict.RETRY)),
        *(("PERM", 3, Verdict.AWAY), ("NOMEM", 7, Verdict.AWAY), ("READONLY", 8, Verdict.AWAY)),
        *(("IOERR", 10, Verdict.AWAY), ("CORRUPT", 11, Verdict.AWAY), ("FULL", 13, Verdict.AWAY)),
        *(("CANTOPEN", 14, Verdict.AWAY), ("PROTOCOL", 15, Verdict.AWAY), ("NOLFS", 22, Verdict.AWAY)),
        *(("AUTH", 23, Verdict.AWAY), ("NOTADB", 26, Verdict.AWAY)),
        *(("ERROR", 1, Verdict.OTHER), ("CONSTRAINT", 19, Verdict.OTHER)),
    ],
)
def test_an_error_of_sqlite_is_judged_by_its_code(name: str, code: int, verdict: Verdict) -> None:
    assert judge(failed(sqlite_errorcode=code)) is verdict
