"""Usage rows of upstream calls in the hour from HOUR, for reports of latency."""

from collections.abc import Iterable

from gateway import ids
from gateway.clock import HOUR_US, SECOND_US, Clock
from gateway.metering.usage_table import UsageRecord, raw_id, write_row
from gateway.store.database import Database
from gateway.store.journal import Journal
from gateway.store.partitions import id_at

HOUR = 490_000
PROJECT = ids.new("proj")
OTHERS = {name: raw_id(ids.new("x")) for name in ("organization", "api_key", "member")}


def call(second: int, **more: object) -> UsageRecord:
    """Return the row of a call of PROJECT to model m at provider acme, so many seconds after the hour began."""
    at = HOUR * HOUR_US + second * SECOND_US
    values = dict.fromkeys(UsageRecord._fields[:20], 0) | OTHERS | {"project": raw_id(PROJECT), "at": at}
    values |= {"posted_at": at, "request": id_at(at)[:12] + bytes(4), "operation": "chat", "provider": "acme"}
    values |= {"asked": "m", "served": "m", "source": "", "finish": "stop", "price_version": ""}
    return UsageRecord(**values | more)


def store_calls(database: Database, clock: Clock, rows: Iterable[UsageRecord]) -> None:
    """Write the rows to a database, and close the journal."""
    database.bind()
    journal = Journal(database, clock)
    journal.append(*map(write_row, rows)).wait(60)
    journal.close()
