"""Single sign-on of organizations: what sessions reach, required sign-on, checks, logout, devices and applications."""

from typing import Any

import httpx
import pytest
from support.identity_provider import CLIENT_ID, CLIENT_SECRET, Account, Browser, FakeIdentityProvider, write_settings
from support.oauth import App, Person, parameters
from support.scim_client import IdentityProvider
from support.shared import Share, Tenant

from gateway.accounts import audit, group_rules, keys, members
from gateway.accounts.group_rules import RuleDraft
from gateway.accounts.identity_providers import ProviderDraft
from gateway.accounts.keys import Draft
from gateway.accounts.member_attributes import ENTERPRISE, read_current
from gateway.accounts.members import set_password
from gateway.accounts.sso_requirement import SsoRequirement, set_requirement
from gateway.admin import sso_sign_in
from gateway.errors import Forbidden, RateLimited
from gateway.limits.budgets import Limits
from gateway.sso.provider_identity import ProviderIdentity
from gateway.surfaces.console.sso_pages import BROWSER_COOKIE
from gateway.surfaces.console.visits import PROVIDER_COOKIE

PASSWORD = "correct horse battery"
SCOPES = ["openid", "email", "profile", "offline_access"]
COOKIE = "llmgateway.session_token"


@pytest.fixture
def provider(share: Share) -> FakeIdentityProvider:
    fake: FakeIdentityProvider = share.fake(FakeIdentityProvider)
    fake.reset()
    return fake


@pytest.fixture
def tenant(share: Share, provider: FakeIdentityProvider) -> Tenant:
    installation = {**provider.settings, "scopes": SCOPES, "link_by_email": True}
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
    """The tenant's organization, with an identity provider and a verified domain, and people who use it."""

    def __init__(self, tenant: Tenant, provider: FakeIdentityProvider, **options: Any) -> None:
        self.tenant = tenant
        self.provider = provider
        self.id = tenant.organization_id
        self.domain = f"{self.id.replace('_', '-')}.example"
        services = tenant.services
        self.stores = services.store.database, services.store.control
        chosen = {"scopes": SCOPES, "groups_claim": "groups", "role": "developer", "create_people": True, **options}
        draft = ProviderDraft("Acme", provider.address, CLIENT_ID, CLIENT_SECRET, options=chosen)
        self.provider_id = services.sso.service.providers.create(self.id, draft, actor="test").id
        services.sso.domains.claim(self.id, self.provider_id, self.domain, verified=True, actor="test")
        provider.account = self.account("alice")

    def account(self, name: str, **claims: Any) -> Account:
        return Account(f"{name}-{self.id}", f"{name}@{self.domain}", name=name.title(), claims=claims)

    def browser(self) -> Browser:
        return Browser(self.tenant.address)

    def sign_in(self) -> Browser:
        browser = self.browser()
        browser.sign_in(self.provider_id)
        return browser

    def refuse(self) -> str:
        browser = self.browser()
        answer = browser.get(browser.to_callback(self.provider_id))
        assert answer.status_code in (401, 403, 409), answer.text
        assert browser.me() is None
        return answer.text

    def add_person(self, name: str, role: Any = "developer") -> members.MemberInfo:
        """Add a member with a password."""
        member = members.add_member(*self.stores, self.id, f"{name}@{self.domain}", role, actor="test")
        passwords = self.tenant.services.background.passwords
        set_password(*self.stores, passwords, member.user_id, PASSWORD, actor="test")
        return member

    def by_password(self, name: str) -> tuple[Browser, httpx.Response]:
        browser = self.browser()
        form = {"email": f"{name}@{self.domain}", "password": PASSWORD}
        return browser, browser.post("/console/login", redirect="/console", **form)

    def member(self, name: str) -> members.MemberInfo:
        (found,) = [
            member for member in members.list_members(self.stores[0], self.id) if member.email.startswith(f"{name}@")
        ]
        return found

    def check(self) -> None:
        """Run the checks of all sign-ins now."""
        database = self.stores[0]
        database.write(lambda: database.execute("UPDATE sso_login SET check_at = 1 WHERE check_at > 0"))
        self.tenant.services.sso.checks.run(lambda: True)

    def reached(self, browser: Browser) -> set[str]:
        return {organization["id"] for organization in browser.get("/orgs").json()["organizations"]}


@pytest.fixture
def company(tenant: Tenant, provider: FakeIdentityProvider) -> Company:
    return Company(tenant, provider)


def test_the_first_sign_in_creates_the_member_and_groups_decide_its_role(company: Company) -> None:
    group_rules.create_rule(*company.stores, company.id, RuleDraft("leads", role="admin"), actor="test")
    company.provider.account = company.account("alice", groups=["owner", "leads"])
    browser = company.sign_in()
    assert company.member("alice").role == "admin"
    assert browser.get(f"/orgs/{company.id}/members").status_code == 200
    company.provider.account = company.account("alice", groups=["owner"])
    company.check()
    company.sign_in()
    assert company.member("alice").role == "developer"
    company.provider.account = company.account("bob", groups=["owner", "admin"])
    company.sign_in()
    assert company.member("bob").role == "developer"


def test_groups_follow_each_check(company: Company) -> None:
    group_rules.create_rule(*company.stores, company.id, RuleDraft("leads", role="admin"), actor="test")
    account = company.account("alice", groups=["leads"])
    company.provider.account = account
    browser = company.sign_in()
    account.claims["groups"] = []
    company.check()
    assert company.member("alice").role == "developer"
    assert browser.me() is not None


@pytest.mark.parametrize("status", [500, 403])
def test_groups_stay_while_userinfo_fails(company: Company, status: int) -> None:
    group_rules.create_rule(*company.stores, company.id, RuleDraft("leads", role="admin"), actor="test")
    company.provider.thin_tokens = True
    account = company.account("alice", groups=["leads"])
    company.provider.account = account
    company.sign_in()
    assert company.member("alice").role == "admin"
    account.claims["groups"] = []
    company.provider.userinfo_status = status
    company.check()
    company.sign_in()
    assert company.member("alice").role == "admin"
    company.provider.userinfo_status = 200
    company.check()
    assert company.member("alice").role == "developer"


@pytest.mark.parametrize(("claim", "empty"), [("groups", {"groups": []}), ("realm.roles", {"realm": {"roles": []}})])
def test_groups_of_userinfo_count_if_the_id_token_has_none(
    tenant: Tenant, provider: FakeIdentityProvider, claim: str, empty: dict[str, Any]
) -> None:
    company = Company(tenant, provider, groups_claim=claim)
    group_rules.create_rule(*company.stores, company.id, RuleDraft("leads", role="admin"), actor="test")
    company.provider.falsify = lambda claims: {**claims, **empty}
    account = company.account("alice", groups=["leads"], realm={"roles": ["leads"]})
    company.provider.account = account
    company.sign_in()
    assert company.member("alice").role == "admin"
    company.check()
    assert company.member("alice").role == "admin"
    account.claims.update(groups=[], realm={"roles": []})
    company.check()
    assert company.member("alice").role == "developer"


def test_attributes_follow_each_sign_in_and_check(tenant: Tenant, provider: FakeIdentityProvider) -> None:
    claims = {"costCenter": "cost_center", "department": "company.department", "division": "division"}
    company = Company(tenant, provider, attribute_claims=claims)
    account = company.account("alice", cost_center=4711, company={"department": " Research "})
    company.provider.account = account
    company.sign_in()
    member_id = company.member("alice").id

    def current() -> dict[str, str]:
        return read_current(company.stores[0], [member_id])[member_id]

    assert current() == {"costCenter": "4711", "department": "Research"}
    account.claims = {"cost_center": "4712", "division": "North"}
    company.check()
    assert current() == {"costCenter": "4712", "department": "Research", "division": "North"}
    account.claims = {"division": None, "company": {"department": ["Sales", "Marketing"]}}
    company.check()
    assert current() == {"costCenter": "4712", "department": "Sales"}
    directory = IdentityProvider.of(tenant, company.id)
    enterprise = {ENTERPRISE: {"department": "Finance"}}
    email = company.member("alice").email
    directory("POST", "/Users", {"userName": email, "emails": [{"value": email, "primary": True}], **enterprise})
    account.claims = {"cost_center": "4713", "company": {"department": "Research"}}
    company.check()
    assert current() == {"costCenter": "4713", "department": "Finance"}  # provisioning wins


def test_only_verified_addresses_of_the_companys_domains_get_accounts(company: Company) -> None:
    for email, verified in ((f"alice@{company.domain}", None), (f"alice@sub.{company.domain}", True)):
        company.provider.account = Account("alice", email, verified)
        assert "no verified e-mail address" in company.refuse()
    company.provider.account = Account("alice", f"alice@{company.domain}", False)
    assert "no verified e-mail address" in company.refuse()
    services = company.tenant.services
    services.sso.domains.remove(company.id, company.provider_id, company.domain, actor="test")
    company.provider.account = company.account("alice")
    assert "no verified e-mail address" in company.refuse()


def test_a_session_of_a_companys_provider_reaches_this_company_only(company: Company, tenant: Tenant) -> None:
    person = company.add_person("carol")
    services = tenant.services
    other_id, other_project, _ = settle(tenant, f"other-{company.id}")
    services.sso.service.accounts.connect(
        services.sso.service.providers.find(company.provider_id),
        identity_of(company, "carol"),
        person.user_id,
    )
    second = members.add_member(*company.stores, other_id, person.email, "owner", actor="test")
    make_key(tenant, other_project, second.id, person.user_id, "elsewhere")
    company.provider.account = company.account("carol")
    browser = company.sign_in()
    assert company.reached(browser) == {company.id}
    assert browser.get(f"/orgs/{other_id}/members").status_code == 403
    assert browser.get(f"/projects/{other_project}").status_code == 403
    created = browser.web.post(f"{tenant.address}/orgs", json={"name": "Mine"}, headers={"Origin": tenant.address})
    assert (created.status_code, created.json()["code"]) == (403, "sso_limited_session")
    app = App(tenant.address)
    assert "elsewhere" not in browser.get(app.address()).text
    by_password, _ = company.by_password("carol")
    assert company.reached(by_password) == {company.id, other_id}
    assert "elsewhere" in by_password.get(app.address()).text


def test_the_same_subject_of_another_companys_provider_is_another_person(
    company: Company, tenant: Tenant, provider: FakeIdentityProvider
) -> None:
    company.sign_in()
    alice = company.member("alice")
    services = tenant.services
    other_id, _, _ = settle(tenant, f"thief-{company.id}")
    draft = ProviderDraft("Thief", provider.address, CLIENT_ID, CLIENT_SECRET, options={"trust_email": True})
    thief = services.sso.service.providers.create(other_id, draft, actor="test").id
    browser = company.browser()
    assert browser.get(browser.to_callback(thief)).status_code == 403
    assert browser.me() is None
    found = [member.user_id for member in members.list_members(company.stores[0], other_id)]
    assert alice.user_id not in found


def test_members_are_connected_by_verified_address_where_that_is_on_but_owners_are_not(
    tenant: Tenant, provider: FakeIdentityProvider
) -> None:
    company = Company(tenant, provider, link_by_email=True, create_people=False)
    dave = company.add_person("dave")
    company.add_person("olga", "owner")
    provider.account = company.account("dave")
    me = company.sign_in().me()
    assert me is not None and me["user"]["id"] == dave.user_id
    provider.account = company.account("olga")
    assert "already an account" in company.refuse()
    provider.account = company.account("stranger")
    assert "no account for you" in company.refuse()


def test_the_sign_in_page_finds_the_provider_by_the_address(company: Company) -> None:
    browser = company.browser()
    assert "Sign in with single sign-on" in browser.get("/console/login").text
    assert "work e-mail address" in browser.get("/sso").text
    found = browser.get(f"/sso?email=alice@{company.domain.upper()}&redirect=/console/keys")
    assert f"/console/sso/{company.provider_id}?redirect=%2Fconsole%2Fkeys" in found.headers["location"]
    assert browser.get("/sso?email=alice@unknown.example").status_code == 404


def require(company: Company, member_id: str, required: bool = True) -> None:
    requirement = SsoRequirement(required, member_id)
    set_requirement(*company.stores, company.id, requirement, any_configured=True, actor="test")


def test_required_single_sign_on_shuts_out_passwords_but_the_break_glass_account(company: Company) -> None:
    keeper = company.add_person("keeper", "owner")
    company.add_person("erin")
    session, _ = company.by_password("erin")
    assert company.reached(session) == {company.id}
    require(company, keeper.id)
    assert company.reached(session) == set()
    assert session.get(f"/orgs/{company.id}/projects").status_code == 403
    _, refused = company.by_password("erin")
    assert refused.status_code == 403 and "requires single sign-on" in refused.text
    answer = company.browser().web.post(
        f"{company.tenant.address}/auth/sign-in/email",
        json={"email": f"erin@{company.domain}", "password": PASSWORD},
    )
    assert (answer.status_code, answer.json()["error"]) == (403, "sso_required")
    wrong = company.browser().post("/console/login", email=f"erin@{company.domain}", password="wrong password")
    assert wrong.status_code == 401 and "single sign-on is" not in wrong.text
    owner, _ = company.by_password("keeper")
    assert company.reached(owner) == {company.id}
    assert company.reached(company.sign_in()) == {company.id}


def test_a_provider_of_the_installation_opens_only_companies_without_their_own(
    company: Company, tenant: Tenant
) -> None:
    keeper = company.add_person("keeper", "owner")
    company.add_person("frank")
    company.provider.account = company.account("frank")
    browser = company.browser()
    browser.sign_in("installation")
    assert company.reached(browser) == {company.id}
    require(company, keeper.id)
    assert company.reached(browser) == set()
    tenant.services.sso.service.providers.delete(company.id, company.provider_id, actor="test")
    assert company.reached(browser) == {company.id}


def test_a_person_who_was_disabled_loses_sessions_devices_and_applications_at_the_next_check(
    company: Company, tenant: Tenant
) -> None:
    browser = company.sign_in()
    alice = company.member("alice")
    make_key(tenant, tenant.project_id, alice.id, alice.user_id, "of alice")
    device = sign_in_device(tenant, browser)
    application = connect_application(tenant, browser)
    company.check()
    company.check()
    assert browser.me() is not None and device_works(tenant, device) and application_works(tenant, application)
    account = company.provider.account
    assert account is not None
    account.disabled = True
    company.check()
    assert browser.me() is None
    assert not device_works(tenant, device) and not application_works(tenant, application)
    entries = audit.list_entries(company.stores[0], company.id)
    assert {"sso.sign_out", "oauth.revoke"} <= {entry.action for entry in entries}


def test_a_refused_person_is_suspended_where_the_provider_is_required_until_the_next_sign_in(
    company: Company, tenant: Tenant
) -> None:
    keeper = company.add_person("keeper", "owner")
    browser = company.sign_in()
    alice = company.member("alice")
    key = make_key(tenant, tenant.project_id, alice.id, alice.user_id, "of alice")
    keeper_key = make_key(tenant, tenant.project_id, keeper.id, keeper.user_id, "of the keeper")
    require(company, keeper.id)
    application = connect_application(tenant, browser)
    account = company.provider.account
    assert account is not None
    account.disabled = True
    company.check()
    assert browser.me() is None
    answer = use_key(tenant, key)
    assert answer.status_code == 401 and "identity provider of the organization refuses" in answer.text
    assert not application_works(tenant, application)
    assert company.member("alice").suspended and use_key(tenant, keeper_key).status_code == 200
    (listed,) = keys.list_keys(company.stores[0], member_id=alice.id)
    assert (listed.state, listed.owner_active) == ("active", False)
    account.disabled = False
    company.sign_in()
    assert use_key(tenant, key).status_code == 200 and application_works(tenant, application)
    assert not company.member("alice").suspended
    actions = [entry.action for entry in audit.list_entries(company.stores[0], company.id)]
    assert (actions.count("member.suspend"), actions.count("member.restore")) == (1, 1)


def test_a_sign_in_while_the_provider_is_not_required_ends_a_suspension(company: Company, tenant: Tenant) -> None:
    keeper = company.add_person("keeper", "owner")
    company.sign_in()
    alice = company.member("alice")
    key = make_key(tenant, tenant.project_id, alice.id, alice.user_id, "of alice")
    require(company, keeper.id)
    account = company.provider.account
    assert account is not None
    account.disabled = True
    company.check()
    assert use_key(tenant, key).status_code == 401
    require(company, keeper.id, required=False)
    account.disabled = False
    company.sign_in()
    require(company, keeper.id)
    assert use_key(tenant, key).status_code == 200 and not company.member("alice").suspended


def test_a_person_is_checked_after_sign_out_where_the_provider_is_required(company: Company, tenant: Tenant) -> None:
    keeper = company.add_person("keeper", "owner")
    company.sign_in()
    alice = company.member("alice")
    key = make_key(tenant, tenant.project_id, alice.id, alice.user_id, "of alice")
    assert log_out(company, company.provider.logout_token()) == 200
    database = company.stores[0]
    make_older = "UPDATE sso_login SET created_at = 1"
    require(company, keeper.id)
    database.write(lambda: database.execute(make_older))
    tenant.services.sso.checks.forget(lambda: True)
    company.check()
    assert use_key(tenant, key).status_code == 200
    account = company.provider.account
    assert account is not None
    account.disabled = True
    company.check()
    assert use_key(tenant, key).status_code == 401
    require(company, keeper.id, required=False)
    assert use_key(tenant, key).status_code == 200


def test_a_refresh_token_that_ends_with_the_session_at_the_provider_suspends_no_account(
    tenant: Tenant, provider: FakeIdentityProvider
) -> None:
    company = Company(tenant, provider, scopes=["openid", "email"])
    keeper = company.add_person("keeper", "owner")
    browser = company.sign_in()
    alice = company.member("alice")
    key = make_key(tenant, tenant.project_id, alice.id, alice.user_id, "of alice")
    require(company, keeper.id)
    assert provider.account is not None
    provider.account.disabled = True
    company.check()
    assert browser.me() is None and use_key(tenant, key).status_code == 200


def test_an_unavailable_provider_ends_sessions_only_when_they_are_too_old(company: Company) -> None:
    browser = company.sign_in()
    with company.provider.away():
        company.check()
        assert browser.me() is not None
    database = company.stores[0]
    company.provider.answer = lambda tokens: (503, {})
    company.check()
    assert browser.me() is not None
    company.provider.answer = lambda tokens: (401, {"error": "invalid_client"})
    company.check()
    assert browser.me() is not None
    database.write(lambda: database.execute("UPDATE sso_login SET valid_until = 1"))
    assert browser.me() is None


def test_a_check_with_false_tokens_or_another_subject_ends_nothing_or_the_session(company: Company) -> None:
    browser = company.sign_in()
    company.provider.falsify = lambda claims: {**claims, "aud": "another client"}
    company.check()
    assert browser.me() is not None
    company.provider.falsify = lambda claims: claims
    browser = company.sign_in()
    company.provider.falsify = lambda claims: {**claims, "sub": "another person"}
    company.check()
    assert browser.me() is None


def test_a_provider_that_is_switched_off_or_deleted_ends_its_sessions(company: Company, tenant: Tenant) -> None:
    browser = company.sign_in()
    providers = tenant.services.sso.service.providers
    before = providers.find(company.provider_id)
    draft = ProviderDraft(before.name, before.issuer, before.client_id, None, False, {"scopes": before.scopes})
    providers.update(company.id, before.id, draft, actor="test")
    assert browser.me() is None
    assert browser.get(f"/console/sso/{before.id}").status_code == 404


def test_back_channel_logout_ends_the_sessions_of_the_subject_or_session(company: Company, tenant: Tenant) -> None:
    first = company.account("alice", sid="one")
    company.provider.account = first
    first_session = company.sign_in()
    company.provider.account = company.account("alice", sid="two")
    two = company.sign_in()
    device = sign_in_device(tenant, two)
    company.provider.account = company.account("grace")
    second_session = company.sign_in()
    company.provider.account = first
    token = company.provider.logout_token(sid="one")
    assert log_out(company, token) == 200
    assert first_session.me() is None and two.me() is not None
    assert log_out(company, token) == 400  # it counts once
    assert log_out(company, company.provider.logout_token()) == 200
    assert two.me() is None and not device_works(tenant, device)
    assert second_session.me() is not None


def test_false_logout_tokens_from_elsewhere_stop_no_logout(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sso_sign_in, "LOGOUTS", 2)
    browser = company.sign_in()
    service = company.tenant.services.sso.service
    for refused in (Forbidden, Forbidden, RateLimited):
        with pytest.raises(refused):
            service.log_out(company.provider_id, "nonsense", "203.0.113.9")
    assert log_out(company, company.provider.logout_token()) == 200 and browser.me() is None


def test_false_logout_tokens_end_nothing(company: Company) -> None:
    browser = company.sign_in()
    provider = company.provider
    false_tokens = [
        provider.logout_token(aud="another client"),
        provider.logout_token(iss="https://other.example"),
        provider.logout_token(events={}),
        provider.logout_token(events=None),
        provider.logout_token(nonce="n"),
        provider.logout_token(jti=None),
        provider.logout_token(sub=None),
        provider.logout_token(exp=1_000_000_000, iat=1_000_000_000),
        provider.logout_token(iat=1_000_000_000),
        "nonsense",
        "",
    ]
    assert [log_out(company, token) for token in false_tokens] == [400] * len(false_tokens)
    assert browser.me() is not None
    unknown = company.tenant.address + "/oauth/back-channel-logout/idp_unknown"
    assert httpx.post(unknown, data={"logout_token": provider.logout_token()}, timeout=60).status_code == 400


def test_a_session_that_ended_is_renewed_without_a_page_while_the_provider_knows_the_person(company: Company) -> None:
    browser = company.sign_in()
    browser.web.cookies.delete(COOKIE)
    login = browser.get(browser.get("/console/keys").headers["location"])
    assert "silent=1" in login.headers["location"]
    redirect = browser.get(login.headers["location"])
    assert "prompt=none" in redirect.headers["location"]
    back = browser.get(browser.get(redirect.headers["location"]).headers["location"])
    assert back.headers["location"].endswith("/console/keys") and browser.me() is not None
    assert BROWSER_COOKIE not in browser.web.cookies
    browser.web.cookies.delete(COOKIE)
    company.provider.account = None
    for error in ("login_required", "interaction_required", "consent_required", "account_selection_required"):
        company.provider.silent_error = error
        browser.web.cookies.set(PROVIDER_COOKIE, company.provider_id)
        silent = browser.get("/console/login?redirect=/console/keys").headers["location"]
        redirect = browser.get(silent)
        back = browser.get(browser.get(redirect.headers["location"]).headers["location"])
        assert "sso=again" in back.headers["location"] and "redirect=%2Fconsole%2Fkeys" in back.headers["location"]
        assert BROWSER_COOKIE not in browser.web.cookies
    assert browser.get(back.headers["location"]).status_code == 200


def test_a_provider_without_refresh_tokens_gives_sessions_of_a_limited_length(company: Company) -> None:
    company.provider.gives_refresh_tokens = False
    browser = company.sign_in()
    database = company.stores[0]
    sql = "SELECT check_at, valid_until - created_at FROM sso_login ORDER BY created_at DESC LIMIT 1"
    assert database.read(lambda: tuple(database.execute(sql).fetchone())) == (0, 28_800_000_000)
    company.check()
    assert browser.me() is not None


def settle(tenant: Tenant, name: str) -> tuple[str, str, str]:
    return tenant.settle(name, 0)


def identity_of(company: Company, name: str) -> Any:
    account = company.account(name)
    return ProviderIdentity(company.provider.address, account.subject, account.email, name, None)


def make_key(tenant: Tenant, project_id: str, member_id: str, user_id: str, name: str) -> str:
    draft = Draft(project_id, member_id, name)
    return tenant.services.management.create_key(draft, Limits(), actor=user_id).token


def use_key(tenant: Tenant, key: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.get(f"{tenant.address}/v1/key", headers=headers, timeout=60)


def log_out(company: Company, token: str) -> int:
    address = f"{company.tenant.address}/oauth/back-channel-logout/{company.provider_id}"
    answer = httpx.post(address, data={"logout_token": token}, timeout=60)
    assert answer.headers.get_list("cache-control") == ["no-store, no-transform"]
    return answer.status_code


def sign_in_device(tenant: Tenant, browser: Browser) -> str:
    """Run the device flow of the command-line client, approved in the browser; return the session's token."""
    with httpx.Client(base_url=tenant.address, timeout=60) as http:
        grant = http.post("/auth/device/code", json={"client_id": "llmgateway-cli"}).json()
        page = browser.get(grant["verification_uri_complete"])
        csrf = page.text.split('name="csrf" value="')[1].split('"')[0]
        done = browser.post("/console/device", user_code=grant["user_code"], csrf=csrf, decision="approve")
        assert "is signed in" in done.text
        body = {
            "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
            "device_code": grant["device_code"],
            "client_id": "llmgateway-cli",
        }
        answer = http.post("/auth/device/token", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"])


def device_works(tenant: Tenant, token: str) -> bool:
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.get(f"{tenant.address}/user/me", headers=headers, timeout=60)
    return answer.status_code == 200


def connect_application(tenant: Tenant, browser: Browser) -> str:
    """Authorize an MCP client on the consent page in the browser; return its access token."""
    person = Person(tenant.address, "")
    person.web = browser.web
    app = App(tenant.address)
    query = parameters(person.decide(app.address()))
    return str(app.exchange(query["code"]).json()["access_token"])


def application_works(tenant: Tenant, token: str) -> bool:
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    answer = httpx.post(f"{tenant.address}/mcp", json=ping, headers=headers, timeout=60)
    return answer.status_code == 200


def test_device_and_consent_pages_lead_through_the_provider(company: Company, tenant: Tenant) -> None:
    with httpx.Client(base_url=tenant.address, timeout=60) as http:
        grant = http.post("/auth/device/code", json={"client_id": "llmgateway-cli"}).json()
    app = App(tenant.address)
    for page in (grant["verification_uri_complete"], app.address()):
        browser = company.browser()
        login = browser.get(browser.get(page).headers["location"])
        choose = login.text.split('href="')[1:]
        link = next(part.split('"')[0] for part in choose if "/sso?" in part).replace("&amp;", "&")
        begin = browser.get(f"{link}&email=alice@{company.domain}").headers["location"]
        callback = browser.get(browser.get(begin).headers["location"]).headers["location"]
        back = browser.get(callback)
        assert back.headers["location"] == page
        assert browser.get(page).status_code == 200


def test_provisioned_people_sign_in_at_once_and_others_cannot_take_their_accounts(company: Company) -> None:
    directory = IdentityProvider.of(company.tenant, company.id)
    address = f"alice@{company.domain}"
    alice = directory("POST", "/Users", {"userName": address, "displayName": "Alice"})
    browser = company.sign_in()
    assert company.reached(browser) == {company.id}
    assert company.member("alice").id == alice["id"]
    # The account is connected now, so that another subject with the same address is refused.
    company.provider.account = Account("another-subject", address, name="Mallory")
    company.refuse()
    directory.patch(f"/Users/{alice['id']}", {"op": "Replace", "path": "active", "value": "False"})
    assert browser.me() is None
    company.provider.account = company.account("alice")
    company.refuse()


def test_an_account_with_a_password_is_not_connected_by_provisioning(company: Company) -> None:
    person = company.add_person("alice")
    directory = IdentityProvider.of(company.tenant, company.id)
    adopted = directory("POST", "/Users", {"userName": person.email})
    assert adopted["id"] == person.id
    company.refuse()
