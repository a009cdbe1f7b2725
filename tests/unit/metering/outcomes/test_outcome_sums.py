"""Sums of outcomes by step and by value, for whole projects and for keys."""

import pytest

from gateway import ids
from gateway.clock import HOUR_US
from gateway.metering.activity import Owners, Span
from gateway.metering.outcomes import outcome_sums
from gateway.metering.outcomes.outcome_points import NO_SERIES, OutcomeExport, OutcomePoint
from gateway.metering.outcomes.outcome_sums import OutcomeRow, sum_outcomes
from gateway.metering.outcomes.outcome_table import store_exports
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database

PROJECT, OTHER_PROJECT = (ids.new("proj") for _ in range(2))
KEYS = [ids.new("key") for _ in range(3)]  # of the first project, except the last


@pytest.fixture
def now_hour(database: Database) -> int:
    """Commits of three keys, now and some hours ago."""
    now = database.now_us()
    for number, key in enumerate(KEYS):
        project = OTHER_PROJECT if number == 2 else PROJECT
        points = [
            OutcomePoint("codex", "commits", f"s{number}", "m", 1 << number, NO_SERIES, 0, now),
            OutcomePoint("codex", "lines_added", f"s{number}", "", 10, NO_SERIES, 0, now - 5 * HOUR_US),
            OutcomePoint("codex", "active_ms", "old", "", 1500, NO_SERIES, 0, now - 20 * HOUR_US),
        ]
        owners = (raw_id(ids.new("org")), raw_id(project), raw_id(key), raw_id(ids.new("mem")))
        store_exports(database, [OutcomeExport(b"digest", *owners, points)])
    return now // HOUR_US


def read(database: Database, owners: Owners, span: Span, dimension) -> list[OutcomeRow]:
    return database.read(lambda: sum_outcomes(database, owners, span, dimension))


def test_projects_are_summed_as_a_whole_and_keys_apart(database: Database, now_hour: int) -> None:
    span = Span(now_hour - 30, now_hour + 1, "all")
    (whole,) = read(database, Owners((PROJECT,)), span, "total")
    assert (whole.step, whole.figures.commits, whole.figures.lines_added, whole.figures.active_seconds) == (0, 3, 20, 3)
    (own,) = read(database, Owners(key_ids=(KEYS[1],)), span, "total")
    assert own.figures.commits == 2
    both = read(database, Owners((OTHER_PROJECT,), (KEYS[0],)), span, "api_key")
    assert {row.value: row.figures.commits for row in both} == {KEYS[0]: 1, KEYS[2]: 4}


def test_sums_are_by_session_model_and_hour(database: Database, now_hour: int) -> None:
    span = Span(now_hour - 10, now_hour + 1, "hour")
    rows = read(database, Owners((PROJECT,)), span, "session")
    found = {(row.step, row.value): (row.figures.commits, row.figures.lines_added) for row in rows}
    assert found == {
        (now_hour, "s0"): (1, 0),
        (now_hour, "s1"): (2, 0),
        (now_hour - 5, "s0"): (0, 10),
        (now_hour - 5, "s1"): (0, 10),
    }
    models = read(database, Owners((PROJECT,)), Span(now_hour - 10, now_hour + 1, "all"), "model")
    assert {row.value: row.figures.commits for row in models} == {"m": 3, "": 0}


def test_days_are_those_of_a_time_zone(database: Database, now_hour: int) -> None:
    shifts = ((now_hour - 30, 60), (now_hour - 3, 120))  # the clocks changed three hours ago
    span = Span(now_hour - 30, now_hour + 1, "day", shifts)
    rows = read(database, Owners((PROJECT,)), span, "total")
    days: dict[int, int] = {}
    for row in rows:
        days[row.step] = days.get(row.step, 0) + row.figures.commits
    assert days[(now_hour * 60 + 120) // (24 * 60)] == 3
    assert sum(row.figures.lines_added for row in rows) == 20
    assert sum(row.figures.lines_added for row in rows if row.step == ((now_hour - 5) * 60 + 60) // (24 * 60)) == 20


def test_many_owners_are_asked_in_parts(database: Database, now_hour: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome_sums, "MAX_OWNERS", 1)
    span = Span(now_hour - 30, now_hour + 1, "all")
    (whole,) = read(database, Owners((PROJECT, OTHER_PROJECT)), span, "total")
    assert whole.figures.commits == 7
    assert read(database, Owners(), span, "total") == []
