"""Settings that an admin or another tenant plants open no owner's account: by SCIM, by an identity provider, by group
rules, by a reset, or by a link to sign in."""

import re
from html import unescape
from typing import Any

import httpx
import pytest
from support.identity_provider import CLIENT_ID, CLIENT_SECRET, Account, Browser, FakeIdentityProvider, write_settings
from support.scim_client import IdentityProvider, add_member
from support.shared import Share, Tenant

from gateway.accounts import members

SCOPES = ["openid", "email", "profile", "offline_access"]
COOKIE = "llmgateway.session_token"


@pytest.fixture
def provider(share: Share) -> FakeIdentityProvider:
    fake: FakeIdentityProvider = share.fake(FakeIdentityProvider)
    fake.reset()
    return fake


@pytest.fixture
def tenant(share: Share, provider: FakeIdentityProvider) -> Tenant:
    installation = {**provider.settings, "scopes": SCOPES}
    gateway = share.gateway(
        {
            "GATEWAY_IDENTITY_PROVIDERS": write_settings(installation=installation),
            "GATEWAY_ALLOW_PRIVATE_UPSTREAMS": "true",
        }
    )
    database = gateway.services.store.database
    database.write(lambda: database.execute("DELETE FROM attempt"))
    return gateway


class Company:
    """An organization with an owner, an admin, and an identity provider with a verified domain."""

    def __init__(self, tenant: Tenant, provider: FakeIdentityProvider, organization_id: str = "") -> None:
        self.tenant = tenant
        self.provider = provider
        self.id = organization_id or tenant.organization_id
        self.domain = f"{self.id.replace('_', '-')}.example"
        self.owner = add_member(tenant, self.id, f"owner@{self.domain}", "owner")
        self.admin = add_member(tenant, self.id, f"admin@{self.domain}", "admin")

    @property
    def stores(self) -> Any:
        return self.tenant.services.store.database, self.tenant.services.store.control

    def connect(self, who: members.MemberInfo, **options: Any) -> str:
        """Add an identity provider as a person, over the management API, with a verified domain; return its id."""
        body = {"name": "Own", "issuer": self.provider.address, "clientId": CLIENT_ID, "clientSecret": CLIENT_SECRET}
        body |= {"scopes": SCOPES, "groupsClaim": "groups", "createPeople": True, **options}
        answer = self.call("POST", f"/orgs/{self.id}/identity-providers", who, body)
        assert answer.status_code == 201, answer.text
        provider_id: str = answer.json()["identityProvider"]["id"]
        self.tenant.services.sso.domains.claim(self.id, provider_id, self.domain, verified=True, actor="test")
        return provider_id

    def call(self, method: str, path: str, who: members.MemberInfo, body: Any = None) -> httpx.Response:
        token = self.tenant.services.management.sessions.open(who.user_id).token
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.request(method, self.tenant.address + path, json=body, headers=headers, timeout=60)

    def rule(self, group: str, source: str) -> httpx.Response:
        body = {"group": group, "role": "owner", "source": source}
        return self.call("POST", f"/orgs/{self.id}/group-rules", self.owner, body)

    def account(self, name: str, *groups: str) -> Account:
        claims = {"groups": list(groups)} if groups else {}
        return Account(f"{name}-{self.id}", f"{name}@{self.domain}", name=name.title(), claims=claims)

    def directory(self, by_owner: bool) -> IdentityProvider:
        return IdentityProvider.of(self.tenant, self.id, by_owner=by_owner)

    def role(self, name: str) -> str:
        found = members.list_members(self.stores[0], self.id)
        return next(member.role for member in found if member.email == f"{name}@{self.domain}")

    def reached(self, browser: Browser) -> set[str]:
        return {organization["id"] for organization in browser.get("/orgs").json()["organizations"]}


@pytest.fixture
def company(tenant: Tenant, provider: FakeIdentityProvider) -> Company:
    return Company(tenant, provider)


def test_a_provider_that_an_admin_planted_makes_no_owner(company: Company) -> None:
    planted = company.connect(company.admin)
    company.provider.account = company.account("mallory", "founders")
    Browser(company.tenant.address).sign_in(planted)
    assert company.role("mallory") == "developer"
    assert company.rule("founders", planted).status_code == 201
    company.tenant.services.management.group_grants.refresh(company.id)
    assert company.role("mallory") == "developer"
    Browser(company.tenant.address).sign_in(planted)
    assert company.role("mallory") == "developer"


def test_a_provider_of_an_owner_makes_owners_until_an_admin_changes_it(company: Company) -> None:
    own = company.connect(company.owner)
    company.provider.account = company.account("olga", "founders")
    Browser(company.tenant.address).sign_in(own)
    preview = {"group": "founders", "role": "owner", "source": own}
    answer = company.call("POST", f"/orgs/{company.id}/group-rules/preview", company.owner, preview).json()["preview"]
    assert [(person["email"], person["roleBefore"], person["role"]) for person in answer["people"]] == [
        (f"olga@{company.domain}", "developer", "owner")
    ]
    assert company.role("olga") == "developer", "a preview writes nothing"
    created = company.rule("founders", own).json()["groupRule"]
    assert company.role("olga") == "owner"
    browser = Browser(company.tenant.address)
    browser.sign_in(own)
    assert company.reached(browser) == {company.id}
    # Without the rule, an admin may change the provider; owners then need the consent of an owner again.
    path = f"/orgs/{company.id}/group-rules/{created['id']}"
    company.call("DELETE", path, company.owner)
    promote(company, "olga")
    path = f"/orgs/{company.id}/identity-providers/{own}"
    assert company.call("PATCH", path, company.admin, {"name": "Renamed"}).json()["identityProvider"]["forOwners"]
    changed = company.call("PATCH", path, company.admin, {"groupsClaim": "roles"}).json()["identityProvider"]
    assert changed["forOwners"] is False
    assert company.call("PATCH", path, company.admin, {"forOwners": True}).status_code == 403
    assert company.reached(browser) == set()
    refused = browser.get(browser.to_callback(own))
    assert refused.status_code == 403 and "An owner can allow it" in refused.text
    company.call("PATCH", path, company.owner, {"forOwners": True})
    assert company.reached(browser) == {company.id}


def promote(company: Company, name: str) -> None:
    member = next(m for m in members.list_members(company.stores[0], company.id) if m.email.startswith(f"{name}@"))
    members.update_member(*company.stores, company.id, member.id, role="owner", actor="test")


def test_an_identity_that_a_planted_provider_linked_opens_no_account_that_becomes_an_owners(company: Company) -> None:
    planted = company.connect(company.admin)
    company.provider.account = company.account("dana")
    browser = Browser(company.tenant.address)
    browser.sign_in(planted)
    assert company.reached(browser) == {company.id}
    promote(company, "dana")
    assert company.reached(browser) == set()
    assert Browser(company.tenant.address).get(browser.to_callback(planted)).status_code in (401, 403)


def test_groups_that_an_admins_token_planted_make_no_owners(company: Company) -> None:
    admins, owners = company.directory(False), company.directory(True)
    mallory = admins.new_user()["id"]
    group = admins.new_group("founders", mallory)["id"]
    assert company.rule("founders", "scim").status_code == 201

    def role() -> str:
        company.tenant.services.management.group_grants.refresh(company.id)
        return next(m.role for m in members.list_members(company.stores[0], company.id) if m.id == mallory)

    assert role() == "developer"
    # A token of an owner that states the same people and names the group stands behind it.
    everyone = {"displayName": "founders", "members": [{"value": mallory}]}
    owners("PUT", f"/Groups/{group}", everyone)
    assert role() == "owner"
    # An admin's token neither adds to it nor renames another group to its name.
    other = admins.new_user()["id"]
    admins.patch(f"/Groups/{group}", {"op": "add", "path": "members", "value": [{"value": other}]}, status=403)
    admins.patch(f"/Groups/{group}", {"op": "replace", "path": "displayName", "value": "others"}, status=403)


def test_a_token_of_a_former_owner_is_an_admins(company: Company) -> None:
    made = company.call("POST", f"/orgs/{company.id}/scim/tokens", company.owner, {"name": "Directory"}).json()["token"]
    token = IdentityProvider(company.tenant.address, made["token"])
    second = add_member(company.tenant, company.id, f"second@{company.domain}", "owner")
    path = f"/Users/{second.id}"
    token.patch(path, {"op": "replace", "path": "active", "value": False})
    token.patch(path, {"op": "replace", "path": "active", "value": True})
    members.update_member(*company.stores, company.id, company.owner.id, role="admin", actor="test")
    token.patch(path, {"op": "replace", "path": "active", "value": False}, status=403)
    shown = company.call("GET", f"/orgs/{company.id}/scim/tokens", second).json()["tokens"]
    assert [entry["mayChangeOwners"] for entry in shown] == [False]


def test_an_address_that_provisioning_changed_resets_no_password(company: Company) -> None:
    owners, admins = company.directory(True), company.directory(False)
    person = owners.new_user()
    evil = {"op": "replace", "path": "emails", "value": [{"value": f"evil@{company.domain}", "primary": True}]}
    user_id = next(m.user_id for m in members.list_members(company.stores[0], company.id) if m.id == person["id"])
    members.update_member(*company.stores, company.id, person["id"], role="owner", actor="test")
    admins.patch(f"/Users/{person['id']}", evil, status=403)
    members.update_member(*company.stores, company.id, person["id"], role="developer", actor="test")
    admins.patch(f"/Users/{person['id']}", evil)
    info = members.find_user(company.stores[0], user_id)
    assert info.email == f"evil@{company.domain}" and not info.confirmed
    session = company.tenant.services.management.sessions.open(user_id).token
    answer = httpx.post(
        f"{company.tenant.address}/auth/confirm-email", headers={"Authorization": f"Bearer {session}"}, timeout=60
    )
    assert answer.status_code == 200
    assert members.find_user(company.stores[0], user_id).confirmed


def test_a_provider_for_owners_confirms_a_changed_address_and_a_planted_one_does_not(company: Company) -> None:
    directory = company.directory(True)
    for who, confirmed in ((company.admin, False), (company.owner, True)):
        provider_id = company.connect(who)
        name = f"renamed-{who.role}"
        company.provider.account = account = company.account(name)
        user = directory("POST", "/Users", {"userName": account.email})
        Browser(company.tenant.address).sign_in(provider_id)
        account.email = f"new-{name}@{company.domain}"
        directory.patch(f"/Users/{user['id']}", {"op": "replace", "path": "userName", "value": account.email})
        Browser(company.tenant.address).sign_in(provider_id)
        (member,) = [m for m in members.list_members(company.stores[0], company.id) if m.email == account.email]
        assert members.find_user(company.stores[0], member.user_id).confirmed is confirmed
        company.tenant.services.sso.service.providers.delete(company.id, provider_id, actor="test")


def test_another_tenants_provisioning_does_not_stop_the_single_sign_on_of_an_account(company: Company) -> None:
    own = company.connect(company.owner)
    address = f"alice@{company.domain}"
    alice = company.directory(True)("POST", "/Users", {"userName": address})
    other, _, _ = company.tenant.settle(f"other-{company.id}", 0)
    IdentityProvider.of(company.tenant, other)("POST", "/Users", {"userName": address})
    company.provider.account = company.account("alice")
    browser = Browser(company.tenant.address)
    browser.sign_in(own)
    assert company.reached(browser) == {company.id}
    assert alice["id"] in {m.id for m in members.list_members(company.stores[0], company.id)}


def test_a_person_who_is_removed_and_added_again_signs_in(company: Company) -> None:
    own = company.connect(company.owner)
    directory = company.directory(True)
    for _ in range(2):
        user = directory("POST", "/Users", {"userName": f"alice@{company.domain}"})
        directory("DELETE", f"/Users/{user['id']}")
    directory("POST", "/Users", {"userName": f"alice@{company.domain}"})
    company.provider.account = company.account("alice")
    browser = Browser(company.tenant.address)
    browser.sign_in(own)
    assert company.reached(browser) == {company.id}


def own_links(page: httpx.Response) -> list[str]:
    return [unescape(link) for link in re.findall(r'href="([^"]*/(?:console/sso|sso)[^"]*)"', page.text)]


@pytest.mark.parametrize("query", ["", "?silent=1", "?begun=x", "?redirect=/console/account"])
def test_a_link_to_an_identity_provider_asks_first_and_names_who_asks(company: Company, query: str) -> None:
    planted = company.connect(company.owner)
    victim = Browser(company.tenant.address)
    shown = victim.get(f"/console/sso/{planted}{query}")
    assert shown.status_code == 200 and COOKIE not in victim.web.cookies
    organization = company.tenant.services.store.database.query_row(
        "SELECT name FROM organization WHERE id = ?", (company.id,)
    )[0]
    assert organization in shown.text and company.provider.address.partition("//")[2] in shown.text
    elsewhere = victim.web.post(
        f"{company.tenant.address}/console/sso/{planted}", data={}, headers={"Origin": "https://evil.example"}
    )
    assert elsewhere.status_code == 403
    assert victim.agree(shown).headers["location"].startswith(company.provider.address)


def test_a_link_with_an_address_asks_too(company: Company) -> None:
    planted = company.connect(company.owner)
    victim = Browser(company.tenant.address)
    first = victim.get(f"/sso?email=x@{company.domain}")
    assert f"/console/sso/{planted}" in first.headers["location"]
    assert victim.get(first.headers["location"]).status_code == 200


def test_sign_ins_from_the_sign_in_page_go_straight_to_the_provider(company: Company) -> None:
    company.connect(company.owner)
    browser = Browser(company.tenant.address)
    button, choose = own_links(browser.get("/console/login"))[:2]
    assert browser.get(button).headers["location"].startswith(company.provider.address)
    form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', browser.get(choose).text))
    found = browser.web.get(f"{browser.base}/sso", params={**form, "email": f"x@{company.domain}"})
    assert browser.get(found.headers["location"]).headers["location"].startswith(company.provider.address)
    # The links of one browser's page are worth nothing in another.
    assert Browser(company.tenant.address).get(button).status_code == 200


def test_a_live_session_is_replaced_only_by_a_person_who_agreed(company: Company) -> None:
    provider_id = company.connect(company.owner)
    victim = Browser(company.tenant.address)
    button = own_links(victim.get("/console/login"))[0]
    session = company.tenant.services.management.sessions.open(company.admin.user_id)
    begun = victim.get(button).headers["location"]  # before the sign-in by password
    victim.web.cookies.set(COOKIE, session.token)
    company.provider.account = company.account("mallory")
    shown = victim.get(f"/console/sso/{provider_id}")
    assert shown.status_code == 200 and company.admin.email in shown.text
    assert victim.get(button).status_code == 200
    refused = victim.get(victim.get(begun).headers["location"])
    assert refused.status_code in (401, 403) and victim.token == session.token
    callback = victim.get(victim.agree(shown).headers["location"]).headers["location"]
    assert victim.get(callback).status_code == 303
    me = victim.me()
    assert me is not None and me["user"]["email"] == f"mallory@{company.domain}"
    ended = httpx.get(f"{victim.base}/user/me", headers={"Authorization": f"Bearer {session.token}"}, timeout=60)
    assert ended.status_code == 401
