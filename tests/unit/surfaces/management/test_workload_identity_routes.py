"""Workload identities through the management API: creation with a key, changes, checks of tokens, and who may do it."""

import time
from typing import Any

import pytest
from support.issuers import Issuer, make_key
from support.management import Person, Tenants

KEY = make_key("one")
ISSUER = Issuer("https://issuer.example", KEY)


def path_of(person: Person, identity_id: str = "") -> str:
    path = f"/orgs/{person.organization_id}/workload-identities"
    if identity_id:
        return f"{path}/{identity_id}"
    return path


def body_of(person: Person, **more: Any) -> dict[str, Any]:
    return {
        "name": "Deployments",
        "projectId": person.project_id,
        "issuer": ISSUER.url,
        "audience": "llm-gateway",
        "claims": {"sub": "repo:acme/*"},
        "attribution": {"user": "actor"},
        "jwks": ISSUER.key_set(),
        **more,
    }


def create(tenants: Tenants, who: str = "acme owner", **more: Any) -> dict[str, Any]:
    person = tenants[who]
    answer: dict[str, Any] = tenants.ok("POST", path_of(person), person, body_of(person, **more))["workloadIdentity"]
    return answer


def token_of(**more: Any) -> str:
    claims = {"aud": "llm-gateway", "sub": "repo:acme/app", "exp": int(time.time()) + 600, "actor": "ada"}
    return ISSUER.sign({**claims, **more})


def test_an_identity_is_created_with_a_limited_key(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    identity = create(tenants, usageLimit="5")
    assert identity["projectId"] == owner.project_id and identity["key"]["usageLimit"] == "5"
    assert "token" not in identity["key"] and identity["key"]["createdBy"] == identity["id"]
    assert tenants.ok("GET", path_of(owner), owner)["workloadIdentities"] == [identity]
    assert tenants.call("GET", "/v1/models", token_of())[0] == 200
    keys = tenants.ok("GET", "/keys/api", owner)["apiKeys"]
    assert identity["apiKeyId"] in {key["id"] for key in keys}


def test_changes_and_deletion_are_in_force_at_once(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    place = path_of(owner, create(tenants)["id"])
    assert tenants.call("GET", "/v1/models", token_of())[0] == 200
    tenants.ok("PATCH", place, owner, {"claims": {"sub": "repo:acme/other"}})
    assert tenants.call("POST", "/v1/chat/completions", token_of(), {})[0] == 401
    tenants.ok("PATCH", place, owner, {"claims": {"sub": ["repo:acme/app"]}, "status": "active"})
    assert tenants.call("POST", "/v1/chat/completions", token_of(), {})[0] == 400
    tenants.ok("DELETE", place, owner)
    assert tenants.call("POST", "/v1/chat/completions", token_of(), {})[0] == 401
    assert tenants.refused("GET", place, owner) == "404 not_found"


def test_a_check_explains_the_decision(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    identity = create(tenants)
    place = f"{path_of(owner)}/check"
    accepted = tenants.ok("POST", place, owner, {"token": token_of()})
    assert (accepted["accepted"], accepted["identityId"]) == (True, identity["id"])
    assert accepted["metadata"] == {"user": "ada"} and accepted["expiresAt"]
    refused = tenants.ok("POST", place, owner, {"token": token_of(sub="repo:rival/app")})
    assert not refused["accepted"] and "claims" in refused["reason"]
    rival = tenants["rival owner"]
    assert not tenants.ok("POST", f"{path_of(rival)}/check", rival, {"token": token_of()})["accepted"]
    assert not tenants.ok("POST", place, owner, {"token": owner.key.token})["accepted"]


def test_only_owners_admins_and_their_automation_manage_identities(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    assert tenants.refused("POST", path_of(owner), tenants["acme developer"], body_of(owner)) == "403 permission_denied"
    assert tenants.refused("GET", path_of(owner), tenants["rival owner"]) == "403 permission_denied"
    rival = tenants["rival owner"]
    foreign = body_of(owner)
    assert tenants.refused("POST", path_of(rival), rival, foreign) == "404 not_found"
    identity = create(tenants, who="acme admin")
    assert tenants.refused("DELETE", path_of(rival, identity["id"]), rival) == "404 not_found"
    assert tenants.refused("POST", path_of(rival), rival, body_of(rival)) == "409 audience_taken"


def test_a_repeated_creation_answers_the_existing_identity(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    body = body_of(owner, clientId="ci")
    first = tenants.ok("POST", path_of(owner), owner, body)["workloadIdentity"]
    status, again = tenants.call("POST", path_of(owner), owner, body)
    assert (status, again["workloadIdentity"]["id"]) == (200, first["id"])
    changed = {**body, "claims": {"sub": "x"}}
    assert tenants.refused("POST", path_of(owner), owner, changed) == "409 client_id_conflict"


@pytest.mark.parametrize(
    "more",
    [
        {"claims": {}},
        {"claims": {"sub": "*"}},
        {"issuer": "https://issuer.example?x=1"},
        {"issuer": "ftp://issuer.example"},
        {"jwks": {"keys": []}},
        {"jwksUrl": "file:///etc/passwd"},
        {"usageLimit": "-1"},
    ],
)
def test_invalid_identities_are_refused(shared_tenants: Tenants, more: dict[str, Any]) -> None:
    owner = shared_tenants["acme owner"]
    assert shared_tenants.refused("POST", path_of(owner), owner, body_of(owner, **more)).startswith("400")
