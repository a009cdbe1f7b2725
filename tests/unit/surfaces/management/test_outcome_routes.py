"""Outcomes stand beside the spending of `/activity`, people are compared only where an owner allows it."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from support.management import Person, Tenants
from support.usage import insert_rows, usage_row

from gateway import ids
from gateway.clock import HOUR_US
from gateway.metering.outcomes.outcome_points import NO_SERIES, OutcomeExport, OutcomePoint
from gateway.metering.outcomes.outcome_table import store_exports
from gateway.metering.usage_table import raw_id
from gateway.money import NANO
from gateway.surfaces.management.outcome_routes import NOT_COMPARED

REPORT = "/activity/outcomes?timeRange=7d"


@pytest.fixture
def tenants(open_tenants) -> Iterator[Tenants]:
    with open_tenants() as opened:
        yield opened


def spend(tenants: Tenants, person: Person, cost_nusd: int, **more: Any) -> None:
    """Record a request of a person's key, an hour ago."""
    owners = {
        "organization": raw_id(person.organization_id),
        "project": raw_id(person.project_id),
        "api_key": raw_id(person.key.info.id),
        "member": raw_id(person.member_id),
    }
    at_us = tenants.services.store.database.now_us() - HOUR_US
    values = {"provider": "anthropic", "served": "opus", "session": None, **more}
    row = usage_row(at_us, cost_nusd=cost_nusd, request=bytes.fromhex(ids.new_hex()), **owners, **values)
    insert_rows(tenants.services.store.database, row)
    tenants.services.billing.rollups.catch_up()


def report(
    tenants: Tenants, person: Person, session: str = "s", model: str = "", repository: str = "", **outcomes: int
) -> None:
    """Report outcomes of a person's key."""
    now = tenants.services.store.database.now_us()
    points = [
        OutcomePoint("claude-code", name, session, model, amount, NO_SERIES, now, now - HOUR_US, repository)
        for name, amount in outcomes.items()
    ]
    owners = (person.organization_id, person.project_id, person.key.info.id, person.member_id)
    digest = bytes.fromhex(ids.new_hex())
    store_exports(tenants.services.store.database, [OutcomeExport(digest, *map(raw_id, owners), points)])


def team(tenants: Tenants, name: str, *people: Person) -> str:
    owner = tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/teams"
    ident = tenants.ok("POST", path, owner, {"name": name})["team"]["id"]
    for person in people:
        tenants.ok("PUT", f"{path}/{ident}/members/{person.member_id}", owner)
    return ident


def compare_people(tenants: Tenants) -> None:
    """Let the owner of acme turn the comparison of people on."""
    owner = tenants["acme owner"]
    tenants.ok("PUT", f"/orgs/{owner.organization_id}/outcome-settings", owner, {"comparePeople": True})


def test_each_outcome_has_its_price_from_the_keys_that_report(tenants: Tenants) -> None:
    owner, developer, colleague = (tenants[f"acme {name}"] for name in ("owner", "developer", "colleague"))
    spend(tenants, developer, 3 * NANO)
    spend(tenants, colleague, 10 * NANO)  # an application without an agent
    report(tenants, developer, edits_accepted=4, edits_rejected=1, commits=2, lines_added=30, active_ms=1500)
    total = tenants.ok("GET", REPORT, owner)["total"]
    assert (total["cost"], total["agentCost"], total["requestCount"]) == ("13", "3", 2)
    assert (total["costPerAcceptedEdit"], total["costPerCommit"]) == ("0.75", "1.5")
    assert total["costPerPullRequest"] is None
    assert (total["editsRejected"], total["linesAdded"], total["activeSeconds"]) == (1, 30, 1.5)


def test_the_sums_equal_activity_to_the_nano_dollar(tenants: Tenants) -> None:
    owner, developer, colleague = (tenants[f"acme {name}"] for name in ("owner", "developer", "colleague"))
    for number, person in enumerate((owner, developer, colleague, developer)):
        session = f"s{number}" if number else None
        spend(tenants, person, 1_000_000_007 * (number + 1), served=f"model-{number % 2}", session=session)
    report(tenants, developer, commits=1)
    days = tenants.ok("GET", "/activity?timeRange=7d", owner)["activity"]
    expected = round(sum(Decimal(str(day["cost"])) for day in days) * NANO)
    answer = tenants.ok("GET", f"{REPORT}&groupBy=project", owner)
    sums = [answer["total"]["cost"]], [step["cost"] for step in answer["steps"]], [g["cost"] for g in answer["groups"]]
    assert [sum(round(Decimal(cost) * NANO) for cost in costs) for costs in sums] == [expected] * 3
    assert [step["date"] for step in answer["steps"]] == [day["date"] for day in days]
    tenants.ok("PUT", f"/orgs/{owner.organization_id}/outcome-settings", owner, {"comparePeople": True})
    for group in ("model", "person", "key", "session"):
        groups = tenants.ok("GET", f"{REPORT}&groupBy={group}", owner)["groups"]
        assert sum(round(Decimal(one["cost"]) * NANO) for one in groups) == expected, group


def test_teams_projects_and_models_are_compared_by_everybody_who_sees_them(tenants: Tenants) -> None:
    owner, developer, colleague = (tenants[f"acme {name}"] for name in ("owner", "developer", "colleague"))
    red = team(tenants, "Red", developer)
    compare_people(tenants)  # the team has one person
    spend(tenants, developer, 2 * NANO)
    spend(tenants, colleague, 1 * NANO, served="haiku")
    report(tenants, developer, model="anthropic/opus", lines_added=7, pull_requests=1)
    report(tenants, colleague, model="haiku", lines_added=1)
    groups = {one["id"]: one for one in tenants.ok("GET", f"{REPORT}&groupBy=team", owner)["groups"]}
    assert (groups[red]["name"], groups[red]["costPerPullRequest"], groups[""]["linesAdded"]) == ("Red", "2", 1)
    models = {one["id"]: one for one in tenants.ok("GET", f"{REPORT}&groupBy=model", owner)["groups"]}
    assert {name: (one["cost"], one["linesAdded"]) for name, one in models.items() if name} == {
        "opus": ("2", 7),
        "haiku": ("1", 1),
    }


@pytest.mark.parametrize("group", ["person", "key", "session"])
def test_people_are_compared_only_if_an_owner_turned_it_on(tenants: Tenants, group: str) -> None:
    owner, admin, developer = (tenants[f"acme {name}"] for name in ("owner", "admin", "developer"))
    report(tenants, developer, commits=3)
    path = f"{REPORT}&groupBy={group}"
    for person in (owner, admin):
        assert tenants.refused("GET", path, person) == f"403 {NOT_COMPARED}"
    settings = f"/orgs/{owner.organization_id}/outcome-settings"
    assert tenants.refused("PUT", settings, admin, {"comparePeople": True}).startswith("403")
    assert tenants.ok("GET", settings, admin) == {"comparePeople": False, "holdUnusual": False}
    assert tenants.ok("PUT", settings, owner, {"comparePeople": True})["comparePeople"] is True
    groups = tenants.ok("GET", path, admin)["groups"]
    assert [one["commits"] for one in groups if one["commits"]] == [3]
    entry = tenants.ok("GET", f"/orgs/{owner.organization_id}/audit?limit=1", owner)["entries"][0]
    assert (entry["action"], entry["detail"]) == ("organization.update_outcomes", {"compare_people": True})


def test_everybody_sees_their_own_figures_and_nobody_elses(tenants: Tenants) -> None:
    developer, colleague, rival = tenants["acme developer"], tenants["acme colleague"], tenants["rival owner"]
    report(tenants, developer, session="mine", commits=3)
    report(tenants, colleague, session="theirs", commits=5)
    for more in ("", "&mine=true"):
        answer = tenants.ok("GET", f"{REPORT}&groupBy=session{more}", developer)
        assert answer["total"]["commits"] == 3
        assert [one["id"] for one in answer["groups"]] == ["mine"]
    assert tenants.ok("GET", REPORT, rival)["total"]["commits"] == 0
    own = tenants.ok("GET", f"{REPORT}&groupBy=person&mine=true", tenants["acme owner"])
    assert own["total"]["commits"] == 0
    assert tenants.refused("GET", f"{REPORT}&projectId={developer.project_id}", rival).startswith("40")


def test_a_lead_sees_the_team_as_a_whole(tenants: Tenants) -> None:
    owner, developer, colleague = (tenants[f"acme {name}"] for name in ("owner", "developer", "colleague"))
    others = [tenants["acme admin"], joined(tenants, "fifth@acme.example")]
    red = team(tenants, "Red", developer, colleague, *others)
    path = f"/orgs/{owner.organization_id}/teams/{red}/leads/{developer.member_id}"
    tenants.ok("PUT", path, owner)
    report(tenants, developer, commits=3)
    report(tenants, colleague, commits=5)
    report(tenants, owner, commits=100)
    groups = tenants.ok("GET", f"{REPORT}&groupBy=team", developer)["groups"]
    assert [(one["id"], one["commits"]) for one in groups] == [(red, 8)]
    assert tenants.refused("GET", f"{REPORT}&groupBy=person", developer) == f"403 {NOT_COMPARED}"


def joined(tenants: Tenants, email: str) -> Person:
    """A further developer of acme."""
    owner = tenants["acme owner"]
    return tenants.join(owner.organization_id, owner.project_id, email, "developer")


@pytest.mark.parametrize("group", ["team", "repository", "model"])
def test_no_group_of_few_people_tells_what_one_of_them_did(tenants: Tenants, group: str) -> None:
    """The group of one person is joined to another, or what is missing from the total would tell it."""
    owner, *people = (tenants[f"acme {name}"] for name in ("owner", "developer", "colleague", "admin"))
    people.append(joined(tenants, "fifth@acme.example"))
    names = dict.fromkeys((people[0],), "alone") | dict.fromkeys(people[1:], "several")
    if group == "team":
        for name in ("alone", "several"):
            team(tenants, name, *(person for person in people if names[person] == name))
    for number, person in enumerate(people):
        more = {group: names[person]} if group != "team" else {}
        report(tenants, person, commits=10 ** (number + 1), **more)
        spend(tenants, person, NANO, served=names[person], session="s")
    for form in ("", "/export"):
        path = REPORT.replace("?", f"{form}?") + f"&groupBy={group}"
        answer = str(tenants.ok("GET", path, owner))
        assert "11110" in answer and "(few people)" in answer
        assert "alone" not in answer and "'commits': 10," not in answer and '"10"' not in answer, answer
        assert "11100" not in answer  # the total less this would be what one person did
    groups = tenants.ok("GET", f"{REPORT}&groupBy={group}", owner)["groups"]
    assert sum(one["commits"] for one in groups) == 11110
    compare_people(tenants)
    groups = tenants.ok("GET", f"{REPORT}&groupBy={group}", owner)["groups"]
    assert {one["commits"] for one in groups} == {10, 11100}


def test_groups_of_several_people_are_shown_as_before(tenants: Tenants) -> None:
    owner, *people = (tenants[f"acme {name}"] for name in ("owner", "developer", "colleague", "admin"))
    red = team(tenants, "Red", *people)
    report(tenants, people[0], commits=4)
    groups = tenants.ok("GET", f"{REPORT}&groupBy=team", owner)["groups"]
    assert [(one["id"], one["commits"]) for one in groups] == [(red, 4)]


def test_no_scope_of_few_people_tells_what_one_of_them_did(tenants: Tenants) -> None:
    """A lead of one person, and the filter by a project of one person."""
    owner, developer, colleague = (tenants[f"acme {name}"] for name in ("owner", "developer", "colleague"))
    red = team(tenants, "Red", developer, colleague)
    tenants.ok("PUT", f"/orgs/{owner.organization_id}/teams/{red}/leads/{developer.member_id}", owner)
    report(tenants, developer, commits=3)
    assert tenants.ok("GET", REPORT, developer)["total"]["commits"] == 3  # the colleague reported nothing
    report(tenants, colleague, commits=5)
    for form in ("", "/export"):
        for more in ("", "&groupBy=team", "&groupBy=model"):
            path = REPORT.replace("?", f"{form}?") + more
            assert tenants.refused("GET", path, developer) == f"403 {NOT_COMPARED}"
    assert tenants.ok("GET", f"{REPORT}&mine=true", developer)["total"]["commits"] == 3
    assert tenants.ok("GET", REPORT, owner)["total"]["commits"] == 8
    compare_people(tenants)
    assert tenants.ok("GET", REPORT, developer)["total"]["commits"] == 8


def test_nobody_takes_the_cost_of_a_session_by_its_name(tenants: Tenants) -> None:
    """Sessions are named by callers: of its cost a repository has that of the keys which named it."""
    owner, developer, colleague = (tenants[f"acme {name}"] for name in ("owner", "developer", "colleague"))
    compare_people(tenants)
    for person, cost in ((developer, 2), (colleague, 40)):
        spend(tenants, person, cost * NANO, session="a")
    spend(tenants, colleague, 500 * NANO, session="(other)")
    report(tenants, developer, session="a", repository="acme/house", edits_accepted=1)
    report(tenants, developer, session="(other)", repository="acme/house", edits_accepted=1)
    groups = tenants.ok("GET", f"{REPORT}&groupBy=repository", owner)["groups"]
    assert {one["id"]: one["cost"] for one in groups} == {"acme/house": "2", "": "540"}
    report(tenants, colleague, session="a", repository="acme/garden", edits_accepted=1)
    groups = tenants.ok("GET", f"{REPORT}&groupBy=repository", owner)["groups"]
    assert {one["id"]: one["cost"] for one in groups} == {"acme/house": "2", "acme/garden": "40", "": "500"}


def test_a_session_that_reports_without_spending_is_listed(tenants: Tenants) -> None:
    developer = tenants["acme developer"]
    spend(tenants, developer, NANO, session="dear")
    report(tenants, developer, session="busy", edits_accepted=9)
    groups = {one["id"]: one for one in tenants.ok("GET", f"{REPORT}&groupBy=session", developer)["groups"]}
    assert (groups["dear"]["cost"], groups["dear"]["editsAccepted"]) == ("1", 0)
    assert (groups["busy"]["cost"], groups["busy"]["editsAccepted"]) == ("0", 9)


def test_a_repository_has_the_cost_of_its_sessions(tenants: Tenants) -> None:
    owner, developer, colleague = (tenants[f"acme {name}"] for name in ("owner", "developer", "colleague"))
    compare_people(tenants)
    for person, session, cost in ((developer, "a", 2), (developer, "b", 3), (colleague, "c", 5), (colleague, "", 7)):
        spend(tenants, person, cost * NANO, session=session or None)
    report(tenants, developer, session="a", repository="acme/house", edits_accepted=4, pull_requests=1)
    report(tenants, colleague, session="c", repository="acme/house", edits_accepted=3)
    report(tenants, developer, session="b", edits_accepted=1)
    answer = tenants.ok("GET", f"{REPORT}&groupBy=repository", owner)
    assert [(one["id"], one["cost"], one["editsAccepted"]) for one in answer["groups"]] == [
        ("", "10", 1),
        ("acme/house", "7", 7),
    ]
    assert [one["costPerAcceptedEdit"] for one in answer["groups"]] == ["0", "1"]
    assert answer["total"]["cost"] == "17"


@pytest.mark.parametrize("group", ["person", "key", "session"])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_no_export_compares_people_before_an_owner_lets_it(tenants: Tenants, group: str, form: str) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    report(tenants, developer, session="secret-session", commits=3)
    path = f"/activity/outcomes/export?timeRange=7d&groupBy={group}&format={form}"
    assert tenants.refused("GET", path, owner) == f"403 {NOT_COMPARED}"
    days = str(tenants.ok("GET", f"/activity/outcomes/export?timeRange=7d&format={form}", owner))
    for name in ("secret-session", developer.key.info.id, developer.member_id):
        assert name not in days
    tenants.ok("PUT", f"/orgs/{owner.organization_id}/outcome-settings", owner, {"comparePeople": True})
    for person in (owner, developer):
        assert "3" in str(tenants.ok("GET", path, person))


def test_no_report_of_everybody_names_a_person_or_session(tenants: Tenants) -> None:
    """Filters and other groups must not be a way around the comparison."""
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    report(tenants, developer, session="secret-session", commits=3)
    spend(tenants, developer, NANO, session="secret-session")
    for group in ("team", "project", "model", "repository"):
        answer = str(tenants.ok("GET", f"{REPORT}&groupBy={group}&projectId={developer.project_id}", owner))
        for name in ("secret-session", developer.key.info.id, developer.member_id, "developer@acme.example"):
            assert name not in answer, (group, name)
