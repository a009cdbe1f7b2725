"""The roles viewer and billing: how a member gets them, what they may do, and what their keys may do."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.management import Person, Tenants

from gateway.accounts import members
from gateway.callers.permissions import ROLES

HELLO = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
def organization(tenants: Tenants) -> str:
    return f"/orgs/{tenants['acme owner'].organization_id}"


@pytest.fixture
def funded(tenants: Tenants) -> Iterator[Tenants]:
    tenants.services.billing.ledger.grant(tenants["acme owner"].organization_id, 10**9, "roles")
    yield tenants


def join(tenants: Tenants, role: Any) -> Person:
    """Return a new member with a key from the time as a developer, who has the role now."""
    owner = tenants["acme owner"]
    person = tenants.join(owner.organization_id, owner.project_id, f"{role}@acme.example", "developer")
    path = f"/orgs/{owner.organization_id}/members/{person.member_id}"
    assert tenants.ok("PATCH", path, owner, {"role": role})["member"]["role"] == role
    return person


def ask(tenants: Tenants, token: str) -> str:
    status, answer = tenants.call("POST", "/v1/chat/completions", token, HELLO)
    return "200" if status == 200 else f"{status} {answer['error']['code']}"


@pytest.mark.parametrize("role", ["viewer", "billing"])
def test_keys_are_refused_as_soon_as_the_owner_has_a_role_without_keys(funded: Tenants, role: str) -> None:
    owner = funded["acme owner"]
    person = funded.join(owner.organization_id, owner.project_id, "changing@acme.example", "developer")
    path = f"/orgs/{owner.organization_id}/members/{person.member_id}"
    assert ask(funded, person.key.token) == "200"
    funded.ok("PATCH", path, owner, {"role": role})
    assert ask(funded, person.key.token) == "403 role_without_keys"
    funded.ok("PATCH", path, owner, {"role": "developer"})
    assert ask(funded, person.key.token) == "200"


@pytest.mark.parametrize("role", ["viewer", "billing"])
def test_a_role_without_keys_gets_no_key_from_anyone(tenants: Tenants, role: str) -> None:
    owner = tenants["acme owner"]
    person = join(tenants, role)
    body = {"description": "x", "projectId": owner.project_id}
    assert tenants.refused("POST", "/keys/api", person, body) == "403 permission_denied"
    assert tenants.refused("POST", "/keys/api", owner, {**body, "memberId": person.member_id}) == (
        "403 role_without_keys"
    )


def test_a_viewer_sees_the_usage_of_the_whole_organization(funded: Tenants) -> None:
    viewer = join(funded, "viewer")
    developer = funded["acme developer"]
    assert ask(funded, developer.key.token) == "200"
    funded.services.store.journal.flush(60)
    path = f"/activity?timeRange=1h&projectId={developer.project_id}"
    seen = funded.ok("GET", path, viewer)["activity"]
    assert sum(step["requestCount"] for step in seen) == 1
    export = funded.ok("GET", "/activity/export?timeRange=1h", viewer)
    assert len(export.splitlines()) == 2
    assert funded.refused("GET", "/logs", viewer) == "403 permission_denied"
    assert funded.refused("GET", f"/logs/{'0' * 32}", viewer) == "403 permission_denied"


def test_billing_reads_money_and_sets_limits(tenants: Tenants, organization: str) -> None:
    billing = join(tenants, "billing")
    owner = tenants["acme owner"]
    developer = tenants["acme developer"]
    team = tenants.ok("POST", f"{organization}/teams", owner, {"name": "Search"})["team"]["id"]
    assert tenants.ok("GET", f"{organization}/credits", billing)["credits"]
    assert tenants.ok("GET", organization, billing)["organization"]["credits"] is not None
    assert tenants.ok("GET", f"{organization}/focus", billing)
    limit = {"usageLimit": "5"}
    for path in (f"{organization}/members/{developer.member_id}/limit", f"{organization}/teams/{team}/limit"):
        tenants.ok("PATCH", path, billing, limit)
    budget = f"/projects/{owner.project_id}/session-budget"
    tenants.ok("PATCH", budget, billing, {"sessionBudget": "1"})
    of_owner = f"{organization}/members/{owner.member_id}/limit"
    assert tenants.refused("PATCH", of_owner, billing, limit) == "403 permission_denied"
    of_key = f"/keys/api/limit/{developer.key.info.id}"
    assert tenants.refused("PATCH", of_key, billing, limit) == "403 permission_denied"
    assert tenants.refused("GET", "/keys/api", billing) == "403 permission_denied"


def test_billing_raises_no_limit_that_an_admin_set(tenants: Tenants, organization: str) -> None:
    billing = join(tenants, "billing")
    path = f"{organization}/members/{tenants['acme developer'].member_id}/limit"
    tenants.ok("PATCH", path, tenants["acme admin"], {"usageLimit": "5"})
    assert tenants.refused("PATCH", path, billing, {"usageLimit": "6"}) == "403 limit_not_yours"
    tenants.ok("PATCH", path, billing, {"usageLimit": "4"})


@pytest.mark.parametrize("role", ["viewer", "billing", "developer"])
def test_roles_without_authority_give_no_roles(tenants: Tenants, organization: str, role: str) -> None:
    person = tenants["acme developer"] if role == "developer" else join(tenants, role)
    for given in ROLES:
        body = {"email": "new@acme.example", "role": given}
        assert tenants.refused("POST", f"{organization}/invitations", person, body) == "403 permission_denied"
        path = f"{organization}/members/{tenants['acme colleague'].member_id}"
        assert tenants.refused("PATCH", path, person, {"role": given}) == "403 permission_denied"


def test_an_invitation_gives_the_roles_that_the_inviter_may_give(tenants: Tenants, organization: str) -> None:
    admin = tenants["acme admin"]
    for role in ("viewer", "billing"):
        body = {"email": f"{role}@acme.example", "role": role}
        assert tenants.ok("POST", f"{organization}/invitations", admin, body)["invitation"]["role"] == role
        [listed] = [
            one for one in tenants.ok("GET", f"{organization}/invitations", admin)["invitations"] if one["role"] == role
        ]
        assert listed["status"] == "pending"
    account = {"name": "Robot", "scopes": ["members:write"]}
    made = tenants.ok("POST", f"{organization}/service-accounts", tenants["acme owner"], account)["serviceAccount"]
    body = {"email": "v@acme.example", "role": "viewer"}
    assert tenants.refused("POST", f"{organization}/invitations", made["token"], body) == "403 permission_denied"


def test_the_last_owner_does_not_become_a_viewer(tenants: Tenants, organization: str) -> None:
    owner = tenants["acme owner"]
    for member in tenants.ok("GET", f"{organization}/members", owner)["members"]:
        if member["role"] == "owner" and member["id"] != owner.member_id:
            tenants.ok("PATCH", f"{organization}/members/{member['id']}", owner, {"role": "billing"})
    path = f"{organization}/members/{owner.member_id}"
    assert tenants.refused("PATCH", path, owner, {"role": "viewer"}) == "409 last_owner"
    found = members.find_in_organization(tenants.services.store.database, owner.organization_id, owner.member_id)
    assert found.role == "owner"
