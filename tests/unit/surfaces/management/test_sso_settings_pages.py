"""The page of an organization's single sign-on: identity providers, domains, the requirement and group rules."""

from html import unescape
from typing import Any

import pytest
from support.console import open_page, press_button
from support.management import Tenants

from gateway.accounts import teams
from gateway.callers.models import User
from gateway.errors import Conflict

PATH = "/console/settings/sso"
PROVIDER = {
    "name": "Rival SSO",
    "issuer": "https://id.rival.example",
    "clientId": "gateway",
    "clientSecret": "very-secret",
}


def press(tenants: Tenants, action: str, expected: int = 200, who: str = "rival owner", **fields: str) -> str:
    path = f"{PATH}?organization={tenants[who].organization_id}"
    answer = press_button(tenants, tenants[who], path, action, **fields)
    assert answer.status_code == expected, unescape(answer.text)
    return unescape(answer.text)


def test_an_owner_adds_changes_and_deletes_an_identity_provider(open_tenants) -> None:
    with open_tenants() as tenants:
        owner = tenants["rival owner"]
        added = press(tenants, "add", **PROVIDER, groupsClaim="roles", createPeople="on", trustEmail="on")
        (provider,) = tenants.ok("GET", f"/orgs/{owner.organization_id}/identity-providers", owner)["identityProviders"]
        assert provider["callbackUrl"] in added and "very-secret" not in added and "clientSecret" not in provider
        assert provider["createPeople"] and provider["trustEmail"] and not provider["linkByEmail"]
        assert 'name="linkByEmail"' in open_page(tenants, owner, PATH)
        assert provider["scopes"] == ["openid", "email", "profile"] and provider["groupsClaim"] == "roles"
        assert tenants.services.sso.service.providers.find(provider["id"]).client_secret == "very-secret"
        form = tenants.client.get("/console/login?redirect=%2Fconsole%2Fkeys&email=ada%40rival.example").text
        assert "/sso?redirect=%2Fconsole%2Fkeys&email=ada%40rival.example" in unescape(form)
        claimed = press(tenants, "add-domain", provider=provider["id"], domain="Rival.example")
        assert "llmgateway-domain=" in claimed and "https://rival.example/.well-known/llmgateway-domain" in claimed
        assert "cannot be loaded" in press(
            tenants, "verify-domain", 400, provider=provider["id"], domain="rival.example"
        )
        assert "was removed" in press(tenants, "remove-domain", provider=provider["id"], domain="rival.example")
        assert "cannot be used now" in press(tenants, "test", provider=provider["id"])
        assert "secret was replaced" in press(tenants, "secret", provider=provider["id"], clientSecret="another")
        assert "are now refused" in press(tenants, "switch", provider=provider["id"], status="inactive")
        assert tenants.ok(
            "PATCH", f"/orgs/{owner.organization_id}/identity-providers/{provider['id']}", owner, {"role": "developer"}
        )
        press(tenants, "delete", 404, provider="idp_unknown")
        assert "No identity providers yet" in press(tenants, "delete", provider=provider["id"])


def test_a_group_rule_gives_roles_in_teams_and_projects(open_tenants) -> None:
    with open_tenants() as tenants:
        owner = tenants["rival owner"]
        organization = f"/orgs/{owner.organization_id}"
        team = tenants.ok("POST", f"{organization}/teams", owner, {"name": "Search"})["team"]["id"]
        fields = {"group": "leads", "priority": "100", f"in-{team}": "on", f"in-{owner.project_id}": "on"}
        shown = press(tenants, "preview-rule", **fields)
        assert f'name="in-{team}" checked' in shown
        added = press(tenants, "add-rule", **fields)
        assert "lead of Search" in added and "admin of " in added
        (rule,) = tenants.ok("GET", f"{organization}/group-rules", owner)["groupRules"]
        assert sorted(rule["roleIn"]) == sorted((team, owner.project_id)) and rule["role"] is None


def test_the_claims_of_a_provider_are_changed_on_the_page(open_tenants) -> None:
    with open_tenants() as tenants:
        owner = tenants["rival owner"]
        path = f"/orgs/{owner.organization_id}/identity-providers"

        def find() -> Any:
            return tenants.ok("GET", path, owner)["identityProviders"][0]

        press(tenants, "add", **PROVIDER, groupsClaim="roles", **{"claim-costCenter": "cost_center"})
        provider = find()
        assert provider["attributeClaims"] == {"costCenter": "cost_center"} and provider["forOwners"]
        fields = {"provider": provider["id"], "groupsClaim": "roles", "groupsBefore": "roles"}
        shown = press(tenants, "claims", who="rival admin", **fields, **{"claim-department": "dept"})
        assert "The claims were saved" in shown and "Department: <span" in shown and 'value="dept"' in shown
        assert (find()["attributeClaims"], find()["forOwners"]) == ({"department": "dept"}, True)
        press(tenants, "claims", **fields | {"groupsClaim": "groups"})
        assert (find()["attributeClaims"], find()["groupsClaim"]) == ({}, "groups")
        unknown = {"attributeClaims": {"salary": "salary"}}
        assert tenants.refused("PATCH", f"{path}/{provider['id']}", owner, unknown).startswith("400")


def test_each_option_of_a_provider_is_kept_and_changed_alone(open_tenants) -> None:
    options = {
        "scopes": ["openid", "groups"],
        "groupsClaim": "groups",
        "attributeClaims": {"costCenter": "cost_center", "department": "company.department"},
        "role": "admin",
        "trustEmail": True,
        "linkByEmail": True,
        "createPeople": True,
    }
    with open_tenants() as tenants:
        owner = tenants["rival owner"]
        path = f"/orgs/{owner.organization_id}/identity-providers"
        provider = tenants.ok("POST", path, owner, PROVIDER)["identityProvider"]
        shown = {name: provider[name] for name in options}
        for name, value in options.items():
            shown[name] = value
            provider = tenants.ok("PATCH", f"{path}/{provider['id']}", owner, {name: value})["identityProvider"]
            assert {name: provider[name] for name in options} == shown
        assert tenants.ok("GET", path, owner)["identityProviders"] == [provider]


def test_invalid_providers_are_refused(open_tenants, monkeypatch) -> None:
    with open_tenants() as tenants:
        monkeypatch.setattr(tenants.services.sso.service.providers, "_allow_private", False)
        for issuer in (
            "http://id.example",
            "https://10.0.0.1",
            "https://localhost",
            "ftp://x",
            "https://a:b@id.example",
        ):
            press(tenants, "add", 400, **{**PROVIDER, "issuer": issuer})
        press(tenants, "add", 400, **{**PROVIDER, "clientId": " "})
        press(tenants, "add-domain", 404, provider="idp_unknown", domain="a.example")


def test_an_operators_domain_counts_at_once_and_for_one_organization(open_tenants) -> None:
    with open_tenants() as tenants:
        acme, rival = tenants["acme owner"], tenants["rival owner"]
        for who in ("acme owner", "rival owner"):
            press(tenants, "add", who=who, **PROVIDER)
        own = tenants.ok("GET", f"/orgs/{acme.organization_id}/identity-providers", acme)["identityProviders"][0]
        other = tenants.ok("GET", f"/orgs/{rival.organization_id}/identity-providers", rival)["identityProviders"][0]
        domains = tenants.services.sso.domains
        domains.claim(acme.organization_id, own["id"], "acme.example", verified=True, actor="test")
        press(tenants, "add-domain", provider=other["id"], domain="acme.example")
        with pytest.raises(Conflict) as refused:
            domains.verify(rival.organization_id, other["id"], "acme.example", confirmed=True, actor="test")
        assert refused.value.code == "domain_taken"
        providers = tenants.services.sso.service.providers
        assert [one.id for one in providers.for_domain("ACME.example")] == [own["id"]]


def test_single_sign_on_is_required_with_a_provider_and_a_break_glass_account(open_tenants) -> None:
    with open_tenants() as tenants:
        owner, admin = tenants["acme owner"], tenants["acme admin"]
        assert "Add an identity provider" in press(
            tenants, "require", 400, who="acme owner", required="on", breakGlass=owner.member_id
        )
        press(tenants, "add", who="acme owner", **PROVIDER)
        press(tenants, "require", 400, who="acme owner", required="on", breakGlass=owner.member_id)
        database = tenants.services.store.database
        database.write(User.update(password_hash="$argon2").where(User.id == owner.user_id).execute)
        for member in ("", admin.member_id, tenants["rival owner"].member_id):
            press(tenants, "require", 400, who="acme owner", required="on", breakGlass=member)
        press(tenants, "require", 403, who="acme admin", required="on", breakGlass=owner.member_id)
        assert "is required" in press(tenants, "require", who="acme owner", required="on", breakGlass=owner.member_id)
        open_page(tenants, admin, f"{PATH}?organization={owner.organization_id}", 403)
        path = f"/orgs/{owner.organization_id}/members/{owner.member_id}"
        status, refused = tenants.call("PATCH", path, owner, {"role": "admin"})
        assert status == 409 and refused["code"] == "break_glass_account"
        assert "is not required" in press(tenants, "require", who="acme owner", breakGlass=owner.member_id)
        open_page(tenants, admin, f"{PATH}?organization={owner.organization_id}")


def test_group_rules_are_written_and_only_owners_make_owners(open_tenants) -> None:
    with open_tenants() as tenants:
        owner = tenants["acme owner"]
        stores = tenants.services.store.database, tenants.services.store.control
        team = teams.create_team(*stores, owner.organization_id, "Research", actor="test").id
        limits = {"usageLimit": "20", "periodUsageLimit": "5"}
        limits |= {"periodUsageDurationValue": "2", "periodUsageDurationUnit": "week"}
        shown = press(
            tenants, "add-rule", who="acme admin", group="eng", role="admin", team=team, priority="5", **limits
        )
        assert "Teams: Research." in shown and "$20" in shown and "per 2 weeks. Priority 5." in shown
        press(tenants, "add-rule", 409, who="acme admin", group="eng", priority="5")
        press(tenants, "add-rule", 403, who="acme admin", group="bosses", role="owner", priority="5")
        press(tenants, "add-rule", 400, who="acme owner", group="bosses", role="owner", priority="5")
        bosses = {"group": "bosses", "role": "owner", "source": "scim", "priority": "5"}
        assert "Nobody at the moment" in press(tenants, "preview-rule", who="acme owner", **bosses)
        press(tenants, "add-rule", who="acme owner", **bosses)
        rules = tenants.ok("GET", f"/orgs/{owner.organization_id}/group-rules", owner)["groupRules"]
        assert [rule["group"] for rule in rules] == ["eng", "bosses"]
        press(tenants, "delete-rule", 403, who="acme admin", rule=rules[1]["id"])
        path = f"/orgs/{owner.organization_id}/group-rules/{rules[1]['id']}"
        assert tenants.call("PATCH", path, tenants["acme admin"], {"priority": 1})[0] == 403
        assert "No rules" not in press(tenants, "delete-rule", who="acme owner", rule=rules[1]["id"])


def test_only_managers_open_the_page(shared_tenants: Tenants) -> None:
    acme = shared_tenants["acme owner"].organization_id
    for who in ("acme developer", "rival owner"):
        open_page(shared_tenants, shared_tenants[who], f"{PATH}?organization={acme}", 403)
    assert "Single sign-on" in open_page(shared_tenants, shared_tenants["acme admin"], f"{PATH}?organization={acme}")
