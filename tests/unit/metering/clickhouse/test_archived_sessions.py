"""Sessions of agents and latencies of providers after usage rows were removed: from ClickHouse (its real engine)."""

import pytest
from support.clickhouse_site import Site
from support.usage import KEYS, PROJECTS, insert_rows

from gateway.clock import DAY_US, HOUR_US
from gateway.metering.activity import Owners, Span
from gateway.metering.log.agent_sessions import AgentSession
from gateway.metering.log.archived_requests import begin_of_rows, find_session, list_sessions
from gateway.metering.log.search import LogScope
from gateway.reports.latency_percentiles import read_latency
from gateway.store.partitions import time_of

pytestmark = pytest.mark.slow  # the engine takes seconds to start

PROJECT_IDS = [f"proj_{project.hex()}" for project in PROJECTS]
SCOPES = [LogScope(PROJECT_IDS[0]), LogScope(PROJECT_IDS[1], "", (f"key_{KEYS[1].hex()}",))]
NAMES = [f"run {number}'s \\" for number in range(30)]


def add_sessions(site: Site) -> None:
    """Requests of the last twenty days: some sessions lie in days that are removed, some in others, some in both."""
    now_us = site.clock.now_us()
    for number, name in enumerate(NAMES):
        ended_us = now_us - HOUR_US - number * 8 * HOUR_US
        for _ in range(6):
            at_us = ended_us - site.dice.randrange(2 * DAY_US)
            row = site.row(at_us, session=name)
            rows = [row]
            if row.error:
                rows.append(row._replace(attempt=1, at=row.at + 5, provider="other", error=None))
            insert_rows(site.database, *rows)


def read_pages(site: Site, limit: int) -> list[AgentSession]:
    """Return all sessions, page by page."""
    sessions: list[AgentSession] = []
    before = None
    while True:
        page = list_sessions(site.database, SCOPES, before, limit)
        assert len(page.sessions) <= limit
        assert before is None or page.following is None or page.following < before
        sessions += page.sessions
        before = page.following
        if before is None:
            return sessions


def find_all(site: Site) -> list[AgentSession | None]:
    return [find_session(site.database, SCOPES, name) for name in NAMES]


def test_sessions_are_the_same_after_usage_rows_were_removed(archived: Site) -> None:
    add_sessions(archived)
    archived.deliver()
    listed = read_pages(archived, 40)
    found = find_all(archived)
    archived.remove_old_rows()
    begin = begin_of_rows(archived.database)
    stored = [session for session in listed if session.newest >= begin]
    assert 3 < len(stored) < len(listed) - 3
    assert any(session.first_us < time_of(begin) - HOUR_US for session in stored)  # rows in both
    for limit in (1, 7, len(stored), 100):
        assert read_pages(archived, limit) == listed, limit
    assert find_all(archived) == found


def test_a_request_that_is_not_delivered_yet_counts_in_an_archived_session(archived: Site) -> None:
    add_sessions(archived)
    archived.deliver()
    archived.remove_old_rows()
    turns = {(session.project_id, session.session): session.turns for session in read_pages(archived, 100)}
    old = next(name for name in reversed(turns) if name[0] == PROJECT_IDS[0])
    values = {"session": old[1], "error": None, "project": PROJECTS[0], "api_key": KEYS[0]}
    insert_rows(archived.database, archived.row(archived.clock.now_us(), **values))
    sessions = read_pages(archived, 7)
    assert {(session.project_id, session.session): session.turns for session in sessions} == {
        **turns,
        old: turns[old] + 1,
    }


def test_the_sessions_of_the_database_are_shown_while_clickhouse_is_away(archived: Site) -> None:
    add_sessions(archived)
    archived.deliver()
    everything = len(read_pages(archived, 100))
    archived.remove_old_rows()
    archived.server.execute(f"RENAME TABLE {archived.table} TO {archived.table}_away")
    left = read_pages(archived, 100)
    assert 0 < len(left) < everything
    assert find_session(archived.database, SCOPES, left[0].session) == left[0]


def test_the_latency_of_a_provider_is_the_same_after_usage_rows_were_removed(archived: Site) -> None:
    now_us = archived.clock.now_us()
    for number in range(160):
        times = {"ttft_ms": number % 3 * 100, "duration_ms": 400 + number}
        insert_rows(archived.database, archived.row(now_us - number * 3 * HOUR_US, provider="vendor", **times))
    archived.deliver()
    owners = Owners((PROJECT_IDS[0],), (f"key_{KEYS[1].hex()}",))
    end = now_us // HOUR_US + 1
    span = Span(end - 24 * 30, end, "day")
    whole = read_latency(archived.database, owners, "vendor", span, DAY_US)
    archived.remove_old_rows()
    after = read_latency(archived.database, owners, "vendor", span, DAY_US)
    assert [(step.step, step.answered, step.failed) for step in after] == [
        (step.step, step.answered, step.failed) for step in whole
    ]
    for name in ("wait_ms", "duration_ms"):
        assert [getattr(step, name) for step in after] == pytest.approx([getattr(step, name) for step in whole])
    archived.server.execute(f"RENAME TABLE {archived.table} TO {archived.table}_away")
    assert 0 < len(read_latency(archived.database, owners, "vendor", span, DAY_US)) < len(whole)
