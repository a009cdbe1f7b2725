"""Single sign-on through the pages: successful sign-ins, connected accounts and refused sign-ins."""

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest
from joserfc import jwk, jwt
from support.identity_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    Account,
    Browser,
    FakeIdentityProvider,
    Json,
    make_key,
    write_settings,
)
from support.shared import Share, Tenant

from gateway.accounts import audit, identities, members
from gateway.accounts.members import find_member
from gateway.accounts.second_factor import STEP_S, code_at

COOKIE = "llmgateway.session_token"


@pytest.fixture
def provider(share: Share) -> FakeIdentityProvider:
    fake: FakeIdentityProvider = share.fake(FakeIdentityProvider)
    fake.reset()
    return fake


@pytest.fixture
def tenant(share: Share, provider: FakeIdentityProvider) -> Tenant:
    """A gateway with three providers of the installation, which differ in what they may do."""
    own = {"scopes": ["openid", "email", "profile", "offline_access"]}
    gateway = share.gateway(
        {
            "GATEWAY_IDENTITY_PROVIDERS": write_settings(
                linking={**provider.settings, **own, "link_by_email": True},
                strict={**provider.settings, **own},
                other={**provider.settings, **own, "link_by_email": True, "trust_email": True},
            )
        }
    )
    database = gateway.services.store.database
    database.write(lambda: database.execute("DELETE FROM attempt"))
    return gateway


@pytest.fixture
def browser(tenant: Tenant) -> Browser:
    return Browser(tenant.address)


@pytest.fixture
def alice(tenant: Tenant, provider: FakeIdentityProvider) -> Account:
    """A member of the tenant's organization, whose account at the provider has the same e-mail address."""
    name = f"alice-{tenant.organization_id[-8:]}"
    provider.account = Account(name, f"{name}@acme.example")
    stores = tenant.services.store.database, tenant.services.store.control
    members.add_member(*stores, tenant.organization_id, provider.account.email, "developer", actor="test")
    return provider.account


def refused(tenant: Tenant, browser: Browser, callback: str) -> str:
    """Return the text of the page that refuses a callback, and check that the browser is not signed in."""
    answer = browser.get(callback)
    assert answer.status_code in (401, 403, 409, 503), answer.text
    assert COOKIE not in browser.web.cookies and browser.me() is None
    return answer.text


def test_a_person_signs_in_and_returns_to_the_page_that_asked(
    tenant: Tenant, browser: Browser, provider: FakeIdentityProvider, alice: Account
) -> None:
    page = browser.get("/console/keys")
    login = browser.get(page.headers["location"])
    assert "Continue with Acme" in login.text and "redirect=%2Fconsole%2Fkeys" in login.text
    answer = browser.sign_in("linking", "?redirect=%2Fconsole%2Fkeys")
    assert answer.headers["location"] == f"{tenant.address}/console/keys"
    assert browser.get("/console/keys").status_code == 200
    me = browser.me()
    assert me is not None and me["user"]["email"] == alice.email
    authorization = provider.authorizations[-1]
    assert authorization["scope"].split() == ["openid", "email", "profile", "offline_access"]
    assert authorization["redirect_uri"] == f"{tenant.address}/console/sso/linking/callback"
    again = Browser(tenant.address)
    assert again.sign_in("linking").status_code == 303 and again.me() is not None


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/a\nb"]
)
def test_the_return_leads_only_to_this_gateway(browser: Browser, alice: Account, tenant: Tenant, target: str) -> None:
    answer = browser.sign_in("linking", f"?redirect={quote(target)}")
    assert answer.headers["location"] == f"{tenant.address}/console"


def test_an_unverified_address_connects_no_account(
    tenant: Tenant, browser: Browser, provider: FakeIdentityProvider, alice: Account
) -> None:
    for verified in (False, None):
        alice.verified = verified
        assert "no verified e-mail address" in refused(tenant, browser, browser.to_callback("linking"))
    alice.verified = False
    assert "no verified e-mail address" in refused(tenant, browser, browser.to_callback("other"))


def test_an_address_alone_connects_no_account_unless_the_provider_may(
    tenant: Tenant, browser: Browser, alice: Account
) -> None:
    assert "already an account" in refused(tenant, browser, browser.to_callback("strict"))


def test_an_address_of_another_identity_takes_over_no_account(
    tenant: Tenant, browser: Browser, provider: FakeIdentityProvider, alice: Account
) -> None:
    assert browser.sign_in("linking").status_code == 303
    thief = Browser(tenant.address)
    provider.account = Account("mallory", alice.email)
    assert "another identity provider" in refused(tenant, thief, thief.to_callback("linking"))
    provider.account = Account(alice.subject, "renamed@acme.example")
    renamed = Browser(tenant.address)
    assert renamed.sign_in("linking").status_code == 303
    me = renamed.me()
    assert me is not None and me["user"]["email"] == alice.email


def test_owners_and_accounts_with_a_second_factor_are_not_connected_by_address(
    tenant: Tenant, browser: Browser, alice: Account
) -> None:
    factors = tenant.services.management.second_factors
    database = tenant.services.store.database
    user_id = database.read(lambda: members.User.get(members.User.email == alice.email)).id
    secret = factors.begin(user_id, alice.email).secret
    key = base64.b32decode(secret + "=" * (-len(secret) % 8))
    factors.confirm(user_id, code_at(key, int(time.time()) // STEP_S), "")
    assert "already an account" in refused(tenant, browser, browser.to_callback("linking"))


def test_owners_are_not_connected_by_address(tenant: Tenant, browser: Browser, alice: Account) -> None:
    database = tenant.services.store.database
    database.write(lambda: members.Member.update(role="owner").where(members.Member.user == user_of(tenant)).execute())
    assert "already an account" in refused(tenant, browser, browser.to_callback("linking"))


def user_of(tenant: Tenant) -> str:
    """Return the id of the newest account."""
    sql = 'SELECT id FROM "user" ORDER BY id DESC LIMIT 1'
    user_id: str = tenant.services.store.database.query_row(sql)[0]
    return user_id


def test_a_connection_by_address_ends_what_opened_the_account_before(
    tenant: Tenant, browser: Browser, alice: Account
) -> None:
    """Another organization may have invited the address and chosen the password."""
    management = tenant.services.management
    user_id = user_of(tenant)
    hashed = tenant.services.background.passwords.hash("a long enough password")
    database = tenant.services.store.database
    database.write(lambda: members.User.update(password_hash=hashed).where(members.User.id == user_id).execute())
    session = management.sessions.open(user_id).token
    credentials = {"email": alice.email, "password": "a long enough password"}
    assert httpx.post(f"{tenant.address}/auth/sign-in/email", json=credentials, timeout=60).status_code == 200
    assert browser.sign_in("linking").status_code == 303
    assert httpx.post(f"{tenant.address}/auth/sign-in/email", json=credentials, timeout=60).status_code == 401
    headers = {"Authorization": f"Bearer {session}"}
    assert httpx.get(f"{tenant.address}/orgs", headers=headers, timeout=60).status_code == 401
    assert browser.me() is not None


def test_people_without_an_account_are_refused_unless_the_provider_creates_accounts(
    tenant: Tenant, browser: Browser, provider: FakeIdentityProvider
) -> None:
    provider.account = Account("nobody-knows", "nobody@acme.example")
    assert "no account for you" in refused(tenant, browser, browser.to_callback("linking"))


def test_a_deactivated_account_stays_out(tenant: Tenant, browser: Browser, alice: Account) -> None:
    assert browser.sign_in("linking").status_code == 303
    database = tenant.services.store.database
    user = members.User
    database.write(user.update(status="inactive").where(user.email == alice.email).execute)
    second = Browser(tenant.address)
    assert "deactivated" in refused(tenant, second, second.to_callback("linking"))


FALSE_CLAIMS: dict[str, Callable[[Json], Json]] = {
    "issuer": lambda claims: {**claims, "iss": "https://other.example"},
    "no issuer": lambda claims: {**claims, "iss": None},
    "audience": lambda claims: {**claims, "aud": "another client"},
    "several audiences": lambda claims: {**claims, "aud": [CLIENT_ID, "another client"]},
    "authorized party": lambda claims: {**claims, "azp": "another client"},
    "nonce": lambda claims: {**claims, "nonce": "of another flow"},
    "no nonce": lambda claims: {name: value for name, value in claims.items() if name != "nonce"},
    "expired": lambda claims: {**claims, "exp": int(time.time()) - 3600, "iat": int(time.time()) - 7200},
    "no expiry": lambda claims: {name: value for name, value in claims.items() if name != "exp"},
    "issued in the future": lambda claims: {**claims, "iat": int(time.time()) + 3600},
    "not yet valid": lambda claims: {**claims, "nbf": int(time.time()) + 3600},
    "hash of the access token": lambda claims: {**claims, "at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
    "no subject": lambda claims: {name: value for name, value in claims.items() if name != "sub"},
    "a subject that is no text": lambda claims: {**claims, "sub": 7},
    "a long subject": lambda claims: {**claims, "sub": "x" * 256},
}


@pytest.mark.parametrize("name", FALSE_CLAIMS)
def test_false_claims_are_refused(
    tenant: Tenant, browser: Browser, provider: FakeIdentityProvider, alice: Account, name: str
) -> None:
    provider.falsify = FALSE_CLAIMS[name]
    assert "could not be signed in" in refused(tenant, browser, browser.to_callback("linking"))


def unsigned(claims: Json, **header: Any) -> str:
    parts = ({"alg": "none", **header}, claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


def test_tokens_without_a_valid_signature_are_refused(
    tenant: Tenant, browser: Browser, provider: FakeIdentityProvider, alice: Account
) -> None:
    public = provider.keys[0].as_pem(private=False)

    def confused(claims: Json) -> str:
        """Sign with the public key as the secret of an HMAC."""
        text = unsigned(claims, alg="HS256", kid="first").rstrip(".")
        digest = hmac.new(public, text.encode(), hashlib.sha256).digest()
        return f"{text}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"

    def embedded(claims: Json) -> str:
        """Name the key of the attacker in the header."""
        key = make_key("first")
        return jwt.encode({"alg": "RS256", "kid": "first", "jwk": key.as_dict(private=False)}, claims, key)

    def by_client_secret(claims: Json) -> str:
        return jwt.encode({"alg": "HS256"}, claims, jwk.OctKey.import_key(b"a secret that is long enough for HS256"))

    stranger = make_key("stranger")
    forgeries = {
        "none": unsigned,
        "hmac": confused,
        "embedded": embedded,
        "secret": by_client_secret,
        "unknown key": lambda claims: jwt.encode({"alg": "RS256", "kid": "stranger"}, claims, stranger),
        "no token": lambda claims: "",
        "nonsense": lambda claims: "eyJhbGciOiJSUzI1NiJ9.e30.AAAA",
    }
    for forge in forgeries.values():
        provider.sign = forge
        assert "could not be signed in" in refused(tenant, browser, browser.to_callback("linking"))


def test_a_rotated_key_is_found_and_the_old_one_ends(
    request: pytest.FixtureRequest, tenant: Tenant, browser: Browser, provider: FakeIdentityProvider, alice: Account
) -> None:
    assert browser.sign_in("linking").status_code == 303
    old = provider.keys[0]
    provider.keys = [make_key("second")]
    keys = tenant.services.sso.service.client._trusted_keys["linking"]
    for entry in keys._memory.values():
        entry.tried_at -= 60  # more than the time between two looks for an unknown key
    request.addfinalizer(keys._memory.clear)
    second = Browser(tenant.address)
    assert second.sign_in("linking").status_code == 303
    provider.sign = lambda claims: jwt.encode({"alg": "RS256", "kid": "first"}, claims, old)
    third = Browser(tenant.address)
    assert "could not be signed in" in refused(tenant, third, third.to_callback("linking"))


def test_a_response_counts_once_and_in_the_browser_that_requested_it(
    tenant: Tenant, browser: Browser, provider: FakeIdentityProvider, alice: Account
) -> None:
    callback = browser.to_callback("linking")
    victim = Browser(tenant.address)
    assert "begun in another browser" in refused(tenant, victim, callback)
    victim.to_provider("linking")  # begins another flow
    assert "begun in another browser" in refused(tenant, victim, callback)
    assert browser.get(callback).status_code == 303
    browser.web.cookies.delete(COOKIE)
    assert "begun in another browser" in refused(tenant, browser, callback)


def test_a_changed_state_code_provider_or_issuer_is_refused(
    tenant: Tenant, browser: Browser, provider: FakeIdentityProvider, alice: Account
) -> None:
    changes = {
        "state": lambda url, query: url.replace(query["state"][0], "x" * 32),
        "code": lambda url, query: url.replace(query["code"][0], "x" * 22),
        "provider": lambda url, query: url.replace("/sso/linking/", "/sso/strict/"),
        "issuer": lambda url, query: url.replace("iss=http", "iss=https"),
        "no issuer": lambda url, query: url.partition("&iss=")[0] + "&code=" + query["code"][0],
    }
    for change in changes.values():
        callback = browser.to_callback("linking")
        changed = change(callback, parse_qs(urlsplit(callback).query))
        assert changed != callback
        refused(tenant, browser, changed)
    assert browser.get("/console/sso/linking/callback").status_code == 401


def test_a_code_of_another_flow_is_refused_by_its_verifier(
    tenant: Tenant, browser: Browser, provider: FakeIdentityProvider, alice: Account
) -> None:
    stolen = parse_qs(urlsplit(Browser(tenant.address).to_callback("linking")).query)["code"][0]
    callback = browser.to_callback("linking")
    own = parse_qs(urlsplit(callback).query)["code"][0]
    refused(tenant, browser, callback.replace(own, stolen))


def test_refusals_of_the_provider_are_shown_and_quoted_safely(
    tenant: Tenant, browser: Browser, provider: FakeIdentityProvider, alice: Account
) -> None:
    provider.account = None
    assert "did not accept the sign-in. Try again" in refused(tenant, browser, browser.to_callback("linking"))
    provider.account = alice
    provider.answer = lambda tokens: (400, {"error": "<script>alert(1)</script>"})
    text = refused(tenant, browser, browser.to_callback("linking"))
    assert "<script" not in text and "scriptalert1script" in text
    for status, body in ((500, {}), (200, {"token_type": "Bearer"}), (302, {}), (200, [])):
        provider.answer = lambda tokens, status=status, body=body: (status, body)
        refused(tenant, browser, browser.to_callback("linking"))


def test_a_name_and_address_may_come_from_userinfo(
    tenant: Tenant, browser: Browser, provider: FakeIdentityProvider, alice: Account
) -> None:
    provider.thin_tokens = True
    assert browser.sign_in("linking").status_code == 303
    me = browser.me()
    assert me is not None and me["user"]["email"] == alice.email
    assert "/userinfo" in provider.requested_paths


def test_no_secret_reaches_the_browser_or_the_audit_log(
    tenant: Tenant, browser: Browser, provider: FakeIdentityProvider, alice: Account
) -> None:
    address = browser.to_provider("linking")
    assert "code_challenge=" in address and "verifier" not in address and "secret" not in address
    browser.sign_in("linking")
    entries = audit.list_entries(tenant.services.store.database, limit=20)
    assert {"session.create", "identity.link"} <= {entry.action for entry in entries}
    hidden = [CLIENT_SECRET, provider.authorizations[-1]["nonce"], provider.authorizations[-1]["state"]]
    assert not any(text in entry.detail for entry in entries for text in hidden)


def sign_out(browser: Browser) -> httpx.Response:
    csrf = (
        browser.get("/console/account").text.split('/console/logout"')[1].split('name="csrf" value="')[1].split('"')[0]
    )
    return browser.post("/console/logout", csrf=csrf)


def test_sign_out_ends_the_session_at_the_provider_too(
    tenant: Tenant, browser: Browser, provider: FakeIdentityProvider, alice: Account
) -> None:
    browser.sign_in("linking")
    answer = sign_out(browser)
    assert answer.status_code == 200 and browser.me() is None
    address = answer.headers["refresh"].partition("url=")[2]
    assert address.startswith(f"{provider.address}/logout?theme=dark&client_id=gateway+client%2B1&")
    back = browser.get(address)
    assert back.headers["location"] == f"{tenant.address}/console/login" and provider.account is None
    assert browser.get(back.headers["location"]).status_code == 200


def test_sign_out_needs_no_readable_id_token(
    tenant: Tenant, browser: Browser, provider: FakeIdentityProvider, alice: Account
) -> None:
    browser.sign_in("linking")
    database = tenant.services.store.database
    database.write(lambda: database.execute("UPDATE sso_login SET id_token_hint = 'sealed with a lost key'"))
    assert sign_out(browser).status_code == 303 and browser.me() is None


def test_sign_out_needs_no_provider(
    tenant: Tenant, browser: Browser, provider: FakeIdentityProvider, alice: Account
) -> None:
    browser.sign_in("linking")
    discovery = tenant.services.sso.service.client._discovery
    provider.change_document = lambda document: {**document, "end_session_endpoint": None}
    discovery._memory.clear()
    answer = sign_out(browser)
    assert answer.headers["location"] == f"{tenant.address}/console/login" and browser.me() is None
    provider.change_document = lambda document: document
    discovery._memory.clear()
    browser.sign_in("linking")
    discovery._memory.clear()
    with provider.away():
        assert sign_out(browser).status_code == 303
    discovery._memory.clear()
    assert browser.me() is None
    browser.web.cookies.set(COOKIE, tenant.services.management.sessions.open(find_user_id(tenant, alice.email)).token)
    assert sign_out(browser).headers["location"] == f"{tenant.address}/console/login"


def test_a_person_connects_and_disconnects_an_identity_on_the_account_page(
    tenant: Tenant, provider: FakeIdentityProvider, alice: Account
) -> None:
    services = tenant.services
    user_id = find_user_id(tenant, alice.email)
    browser = Browser(tenant.address)
    browser.web.cookies.set(COOKIE, services.management.sessions.open(user_id).token)
    page = browser.get("/console/account").text
    assert re.findall(r"/console/sso/(\w+)/connect", page) == ["linking", "strict", "other"]
    csrf = page.split('/console/sso/strict/connect"')[1].split('name="csrf" value="')[1].split('"')[0]
    redirect = browser.post("/console/sso/strict/connect", csrf=csrf)
    assert browser.get(browser.get(redirect.headers["location"]).headers["location"]).status_code == 303
    (linked,) = identities.list_identities(services.store.database, user_id)
    assert linked.subject == alice.subject and linked.provider_id == "strict"
    page = browser.get("/console/account").text
    assert re.findall(r"/console/sso/(\w+)/connect", page) == ["linking", "other"]
    assert page.count("<strong>Acme</strong>") == 3 and page.count(">Disconnect<") == 1
    other_browser = Browser(tenant.address)
    assert other_browser.sign_in("strict").status_code == 303 and other_browser.me() is not None
    answer = browser.web.delete(f"{tenant.address}/auth/identities/{linked.id}", headers={"Origin": tenant.address})
    assert answer.status_code == 200, answer.text
    assert other_browser.me() is None
    other_browser.web.cookies.delete(COOKIE)
    assert "already an account" in refused(tenant, other_browser, other_browser.to_callback("strict"))


def test_an_identity_is_connected_only_by_the_person_who_began_it(
    tenant: Tenant, provider: FakeIdentityProvider, alice: Account
) -> None:
    services = tenant.services
    user_id = find_user_id(tenant, alice.email)
    browser = Browser(tenant.address)
    browser.web.cookies.set(COOKIE, services.management.sessions.open(user_id).token)
    assert browser.post("/console/sso/strict/connect", csrf="x").status_code == 403
    assert identities.list_identities(services.store.database, user_id) == []


def find_user_id(tenant: Tenant, email: str) -> str:
    database = tenant.services.store.database
    for member in members.list_members(database, tenant.organization_id):
        if member.email == email:
            return find_member(database, tenant.organization_id, member.user_id).user_id
    raise AssertionError(email)


def test_unknown_providers_and_unreachable_ones_are_errors(tenant: Tenant, browser: Browser) -> None:
    assert browser.get("/console/sso/unknown").status_code == 404
    assert browser.get("/console/sso/unknown/callback?state=a&code=b").status_code == 401
    assert browser.get("/console/sso/%2e%2e").status_code in (303, 404)
