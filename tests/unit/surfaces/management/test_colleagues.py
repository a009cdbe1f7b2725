"""Keys for colleagues, invitations with a team and limits, and each member's own budget."""

import re
from datetime import UTC, datetime

import pytest
from support.console import open_page, press_button
from support.management import Tenants

from gateway.accounts.keys import Draft
from gateway.clock import from_datetime
from gateway.limits.budgets import Limits


def test_an_owner_creates_a_key_for_a_developer_who_cannot_raise_its_limit(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    body = {"description": "For you", "projectId": owner.project_id, "usageLimit": "5"}
    body["memberId"] = tenants["acme developer"].member_id
    key = tenants.ok("POST", "/keys/api", owner, body)["apiKey"]
    assert key["createdBy"] == developer.user_id and key["token"].startswith("llmgtwy_")
    assert key["id"] in [one["id"] for one in tenants.ok("GET", "/keys/api", developer)["apiKeys"]]
    lowered = tenants.ok("PATCH", f"/keys/api/limit/{key['id']}", developer, {"usageLimit": "4"})["apiKey"]
    assert lowered["usageLimit"] == "4"
    raised = tenants.refused("PATCH", f"/keys/api/limit/{key['id']}", developer, {"usageLimit": "50"})
    assert raised == "403 limit_not_yours"


@pytest.mark.parametrize("author", ["acme admin", "operator"])
def test_the_expiry_of_a_new_key_binds_its_owner_unless_the_operator_gave_it(tenants: Tenants, author: str) -> None:
    developer = tenants["acme developer"]
    expiry = from_datetime(datetime(2070, 1, 1, tzinfo=UTC))
    draft = Draft(developer.project_id, developer.member_id, "Given", expires_at_us=expiry)
    actor = author if author == "operator" else tenants[author].user_id
    management = tenants.services.management
    path = f"/keys/api/{management.create_key(draft, Limits(10**9), actor=actor).info.id}"
    limit = path.replace("/api/", "/api/limit/")
    if author == "operator":
        tenants.ok("PATCH", path, developer, {"expiresAt": None})
        tenants.ok("PATCH", limit, developer, {"usageLimit": None})
    else:
        assert tenants.refused("PATCH", path, developer, {"expiresAt": None}) == "403 limit_not_yours"
        assert tenants.refused("PATCH", limit, developer, {"usageLimit": None}) == "403 limit_not_yours"


@pytest.mark.parametrize(("who", "whom"), [("acme developer", "acme owner"), ("acme admin", "acme owner")])
def test_nobody_creates_a_key_for_a_higher_role(tenants: Tenants, who: str, whom: str) -> None:
    body = {"description": "Spy", "projectId": tenants[who].project_id, "memberId": tenants[whom].member_id}
    assert tenants.refused("POST", "/keys/api", tenants[who], body).startswith("403")


def test_the_member_of_another_organization_gets_no_key(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    body = {"description": "Lost", "projectId": owner.project_id, "memberId": tenants["rival owner"].member_id}
    assert tenants.refused("POST", "/keys/api", owner, body).startswith("404")


def test_the_console_creates_a_key_for_a_colleague(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    member = tenants["acme developer"].member_id
    assert f'value="{member}" selected' in open_page(tenants, owner, f"/console/keys/new?member={member}")
    assert 'name="member"' not in open_page(tenants, developer, "/console/keys/new")
    fields = {"description": "Gift", "project": owner.project_id, "member": member}
    assert "is shown only now" in press_button(tenants, owner, "/console/keys/new", "create", **fields).text
    keys = tenants.ok("GET", "/keys/api", developer)["apiKeys"]
    assert "Gift" in [key["description"] for key in keys]


def test_an_invited_person_has_team_and_limit_from_the_first_request(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    place = f"/orgs/{owner.organization_id}"
    team = tenants.ok("POST", f"{place}/teams", owner, {"name": "Research"})["team"]
    limits = {"periodUsageLimit": "20", "periodUsageDurationValue": "1", "periodUsageDurationUnit": "month"}
    fields = {"email": "ada@new.example", "role": "developer", "team": team["id"], **limits}
    assert "ada@new.example" in press_button(tenants, owner, "/console/people", "invite", **fields).text
    [shown] = tenants.ok("GET", f"{place}/invitations", owner)["invitations"]
    assert (shown["teamName"], shown["periodUsageLimit"], shown["usageLimit"]) == ("Research", "20", None)
    body = {"email": "ada@new.example", "teamId": team["id"], "periodUsageLimit": "20"}
    body |= {"periodUsageDurationValue": 1, "periodUsageDurationUnit": "month"}
    token = tenants.ok("POST", f"{place}/invitations", owner, body)["invitation"]["token"]
    joined = {"token": token, "password": "correct horse battery staple", "name": "Ada"}
    tenants.ok("POST", "/auth/sign-up/email", "", joined)
    members = tenants.ok("GET", f"{place}/members", owner)["members"]
    [ada] = [member for member in members if member["email"] == "ada@new.example"]
    assert ada["periodUsageLimit"] == "20"
    assert ada["id"] in tenants.ok("GET", f"{place}/teams/{team['id']}", owner)["team"]["memberIds"]


def test_an_invitation_to_a_foreign_team_is_refused(tenants: Tenants) -> None:
    owner, rival = tenants["acme owner"], tenants["rival owner"]
    team = tenants.ok("POST", f"/orgs/{rival.organization_id}/teams", rival, {"name": "Theirs"})["team"]
    body = {"email": "ada@new.example", "teamId": team["id"]}
    assert tenants.refused("POST", f"/orgs/{owner.organization_id}/invitations", owner, body).startswith("404")


def test_a_developer_sees_their_own_budget(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    place = f"/orgs/{owner.organization_id}"
    assert "Your budget" not in open_page(tenants, developer, "/console")
    member = tenants["acme developer"].member_id
    tenants.ok("PATCH", f"{place}/members/{member}/limit", owner, {"usageLimit": "12.5"})
    own = tenants.ok("GET", f"{place}/membership", developer)["membership"]
    assert own["member"]["usageLimit"] == "12.5" and own["teams"] == []
    page = open_page(tenants, developer, "/console")
    assert "Your budget" in page and 'of <span title="$12.5">$12.50</span>' in page
    assert tenants.refused("GET", f"{place}/membership", tenants["rival owner"]).startswith("403")


def test_a_person_without_requests_sees_no_latency_of_others(tenants: Tenants) -> None:
    body = {"model": "sandbox/sandbox-echo", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    tenants.services.billing.ledger.grant(tenants["rival owner"].organization_id, 10**9, "latency")
    tenants.ok("POST", "/v1/chat/completions", tenants["rival owner"].key.token, body)
    tenants.services.store.journal.flush(60)
    assert "median of" in open_page(tenants, tenants["rival owner"], "/console")
    developer = tenants["acme developer"]
    assert "no streams" in open_page(tenants, developer, "/console")
    for path in ("/console/providers/sandbox", "/console/models/sandbox-echo"):
        page = open_page(tenants, developer, path)
        assert not re.search(r"\d ms|[0-9.]+ s<", page), path
