import pytest

from gateway.accounts import audit, members, rules, teams
from gateway.accounts.changes import commit
from gateway.errors import NotFound

BY = {"actor": "operator"}


@pytest.fixture
def at(company):
    return company.database, company.control


@pytest.fixture
def team(company, at) -> teams.TeamInfo:
    team = teams.create_team(*at, company.organization_id, "Research", **BY)
    teams.set_team_member(*at, team.id, company.member_id, True, **BY)
    return teams.find_team(company.database, company.organization_id, team.id)


def limit(company, team, limited: bool = True) -> None:
    commit(
        company.database,
        company.control,
        lambda now: teams.mark_limited(company.organization_id, team.id, limited),
    )


def test_only_teams_with_limits_are_known_to_a_caller(company, at, team) -> None:
    made, authentication = company.make_key(), company.authentication()
    assert authentication.caller(made.token).teams == ()
    limit(company, team)
    assert authentication.caller(made.token).teams == ((team.id, "Research"),)
    limit(company, team, False)
    assert authentication.caller(made.token).teams == ()


def test_rules_and_teams_do_not_multiply_each_other(company, at, team) -> None:
    key = company.make_key()
    other_team = teams.create_team(*at, company.organization_id, "Everyone", **BY)
    teams.set_team_member(*at, other_team.id, company.member_id, True, **BY)
    for one in (team, other_team):
        limit(company, one)
    for model in ("a", "b"):
        rules.add_rule(*at, "member", company.member_id, "deny_models", {"models": [model]}, **BY)
    caller = company.authentication().caller(key.token)
    assert caller.teams == ((team.id, "Research"), (other_team.id, "Everyone"))
    assert [sorted(level.deny_models) for level in caller.rules] == [["a", "b"]]


def test_a_team_lists_its_members_and_forgets_who_left(company, at, team) -> None:
    second = members.add_member(*at, company.organization_id, "second@example.com", **BY)
    teams.set_team_member(*at, team.id, second.id, True, **BY)
    (found,) = teams.list_teams(company.database, company.organization_id)
    assert set(found.member_ids) == {company.member_id, second.id}
    teams.set_team_member(*at, team.id, second.id, False, **BY)
    assert teams.find_team(company.database, company.organization_id, team.id).member_ids == (company.member_id,)


def test_a_deleted_team_takes_its_rules_along_and_leaves_its_name_in_the_audit_trail(company, at, team) -> None:
    rules.add_rule(*at, "team", team.id, "deny_models", {"models": ["a"]}, **BY)
    teams.delete_team(*at, company.organization_id, team.id, **BY)
    assert rules.list_rules(company.database, company.organization_id) == []
    entry = audit.list_entries(company.database)[0]
    assert entry.action == "team.delete" and '"Research"' in entry.detail
    with pytest.raises(NotFound):
        teams.delete_team(*at, company.organization_id, team.id, **BY)


def test_a_team_of_another_organization_is_not_found(company, team) -> None:
    with pytest.raises(NotFound):
        teams.find_team(company.database, "org_other", team.id)
