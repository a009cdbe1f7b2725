"""Statements with many rows, and the classification of a driver's error: retry the work, the store is unavailable, or a
fault of data or code."""

import enum
from collections.abc import Sequence
from typing import Any

import peewee
from msgspec import Struct

from gateway import errors

# PostgreSQL, appendix A "Error Codes": serialization_failure, deadlock_detected, lock_not_available.
RETRY_STATES = {"40001", "40P01", "55P03"}
# Classes: connection, authorization, catalogue name, resources, operator, system, internal.
OUTAGE_CLASSES = {"08", "28", "3D", "53", "57", "58", "XX"}
# read_only_sql_transaction, idle_in_transaction_session_timeout.
OUTAGE_STATES = {"25006", "25P03"}

# https://www.sqlite.org/rescode.html, primary codes (the low byte): BUSY and LOCKED; PERM, NOMEM, READONLY, IOERR,
# CORRUPT, FULL, CANTOPEN, PROTOCOL, NOLFS, AUTH, NOTADB.
SQLITE_RETRY = {5, 6}
SQLITE_OUTAGE = {3, 7, 8, 10, 11, 13, 14, 15, 22, 23, 26}


SQLITE_FULL = 13
DISK_FULL = "53100"
INSUFFICIENT_PRIVILEGE = "42501"
LOCK_NOT_AVAILABLE = "55P03"


class Verdict(enum.Enum):
    RETRY = "retry"
    AWAY = "away"
    OTHER = "other"


def judge(error: peewee.PeeweeException) -> Verdict:
    """Return RETRY when repeating may succeed at once, AWAY when the store cannot serve, else OTHER."""
    if isinstance(error, (peewee.IntegrityError, peewee.DataError)):
        return Verdict.OTHER
    cause = _cause_of(error)
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return _judge_sqlite(code & 0xFF)
    state = getattr(cause, "sqlstate", None)
    if state:
        return _judge_state(state)
    # psycopg reports no SQLSTATE for a lost or refused connection.
    lost = isinstance(error, peewee.OperationalError) or getattr(cause, "pgconn", None) is not None
    if lost and type(cause).__module__.startswith("psycopg"):
        return Verdict.AWAY
    return Verdict.OTHER


def is_full(error: Exception) -> bool:
    """Return whether the error means that the store's disk is full."""
    cause = _cause_of(error)
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF == SQLITE_FULL or getattr(cause, "sqlstate", "") == DISK_FULL


def is_denied(error: Exception) -> bool:
    """Return whether the error means that the store's user lacks a privilege."""
    return getattr(_cause_of(error), "sqlstate", "") == INSUFFICIENT_PRIVILEGE


def is_locked(error: Exception) -> bool:
    """Return whether a wait for a locked table ended."""
    return getattr(_cause_of(error), "sqlstate", "") == LOCK_NOT_AVAILABLE


def _cause_of(error: Exception) -> BaseException | None:
    """Return the driver's error behind a peewee error."""
    return error.__context__


def _judge_sqlite(code: int) -> Verdict:
    if code in SQLITE_RETRY:
        return Verdict.RETRY
    if code in SQLITE_OUTAGE:
        return Verdict.AWAY
    return Verdict.OTHER


def _judge_state(state: str) -> Verdict:
    if state in RETRY_STATES:
        return Verdict.RETRY
    if state in OUTAGE_STATES or state[:2] in OUTAGE_CLASSES:
        return Verdict.AWAY
    return Verdict.OTHER


# Statements with many rows, as a transaction runs them.


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
