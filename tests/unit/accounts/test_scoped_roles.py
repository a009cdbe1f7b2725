import pytest

from gateway.accounts import members, scoped_roles, teams
from gateway.accounts.scoped_roles import Parts
from gateway.errors import InvalidRequest, NotFound

BY = {"actor": "operator"}


@pytest.fixture
def team(company) -> str:
    return teams.create_team(company.database, company.control, company.organization_id, "Search", **BY).id


def give(company, scope_id: str, held: bool = True, member_id: str = "") -> Parts:
    stores = company.database, company.control
    scoped_roles.set_role(*stores, scope_id, member_id or company.member_id, held, **BY)
    return scoped_roles.read_parts(company.database, company.member_id)


def test_a_member_has_roles_in_teams_and_projects(company, team: str) -> None:
    assert give(company, team) == Parts(frozenset((team,)))
    assert give(company, team).teams == {team}
    assert give(company, company.project_id) == Parts(frozenset((team,)), frozenset((company.project_id,)))
    holders = scoped_roles.list_holders(company.database, [team, company.project_id])
    assert holders == {team: [company.member_id], company.project_id: [company.member_id]}
    assert give(company, team, held=False) == Parts(projects=frozenset((company.project_id,)))


def test_the_role_ends_with_the_team_and_with_the_membership_in_it(company, team: str) -> None:
    stores = company.database, company.control
    give(company, team)
    teams.set_team_member(*stores, team, company.member_id, False, **BY)
    assert scoped_roles.read_parts(company.database, company.member_id) == Parts()
    give(company, team)
    teams.delete_team(*stores, company.organization_id, team, **BY)
    assert scoped_roles.read_parts(company.database, company.member_id) == Parts()


def test_a_role_is_refused_outside_of_the_organization_and_to_inactive_members(company, team: str) -> None:
    stores = company.database, company.control
    with pytest.raises(NotFound):
        give(company, "proj_unknown")
    with pytest.raises(NotFound):
        give(company, team, member_id="member_unknown")
    colleague = members.add_member(*stores, company.organization_id, "colleague@example.com", "developer", **BY)
    members.update_member(*stores, company.organization_id, colleague.id, active=False, **BY)
    with pytest.raises(InvalidRequest):
        give(company, team, member_id=colleague.id)
