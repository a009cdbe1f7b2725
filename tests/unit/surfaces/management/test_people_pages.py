"""The pages of people, teams and projects: managers act there as through the management API, and others may not."""

import re
from html import unescape

from support.console import open_page, press_button
from support.management import Tenants

HOSTILE = '"><script>alert(1)</script><img src=https://evil.example/x>'


def test_a_person_is_invited_and_the_invitation_revoked(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/console/people?organization={owner.organization_id}"
    made = press(shared_tenants, "acme owner", path, "invite", email="new@acme.example", role="admin")
    assert re.search(r'<pre id="link">http://localhost/console/invitation\?token=[^<]+</pre>', made)
    listed = open_page(shared_tenants, owner, path)
    assert "new@acme.example" in listed and 'id="link"' not in listed
    ident = re.findall(r'name="invitation" value="([^"]*)"', listed)[-1]
    revoked = press(shared_tenants, "acme owner", path, "revoke", invitation=ident)
    assert "The invitation was revoked" in revoked and "new@acme.example" not in revoked
    admin = press_button(
        shared_tenants, shared_tenants["acme admin"], path, "invite", email="x@y.example", role="owner"
    )
    assert admin.status_code == 403 and "Only an owner may make an owner" in admin.text


def test_an_invitation_gives_roles_in_teams_and_projects(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    organization = f"/orgs/{owner.organization_id}"
    team = shared_tenants.ok("POST", f"{organization}/teams", owner, {"name": "Search"})["team"]["id"]
    path = f"/console/people?organization={owner.organization_id}"
    assert f'name="in-{team}"' in open_page(shared_tenants, owner, path)
    assert '<option value="developer" selected>' in open_page(shared_tenants, owner, path)
    fields = {f"in-{team}": "on", f"in-{owner.project_id}": "on"}
    made = press(shared_tenants, "acme owner", path, "invite", email="lead@acme.example", role="developer", **fields)
    assert "lead of Search" in made and "admin of " in made
    invitations = shared_tenants.ok("GET", f"{organization}/invitations", owner)["invitations"]
    (invitation,) = [one for one in invitations if one["email"] == "lead@acme.example"]
    assert sorted(invitation["roleIn"]) == sorted((team, owner.project_id))
    colleague = shared_tenants["acme colleague"].member_id
    shared_tenants.ok("PUT", f"{organization}/teams/{team}/leads/{colleague}", owner)
    assert "lead of Search" in open_page(shared_tenants, owner, path)
    person = open_page(shared_tenants, owner, f"/console/people/{owner.organization_id}/{colleague}")
    assert "Role in teams and projects</dt><dd>lead of Search" in person
    refused = press_button(
        shared_tenants, owner, path, "invite", email="broken", role="developer", **{f"in-{team}": "on"}
    )
    assert refused.status_code == 400 and f'name="in-{team}" checked' in refused.text
    shared_tenants.ok("DELETE", f"{organization}/teams/{team}", owner)


def test_invitations_and_members_of_a_team_are_searched(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/console/people?organization={owner.organization_id}"
    for name in ("grace", "edsger"):
        press(shared_tenants, "acme owner", path, "invite", email=f"{name}@new.example", role="developer")
    found = open_page(shared_tenants, owner, f"{path}&q=grace")
    assert "grace@new.example" in found and "edsger@new.example" not in found
    press(shared_tenants, "acme owner", f"/console/teams?organization={owner.organization_id}", "create", name="Large")
    teams = shared_tenants.ok("GET", f"/orgs/{owner.organization_id}/teams", owner)["teams"]
    team = next(team["id"] for team in teams if team["name"] == "Large")
    place = f"/console/teams/{owner.organization_id}/{team}"
    for who in ("acme colleague", "acme developer"):
        press(shared_tenants, "acme owner", place, "join", member=shared_tenants[who].member_id)

    def listed(query: str) -> list[str]:
        page = open_page(shared_tenants, owner, f"{place}?{query}")
        return re.findall(r'aria-label="Remove (\w+)@acme.example"', page)

    assert listed("") == ["colleague", "developer"]
    assert listed("sort=-person") == ["developer", "colleague"]
    assert listed("q=colleague") == ["colleague"]


def test_a_member_gets_a_role_limits_a_team_and_rules(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    colleague = shared_tenants["acme colleague"]
    organization = owner.organization_id
    teams = f"/console/teams?organization={organization}"
    assert "was created" in press(shared_tenants, "acme owner", teams, "create", name=HOSTILE)
    listed = shared_tenants.client.get(teams, headers={"Cookie": f"llmgateway.session_token={owner.token}"}).text
    assert "<script>" not in listed and "<img src=https" not in listed and HOSTILE in unescape(listed)
    team = re.findall(rf"/console/teams/{organization}/(team_[0-9a-f]*)", listed)[0]
    path = f"/console/people/{organization}/{colleague.member_id}?tab=settings"
    assert "The member was added to the team" in press(shared_tenants, "acme owner", path, "join", team=team)
    period = {"periodUsageLimit": "3", "periodUsageDurationValue": "1", "periodUsageDurationUnit": "week"}
    limited = press(shared_tenants, "acme owner", path, "limits", usageLimit="", **period)
    assert "The limits were saved" in limited and "per week" in limited
    unlimited = press(shared_tenants, "acme owner", path, "limits", usageLimit="8", periodUsageLimit="")
    assert "of $8.00" in re.sub(r"<[^>]*>", "", unlimited) and "per week" not in unlimited
    ruled = press(shared_tenants, "acme owner", path, "add-rule", ruleType="deny_models", ruleValue="gpt-4o")
    assert "Refuse these models: <strong>gpt-4o</strong>" in ruled
    rule = re.findall(r'name="rule" value="([^"]*)"', ruled)[0]
    developer = shared_tenants["acme developer"].member_id
    for other in (f"people/{organization}/{developer}", f"teams/{organization}/{team}", "settings"):
        assert rule not in open_page(shared_tenants, owner, f"/console/{other}"), other
    assert press_button(shared_tenants, owner, path, "add-rule", ruleType="deny_all", ruleValue="x").status_code == 400
    press(shared_tenants, "acme owner", path, "remove-rule", rule=rule)
    place = f"/console/teams/{organization}/{team}"
    assert "colleague@acme.example" in open_page(shared_tenants, owner, place)
    assert "per month" in press(
        shared_tenants,
        "acme owner",
        f"{place}?tab=settings",
        "limits",
        periodUsageLimit="9",
        periodUsageDurationValue="1",
        periodUsageDurationUnit="month",
    )
    assert "removed" in press(shared_tenants, "acme owner", place, "leave", member=colleague.member_id)
    press(shared_tenants, "acme owner", path, "join", team=team)
    assert "removed from the team" in press(shared_tenants, "acme owner", path, "leave", team=team)
    assert "<h1>Search</h1>" in press(shared_tenants, "acme owner", place, "rename", name="Search")
    assert "The team was deleted" in press(shared_tenants, "acme owner", place, "delete")
    changed = press(shared_tenants, "acme owner", path, "role", role="admin")
    assert "The role is now admin" in changed
    press(shared_tenants, "acme owner", path, "role", role="developer")
    assert '<span class="badge ">inactive</span>' in press(
        shared_tenants, "acme owner", path.partition("?")[0], "deactivate"
    )
    assert "The member is active" in press(shared_tenants, "acme owner", path, "activate")


def test_the_settings_of_a_project_are_saved(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    place = f"/console/projects?organization={owner.organization_id}"
    created = press(shared_tenants, "acme owner", place, "create", name="Chat")
    project_path = re.findall(r'href="http://localhost(/console/projects/proj_[0-9a-f]*)">Chat<', created)[0]
    path = f"{project_path}?tab=settings"
    settings = {"mode": "hybrid", "routing": "price", "retention": "retain", "cacheMarkers": "disabled"}
    fields = {**settings, "name": "Chats", "cachingEnabled": "on", "cacheDurationSeconds": "90", "retentionDays": "7"}
    fields["hedging"] = "on"
    saved = press(shared_tenants, "acme owner", path, "save", **fields)
    assert "<h1>Chats</h1>" in saved
    project = shared_tenants.ok("GET", project_path.replace("/console", ""), owner)["project"]
    assert {name: project[name] for name in settings} == settings
    assert (project["cachingEnabled"], project["cacheDurationSeconds"], project["retentionDays"]) == (True, 90, 7)
    assert project["hedging"] is True
    listed = open_page(shared_tenants, owner, place)
    assert "Own keys first" in listed and "Cheapest first" in listed
    refused = press_button(shared_tenants, owner, path, "save", **{**fields, "retentionDays": "soon"})
    assert refused.status_code == 400 and "must be a whole number" in refused.text
    limits = {"requestsPerMinute": "120", "tokensPerMinute": "90000", "concurrentRequests": "4"}
    rates = press(shared_tenants, "acme owner", path, "rates", **limits)
    assert all(f"limit in force: {limit}" in rates.replace(",", "") for limit in limits.values())
    secret = press(shared_tenants, "acme owner", path, "roll-secret")
    assert "The new callback secret is whsec_" in secret
    assert "The callback secret is whsec_" in press(shared_tenants, "acme owner", path, "secret")
    assert "archived" in press(shared_tenants, "acme owner", path, "archive")
    assert ">Chats<" in open_page(shared_tenants, owner, place)
    assert "active again" in press(shared_tenants, "acme owner", path, "restore")


def test_developers_and_other_organizations_see_and_change_nothing(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    organization = owner.organization_id
    member = f"/console/people/{organization}/{owner.member_id}"
    lists = [f"/console/{name}?organization={organization}" for name in ("people", "teams", "projects")]
    for who in ("acme developer", "rival owner"):
        for path in (*lists, member, f"/console/projects/{owner.project_id}"):
            open_page(shared_tenants, shared_tenants[who], path, 403)
        refused = press_button(shared_tenants, shared_tenants[who], member, "deactivate")
        assert refused.status_code == 403
    open_page(shared_tenants, shared_tenants["acme developer"], "/console/people", 403)
    navigation = open_page(shared_tenants, shared_tenants["acme developer"], "/console")
    assert "/console/people" not in navigation and "/console/keys" in navigation


def press(tenants: Tenants, who: str, path: str, action: str, **fields: str) -> str:
    answer = press_button(tenants, tenants[who], path, action, **fields)
    assert answer.status_code == 200, answer.text
    return unescape(answer.text)
