"""`members`, `teams`, admins of projects and `usage shares` against a gateway."""

import re

import pytest
from harness.accounts import Account
from harness.client_runs import Client

from gateway.accounts.member_attributes import write_attributes


@pytest.fixture
def email(account: Account) -> str:
    account.colleague("ada")
    return f"ada-{account.organization_id}@example.com"


def member_of(account: Account, email: str) -> dict:
    listed = account("GET", f"/orgs/{account.organization_id}/members")["members"]
    return next(member for member in listed if member["email"] == email)


def test_members_are_listed_with_role_and_department(client: Client, account: Account, email: str) -> None:
    member_id = member_of(account, email)["id"]
    database = account.gateway.services.store.database
    stated = {"department": "Research", "costCenter": "4711"}
    database.write(lambda: write_attributes(member_id, stated, actor="test", now=database.now_us()))
    listed = client.document("members", "list")
    assert listed == account("GET", f"/orgs/{account.organization_id}/members")["members"]
    text = client.run("members", "list", "-o", account.organization_id).stdout
    assert re.search(rf"{email} +developer +active +Research, 4711", text)
    assert client.document("members", "show", email.upper())["attributes"] == {
        "costCenter": "4711",
        "department": "Research",
    }
    assert "costCenter" in client.run("members", "show", member_id).stdout
    assert "no member 'nobody'" in client.refused("members", "show", "nobody")
    account.use_model()
    assert (
        client.document("usage", "shares", "--by", "costcenter")
        == account("GET", "/activity/shares?groupBy=costCenter&timeRange=7d")["shares"]
    )
    assert client.document("usage", "outcomes", "--by", "team") == account(
        "GET", "/activity/outcomes?groupBy=team&timeRange=7d"
    )
    assert client.document("usage", "outcomes", "--by", "repository", "-r", "30d")["total"]["commits"] == 0
    assert client.document("usage", "savings") == account("GET", "/activity/savings?timeRange=7d")
    shown = client.run("usage", "savings", "-p", account.project_id, "-r", "30d")
    assert account.project_id in shown.stdout and "Nothing was saved." in shown.stderr
    assert "Total" in client.run("usage", "outcomes", "--mine", "-p", account.project_id).stdout
    assert "(not stated)" in client.run("usage", "shares", "--by", "department", "-r", "24h").stdout
    assert "DEPARTMENT" in client.run("usage", "shares", "--by", "department", "-p", account.project_id).stdout


def test_a_role_is_changed_and_roles_are_explained(client: Client, account: Account, email: str) -> None:
    assert f"{email} has the role admin now." in client.run("members", "role", email, "admin").stderr
    assert member_of(account, email)["role"] == "admin"
    assert client.document("members", "role", email, "viewer")["role"] == "viewer"
    assert "no role 'lead'" in client.refused("members", "role", email, "lead")
    assert {one["role"] for one in client.document("members", "roles")} >= {"viewer", "billing", "lead"}
    assert "set spending limits" in client.run("members", "roles").stdout
    client.run("members", "deactivate", email, "--yes")
    assert member_of(account, email)["status"] == "inactive"
    assert client.document("members", "activate", email)["status"] == "active"


def test_teams_have_members_leads_and_limits(client: Client, account: Account, email: str) -> None:
    team = account("POST", f"/orgs/{account.organization_id}/teams", {"name": "Search"})["team"]["id"]
    assert [one["id"] for one in client.document("teams", "list")] == [team]
    client.run("teams", "add", "search", email)
    assert f"{email} is a lead of the team Search." in client.run("teams", "add-lead", "Search", email).stderr
    assert [lead["email"] for lead in client.document("teams", "leads", team)] == [email]
    assert email in client.run("teams", "leads", "Search").stdout
    assert "lead of Search" in client.run("members", "show", email).stdout
    client.run("teams", "remove-lead", "Search", email)
    assert client.document("teams", "leads", team) == []
    assert client.document("teams", "limit", "Search", "--period-limit", "50")["periodUsageDurationUnit"] == "month"
    assert "$50.00 per month" in client.run("teams", "list").stdout
    client.run("teams", "limit", "Search", "--clear")
    client.run("teams", "remove", "Search", email)
    (listed,) = client.document("teams", "list")
    assert listed["memberIds"] == [] and listed["periodUsageLimit"] is None
    assert "no team 'ads'" in client.refused("teams", "leads", "ads")


def test_a_member_gets_limits(client: Client, account: Account, email: str) -> None:
    shown = client.document("members", "limit", email, "-l", "20", "--period-limit", "5", "--period", "1d")
    assert (shown["usageLimit"], shown["periodUsageDurationUnit"]) == (member_of(account, email)["usageLimit"], "day")
    assert "$5.00 per day" in client.run("members", "show", email).stdout
    assert "nothing to set" in client.refused("members", "limit", email)


def test_an_invitation_gives_team_roles_and_limits(client: Client, account: Account) -> None:
    organization = f"/orgs/{account.organization_id}"
    team = account("POST", f"{organization}/teams", {"name": "Search"})["team"]["id"]
    project = account("GET", f"{organization}/projects")["projects"][0]["name"]
    options = ("--team", "Search", "--lead", "search", "--project-admin", project, "-l", "25")
    link = client.run("members", "invite", "grace@example.com", *options).stdout.strip()
    assert link.startswith("http") and "token=" in link
    (invitation,) = account("GET", f"{organization}/invitations")["invitations"]
    assert (invitation["teamId"], sorted(invitation["roleIn"])) == (team, sorted((team, account.project_id)))
    assert (invitation["role"], float(invitation["usageLimit"])) == ("developer", 25)
    made = client.document("members", "invite", "alan@example.com", "--role", "billing")
    assert made["role"] == "billing" and made["token"]


def test_projects_have_admins(client: Client, account: Account, email: str) -> None:
    client.run("projects", "add-admin", account.project_id, email)
    assert [admin["email"] for admin in client.document("projects", "admins", account.project_id)] == [email]
    assert f"admin of project {account.project_id}" in client.run("members", "show", email).stdout
    assert email in client.run("projects", "admins", account.project_id).stdout
    client.run("projects", "remove-admin", account.project_id, email)
    assert client.document("projects", "admins", account.project_id) == []
