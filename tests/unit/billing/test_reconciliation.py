import pytest
from support.billing import DOLLAR, attempt_at, target

from gateway import ids
from gateway.billing.reconciliation import doctor, examine
from gateway.errors import Unavailable
from gateway.limits.budgets import Limits

ORGANIZATION = (
    "INSERT INTO organization (id, name, status, policy, created_at, updated_at) VALUES (?, '', '', '', 1, 1)"
)
TEAM = "INSERT INTO team (id, organization_id, name, created_at, limited) VALUES (?, ?, '', 1, ?)"


@pytest.fixture
def process(start_billing, account, used):
    """A billing process with one settled request of a caller in a team with limits."""
    started = start_billing()
    account.teams = ((ids.new("team"), "Research"),)
    started.ledger.grant(account.organization, DOLLAR, "start")
    settlement = started.admit(account)
    settlement.begin(0, target())
    settlement.settle(attempt_at(target(), usage=used, finish="stop"))
    settlement.close()
    return started


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE budget SET settled_nusd = settled_nusd + 1 WHERE kind = 'credits'",
        "UPDATE budget SET settled_nusd = settled_nusd - 1 WHERE scope = 'key'",
        "UPDATE budget SET settled_nusd = settled_nusd + 1 WHERE scope = 'member'",
        "UPDATE budget SET settled_nusd = settled_nusd - 1 WHERE scope = 'team'",
        "UPDATE usage SET teams = NULL",
        "UPDATE budget SET limit_nusd = limit_nusd + 1 WHERE kind = 'credits'",
        "UPDATE budget SET leased_nusd = leased_nusd + 1 WHERE kind = 'credits'",
        "UPDATE lease SET spent_nusd = spent_nusd + 1",
        "UPDATE usage SET cost_nusd = cost_nusd + 1",
        "UPDATE usage SET storage_nusd = 1",
        "DELETE FROM usage",
    ],
)
def test_one_nano_dollar_of_difference_is_reported(process, sql):
    assert doctor(process.database) == []
    process.database.write(lambda: process.database.execute(sql))
    assert doctor(process.database)


def test_a_difference_shows_both_sides(process, account):
    sql = "UPDATE budget SET limit_nusd = limit_nusd + 1, leased_nusd = -2 WHERE kind = 'credits'"
    process.database.write(lambda: process.database.execute(sql))
    digits = account.organization.removeprefix("org_")
    found = examine(process.database)
    assert [(digits in str(problem), problem.nusd) for problem in found if problem.left == "ledger"] == [(True, 1)]
    assert "ledger 1, credit balance 1.000000001" in str(found[0])
    assert [
        problem.left_nusd for problem in found if problem.left == "leased" and problem.right == "lowest valid value"
    ] == [-2]


def test_an_interrupted_examination_ends_before_its_next_query(process):
    answers = iter([True, True, False])
    with pytest.raises(Unavailable):
        examine(process.database, lambda: next(answers))
    assert doctor(process.database) == []


def test_closed_hours_agree_with_their_rows(process, account):
    hour = "2025-06-15T15"  # of the attempts that conftest makes
    process.ledger.close_hour(account.organization, hour, 20_000)
    assert doctor(process.database) == []
    process.ledger.close_hour(account.organization, hour, 20_001)
    assert any("hour" in problem for problem in doctor(process.database))


def test_a_row_that_is_gone_without_being_removed_is_reported(process, account):
    process.ledger.close_hour(account.organization, "2025-06-15T15", 20_000)
    assert doctor(process.database) == []
    process.database.write(lambda: process.database.execute("DELETE FROM usage"))
    assert any("hour" in problem for problem in doctor(process.database))


@pytest.mark.parametrize("marked", [False, True])
def test_a_team_with_limits_that_are_not_enforced_is_reported(process, marked):
    organization, team = ids.new("org"), ids.new("team")
    run = process.database.execute
    process.database.write(lambda: (run(ORGANIZATION, (organization,)), run(TEAM, (team, organization, marked))))
    assert doctor(process.database) == []
    process.budgets.set_limits("team", team, Limits(total_nusd=DOLLAR))
    expected = [] if marked else [f"{team}: limit 1, limit enforced for members 0"]
    assert doctor(process.database) == expected
