"""Ids that clients choose: one object for each, also for simultaneous requests."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gateway.accounts import client_ids, teams
from gateway.accounts.client_ids import ClientIdClaim, ClientIdTaken


def claim(company: Any, **content: Any) -> ClientIdClaim:
    return client_ids.make_claim(company.organization_id, "team", "one", content, company.secrets.hash_keys)


def test_one_of_several_simultaneous_creations_succeeds(company: Any) -> None:
    def create(number: int) -> str:
        try:
            return teams.create_team(
                company.database,
                company.control,
                company.organization_id,
                f"Team {number}",
                actor="operator",
                claim=claim(company, name="CI"),
            ).id
        except ClientIdTaken:
            return ""

    with ThreadPoolExecutor(4) as pool:
        created = [team_id for team_id in pool.map(create, range(4)) if team_id]
    assert len(created) == 1
    assert [team.id for team in teams.list_teams(company.database, company.organization_id)] == created
    known = client_ids.find(company.database, claim(company, name="CI"))
    assert known is not None and known.object_id == created[0] and known.same


def test_content_is_compared_under_rotated_hash_keys(company: Any) -> None:
    old = client_ids.make_claim(company.organization_id, "team", "one", {"a": 1}, company.secrets.hash_keys[1:])
    company.database.write(lambda: client_ids.insert(old, "team_x", 1))
    same = client_ids.find(company.database, claim(company, a=1))
    other = client_ids.find(company.database, claim(company, a=2))
    assert same is not None and same.same and other is not None and not other.same


def test_no_claim_stores_nothing(company: Any) -> None:
    company.database.write(lambda: client_ids.insert(None, "team_x", 1))
    assert client_ids.find(company.database, claim(company)) is None
