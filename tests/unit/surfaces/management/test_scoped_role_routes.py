"""Leads of teams and admins of projects: what they reach, and what stays out of their reach."""

import pytest
from support.management import PASSWORD, Person, Tenants

from gateway.accounts import members

HELLO = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
DENIED = "403 permission_denied"


class Parts:
    """A team of the developer with a lead, and a project with an admin; both are developers besides."""

    def __init__(self, tenants: Tenants) -> None:
        self.tenants = tenants
        self.owner = tenants["acme owner"]
        self.organization = f"/orgs/{self.owner.organization_id}"
        self.team = self.make_team("Search")
        self.add(self.team, tenants["acme developer"])
        self.lead = self.join("lead")
        self.admin = self.join("project-admin")
        self.project = f"/projects/{self.owner.project_id}"
        tenants.ok("PUT", f"{self.team}/leads/{self.lead.member_id}", self.owner)
        tenants.ok("PUT", f"{self.project}/admins/{self.admin.member_id}", self.owner)

    def join(self, name: str) -> Person:
        owner = self.owner
        return self.tenants.join(owner.organization_id, owner.project_id, f"{name}@acme.example", "developer")

    def make_team(self, name: str) -> str:
        teams = f"{self.organization}/teams"
        return f"{teams}/{self.tenants.ok('POST', teams, self.owner, {'name': name})['team']['id']}"

    def add(self, team: str, person: Person) -> None:
        self.tenants.ok("PUT", f"{team}/members/{person.member_id}", self.owner)


@pytest.fixture
def parts(tenants: Tenants) -> Parts:
    tenants.services.billing.ledger.grant(tenants["acme owner"].organization_id, 10**9, "parts")
    return Parts(tenants)


def test_a_lead_sees_and_limits_the_team_and_its_members(tenants: Tenants, parts: Parts) -> None:
    lead, developer = parts.lead, tenants["acme developer"]
    member = f"{parts.organization}/members/{developer.member_id}"
    listed = tenants.ok("GET", f"{parts.organization}/members", lead)["members"]
    assert [one["id"] for one in listed] == [developer.member_id]
    assert tenants.ok("GET", member, lead)["member"]["email"] == "developer@acme.example"
    tenants.ok("PATCH", f"{member}/limit", lead, {"usageLimit": "5"})
    tenants.ok("PATCH", f"{parts.team}/limit", lead, {"usageLimit": "50"})
    teams = tenants.ok("GET", f"{parts.organization}/teams", lead)["teams"]
    assert [team["name"] for team in teams] == ["Search"]


def test_a_lead_reaches_nothing_outside_of_the_team(tenants: Tenants, parts: Parts) -> None:
    lead, colleague = parts.lead, tenants["acme colleague"]
    other = parts.make_team("Other")
    member = f"{parts.organization}/members/{colleague.member_id}"
    for method, path, body in (
        ("GET", member, None),
        ("PATCH", f"{member}/limit", {"usageLimit": "5"}),
        ("PATCH", member, {"role": "viewer"}),
        ("GET", other, None),
        ("PATCH", f"{other}/limit", {"usageLimit": "5"}),
        ("PUT", f"{other}/members/{lead.member_id}", None),
        ("PATCH", parts.team, {"name": "Taken"}),
        ("DELETE", parts.team, None),
        ("PUT", f"{parts.team}/leads/{colleague.member_id}", None),
        ("GET", f"/keys/api/{tenants['acme developer'].key.info.id}", None),
    ):
        assert tenants.refused(method, path, lead, body) == DENIED, (method, path)


def test_a_lead_moves_only_members_without_further_rights(tenants: Tenants, parts: Parts) -> None:
    lead = parts.lead
    colleague = f"{parts.team}/members/{tenants['acme colleague'].member_id}"
    assert tenants.refused("PUT", colleague, lead) == DENIED
    assert tenants.refused("PATCH", parts.organization, lead, {"leadsAddMembers": True}) == DENIED
    changed = tenants.ok("PATCH", parts.organization, tenants["acme admin"], {"leadsAddMembers": True})
    assert changed["organization"]["leadsAddMembers"] is True
    tenants.ok("PUT", colleague, lead)
    tenants.ok("DELETE", f"{parts.team}/members/{tenants['acme developer'].member_id}", lead)
    for name in ("acme admin", "acme owner"):
        path = f"{parts.team}/members/{tenants[name].member_id}"
        assert tenants.refused("PUT", path, lead) == DENIED
        parts.add(parts.team, tenants[name])
        assert tenants.refused("DELETE", path, lead) == DENIED
        limit = f"{parts.organization}/members/{tenants[name].member_id}/limit"
        assert tenants.refused("PATCH", limit, lead, {"usageLimit": "1"}) == DENIED


def test_a_lead_limits_no_member_of_another_team_by_adding_them(tenants: Tenants, parts: Parts) -> None:
    colleague = tenants["acme colleague"].member_id
    limit = f"{parts.organization}/members/{colleague}/limit"
    other = parts.make_team("Other")
    tenants.ok("PATCH", parts.organization, parts.owner, {"leadsAddMembers": True})
    tenants.ok("PUT", f"{other}/members/{colleague}", parts.owner)
    tenants.ok("PUT", f"{parts.team}/members/{colleague}", parts.lead)
    assert tenants.refused("PATCH", limit, parts.lead, {"usageLimit": "0"}) == DENIED
    tenants.ok("PUT", f"{other}/leads/{parts.lead.member_id}", parts.owner)
    tenants.ok("PATCH", limit, parts.lead, {"usageLimit": "4"})


def test_a_lead_ends_nothing_that_a_higher_role_set_for_the_team(tenants: Tenants, parts: Parts) -> None:
    lead, admin = parts.lead, tenants["acme admin"]
    parts.add(parts.team, lead)
    people = [f"{parts.team}/members/{one.member_id}" for one in (tenants["acme developer"], lead)]

    def check(who: Person) -> None:
        for path in people:
            assert tenants.refused("DELETE", path, who) == "403 limit_not_yours", path

    tenants.ok("PATCH", f"{parts.team}/limit", admin, {"usageLimit": "5"})
    check(lead)
    tenants.ok("PATCH", f"{parts.team}/limit", parts.owner, {"usageLimit": "4"})
    check(admin)
    assert tenants.refused("DELETE", parts.team, admin) == "403 limit_not_yours"
    tenants.ok("PATCH", f"{parts.team}/limit", parts.owner, {"usageLimit": None})
    rule = {"ruleType": "deny_models", "ruleValue": {"models": ["sandbox-echo"]}, "scope": "team"}
    rule["scopeId"] = parts.team.rpartition("/")[2]
    rules = f"{parts.organization}/iam"
    added = tenants.ok("POST", rules, admin, rule)["rule"]["id"]
    check(lead)
    tenants.ok("DELETE", f"{rules}/{added}", admin)
    tenants.ok("PUT", f"{parts.team}/managed-settings", admin, {"settings": {"model": "sandbox-echo"}})
    check(lead)
    tenants.ok("DELETE", f"{parts.team}/managed-settings", admin)
    tenants.ok("PATCH", f"{parts.team}/limit", lead, {"usageLimit": "3"})
    for path in people:
        tenants.ok("DELETE", path, lead)


def test_a_lead_adds_nobody_who_could_leave_the_managed_settings_of_another_team(
    tenants: Tenants, parts: Parts
) -> None:
    other = parts.make_team("Other")
    member = f"members/{tenants['acme colleague'].member_id}"
    tenants.ok("PATCH", parts.organization, parts.owner, {"leadsAddMembers": True})
    tenants.ok("PUT", f"{other}/{member}", parts.owner)
    tenants.ok("PUT", f"{other}/managed-settings", parts.owner, {"settings": {"model": "sandbox-echo"}})
    assert tenants.refused("PUT", f"{parts.team}/{member}", parts.lead) == "403 limit_not_yours"
    tenants.ok("PUT", f"{parts.team}/{member}", tenants["acme admin"])


def test_a_lead_raises_no_limit_that_a_higher_role_set(tenants: Tenants, parts: Parts) -> None:
    tenants.ok("PATCH", f"{parts.team}/limit", tenants["acme admin"], {"usageLimit": "5"})
    path = f"{parts.team}/limit"
    assert tenants.refused("PATCH", path, parts.lead, {"usageLimit": "6"}) == "403 limit_not_yours"
    assert tenants.refused("PATCH", path, parts.lead, {"usageLimit": None}) == "403 limit_not_yours"
    tenants.ok("PATCH", path, parts.lead, {"usageLimit": "4"})


def test_usage_of_a_lead_and_of_a_project_admin(tenants: Tenants, parts: Parts) -> None:
    project = parts.owner.project_id
    for person in (tenants["acme developer"], tenants["acme colleague"], tenants["acme colleague"], parts.lead):
        tenants.ok("POST", "/v1/chat/completions", person.key.token, HELLO)
    tenants.services.store.journal.flush(60)

    def count(who: Person) -> int:
        steps = tenants.ok("GET", f"/activity?timeRange=1h&projectId={project}", who)["activity"]
        return sum(step["requestCount"] for step in steps)

    assert (count(parts.lead), count(parts.admin), count(tenants["acme developer"])) == (2, 4, 1)
    exported = tenants.ok("GET", f"/activity/export?timeRange=1h&projectId={project}", parts.lead)
    assert len(exported.splitlines()) == 1 + 2
    assert len(tenants.ok("GET", "/logs", parts.admin)["logs"]) == 0
    assert len(tenants.ok("GET", "/logs", parts.lead)["logs"]) == 1
    theirs = f"/activity?apiKeyId={tenants['acme colleague'].key.info.id}"
    assert tenants.refused("GET", theirs, parts.lead) == DENIED


def test_the_admin_of_a_project_changes_it_and_its_keys(tenants: Tenants, parts: Parts) -> None:
    admin, developer = parts.admin, tenants["acme developer"]
    key = f"/keys/api/{developer.key.info.id}"
    tenants.ok("PATCH", parts.project, admin, {"cachingEnabled": True})
    tenants.ok("PATCH", f"{parts.project}/rate-limits", admin, {"requestsPerMinute": 60})
    tenants.ok("PATCH", f"{parts.project}/session-budget", admin, {"sessionBudget": "1"})
    assert developer.key.info.id in {one["id"] for one in tenants.ok("GET", "/keys/api", admin)["apiKeys"]}
    tenants.ok("PATCH", key, admin, {"description": "Renamed"})
    tenants.ok("POST", f"{key}/roll", admin)
    body = {"description": "New", "projectId": parts.owner.project_id, "memberId": developer.member_id}
    tenants.ok("POST", "/keys/api", admin, body)
    tenants.ok("PUT", f"{parts.project}/admins/{developer.member_id}", admin)
    listed = tenants.ok("GET", f"{parts.project}/admins", developer)["admins"]
    assert [one["id"] for one in listed] == sorted([admin.member_id, developer.member_id])


def test_the_admin_of_a_project_gets_no_key_of_a_higher_role(tenants: Tenants, parts: Parts) -> None:
    project_id = parts.owner.project_id
    for name in ("acme owner", "acme admin"):
        person = tenants[name]
        assert tenants.refused("POST", f"/keys/api/{person.key.info.id}/roll", parts.admin) == DENIED
        body = {"description": "x", "projectId": project_id, "memberId": person.member_id}
        assert tenants.refused("POST", "/keys/api", parts.admin, body) == DENIED
        assert tenants.refused("PUT", f"{parts.project}/admins/{person.member_id}", parts.admin) == DENIED


CHANGES = (
    ("PATCH", "/keys/api/{key}", {"status": "inactive"}),
    ("PATCH", "/keys/api/{key}", {"description": "Renamed"}),
    ("DELETE", "/keys/api/{key}", None),
    ("POST", "/keys/api/{key}/roll", None),
    ("PATCH", "/keys/api/limit/{key}", {"usageLimit": "0"}),
    ("PATCH", "/keys/api/{key}/rate-limits", {"requestsPerMinute": 0}),
    ("PATCH", "/keys/api/{key}/session-budget", {"sessionBudget": "0"}),
    ("POST", "/keys/api/{key}/iam", {"ruleType": "deny_models", "ruleValue": {"models": ["sandbox-echo"]}}),
)


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_nobody_changes_the_key_of_a_higher_role(
    tenants: Tenants, parts: Parts, method: str, path: str, body: dict | None
) -> None:
    owner, admin = tenants["acme owner"], tenants["acme admin"]
    for who, whose in ((parts.admin, owner), (parts.admin, admin), (admin, owner)):
        assert tenants.refused(method, path.format(key=whose.key.info.id), who, body) == DENIED
    for who, whose in ((owner, admin), (admin, parts.admin)):
        tenants.ok(method, path.format(key=whose.key.info.id), who, body)


def test_the_admin_of_a_project_ends_no_keys_by_archiving_it(tenants: Tenants, parts: Parts) -> None:
    assert tenants.refused("DELETE", parts.project, parts.admin) == DENIED
    assert tenants.refused("PATCH", parts.project, parts.admin, {"status": "archived"}) == DENIED
    tenants.ok("DELETE", parts.project, tenants["acme admin"])


@pytest.mark.parametrize("scope", ["project", "key"])
def test_the_admin_of_a_project_relaxes_no_limit_of_a_higher_role(tenants: Tenants, parts: Parts, scope: str) -> None:
    path = parts.project if scope == "project" else f"/keys/api/{tenants['acme developer'].key.info.id}"
    rates, budget = f"{path}/rate-limits", f"{path}/session-budget"
    for where, name in ((rates, "requestsPerMinute"), (budget, "sessionBudget")):
        tenants.ok("PATCH", where, tenants["acme admin"], {name: 5 if where == rates else "5"})
        for value in (None, 6 if where == rates else "6"):
            assert tenants.refused("PATCH", where, parts.admin, {name: value}) == "403 limit_not_yours"
        for value in (4, 5):
            tenants.ok("PATCH", where, parts.admin, {name: value if where == rates else str(value)})
        tenants.ok("PATCH", where, parts.owner, {name: None})
        tenants.ok("PATCH", where, parts.admin, {name: 7 if where == rates else "7"})
        tenants.ok("PATCH", where, parts.admin, {name: None})


def test_the_admin_of_a_project_removes_no_access_rule_of_a_higher_role(tenants: Tenants, parts: Parts) -> None:
    rules = f"/keys/api/{tenants['acme developer'].key.info.id}/iam"
    body = {"ruleType": "deny_models", "ruleValue": {"models": ["sandbox-echo"]}}
    theirs = tenants.ok("POST", rules, tenants["acme admin"], body)["rule"]["id"]
    own = tenants.ok("POST", rules, parts.admin, body)["rule"]["id"]
    assert tenants.refused("DELETE", f"{rules}/{theirs}", parts.admin) == "403 limit_not_yours"
    assert tenants.refused("PATCH", f"{rules}/{theirs}", parts.admin, {"status": "inactive"}) == "403 limit_not_yours"
    tenants.ok("PATCH", f"{rules}/{own}", parts.admin, {"status": "inactive"})
    tenants.ok("DELETE", f"{rules}/{own}", parts.admin)
    tenants.ok("DELETE", f"{rules}/{theirs}", parts.owner)


def test_the_admin_of_a_project_reaches_no_other_project(tenants: Tenants, parts: Parts) -> None:
    owner = parts.owner
    body = {"organizationId": owner.organization_id, "name": "Second"}
    second = tenants.ok("POST", "/projects", owner, body)["project"]["id"]
    key = tenants.ok("POST", "/keys/api", owner, {"description": "x", "projectId": second})["apiKey"]["id"]
    for method, path, body in (
        ("PATCH", f"/projects/{second}", {"name": "Taken"}),
        ("DELETE", f"/projects/{second}", None),
        ("PUT", f"/projects/{second}/admins/{parts.admin.member_id}", None),
        ("GET", f"/keys/api/{key}", None),
        ("DELETE", f"/keys/api/{key}", None),
        ("POST", "/projects", {"organizationId": owner.organization_id, "name": "Third"}),
        ("GET", f"/activity/sources?projectId={second}", None),
    ):
        assert tenants.refused(method, path, parts.admin, body) == DENIED, (method, path)


def test_the_roles_end_at_once_and_do_not_come_back(tenants: Tenants, parts: Parts) -> None:
    owner, admin, lead = parts.owner, parts.admin, parts.lead
    tenants.ok("DELETE", f"{parts.project}/admins/{admin.member_id}", owner)
    assert tenants.refused("PATCH", parts.project, admin, {"cachingEnabled": True}) == DENIED
    member = f"{parts.organization}/members/{lead.member_id}"
    tenants.ok("DELETE", member, owner)
    invited = tenants.ok("POST", f"{parts.organization}/invitations", owner, {"email": "lead@acme.example"})
    tenants.ok("POST", "/auth/accept-invitation", tenants.open(lead.user_id), {"token": invited["invitation"]["token"]})
    found = members.find_in_organization(tenants.services.store.database, owner.organization_id, lead.member_id)
    assert found.status == "active"
    assert tenants.refused("GET", parts.team, tenants.open(lead.user_id)) == DENIED


def test_service_accounts_appoint_no_one(tenants: Tenants, parts: Parts) -> None:
    body = {"name": "Robot", "scopes": ["teams:write", "projects:write", "members:write"]}
    made = tenants.ok("POST", f"{parts.organization}/service-accounts", parts.owner, body)["serviceAccount"]
    member_id = tenants["acme colleague"].member_id
    for path in (f"{parts.team}/leads/{member_id}", f"{parts.project}/admins/{member_id}"):
        assert tenants.refused("PUT", path, made["token"]) == "403 scope_missing"


def test_only_an_owner_appoints_an_owner(tenants: Tenants, parts: Parts) -> None:
    for path in (f"{parts.team}/leads", f"{parts.project}/admins"):
        assert tenants.refused("PUT", f"{path}/{parts.owner.member_id}", tenants["acme admin"]) == DENIED
        tenants.ok("PUT", f"{path}/{parts.owner.member_id}", parts.owner)
        assert tenants.refused("DELETE", f"{path}/{parts.owner.member_id}", tenants["acme admin"]) == DENIED


def test_an_invitation_gives_roles_in_teams_and_projects(tenants: Tenants, parts: Parts) -> None:
    owner = parts.owner
    scopes = [parts.team.rpartition("/")[2], owner.project_id]
    body = {"email": "new@acme.example", "role": "viewer", "roleIn": scopes}
    invited = tenants.ok("POST", f"{parts.organization}/invitations", owner, body)["invitation"]
    assert invited["roleIn"] == scopes
    account = {"token": invited["token"], "password": PASSWORD, "name": "New"}
    tenants.ok("POST", "/auth/sign-up/email", "", account)
    [member] = [
        one for one in tenants.ok("GET", f"{parts.organization}/members", owner)["members"] if one["role"] == "viewer"
    ]
    person = tenants.open(member["userId"])
    assert tenants.ok("GET", parts.team, person)
    tenants.ok("PATCH", parts.project, person, {"cachingEnabled": True})


def test_an_invitation_names_only_parts_of_the_own_organization(tenants: Tenants, parts: Parts) -> None:
    path = f"{parts.organization}/invitations"
    body = {"email": "new@acme.example", "roleIn": [tenants["rival owner"].project_id]}
    assert tenants.refused("POST", path, parts.owner, body) == "404 not_found"
    account = {"name": "Robot", "scopes": ["members:write", "teams:write"]}
    made = tenants.ok("POST", f"{parts.organization}/service-accounts", parts.owner, account)["serviceAccount"]
    body = {"email": "new@acme.example", "roleIn": [parts.owner.project_id]}
    assert tenants.refused("POST", path, made["token"], body) == DENIED


def test_a_group_rule_gives_roles_in_teams_and_projects_and_takes_them(tenants: Tenants, parts: Parts) -> None:
    person = tenants["acme colleague"]
    grants = tenants.services.management.group_grants
    team_id = parts.team.rpartition("/")[2]
    rules = f"{parts.organization}/group-rules"
    body = {"group": "leads", "roleIn": [team_id, parts.owner.project_id], "source": "scim"}
    rule = tenants.ok("POST", rules, tenants["acme admin"], body)["groupRule"]
    assert rule["roleIn"] == body["roleIn"]
    assert tenants.refused("GET", parts.team, person) == DENIED
    grants.set_groups(parts.owner.organization_id, person.member_id, "scim", {"leads": True}, actor="test")
    assert tenants.ok("GET", parts.team, person)
    preview = tenants.ok("POST", f"{rules}/preview", parts.owner, {"group": "leads", "groupRuleId": rule["id"]})
    [changed] = preview["preview"]["people"]
    assert sorted(changed["roleInRemoved"]) == sorted(body["roleIn"])
    tenants.ok("PATCH", f"{rules}/{rule['id']}", parts.owner, {"roleIn": [team_id]})
    assert tenants.ok("GET", parts.team, person)
    assert tenants.refused("PATCH", parts.project, person, {"cachingEnabled": True}) == DENIED
    grants.set_groups(parts.owner.organization_id, person.member_id, "scim", {}, actor="test")
    assert tenants.refused("GET", parts.team, person) == DENIED


def test_a_group_rule_names_only_parts_of_the_own_organization(tenants: Tenants, parts: Parts) -> None:
    body = {"group": "leads", "roleIn": [tenants["rival owner"].project_id]}
    assert tenants.refused("POST", f"{parts.organization}/group-rules", parts.owner, body) == "404 not_found"


def test_a_role_that_a_person_gave_stays_when_a_rule_ends(tenants: Tenants, parts: Parts) -> None:
    grants = tenants.services.management.group_grants
    body = {"group": "leads", "roleIn": [parts.owner.project_id], "source": "scim"}
    tenants.ok("POST", f"{parts.organization}/group-rules", parts.owner, body)
    for groups in ({"leads": True}, {}):
        grants.set_groups(parts.owner.organization_id, parts.admin.member_id, "scim", groups, actor="test")
    tenants.ok("PATCH", parts.project, parts.admin, {"cachingEnabled": True})
