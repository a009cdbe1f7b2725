"""The newest sessions of several projects: complete, in order, and without reading all rows of each project."""

import random
from collections.abc import Callable
from functools import partial

import pytest
from support.statement_work import note_statements
from support.usage import PROJECTS, insert_rows, usage_row

from gateway.clock import SECOND_US
from gateway.metering.log import agent_sessions
from gateway.metering.log.agent_sessions import SessionName, assemble, find_newest, sum_stored
from gateway.metering.log.search import NEWEST, LogScope
from gateway.metering.models import BYOK
from gateway.store.database import Database

SCOPES = [LogScope(f"proj_{raw.hex()}") for raw in PROJECTS]


@pytest.mark.parametrize("first_rows", [1, 7, 500])
def test_sessions_of_all_projects_are_listed_by_their_newest_request(
    database_url: str, open_store: Callable[..., Database], monkeypatch: pytest.MonkeyPatch, first_rows: int
) -> None:
    monkeypatch.setattr(agent_sessions, "FIRST_ROWS", first_rows)
    database = open_store(database_url)
    dice = random.Random(3)
    now_us = database.now_us()
    rows = [
        usage_row(
            now_us - number * SECOND_US,
            # The second project has the newest requests.
            project=PROJECTS[number < 40 or dice.random() < 0.5],
            session=dice.choice((None, *(f"session {number // 30} {name}" for name in "abcdef"))),
        )
        for number in range(400)
    ]
    insert_rows(database, *rows)
    expected = list(dict.fromkeys((f"proj_{row.project.hex()}", row.session) for row in rows if row.session))
    listed: list[tuple[str, str]] = []
    before: bytes | None = NEWEST
    while before is not None:
        at = before
        names, before = database.read(lambda at=at: find_newest(database, SCOPES, b"", at, 10))
        listed += names
    assert list(dict.fromkeys(listed)) == expected
    noted = note_statements(monkeypatch)
    database.read(lambda: find_newest(database, SCOPES, b"", NEWEST, 2))
    limits = [params[-1] for sql, params in noted if "session IS NOT NULL" in sql]
    assert max(limits) <= max(16, first_rows)


def test_a_session_has_the_tokens_and_costs_of_its_requests(
    database_url: str, open_store: Callable[..., Database]
) -> None:
    database = open_store(database_url)
    tokens = {"input": 10, "cache_read": 3, "cache_write": 2, "output": 7, "reasoning": 5}
    costs = {"mode": BYOK, "cost_nusd": 90, "storage_nusd": 4, "discount_nusd": 6}
    row = usage_row(database.now_us(), project=PROJECTS[0], session="s", **tokens, **costs)
    insert_rows(database, row, row._replace(attempt=1))
    name = SessionName(SCOPES[0].project_id, "s")
    (session,) = assemble(database.read(partial(sum_stored, database, SCOPES, [name], b"")))
    assert vars(session.figures) == {
        "input_tokens": 30,
        "output_tokens": 14,
        "cached_tokens": 6,
        "cache_write_tokens": 4,
        "reasoning_tokens": 10,
        "cost_nusd": 180,
        "byok_nusd": 180,
        "storage_nusd": 8,
        "discount_nusd": 12,
    }
