"""The teams of usage rows: in the row, and for the former release through the view `team_usage`."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.clock import FakeClock
from support.usage import usage_row

from gateway import ids
from gateway.billing.reconciliation import Examination
from gateway.clock import HOUR_US
from gateway.limits.models import split_groups
from gateway.metering.rollups.purge import sum_spent
from gateway.metering.usage_table import split_teams, write_groups, write_row
from gateway.store.database import Database
from gateway.store.journal import Journal, Statement
from gateway.store.partitions import Partitions

TEAMS = [bytes([number]) * 16 for number in range(1, 41)]
AT_US = 1_790_000_000_000_000
ALL = "SELECT request, attempt, kind, team FROM team_usage ORDER BY team"
# The statements of the former release.
INSERT = Statement("team_usage", "INSERT INTO team_usage (request, attempt, kind, team) VALUES (?, ?, ?, ?)")
DELETE = (
    "DELETE FROM team_usage WHERE request >= ? AND request < ? AND EXISTS (SELECT 1 FROM usage w WHERE "
    "w.request = team_usage.request AND w.attempt = team_usage.attempt AND w.kind = team_usage.kind "
    "AND w.posted_at < ?)"
)


@pytest.fixture
def journal(database: Database, clock: FakeClock) -> Iterator[Journal]:
    made = Journal(database, clock)
    yield made
    made.close(2)


def read(database: Database, sql: str = ALL) -> list[tuple[Any, ...]]:
    rows = database.query_rows(sql)
    return [tuple(bytes(cell) if isinstance(cell, (bytes, memoryview)) else cell for cell in row) for row in rows]


def run(database: Database, sql: str, *params: Any) -> None:
    database.write(lambda: database.execute(sql, params))


def test_the_former_release_sees_the_teams_of_each_row(database: Database, journal: Journal) -> None:
    row = usage_row(AT_US, cost_nusd=5)
    journal.append(write_row(row, b"".join(TEAMS))).wait(60)
    journal.append(write_row(usage_row(AT_US))).wait(60)
    assert read(database) == [(row.request, 0, 0, team) for team in TEAMS]


@pytest.mark.parametrize("count", [1, 20])
def test_the_former_release_writes_and_removes_teams(database: Database, journal: Journal, count: int) -> None:
    """Twenty rows reach PostgreSQL as arrays, one as it is."""
    rows = [usage_row(AT_US + number) for number in range(count)]
    for row in rows:
        journal.append(write_row(row), (INSERT, (row.request, 0, 0, TEAMS[0]))).wait(60)
    journal.append(*[(INSERT, (row.request, 0, 0, TEAMS[1])) for row in rows]).wait(60)
    assert len(read(database)) == 2 * count == len(read(database, "SELECT * FROM group_usage"))
    run(database, DELETE, bytes(16), b"\xff" * 16, AT_US + HOUR_US)
    assert read(database) == []


def test_teams_of_rows_before_and_after_are_compared_with_their_counters(database: Database, journal: Journal) -> None:
    session = f"session_{bytes([9] * 16).hex()}"
    for cost, teams in ((5, b"".join(TEAMS[:2])), (7, TEAMS[1])):
        row = usage_row(AT_US, cost_nusd=cost)
        journal.append(write_row(row, teams), *write_groups(row.request, 0, [session])).wait(60)
    row = usage_row(AT_US, cost_nusd=100)
    journal.append(write_row(row), (INSERT, (row.request, 0, 0, TEAMS[1]))).wait(60)
    expected = {TEAMS[0].hex(): 5, TEAMS[1].hex(): 112, "09" * 16: 12}
    spent = database.report(lambda: sum_spent(database, "w.request >= ?", [bytes(16)], "", AT_US))
    assert {owner: nusd for (kind, owner, _), nusd in spent.amounts.items() if kind == "team"} == expected
    found = database.report(lambda: list(Examination(database, lambda: True).differences()))
    rows = {one.subject: one.left_nusd for one in found if one.left == "usage rows"}
    assert {team: rows[team] for team in expected} == expected


def test_a_table_that_becomes_a_partition_keeps_its_teams_and_can_be_dropped(
    database: Database, journal: Journal
) -> None:
    if database.kind != "postgresql":
        pytest.skip("SQLite has no partitions")
    old, new = usage_row(AT_US), usage_row(database.now_us() + 30 * 24 * HOUR_US)
    journal.append(write_row(old, TEAMS[0])).wait(60)
    partitions = Partitions(database, "usage", ("request", "attempt", "kind"), 24 * HOUR_US)
    partitions.keep_ready()
    journal.append(write_row(new, TEAMS[1])).wait(60)
    assert read(database) == [(old.request, 0, 0, TEAMS[0]), (new.request, 0, 0, TEAMS[1])]
    database.write(lambda: partitions.drop(partitions.ranges()[0]))
    assert read(database) == [(new.request, 0, 0, TEAMS[1])]


def test_the_column_has_sixteen_bytes_for_a_team() -> None:
    assert split_teams(b"".join(TEAMS)) == TEAMS and split_teams(b"") == []


def test_ids_of_teams_are_in_ascending_order() -> None:
    teams = [ids.new("team") for _ in range(3)]
    budgets = [f"{team}:total" for team in reversed(teams)] + ["key_1:total", "session_ab:total", "run_cd:total"]
    joined, groups = split_groups([*budgets, f"{teams[0]}:window"])
    assert joined == b"".join(sorted(bytes.fromhex(team[5:]) for team in teams))
    assert groups == ("session_ab", "run_cd") and split_groups(["key_1:total"]) == (None, ())
