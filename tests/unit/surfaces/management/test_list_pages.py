"""Long lists of the management API have pages; without parameters they answer everything."""

from collections.abc import Iterator
from typing import Any, get_origin

import pytest
from support.issuers import Issuer, make_key
from support.management import Person, Tenants
from support.management_bodies import allow, begin_batch, store_file

from gateway.accounts import members
from gateway.surfaces.management.managed_operation import Action, ListPageQuery, ManagedOperation
from gateway.surfaces.management.table import OPERATIONS

COUNT = 5
ORG = "/orgs/<organization_id>"
LEADS = f"{ORG}/teams/<team_id>/leads"
ADMINS = "/projects/<project_id>/admins"
LISTS: dict[str, Action[Any]] = {
    row.path: row.action
    for row in OPERATIONS
    if isinstance(row, ManagedOperation) and row.action is not None and row.method == "GET"
    if get_origin(row.action.view.__annotations__["return"]) is list or row.path == "/keys/api"
}
PAGED = {path for path, action in LISTS.items() if action.query and issubclass(action.query, ListPageQuery)}
OF_OPERATORS = {"/installation/organizations"}  # the owner in this test is no operator
# Lists that stay short or have another way to be read in parts.
SHORT = {
    "/activity/latency": "models of a period",
    "/activity/shares": "has limit",
    "/activity/sources": "apps of a period",
    "/auth/identities": "identity providers of a person",
    "/discounts": "set by operators",
    "/keys/api/<key_id>/iam": "at most 100 at one place",
    "/rate-limits": "in the memory of every worker",
    f"{ORG}/alerts": "a few webhooks",
    f"{ORG}/credits/history": "has limit and before",
    f"{ORG}/custom-providers": "a few providers",
    f"{ORG}/discounts": "set by operators",
    f"{ORG}/group-rules": "groups of identity providers",
    f"{ORG}/identity-providers": "a few providers",
    f"{ORG}/limits/<limit_id>/requests": "at most 200 in an organization",
    f"{ORG}/routes/<route_name>/versions": "at most 50 of a route",
    f"{ORG}/routes/savings": "rules and models of the routes of a period",
    f"{ORG}/scim/tokens": "one for each identity provider",
    f"{ORG}/shares": "at most 100 of a person",
    f"{ORG}/skills": "published by hand",
    f"{ORG}/view-subscriptions": "at most 50 of a person",
    f"{ORG}/views": "at most 50 of a person",
}
ISSUER = Issuer("https://issuer.example", make_key("one"))


@pytest.fixture(scope="module")
def tenants(module_tenants: Tenants) -> Tenants:
    return module_tenants


def test_each_list_has_pages_or_a_reason_to_stay_short() -> None:
    assert PAGED | SHORT.keys() == LISTS.keys() and not PAGED & SHORT.keys()


def resolve(tenants: Tenants, path: str) -> str:
    """Return the address of a list of the owner of acme."""
    owner = tenants["acme owner"]
    if path == LEADS:
        team = tenants.ok("POST", f"/orgs/{owner.organization_id}/teams", owner, {"name": "Led"})["team"]
        path = path.replace("<team_id>", team["id"])
    for name, value in (
        ("organization_id", owner.organization_id),
        ("project_id", owner.project_id),
        ("key_id", owner.key.info.id),
    ):
        path = path.replace(f"<{name}>", value)
    return path


def add(tenants: Tenants, path: str, place: str, number: int) -> None:
    """Add an object to a list of the owner of acme; `place` is its address."""
    owner = tenants["acme owner"]
    org = owner.organization_id
    services = tenants.services
    store = services.store
    identity = {"audience": "gateway", "claims": {"sub": f"repo:{number}"}, "jwks": ISSUER.key_set()}
    rule = {"ruleType": "deny_models", "ruleValue": {"models": [f"model-{number}"]}}
    bodies: dict[str, dict[str, Any]] = {
        "/keys/api": {"description": f"key {number}", "projectId": owner.project_id},
        "/keys/provider": {"provider": "openai", "token": f"sk-{number:040d}", "organizationId": org},
        f"{ORG}/guardrails": {"name": f"guardrail {number}", "action": "block", "detectors": ["secrets"]},
        f"{ORG}/iam": {"scope": "organization", "scopeId": org, **rule},
        f"{ORG}/invitations": {"email": f"invited{number}@acme.example"},
        f"{ORG}/projects": {"organizationId": org, "name": f"project {number}"},
        f"{ORG}/service-accounts": {"name": f"account {number}", "scopes": ["keys:read"]},
        f"{ORG}/teams": {"name": f"team {number}"},
        f"{ORG}/workload-identities": {
            **{"name": f"identity {number}", "projectId": owner.project_id, "issuer": ISSUER.url},
            **identity,
        },
    }
    if path in bodies:
        tenants.ok("POST", "/projects" if path == f"{ORG}/projects" else place, owner, bodies[path])
    elif path in (LEADS, ADMINS):
        member = members.add_member(store.database, store.control, org, f"{path[1]}{number}@acme.example", actor="test")
        tenants.ok("PUT", f"{place}/{member.id}", owner)
    elif path == f"{ORG}/members":
        members.add_member(store.database, store.control, org, f"person{number}@acme.example", actor="test")
    elif path == f"{ORG}/limits":
        tenants.ok("PUT", f"{place}/limit-{number}", owner, {"subjects": ["organization"], "amount": "5"})
    elif path == f"{ORG}/routes":
        tenants.ok("PUT", f"{place}/route-{number}", owner, {"document": {"otherwise": "gpt-4o"}})
    elif path in ("/projects/<project_id>/batches", "/projects/<project_id>/jobs"):
        begin_batch(tenants, owner)
    elif path == "/projects/<project_id>/files":
        store_file(tenants, owner)
    elif path == "/auth/sessions":
        services.management.sessions.open(owner.user_id)
    elif path == "/orgs":
        services.management.create_organization(f"organization {number}", owner.user_id, "owner@acme.example")
    else:
        allow(tenants, owner)


def read_pages(tenants: Tenants, path: str, member: str, limit: int) -> Iterator[list[str]]:
    cursor = ""
    while cursor is not None:
        query = f"limit={limit}" + (f"&cursor={cursor}" if cursor else "")
        answer = tenants.ok("GET", f"{path}?{query}", tenants["acme owner"])
        yield [item["id"] for item in answer[member]]
        cursor = answer["next"]


@pytest.mark.parametrize("row", sorted(PAGED - OF_OPERATORS))
def test_the_pages_of_a_list_are_the_whole_list(tenants: Tenants, row: str) -> None:
    owner = tenants["acme owner"]
    path = resolve(tenants, row)
    for number in range(COUNT):
        add(tenants, row, path, number)
    whole = tenants.ok("GET", path, owner)
    assert "next" not in whole
    member = LISTS[row].inside or "apiKeys"
    expected = [item["id"] for item in whole[member]]
    assert len(expected) >= COUNT
    for limit in (1, 2, len(expected) - 1, len(expected), 1000):
        pages = list(read_pages(tenants, path, member, limit))
        assert [ident for page in pages for ident in page] == expected, limit
        assert all(len(page) == limit for page in pages[:-1]) and pages[-1]
    assert tenants.refused("GET", f"{path}?limit=1001", owner).startswith("400")
    assert tenants.refused("GET", f"{path}?limit=0", owner).startswith("400")


def test_a_walk_goes_on_where_the_last_entry_of_a_page_was_deleted(tenants: Tenants) -> None:
    owner = tenants["rival owner"]
    body = {"description": "CI", "projectId": owner.project_id}
    ids = [tenants.ok("POST", "/keys/api", owner, body)["apiKey"]["id"] for _ in range(4)]
    query = f"/keys/api?filter=mine&projectId={owner.project_id}&limit=3"
    first = tenants.ok("GET", query, owner)
    assert first["next"] == first["apiKeys"][-1]["id"]
    tenants.ok("DELETE", f"/keys/api/{first['next']}", owner)
    second = tenants.ok("GET", f"{query}&cursor={first['next']}", owner)
    seen = [key["id"] for key in (*first["apiKeys"], *second["apiKeys"])]
    assert seen[-4:] == ids and len(set(seen)) == len(seen) and second["next"] is None


def test_a_page_of_keys_shows_what_the_visitor_may_see(tenants: Tenants) -> None:
    developer, colleague, owner = (tenants[f"acme {role}"] for role in ("developer", "colleague", "owner"))

    def owners_of(who: Person, query: str) -> set[str]:
        return {key["createdBy"] for key in tenants.ok("GET", f"/keys/api?limit=100{query}", who)["apiKeys"]}

    of_colleague = f"&memberId={colleague.member_id}"
    assert owners_of(developer, "") == {developer.user_id}
    assert owners_of(developer, of_colleague) == set()
    assert tenants.refused("GET", f"/keys/api?limit=1{of_colleague}", tenants["rival owner"]).startswith("404")
    assert owners_of(owner, of_colleague) == {colleague.user_id}


def test_the_whole_list_of_keys_has_one_organization_after_the_other(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    management = tenants.services.management
    second = management.create_organization("second", owner.user_id, "owner@acme.example")
    [project] = tenants.ok("GET", f"/orgs/{second.id}/projects", owner)["projects"]
    for place in (project["id"], owner.project_id):
        tenants.ok("POST", "/keys/api", owner, {"description": "CI", "projectId": place})
    whole = [key["projectId"] for key in tenants.ok("GET", "/keys/api", owner)["apiKeys"]]
    assert whole[-1] == project["id"] and whole[-2] == owner.project_id
    paged = tenants.ok("GET", "/keys/api?limit=1000", owner)["apiKeys"]
    assert [key["id"] for key in paged] == sorted(key["id"] for key in paged) and len(paged) == len(whole)


def test_the_page_of_a_person_shows_the_keys_of_that_person(tenants: Tenants) -> None:
    owner, colleague = tenants["acme owner"], tenants["acme colleague"]
    browser = tenants.gateway.app.flask.test_client()
    browser.set_cookie("llmgateway.session_token", owner.token)
    page = browser.get(f"/console/people/{owner.organization_id}/{colleague.member_id}").text
    assert colleague.key.info.id in page and owner.key.info.id not in page


@pytest.mark.parametrize("sort", ["", "?sort=spent", "?sort=-lastUsedAt", "?sort=description&q=developer"])
def test_the_list_of_keys_of_the_console_has_the_keys_with_their_spending(tenants: Tenants, sort: str) -> None:
    rival = tenants["rival owner"]
    browser = tenants.gateway.app.flask.test_client()
    browser.set_cookie("llmgateway.session_token", rival.token)
    page = browser.get(f"/console/keys{sort}").text
    assert tenants["rival developer"].key.info.id in page and "$0.00" in page
    assert tenants["acme developer"].key.info.id not in page


def test_one_member_is_found_without_the_others(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/members"
    other = tenants["acme colleague"].member_id
    real = members.list_members

    def of_one(*args: Any, **more: Any) -> Any:
        assert more.get("user_id"), "all members of an organization were read"
        return real(*args, **more)

    monkeypatch.setattr(members, "list_members", of_one)
    assert tenants.ok("GET", f"{path}/{other}", owner)["member"]["id"] == other
    assert tenants.ok("PATCH", f"{path}/{other}", owner, {"status": "active"})["member"]["id"] == other
    foreign = tenants["rival colleague"].member_id
    assert tenants.refused("GET", f"{path}/{foreign}", owner).startswith("404")
    assert tenants.refused("PATCH", f"{path}/{foreign}", owner, {"status": "active"}).startswith("404")
