"""The page for automation: service accounts and workload identities in a browser without scripts."""

import json
import re
import time
from typing import Any

from support.issuers import Issuer, make_key
from support.management import Person, Tenants

PATH = "/console/automation"
ISSUER = Issuer("https://issuer.example", make_key("one"))


def headers_of(who: Person) -> dict[str, str]:
    return {"Cookie": f"llmgateway.session_token={who.token}", "Origin": "http://localhost"}


def open_page(tenants: Tenants, who: Person, path: str = PATH) -> tuple[int, str]:
    answer = tenants.client.get(path, headers=headers_of(who))
    return answer.status_code, answer.text


def press(tenants: Tenants, who: Person, action: str, path: str = PATH, **fields: str) -> str:
    """Press a button of the page and return the page that follows."""
    csrf = re.findall(r'name="csrf" value="([^"]+)"', open_page(tenants, who, path)[1])[0]
    data = {"csrf": csrf, "action": action, **fields}
    answer = tenants.client.post(path, headers=headers_of(who), data=data)
    assert answer.status_code < 500, answer.text
    return answer.text


def create_account(tenants: Tenants, who: Person, **more: str) -> str:
    """Create a service account and return the page with its token."""
    fields = {"name": "Terraform", "scope-keys:read": "on", "scope-usage:read": "on", **more}
    return press(tenants, who, "create-account", **fields)


def accounts_of(tenants: Tenants, who: Person) -> list[dict[str, Any]]:
    path = f"/orgs/{who.organization_id}/service-accounts"
    accounts: list[dict[str, Any]] = tenants.ok("GET", path, who)["serviceAccounts"]
    return accounts


def test_a_service_account_is_created_changed_rolled_and_deleted(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    page = create_account(tenants, owner, networks="127.0.0.1, 203.0.113.0/24")
    token = re.findall(r"llmgsa_[\w-]{40}", page)[0]
    tenants.ok("GET", "/keys/api", token)
    [account] = accounts_of(tenants, owner)
    assert account["scopes"] == ["keys:read", "usage:read"]
    assert account["iamRules"][0]["ruleValue"] == {"ipCidrs": ["127.0.0.1", "203.0.113.0/24"]}
    place = f"{PATH}/{owner.organization_id}/accounts/{account['id']}"
    status, page = open_page(tenants, owner, place)
    assert status == 200 and token not in page and "127.0.0.1" in page
    press(tenants, owner, "save", place, **{"name": "Reports", "scope-usage:read": "on"})
    assert tenants.refused("GET", "/keys/api", token) == "403 scope_missing"
    fresh = re.findall(r"llmgsa_[\w-]{40}", press(tenants, owner, "roll", place))[0]
    tenants.ok("GET", "/activity", fresh)
    assert tenants.refused("GET", "/activity", token) == "401 token_invalid"
    press(tenants, owner, "switch", place, status="inactive")
    assert tenants.refused("GET", "/activity", fresh) == "401 token_invalid"
    press(tenants, owner, "delete", place)
    assert accounts_of(tenants, owner) == []


def test_an_account_without_scopes_is_refused_with_what_was_typed(tenants: Tenants) -> None:
    page = press(tenants, tenants["acme owner"], "create-account", name="Without scopes")
    assert "scopes" in page and 'value="Without scopes"' in page


def test_a_workload_identity_is_created_changed_and_checked(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    fields = {
        "identityName": "Deployments",
        "project": owner.project_id,
        "issuer": ISSUER.url,
        "audience": "acme",
        "claims": "sub = repo:acme/*\nenvironment = staging, production",
        "attribution": "user = actor",
        "jwks": json.dumps(ISSUER.key_set()),
        "usageLimit": "5",
    }
    page = press(tenants, owner, "create-identity", **fields)
    assert "The workload identity Deployments was created" in page
    path = f"/orgs/{owner.organization_id}/workload-identities"
    [identity] = tenants.ok("GET", path, owner)["workloadIdentities"]
    assert identity["claims"] == {"sub": ["repo:acme/*"], "environment": ["staging", "production"]}
    assert identity["key"]["usageLimit"] == "5"
    claims = {"aud": "acme", "sub": "repo:acme/app", "environment": "staging", "exp": int(time.time()) + 600}
    token = ISSUER.sign(claims)
    page = press(tenants, owner, "check", token=token)
    assert "The token is accepted" in page and token not in page
    assert "The token is refused" in press(tenants, owner, "check", token=ISSUER.sign({**claims, "sub": "other"}))
    place = f"{PATH}/{owner.organization_id}/identities/{identity['id']}"
    status, page = open_page(tenants, owner, place)
    assert status == 200 and "environment = staging, production" in page
    press(tenants, owner, "save", place, identityName="Renamed", claims="sub = repo:acme/app")
    changed = tenants.ok("GET", f"{path}/{identity['id']}", owner)["workloadIdentity"]
    assert changed["name"] == "Renamed" and changed["claims"] == {"sub": ["repo:acme/app"]}
    press(tenants, owner, "switch", place, status="inactive")
    assert tenants.ok("GET", path, owner)["workloadIdentities"][0]["status"] == "inactive"
    press(tenants, owner, "delete", place)
    assert tenants.ok("GET", path, owner)["workloadIdentities"] == []


def test_service_accounts_and_workload_identities_are_searched_and_sorted(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    create_account(tenants, owner)
    create_account(tenants, owner, name="Backups")
    fields = {"project": owner.project_id, "issuer": ISSUER.url, "audience": "acme", "claims": "sub = x"}
    press(
        tenants, owner, "create-identity", identityName="Terraform plans", **fields, jwks=json.dumps(ISSUER.key_set())
    )

    def listed(query: str) -> list[str]:
        page = open_page(tenants, owner, f"{PATH}?{query}")[1]
        return re.findall(r'class="open" href="[^"]+">([^<]+)<', page)

    assert listed("") == ["Backups", "Terraform", "Terraform plans"]
    assert listed("sort=-name") == ["Terraform", "Backups", "Terraform plans"]
    assert listed("q=terraform") == ["Terraform", "Terraform plans"]
    assert listed("q=issuer.example") == ["Terraform plans"]


def test_malformed_claims_are_explained(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    fields = {"identityName": "x", "project": owner.project_id, "issuer": ISSUER.url, "audience": "acme"}
    assert "name = value" in press(tenants, owner, "create-identity", **fields, claims="nonsense")
    for jwks in ("{", "[" * 20_000):
        assert "not JSON" in press(tenants, owner, "create-identity", **fields, claims="sub = x", jwks=jwks)


def test_developers_and_strangers_do_not_see_the_page(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    create_account(tenants, owner)
    [account] = accounts_of(tenants, owner)
    place = f"{PATH}/{owner.organization_id}/accounts/{account['id']}"
    assert open_page(tenants, tenants["acme developer"])[0] == 403
    for who in ("acme developer", "rival owner"):
        assert open_page(tenants, tenants[who], place)[0] in (403, 404)
