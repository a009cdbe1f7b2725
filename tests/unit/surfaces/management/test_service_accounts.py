"""Service accounts: their tokens, scopes, expiry, address rules and audit, and what they can never do."""

from collections.abc import Callable
from typing import Any

import pytest
from support.management import Person, Tenants

from gateway.accounts.organizations import set_organization_status
from gateway.callers.models import ServiceAccount, User
from gateway.surfaces.management.access_groups import SCOPES

ALL = list(SCOPES)


def path_of(person: Person, account_id: str = "") -> str:
    path = f"/orgs/{person.organization_id}/service-accounts"
    if account_id:
        return f"{path}/{account_id}"
    return path


def create(tenants: Tenants, scopes: list[str], who: str = "acme owner", **more: Any) -> dict[str, Any]:
    person = tenants[who]
    body = {"name": "Automation", "scopes": scopes, **more}
    account: dict[str, Any] = tenants.ok("POST", path_of(person), person, body)["serviceAccount"]
    return account


def row_of(tenants: Tenants, account: dict[str, Any]) -> ServiceAccount:
    row: ServiceAccount = tenants.services.store.database.read(lambda: ServiceAccount.get_by_id(account["id"]))
    return row


def test_a_token_is_shown_once_and_stored_as_a_hash(tenants: Tenants) -> None:
    account = create(tenants, ["keys:read"])
    assert account["token"].startswith("llmgsa_") and account["maskedToken"].startswith("llmgsa_")
    row = row_of(tenants, account)
    assert account["token"] not in str(row.__data__)
    listed = tenants.ok("GET", path_of(tenants["acme admin"]), tenants["acme admin"])["serviceAccounts"]
    assert [one["id"] for one in listed] == [account["id"]] and "token" not in listed[0]


def test_only_owners_and_admins_manage_service_accounts(tenants: Tenants) -> None:
    body = {"name": "x", "scopes": ["keys:read"]}
    account = create(tenants, ["keys:read"], who="acme admin")
    developer = tenants["acme developer"]
    rival = tenants["rival owner"]
    for person in (developer, rival):
        place = path_of(tenants["acme owner"])
        assert tenants.refused("POST", place, person, body) == "403 permission_denied"
        assert tenants.refused("GET", f"{place}/{account['id']}", person) == "403 permission_denied"
    assert tenants.refused("GET", path_of(rival, account["id"]), rival) == "404 not_found"
    assert tenants.refused("DELETE", path_of(rival, account["id"]), rival) == "404 not_found"


def test_a_scope_opens_its_operations_and_no_others(tenants: Tenants) -> None:
    token = create(tenants, ["projects:read"])["token"]
    organization = tenants["acme owner"].organization_id
    project = tenants["acme owner"].project_id
    assert tenants.ok("GET", f"/orgs/{organization}/projects", token)["projects"]
    assert tenants.ok("GET", f"/projects/{project}", token)["project"]["id"] == project
    for method, path, body in (
        ("PATCH", f"/projects/{project}", {"name": "x"}),
        ("GET", "/activity", None),
        ("GET", f"/orgs/{organization}/audit", None),
        ("GET", "/keys/api", None),
    ):
        assert tenants.refused(method, path, token, body) == "403 scope_missing"


def test_an_account_works_in_its_own_organization_only(tenants: Tenants) -> None:
    token = create(tenants, ALL)["token"]
    rival = tenants["rival owner"]
    assert tenants.refused("GET", f"/orgs/{rival.organization_id}/projects", token) == "403 permission_denied"
    assert tenants.refused("GET", f"/keys/api/{rival.key.info.id}", token) == "403 permission_denied"
    assert tenants.refused("GET", f"/projects/{rival.project_id}", token) == "403 permission_denied"
    assert len(tenants.ok("GET", "/orgs", token)["organizations"]) == 1


def test_reports_are_read_with_usage_and_log_scopes(tenants: Tenants) -> None:
    token = create(tenants, [scope for scope in SCOPES if scope.endswith(":read")])["token"]
    assert tenants.ok("GET", "/activity", token) == {"activity": []}
    assert "logs" in tenants.ok("GET", "/logs", token)
    assert tenants.call("GET", "/activity/export?timeRange=7d", token)[0] == 200
    assert tenants.ok("GET", f"/orgs/{tenants['acme owner'].organization_id}/audit", token)


def test_created_keys_call_models_and_belong_to_the_account(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    account = create(tenants, ["keys:write", "keys:read"])
    body = {"description": "CI", "projectId": owner.project_id}
    key = tenants.ok("POST", "/keys/api", account["token"], body)["apiKey"]
    assert key["createdBy"] == account["id"] and key["creator"]["name"] == "Automation"
    assert tenants.call("GET", "/v1/models", key["token"])[0] == 200
    tenants.ok("PATCH", path_of(owner, account["id"]), owner, {"status": "inactive"})
    assert tenants.services.accounts.authentication.caller(key["token"]).role == "developer"
    tenants.ok("DELETE", path_of(owner, account["id"]), owner)
    assert tenants.ok("GET", f"/keys/api/{key['id']}", owner)["apiKey"]["status"] == "inactive"
    chat = {"model": "sandbox-echo", "messages": []}
    assert tenants.call("POST", "/v1/chat/completions", key["token"], chat)[0] == 401


@pytest.mark.parametrize("end", ["roll", "inactive", "delete", "expire"])
def test_ended_tokens_are_refused_at_once(tenants: Tenants, end: str) -> None:
    owner = tenants["acme owner"]
    account = create(tenants, ["keys:read"])
    tenants.ok("GET", "/keys/api", account["token"])
    place = path_of(owner, account["id"])
    if end == "roll":
        fresh = tenants.ok("POST", f"{place}/roll", owner)["serviceAccount"]["token"]
        tenants.ok("GET", "/keys/api", fresh)
    elif end == "inactive":
        tenants.ok("PATCH", place, owner, {"status": "inactive"})
    elif end == "delete":
        tenants.ok("DELETE", place, owner)
    else:
        database = tenants.services.store.database
        database.write(ServiceAccount.update(expires_at=1).execute)
        tenants.ok("PATCH", place, owner, {"name": "Renamed"})
    for path in ("/keys/api", "/auth/get-session"):
        assert tenants.refused("GET", path, account["token"]) == "401 token_invalid"


def test_the_token_of_a_blocked_organization_is_gone(tenants: Tenants) -> None:
    account = create(tenants, ["keys:read"])
    store = tenants.services.store
    organization_id = tenants["acme owner"].organization_id
    set_organization_status(store.database, store.control, organization_id, "blocked", actor="operator")
    for path in ("/keys/api", "/auth/get-session"):
        assert tenants.refused("GET", path, account["token"]) == "410 organization_blocked"


def test_changed_scopes_are_in_force_when_the_change_returns(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    account = create(tenants, ["keys:read"])
    tenants.ok("GET", "/keys/api", account["token"])
    tenants.ok("PATCH", path_of(owner, account["id"]), owner, {"scopes": ["teams:read"]})
    assert tenants.refused("GET", "/keys/api", account["token"]) == "403 scope_missing"
    tenants.ok("GET", f"/orgs/{owner.organization_id}/teams", account["token"])


def test_address_rules_of_account_and_organization_apply(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    far = create(tenants, ["keys:read"], ipCidrs=["203.0.113.0/24"])
    assert [rule["ruleType"] for rule in far["iamRules"]] == ["allow_ip_cidrs"]
    for path in ("/keys/api", "/auth/get-session"):
        assert tenants.refused("GET", path, far["token"]) == "403 permission_denied"
    near = create(tenants, ["keys:read"], ipCidrs=["127.0.0.1"])
    tenants.ok("GET", "/keys/api", near["token"])
    rule = {"ruleType": "deny_ip_cidrs", "ruleValue": {"ipCidrs": ["127.0.0.0/8"]}}
    excluded = create(tenants, ["keys:read"])
    place = {"scope": "service_account", "scopeId": excluded["id"]}
    tenants.ok("POST", f"/orgs/{owner.organization_id}/iam", owner, {**place, **rule})
    assert tenants.refused("GET", "/keys/api", excluded["token"]) == "403 permission_denied"
    place = {"scope": "organization", "scopeId": owner.organization_id}
    tenants.ok("POST", f"/orgs/{owner.organization_id}/iam", owner, {**place, **rule})
    assert tenants.refused("GET", "/keys/api", near["token"]) == "403 permission_denied"
    models = {"ruleType": "deny_models", "ruleValue": {"models": ["auto"]}}
    place = {"scope": "service_account", "scopeId": near["id"]}
    assert tenants.refused("POST", f"/orgs/{owner.organization_id}/iam", owner, {**place, **models}).startswith("400")


def test_accounts_do_not_change_their_own_address_rules(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    account = create(tenants, ALL, ipCidrs=["127.0.0.1"])
    place = f"/orgs/{owner.organization_id}/iam"
    rule_id = account["iamRules"][0]["id"]
    new = {
        "scope": "service_account",
        "scopeId": account["id"],
        "ruleType": "allow_ip_cidrs",
        "ruleValue": {"ipCidrs": ["0.0.0.0/0"]},
    }
    assert tenants.refused("POST", place, account["token"], new) == "403 permission_denied"
    change = {"status": "inactive"}
    assert tenants.refused("PATCH", f"{place}/{rule_id}", account["token"], change) == "403 permission_denied"
    assert tenants.refused("DELETE", f"{place}/{rule_id}", account["token"]) == "403 permission_denied"
    tenants.ok("DELETE", f"{place}/{rule_id}", owner)


def test_no_account_gives_more_than_it_has(tenants: Tenants) -> None:
    """Even an account with all scopes creates no accounts, owners or admins, and gets no token of theirs."""
    owner = tenants["acme owner"]
    admin = tenants["acme admin"]
    developer = tenants["acme developer"]
    account = create(tenants, ALL)
    token = account["token"]
    organization = f"/orgs/{owner.organization_id}"
    body = {"name": "x", "scopes": ["keys:read"]}
    for method, path, content in (
        ("POST", path_of(owner), body),
        ("PATCH", path_of(owner, account["id"]), {"scopes": ALL, "name": "y"}),
        ("POST", f"{path_of(owner, account['id'])}/roll", None),
        ("DELETE", path_of(owner, account["id"]), None),
        ("POST", "/orgs", {"name": "Own"}),
        ("GET", "/user/me", None),
        ("GET", "/auth/sessions", None),
        ("POST", "/auth/sign-out-everywhere", None),
        ("POST", f"{organization}/credits", {"amount": "5"}),
        ("PUT", "/discounts", {"fraction": "1"}),
    ):
        assert tenants.refused(method, path, token, content) == "403 scope_missing", path
    invitations = f"{organization}/invitations"
    for role in ("owner", "admin"):
        invited = {"email": "x@example.com", "role": role}
        assert tenants.refused("POST", invitations, token, invited) == "403 permission_denied"
        change = {"role": role}
        member = f"{organization}/members/{developer.member_id}"
        assert tenants.refused("PATCH", member, token, change) == "403 permission_denied"
    for person in (owner, admin):
        member = f"{organization}/members/{person.member_id}"
        assert tenants.refused("PATCH", member, token, {"status": "inactive"}) == "403 permission_denied"
        assert tenants.refused("POST", f"/keys/api/{person.key.info.id}/roll", token) == "403 permission_denied"
    tenants.ok("POST", f"/keys/api/{developer.key.info.id}/roll", token)


def test_an_account_invites_developers_while_it_manages_members(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    account = create(tenants, ["members:read", "members:write"])
    place = f"/orgs/{owner.organization_id}/invitations"
    tenants.ok("POST", place, account["token"], {"email": "new@example.com"})
    assert len(tenants.ok("GET", place, account["token"])["invitations"]) == 1
    tenants.ok("PATCH", path_of(owner, account["id"]), owner, {"scopes": ["keys:read"]})
    assert tenants.ok("GET", place, owner)["invitations"] == []


def test_accounts_are_no_members_that_people_manage(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    account = create(tenants, ["keys:read"])
    row = row_of(tenants, account)
    members = f"/orgs/{owner.organization_id}/members"
    assert row.member_id not in str(tenants.ok("GET", members, owner))
    change = {"role": "owner"}
    assert tenants.refused("PATCH", f"{members}/{row.member_id}", owner, change) == "404 not_found"
    database = tenants.services.store.database
    assert database.read(lambda: User.get_by_id(account["id"])).password_hash == ""


def test_changes_name_the_account_as_their_actor(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    account = create(tenants, ["teams:write", "audit:read"])
    tenants.ok("POST", f"/orgs/{owner.organization_id}/teams", account["token"], {"name": "Robots"})
    entries = tenants.ok("GET", f"/orgs/{owner.organization_id}/audit", account["token"])["entries"]
    assert (entries[0]["action"], entries[0]["actor"]) == ("team.create", account["id"])
    created = next(entry for entry in entries if entry["action"] == "service_account.create")
    assert created["actor"] == owner.user_id and account["token"] not in str(entries)


def test_the_last_use_is_recorded(tenants: Tenants) -> None:
    account = create(tenants, ["service_accounts:read"])
    assert account["lastUsedAt"] is None
    place = path_of(tenants["acme owner"], account["id"])
    tenants.ok("GET", place, account["token"])
    assert tenants.ok("GET", place, account["token"])["serviceAccount"]["lastUsedAt"]


def test_tokens_are_refused_where_other_credentials_belong(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    token = create(tenants, ALL)["token"]
    chat = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    status, answer = tenants.call("POST", "/v1/chat/completions", token, chat)
    assert status == 401 and "service account" in answer["error"]["message"]
    assert tenants.call("POST", "/mcp", token, {"jsonrpc": "2.0", "id": 1, "method": "ping"})[0] == 401
    page = tenants.client.get("/console/keys", headers={"Cookie": f"llmgateway.session_token={token}"})
    assert page.status_code in (302, 303) and "/console/login" in page.headers["Location"]
    by_cookie = {"Cookie": f"llmgateway.session_token={token}", "Origin": "http://localhost"}
    assert tenants.client.get("/keys/api", headers=by_cookie).status_code == 401
    assert tenants.refused("GET", "/keys/api", owner.key.token) == "401 session_invalid"


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x"},
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["everything"]},
        {"name": "", "scopes": ["keys:read"]},
        {"name": "x", "scopes": ["keys:read"], "ipCidrs": ["nonsense"]},
        {"name": "x", "scopes": ["keys:read"], "expiresAt": "2020-01-01T00:00:00Z"},
    ],
)
def test_invalid_accounts_are_refused(shared_tenants: Tenants, body: dict[str, Any]) -> None:
    owner = shared_tenants["acme owner"]
    assert shared_tenants.refused("POST", path_of(owner), owner, body).startswith("400")


CREATIONS: dict[str, tuple[str, Callable[[Person], dict[str, Any]], str, str]] = {
    "key": ("/keys/api", lambda p: {"description": "CI", "projectId": p.project_id}, "description", "apiKey"),
    "project": ("/projects", lambda p: {"organizationId": p.organization_id, "name": "CI"}, "name", "project"),
    "team": ("/orgs/{organization}/teams", lambda p: {"name": "CI"}, "name", "team"),
    "provider_key": (
        "/keys/provider",
        lambda p: {"organizationId": p.organization_id, "provider": "openai", "token": "sk-secret-1"},
        "token",
        "providerKey",
    ),
    "service_account": (
        "/orgs/{organization}/service-accounts",
        lambda p: {"name": "CI", "scopes": ["keys:read"]},
        "name",
        "serviceAccount",
    ),
}


@pytest.mark.parametrize("kind", CREATIONS)
def test_a_repeated_creation_answers_the_existing_object(tenants: Tenants, kind: str) -> None:
    path, make_body, member, inside = CREATIONS[kind]
    owner = tenants["acme owner"]
    path = path.replace("{organization}", owner.organization_id)
    body = {**make_body(owner), "clientId": "terraform-1"}
    first = tenants.ok("POST", path, owner, body)[inside]
    status, again = tenants.call("POST", path, owner, body)
    assert (status, again[inside]["id"]) == (200, first["id"])
    assert again[inside].get("token") is None
    other = {**body, member: "other"}
    assert tenants.refused("POST", path, owner, other) == "409 client_id_conflict"
    second = tenants.ok("POST", path, owner, {**other, "clientId": "terraform-2"})[inside]
    assert second["id"] != first["id"]
    assert "sk-secret-1" not in str(again)


def test_the_chosen_id_of_a_deleted_object_is_free_again(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    teams = f"/orgs/{owner.organization_id}/teams"
    body = {"name": "CI", "clientId": "one"}
    first = tenants.ok("POST", teams, owner, body)["team"]["id"]
    tenants.ok("DELETE", f"{teams}/{first}", owner)
    status, answer = tenants.call("POST", teams, owner, {"name": "Other", "clientId": "one"})
    assert status == 201 and answer["team"]["id"] != first
    assert tenants.call("POST", teams, owner, {"name": "Other", "clientId": "one"})[0] == 200


def test_chosen_ids_of_organizations_are_independent(tenants: Tenants) -> None:
    answers = []
    for who in ("acme owner", "rival owner"):
        person = tenants[who]
        path = f"/orgs/{person.organization_id}/teams"
        answers.append(tenants.call("POST", path, person, {"name": "CI", "clientId": "one"}))
    assert [status for status, _ in answers] == [201, 201]
    assert answers[0][1]["team"]["id"] != answers[1][1]["team"]["id"]


def test_a_chosen_id_shows_no_key_of_another_developer(tenants: Tenants) -> None:
    developer = tenants["acme developer"]
    body = {"description": "CI", "projectId": developer.project_id, "clientId": "one"}
    tenants.ok("POST", "/keys/api", developer, body)
    assert tenants.refused("POST", "/keys/api", tenants["acme colleague"], body) == "403 permission_denied"
