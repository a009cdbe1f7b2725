"""The request log of removed usage rows, read from ClickHouse (its real engine)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from support.clickhouse_site import Site
from support.usage import KEYS, PROJECTS, insert_rows

from gateway.clock import DAY_US, HOUR_US
from gateway.metering.log.archived_requests import find_logged, log_begins_us, search_log
from gateway.metering.log.log_entries import LogEntry, write_rows
from gateway.metering.log.records import LoggedRequest
from gateway.metering.log.search import LogFilter, LogScope

pytestmark = pytest.mark.slow  # the engine takes seconds to start

SCOPES = [LogScope(f"proj_{PROJECTS[0].hex()}"), LogScope(f"proj_{PROJECTS[1].hex()}", "", (f"key_{KEYS[1].hex()}",))]
FILTERS = [
    LogFilter(),
    LogFilter(model="small"),
    LogFilter(model="vendor/large"),
    LogFilter(provider="other"),
    LogFilter(status=502),
    LogFilter(failed=True),
    LogFilter(min_ms=60),
    LogFilter(min_nusd=500_000_000_000),
    LogFilter(status=200, source="app"),
    LogFilter(error="timeout", model="large"),
    LogFilter(error="key_limit_reached"),
    LogFilter(session="two's"),
    LogFilter(label="a\tb'c"),
    LogFilter(tags=(("team", 'a"b'), ("user", "x"))),
]


def read_pages(site: Site, filters: LogFilter, limit: int) -> list[LoggedRequest]:
    """Return all matches, page by page."""
    records: list[LoggedRequest] = []
    before = None
    while True:
        page = search_log(site.database, SCOPES, filters, before, limit)
        assert len(page.requests) <= limit
        assert before is None or page.following is None or page.following < before
        records += page.requests
        before = page.following
        if before is None:
            return records


def add_requests(site: Site) -> None:
    """Requests of the last twenty days: with several attempts, labels, metadata, and rejected ones."""
    now_us = site.clock.now_us()
    for number in range(120):
        at_us = now_us - site.dice.randrange(HOUR_US, 20 * DAY_US)
        row = site.row(at_us, label=site.dice.choice((None, "a\tb'c")), status=200, duration_ms=number)
        rows = [row]
        if number % 5 == 0:
            rows.append(row._replace(attempt=1, at=row.at + 5, provider="other", error=None, served="large"))
        insert_rows(site.database, *rows)
        if row.tags or number % 9 == 0:
            owner = (row.request, row.organization, row.project, row.api_key, row.member)
            entry = LogEntry(*owner, 1, 200, "chat", "/v1/x", "small", row.source, None, row.label, row.tags)
            if number % 9 == 0:
                entry = entry._replace(status=402, error="key_limit_reached")
            write_entry(site, entry)


def write_entry(site: Site, entry: LogEntry) -> None:
    for statement, values in write_rows(entry, entry.tags):
        site.database.write(partial(site.database.execute, statement.sql, values))


def as_values(records: Sequence[LoggedRequest]) -> list[Any]:
    return [(record.request, record.attempts, record.status, record.tags, record.cost_nusd) for record in records]


def test_the_log_is_the_same_after_usage_rows_were_removed(archived: Site) -> None:
    add_requests(archived)
    archived.deliver()
    before = [as_values(read_pages(archived, filters, 40)) for filters in FILTERS]
    stored = archived.count()
    archived.remove_old_rows()
    assert 0 < archived.count() < stored / 2
    for filters, expected in zip(FILTERS, before, strict=True):
        assert expected, filters
        assert as_values(read_pages(archived, filters, 7)) == expected, filters
    assert log_begins_us(archived.database) == 0


def test_a_removed_request_is_found_by_its_id_with_all_its_attempts(archived: Site) -> None:
    add_requests(archived)
    archived.deliver()
    records = read_pages(archived, LogFilter(), 100)
    archived.remove_old_rows()
    oldest = min(records, key=lambda record: record.request)
    assert find_logged(archived.database, oldest.request_id) == oldest
    assert find_logged(archived.database, "0" * 32) is None


def test_the_log_of_the_database_is_shown_while_clickhouse_is_away(archived: Site) -> None:
    add_requests(archived)
    archived.deliver()
    archived.remove_old_rows()
    archived.server.execute(f"RENAME TABLE {archived.table} TO {archived.table}_away")
    records = read_pages(archived, LogFilter(), 100)
    served = [record for record in records if record.attempts]
    assert 0 < len(served) < len(records)  # rejected requests are in the database for longer
