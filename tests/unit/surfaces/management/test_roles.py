import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.management import Person
from support.management_bodies import BODIES, VARIABLE, furnish

from gateway.surfaces.management.table import OPERATIONS

SESSION_ONLY = [one for one in OPERATIONS if one.about.access == "session"]
# These name a place in their path or body; the others speak of the visitor's own things.
PLACED = [one for one in SESSION_ONLY if "<" in one.path]
PEOPLE = ("owner", "admin", "developer", "colleague")
# Callers who do not run the installation are refused before anything is looked up.
OPERATORS_ONLY = (
    "POST /orgs/<organization_id>/credits",
    "PATCH /orgs/<organization_id>/credits",
    "DELETE /discounts/<discount_id>",
    "DELETE /rate-limits/<scope>/<path:subject>",
    "PATCH /orgs/<organization_id>/key-caps",
    "GET /installation/organizations/<organization_id>",
    "PATCH /installation/organizations/<organization_id>",
)


@pytest.fixture(scope="module")
def furniture(module_tenants) -> dict[str, dict[str, str]]:
    """Ids of one thing of each kind, in each organization."""
    return {name: furnish(module_tenants, name) for name in ("acme", "rival")}


def send(tenants, operation, ids: dict[str, str], target, who) -> tuple[int, object]:
    """The operation on the things of `ids`, sent by `who`."""
    ids = {**ids, "key_id": ids["provider_key"]} if operation.path.startswith("/keys/provider") else ids
    path = VARIABLE.sub(lambda found: ids[found[1]], operation.path)
    schema = operation.about.request
    return tenants.call(operation.method, path, who, BODIES[schema.__name__](target) if schema else None)


@pytest.mark.parametrize("operation", PLACED, ids=lambda one: f"{one.method} {one.path}")
def test_nothing_of_another_organization_is_reached_by_any_route(shared_tenants, furniture, operation) -> None:
    for role in PEOPLE:
        status, answer = send(
            shared_tenants, operation, furniture["acme"], shared_tenants["acme owner"], shared_tenants[f"rival {role}"]
        )
        assert status in (403, 404), (role, status, answer)


@pytest.mark.parametrize("path, body", [("/keys/api", "NewKey"), ("/projects", "NewProject"),
                                        ("/keys/provider", "NewProviderKey")])  # fmt: skip
def test_nothing_is_made_in_another_organization(shared_tenants, path, body) -> None:
    for role in PEOPLE:
        given = BODIES[body](shared_tenants["acme owner"])
        assert shared_tenants.refused("POST", path, shared_tenants[f"rival {role}"], given) == "403 permission_denied"


@pytest.mark.parametrize(
    "query",
    ["/keys/api?projectId=", "/activity?projectId=", "/activity/sources?projectId=", "/activity/latency?projectId="],
)
def test_no_report_of_another_project_is_read(shared_tenants, query) -> None:
    path = query + shared_tenants["acme owner"].project_id
    for role in PEOPLE:
        assert shared_tenants.refused("GET", path, shared_tenants[f"rival {role}"]) == "403 permission_denied"


@pytest.mark.parametrize(
    "operation",
    [one for one in PLACED if f"{one.method} {one.path}" not in OPERATORS_ONLY],
    ids=lambda one: f"{one.method} {one.path}",
)
def test_things_that_do_not_exist_are_a_404(shared_tenants, furniture, operation) -> None:
    unknown = {name: ident[:-6] + "000000" for name, ident in furniture["acme"].items()}
    status, answer = send(
        shared_tenants, operation, unknown, shared_tenants["acme owner"], shared_tenants["acme owner"]
    )
    assert status == 404, answer


@pytest.mark.parametrize("operation", SESSION_ONLY, ids=lambda one: f"{one.method} {one.path}")
def test_no_route_works_without_a_session_or_with_an_api_key(shared_tenants, furniture, operation) -> None:
    owner = shared_tenants["acme owner"]
    for who in ("", owner.key.token, "llmgses_" + "x" * 40):
        status, answer = send(shared_tenants, operation, furniture["acme"], owner, who)
        assert (status, answer["code"]) == (401, "session_invalid")


@pytest.mark.slow
@settings(
    max_examples=2 * settings().max_examples, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    owner=st.sampled_from(PEOPLE),
    route=st.sampled_from([one for one in PLACED if one.path.startswith("/keys/api")]),
    query=st.sampled_from(["/keys/api", "/keys/api?filter=all", "/keys/api?projectId={}", "/activity?groupBy=apiKey"]),
)
def test_no_developer_sees_or_changes_anothers_key(shared_tenants, furniture, owner, route, query) -> None:
    dev, other = shared_tenants["acme developer"], shared_tenants[f"acme {owner}"]
    listed = shared_tenants.ok("GET", query.format(dev.project_id), dev)
    if other is not dev:
        ids = {**furniture["acme"], "key_id": other.key.info.id}
        status, answer = send(shared_tenants, route, ids, other, dev)
        assert status == 403 and other.key.info.description not in str(answer)
        assert other.key.info.id not in str(listed)


def test_a_developers_activity_is_that_of_their_own_keys(shared_tenants) -> None:
    dev, other = shared_tenants["acme developer"], shared_tenants["acme colleague"]
    path = f"/activity?apiKeyId={other.key.info.id}"
    assert shared_tenants.refused("GET", path, dev) == "403 permission_denied"
    assert shared_tenants.ok("GET", f"/activity?apiKeyId={dev.key.info.id}", dev)
    path = f"/activity/sources?projectId={dev.project_id}"
    assert shared_tenants.refused("GET", path, dev) == "403 permission_denied"


def test_a_developers_latency_is_that_of_their_own_calls(shared_tenants) -> None:
    dev, other = shared_tenants["acme developer"], shared_tenants["acme colleague"]
    shared_tenants.services.billing.ledger.grant(dev.organization_id, 10**9, "latency of a developer")
    path = f"/activity/latency?projectId={dev.project_id}&timeRange=1h"
    body = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}

    def count(who: Person) -> int:
        shared_tenants.services.store.journal.flush(60)
        rows = shared_tenants.ok("GET", path, who)["latency"]
        assert all(row["durationMs"]["p50"] <= row["durationMs"]["p95"] for row in rows)
        return sum(row["calls"] for row in rows if (row["provider"], row["model"]) == ("sandbox", "sandbox-echo"))

    before = [count(who) for who in (dev, other, shared_tenants["acme owner"])]
    shared_tenants.ok("POST", "/v1/chat/completions", dev.key.token, body)
    after = [count(who) for who in (dev, other, shared_tenants["acme owner"])]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 0, 1]


def test_a_removed_member_is_out_at_once_with_session_and_key(tenants) -> None:
    owner, dev = tenants["acme owner"], tenants["acme developer"]
    tenants.ok("DELETE", f"/orgs/{dev.organization_id}/members/{dev.member_id}", owner)
    assert tenants.refused("GET", f"/orgs/{dev.organization_id}", dev) == "403 permission_denied"
    assert tenants.call("GET", "/v1/key", dev.key.token)[0] == 401
    assert tenants.ok("GET", "/keys/api", dev) == {"apiKeys": [], "userRole": "developer"}
    # No list says of the key that it works.
    (listed,) = [key for key in tenants.ok("GET", "/keys/api", owner)["apiKeys"] if key["createdBy"] == dev.user_id]
    assert (listed["status"], listed["state"], listed["ownerActive"]) == ("inactive", "active", False)
    page = tenants.client.get("/console/keys", headers={"Cookie": f"llmgateway.session_token={owner.token}"}).text
    row = next(row for row in page.split("<tr>") if dev.key.info.description in row)
    assert "owner inactive" in row and ">active<" not in row.lower()


def test_only_owners_make_and_change_owners(tenants) -> None:
    owner, admin, dev = tenants["acme owner"], tenants["acme admin"], tenants["acme developer"]
    members = f"/orgs/{owner.organization_id}/members"
    assert tenants.refused("PATCH", f"{members}/{owner.member_id}", admin, {"role": "developer"}).startswith("403")
    assert tenants.refused("PATCH", f"{members}/{dev.member_id}", admin, {"role": "owner"}).startswith("403")
    assert tenants.refused("PATCH", f"{members}/{admin.member_id}", admin, {"role": "owner"}).startswith("403")
    invitation = {"email": "x@example.com", "role": "owner"}
    assert tenants.refused("POST", f"/orgs/{owner.organization_id}/invitations", admin, invitation).startswith("403")
    assert tenants.ok("PATCH", f"{members}/{admin.member_id}", owner, {"role": "owner"})["member"]["role"] == "owner"


def test_only_owners_connect_the_provider_that_says_who_becomes_an_owner(tenants) -> None:
    owner, admin = tenants["acme owner"], tenants["acme admin"]
    providers = f"/orgs/{owner.organization_id}/identity-providers"
    draft = BODIES["NewProvider"](owner)
    provider = tenants.ok("POST", providers, admin, draft)["identityProvider"]["id"]
    rule = {"group": "founders", "role": "owner", "source": "scim"}
    assert tenants.refused("POST", f"/orgs/{owner.organization_id}/group-rules", admin, rule).startswith("403")
    tenants.ok("POST", f"/orgs/{owner.organization_id}/group-rules", owner, rule)
    change = {"issuer": "https://own.example", "groupsClaim": "groups"}
    assert tenants.refused("POST", providers, admin, draft) == "403 permission_denied"
    assert tenants.refused("PATCH", f"{providers}/{provider}", admin, change) == "403 permission_denied"
    tenants.ok("PATCH", f"{providers}/{provider}", owner, change)


def test_a_project_key_reads_its_own_account_only(tenants) -> None:
    root = tenants.open_operator()
    acme = tenants["acme owner"]
    tenants.ok("POST", f"/orgs/{acme.organization_id}/credits", root, {"amount": "5"})
    own = tenants.ok("GET", "/v1/key", tenants["rival developer"].key.token)
    assert own["data"]["label"] == "Key of developer@rival.example"
    credits = tenants.ok("GET", "/v1/credits", tenants["rival developer"].key.token)
    assert credits == {"balance": "0", "unlimited": False, "total_used": "0", "totalUsed": "0"}
