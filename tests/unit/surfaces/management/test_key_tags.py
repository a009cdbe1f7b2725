"""Tags of API keys: requests have them, no request sets others, and limits count by them."""

import pytest
from support.console import open_page, press_button
from support.management import Tenants

BODY = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}


def chat(tenants: Tenants, who, **headers: str) -> tuple[int, dict]:
    return tenants.call("POST", "/v1/chat/completions", who.key.token, BODY, **headers)


@pytest.fixture
def owner(tenants: Tenants):
    found = tenants["acme owner"]
    tenants.services.billing.ledger.grant(found.organization_id, 10**9, "grant")
    return found


def test_a_limit_counts_by_the_tag_of_the_key_and_no_request_sets_another(tenants: Tenants, owner) -> None:
    developer = tenants["acme developer"]
    limit = f"/orgs/{owner.organization_id}/limits/search"
    tenants.ok("PUT", limit, owner, {"subjects": ["tag:team=search"], "amount": "0", "values": "credential"})
    assert chat(tenants, developer, **{"X-LLMGateway-Team": "search"})[0] == 200  # the caller cannot choose the tag
    path = f"/keys/api/{developer.key.info.id}/tags"
    set_one = tenants.ok("PUT", path, owner, {"tags": {"team": "search"}})["keyTags"]
    assert set_one == tenants.ok("GET", path, developer)["keyTags"]
    assert set_one["tags"] == {"team": "search"}
    for headers in ({}, {"X-LLMGateway-Team": "ads"}):
        status, answer = chat(tenants, developer, **headers)
        assert status == 402 and "search" in str(answer)
    tenants.ok("PUT", limit, owner, {"subjects": ["tag:team=search"], "amount": "0"})
    assert chat(tenants, developer, **{"X-LLMGateway-Team": "ads"})[0] == 402
    tenants.ok("PUT", path, owner, {"tags": {}})
    assert chat(tenants, developer, **{"X-LLMGateway-Team": "ads"})[0] == 200


def test_requests_are_recorded_with_the_tags_of_the_key(tenants: Tenants, owner) -> None:
    path = f"/keys/api/{owner.key.info.id}/tags"
    tenants.ok("PUT", path, owner, {"tags": {"team": "search"}})
    tenants.ok("POST", "/v1/chat/completions", owner.key.token, BODY, **{"X-LLMGateway-Feature": "f1"})
    [entry] = tenants.ok("GET", f"/logs?projectId={owner.project_id}", owner)["logs"][:1]
    assert entry["metadata"] == {"team": "search", "feature": "f1"}


def test_the_owner_of_a_key_and_a_lower_role_do_not_change_its_tags(tenants: Tenants, owner) -> None:
    developer, admin = tenants["acme developer"], tenants["acme admin"]
    path = f"/keys/api/{developer.key.info.id}/tags"
    body = {"tags": {"team": "search"}}
    assert tenants.call("PUT", path, developer, body)[0] == 403
    tenants.ok("PUT", path, admin, body)
    tenants.ok("PUT", path, owner, {"tags": {"team": "ads"}})
    status, answer = tenants.call("PUT", path, admin, body)
    assert status == 403 and "limit_not_yours" in str(answer)
    page = f"/console/keys/{developer.key.info.id}"
    assert "team=ads" in open_page(tenants, developer, page + "?tab=settings")
    assert "were saved" in press_button(tenants, owner, page, "tags", tags="Team=search, product=help").text
    assert tenants.ok("GET", path, owner)["keyTags"]["tags"] == {"team": "search", "product": "help"}
    actions = [one["action"] for one in tenants.ok("GET", f"/orgs/{owner.organization_id}/audit", owner)["entries"]]
    assert actions[:3] == ["api_key.update_tags"] * 3


@pytest.mark.parametrize(
    "tags",
    [{"Team": "x"}, {"team": ""}, {"team": "x" * 65}, {"team": 5}, {"": "x"}, {f"t{n}": "x" for n in range(9)}],
    ids=["capitals", "empty", "long", "number", "nameless", "many"],
)
def test_wrong_tags_are_refused(tags, tenants: Tenants, owner) -> None:
    path = f"/keys/api/{owner.key.info.id}/tags"
    assert tenants.call("PUT", path, owner, {"tags": tags})[0] == 400
    assert tenants.ok("GET", path, owner)["keyTags"]["tags"] == {}
