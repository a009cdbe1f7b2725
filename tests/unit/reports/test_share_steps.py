"""Usage by tag and session over time, read from the rollups."""

from collections.abc import Callable, Iterator

import pytest

from gateway import ids
from gateway.clock import HOUR_US, SECOND_US
from gateway.metering.activity import Owners, Span
from gateway.metering.models import MODELS
from gateway.metering.rollups.job import Rollups
from gateway.metering.usage_table import UsageRecord, raw_id, write_row
from gateway.reports.shares import ShareQuestion, read_share_steps
from gateway.store.database import Database
from gateway.store.journal import Journal
from gateway.store.partitions import id_at

HOUR = 490_000
PROJECT = ids.new("proj")
OTHERS = {name: raw_id(ids.new("x")) for name in ("organization", "api_key", "member")}


def row(number: int, hour: int, cost: int, **more: object) -> UsageRecord:
    at = (HOUR + hour) * HOUR_US + number * SECOND_US
    values = dict.fromkeys(UsageRecord._fields[:20], 0) | OTHERS | {"project": raw_id(PROJECT), "at": at}
    values |= {"posted_at": at, "request": id_at(at)[:12] + bytes(3) + bytes([number]), "operation": "chat"}
    values |= {"provider": "p", "asked": "m", "served": "m", "source": "", "finish": "stop", "price_version": ""}
    return UsageRecord(**values | {"cost_nusd": cost, "input": 10, "output": 1} | more)


@pytest.fixture
def database(database_url: str, open_store: Callable[..., Database], clock) -> Iterator[Database]:
    opened = open_store(database_url)
    opened.bind(MODELS)
    journal = Journal(opened, clock)
    rows = [
        row(1, 0, 100, session="a", tags='{"team":"x"}'),
        row(2, 0, 200, session="a", tags='{"team":"y"}'),
        row(3, 1, 400, session="b", tags='{"other":"x"}'),
        row(4, 1, 800),
        row(5, 5, 1600, session="a"),
        row(6, 0, 3200, session="a", project=raw_id(ids.new("proj"))),
    ]
    journal.append(*map(write_row, rows)).wait(60)
    journal.close()
    Rollups(opened).catch_up()
    yield opened


def read(
    database: Database, group: str, values: list[str], tag: str = ""
) -> dict[tuple[int, str], tuple[int, int, int]]:
    question = ShareQuestion(Owners((PROJECT,)), Span(HOUR, HOUR + 2, "hour"), group, tag)
    found = read_share_steps(database, question, values)
    return {
        (step.step - HOUR, step.id): (step.figures.requests, step.figures.input_tokens, step.figures.cost_nusd)
        for step in found
    }


def test_sessions_are_summed_by_hour(database: Database) -> None:
    without = {(1, ""): (1, 10, 800)}
    assert read(database, "session", ["a", "b"]) == {(0, "a"): (2, 20, 300), (1, "b"): (1, 10, 400)} | without
    assert read(database, "session", ["b"]) == {(0, "(other)"): (2, 20, 300), (1, "b"): (1, 10, 400)} | without


def test_values_of_a_tag_are_summed_by_hour(database: Database) -> None:
    rest = {(0, "(other)"): (1, 10, 200), (1, ""): (2, 20, 1200)}
    assert read(database, "tag", ["x"], "team") == {(0, "x"): (1, 10, 100)} | rest
    assert read(database, "tag", [], "no-such") == {(0, ""): (2, 20, 300), (1, ""): (2, 20, 1200)}
