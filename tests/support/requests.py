"""Rows of the request log for tests."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from gateway import ids
from gateway.metering.log.log_entries import INSERT_TAG, STORE, LogEntry, tag_of
from gateway.metering.models import SETTLEMENT
from gateway.metering.usage_table import RECORD, UsageRecord, raw_id
from gateway.store.database import Database
from gateway.store.partitions import id_at

ORGANIZATION, PROJECT, OTHER = ids.new("org"), ids.new("proj"), ids.new("proj")
KEY, MEMBER = ids.new("key"), ids.new("member")
MINUTE_US = 60_000_000
ROWS_PER_WRITE = 500
START_US = 1_700_000_000_000_000
ZERO: dict[str, Any] = dict.fromkeys(UsageRecord._fields, 0) | {
    **dict.fromkeys(("operation", "provider", "asked", "served", "source", "finish", "price_version"), ""),
    **UsageRecord._field_defaults,
}


def request_at(number: int) -> bytes:
    """Return the id of a request that arrived `number` minutes after the start."""
    return id_at(START_US + number * MINUTE_US)[:6] + number.to_bytes(10, "big")


def owned(project: str = PROJECT, key: str = KEY, member: str = MEMBER) -> dict[str, bytes]:
    return {
        "organization": raw_id(ORGANIZATION),
        "project": raw_id(project),
        "api_key": raw_id(key),
        "member": raw_id(member),
    }


def attempt(number: int = 0, **fields: Any) -> UsageRecord:
    """Return the first attempt of the request that arrived `number` minutes after the start."""
    at = START_US + number * MINUTE_US
    usual = {"at": at, "posted_at": at + 5, "request": request_at(number), "kind": SETTLEMENT, "operation": "chat"}
    usual |= {"provider": "vendor", "asked": "small", "served": "small", "cost_nusd": 10, "input": 3, "output": 2}
    usual |= {"status": 200, "finish": "stop", "source": "app"}
    return UsageRecord(**{**ZERO, **usual, **owned(), **fields})


def entry(number: int = 0, **fields: Any) -> LogEntry:
    """Return the entry of a refused request."""
    usual = {"request": request_at(number), "requests": 1, "status": 402, "operation": "chat", "path": "/v1/x"}
    usual |= {"asked": "small", "source": "app", "error": "key_limit_reached"}
    return LogEntry(**{**usual, **owned(), **fields})


def fill(database: Database, rows: Iterable[UsageRecord | LogEntry]) -> None:
    """Write the rows in small transactions, with the search index of their metadata."""
    usage = [(*row, None) for row in rows if isinstance(row, UsageRecord)]
    entries = [row for row in rows if isinstance(row, LogEntry)]
    tags = [(row.project, tag_of(*item), row.request) for row in entries for item in row.tags.items()]

    for statement, group in ((RECORD, usage), (STORE, [row[:] for row in entries]), (INSERT_TAG, tags)):
        # A transaction has a few seconds, in which a busy machine does not write thousands of rows.
        for start in range(0, len(group), ROWS_PER_WRITE):
            some = group[start : start + ROWS_PER_WRITE]
            database.write(partial(database.execute_many, statement.sql, some))
