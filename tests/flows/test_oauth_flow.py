"""The whole way of an application: registration, consent, code, tokens, refreshing, their end."""

import hashlib
import json
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from support.oauth import BACK, SCOPE, App, Person, owner_of, parameters
from support.shared import Tenant

from gateway.accounts import audit, keys
from gateway.limits.budgets import Limits
from gateway.oauth.clients import KIND, read_metadata

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture
def person(gateway: Tenant) -> Person:
    return owner_of(gateway)


@pytest.fixture
def app(gateway: Tenant, person: Person) -> App:
    return App(gateway.address)


def ping(base: str, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    with httpx.Client(timeout=60) as http:
        return http.post(f"{base}/mcp", json=PING, headers=headers).status_code


def test_an_application_gets_in_and_stays_until_it_leaves(gateway: Tenant, app: App, person: Person) -> None:
    tokens = app.connect(person)
    assert tokens["token_type"] == "Bearer" and tokens["expires_in"] == 3600 and tokens["scope"] == SCOPE
    assert ping(gateway.address, tokens["access_token"]) == 200
    again = app.refresh(tokens["refresh_token"])
    assert again.status_code == 200 and "no-store" in again.headers["cache-control"]
    assert again.headers["pragma"] == "no-cache"
    fresh = again.json()
    assert ping(gateway.address, fresh["access_token"]) == 200
    left = app.post("/oauth/revoke", token=fresh["refresh_token"], token_type_hint="refresh_token")
    assert left.status_code == 200
    assert {ping(gateway.address, one["access_token"]) for one in (tokens, fresh)} == {401}
    assert app.post("/oauth/revoke", token="llmgrt_nobody").status_code == 200
    assert app.refresh(fresh["refresh_token"]).json()["error"] == "invalid_grant"


def test_registration_shows_stored_members_and_leaves_out_absent_ones(gateway: Tenant, app: App) -> None:
    client = app.answer.json()
    assert app.answer.status_code == 201 and "no-store" in app.answer.headers["cache-control"]
    assert client["redirect_uris"] == [BACK] and client["token_endpoint_auth_method"] == "none"
    assert type(client["client_id_issued_at"]) is int and "client_secret" not in client and None not in client.values()
    confidential = App(gateway.address, token_endpoint_auth_method=None, logo_uri=None, client_name=None).answer.json()
    assert confidential["token_endpoint_auth_method"] == "client_secret_basic"
    assert confidential["client_secret"] and confidential["client_secret_expires_at"] == 0
    assert "logo_uri" not in confidential


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"redirect_uris": ["http://example.com/cb"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["javascript:alert(1)"]}, "invalid_redirect_uri"),
        ({"redirect_uris": []}, "invalid_redirect_uri"),
        ({"redirect_uris": None}, "invalid_redirect_uri"),
        ({"redirect_uris": "https://a.example/"}, "invalid_client_metadata"),
        ({"grant_types": ["implicit"]}, "invalid_client_metadata"),
        ({"grant_types": ["client_credentials"]}, "invalid_client_metadata"),
        ({"token_endpoint_auth_method": "private_key_jwt"}, "invalid_client_metadata"),
    ],
)
def test_a_refused_registration_names_the_mistake(
    gateway: Tenant, app: App, metadata: dict[str, Any], error: str
) -> None:
    answer = App(gateway.address, **metadata).answer
    assert (answer.status_code, answer.json()["error"]) == (400, error) and answer.json()["error_description"]


def test_a_client_with_a_secret_sends_it_in_either_way_and_not_without(gateway: Tenant, person: Person) -> None:
    for method in ("client_secret_basic", "client_secret_post"):
        app = App(gateway.address, token_endpoint_auth_method=method)
        code = parameters(person.decide(app.address()))["code"]
        wrong = app.exchange(code, client_secret="llmgcs_" + "0" * 40)
        assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_client")
        assert app.exchange(code, client_secret=None).status_code == 401
        if method == "client_secret_post":
            assert app.exchange(code).status_code == 200
            continue
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK, "code_verifier": app.verifier}
        tried = app.web.post(f"{app.base}/oauth/token", data=form, auth=(app.id, "wrong"))
        assert tried.status_code == 401 and tried.headers["www-authenticate"].startswith("Basic")
        assert app.web.post(f"{app.base}/oauth/token", data=form, auth=(app.id, app.secret)).status_code == 200


def test_a_denial_is_reported_to_the_application(app: App, person: Person) -> None:
    location = person.decide(app.address(), "deny")
    redirect = parameters(location)
    assert location.startswith(BACK) and redirect["error"] == "access_denied" and redirect["state"] == "the state"
    assert redirect["iss"] == app.base and "code" not in redirect


def test_the_page_shows_application_and_scopes_and_offers_the_persons_keys(
    gateway: Tenant, app: App, person: Person
) -> None:
    page = person.open(app.address())
    policy = page.headers["content-security-policy"]
    assert "form-action" not in policy and "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert page.headers["x-frame-options"] == "DENY" and "no-store" in page.headers["cache-control"]
    assert "An editor" in page.text and "localhost" in page.text and "<script" not in page.text
    assert page.text.count("<option") == 1 and gateway.key not in page.text
    form = person.submit(page, decision="allow", csrf="0" * 64)
    assert form.status_code == 403 and "location" not in form.headers
    foreign = person.web.post(str(page.url), data={"decision": "allow"}, headers={"Origin": "https://evil.example"})
    assert foreign.status_code == 403
    refused = person.submit(page, decision="allow", key="key_of_somebody_else")
    assert refused.status_code == 404 and "location" not in refused.headers
    changed = person.submit(page, decision="allow", request=str(app.address(scope="mcp:tools")).partition("?")[2])
    assert changed.status_code == 403
    assert person.submit(page, decision="whatever").status_code == 400


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"client_id": "client_unknown"}, 400),
        ({"client_id": None}, 400),
        ({"redirect_uri": "https://evil.example/"}, 400),
        ({"redirect_uri": "http://localhost:49152/callback/other"}, 400),
        ({"redirect_uri": "http://127.0.0.1:49152/callback"}, 400),
        ({"redirect_uri": None}, 400),
        ({"redirect_uri": [BACK, BACK]}, 400),
        ({"redirect_uri": "http://localhost:1/callback"}, 303),
    ],
)
def test_addresses_of_other_sites_get_no_redirect(app: App, more: dict, status: int) -> None:
    answer = app.web.get(app.address(**more))
    assert answer.status_code == status
    assert urlsplit(answer.headers.get("location", app.base)).netloc == urlsplit(app.base).netloc


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": None}, "invalid_request"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"scope": "everything"}, "invalid_scope"),
        ({"scope": ["mcp:tools", "mcp:tools"]}, "invalid_request"),
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
        ({"state": "s" * 4_100}, "invalid_request"),
    ],
)
def test_errors_of_an_application_are_sent_to_its_redirect_address(app: App, more: dict, error: str) -> None:
    answer = app.web.get(app.address(**more))
    redirect = parameters(answer.headers["location"])
    assert answer.status_code == 302 and answer.headers["location"].startswith(BACK + "?")
    assert redirect["error"] == error and redirect["iss"] == app.base and redirect["error_description"]
    assert "no-store" in answer.headers["cache-control"]
    assert redirect.get("state") == (None if "state" in more else "the state")


def test_invalid_requests_of_an_application_never_redirect_to_an_unauthorized_site(
    gateway: Tenant, person: Person
) -> None:
    """Anyone may register a site, and a link to the gateway redirected everyone there at once (RFC 9700, 4.11.2)."""
    site = "https://site.example/back"
    app = App(gateway.address, redirect_uris=[site], client_name="A <b>site</b>")
    address = app.address(redirect_uri=site, scope="everything")
    answer = app.web.get(address)
    assert answer.status_code == 303 and answer.headers["location"].startswith(f"{app.base}/console/login?")
    page = person.open(address)
    assert page.status_code == 400 and "location" not in page.headers
    assert f'href="{site}?error=invalid_scope&amp;' in page.text and "site.example" in page.text
    assert "A &lt;b&gt;site" in page.text and page.headers["x-frame-options"] == "DENY"
    location = person.decide(app.address(redirect_uri=site))
    assert location.startswith(f"{site}?code=")
    again = person.open(address)  # the person has approved the site
    assert again.status_code == 302 and parameters(again.headers["location"])["error"] == "invalid_scope"


@pytest.mark.parametrize(
    ("prompt", "is_signed_in", "error"),
    [
        ("none", False, "login_required"),
        ("none", True, "interaction_required"),
        (" none ", True, "interaction_required"),
        ("none login", False, "invalid_request"),
    ],
)
def test_a_request_without_a_page_gets_its_error_by_redirect(
    gateway: Tenant, app: App, person: Person, prompt: str, is_signed_in: bool, error: str
) -> None:
    site = "https://site.example/back"
    website = App(gateway.address, redirect_uris=[site])
    if is_signed_in:
        person.decide(app.address())
    web = person.web if is_signed_in else app.web
    for one, back in ((app, BACK), (website, site)):
        address = one.address(redirect_uri=back, prompt=prompt)
        answer = web.get(address, headers={"sec-fetch-dest": "iframe"})
        assert answer.status_code == 302 and answer.headers["location"].startswith(f"{back}?")
        redirect = parameters(answer.headers["location"])
        assert (redirect["error"], redirect["iss"], redirect["state"]) == (error, app.base, "the state")


@pytest.mark.parametrize("visible", [{"sec-fetch-dest": "document"}, {}], ids=["a page", "an unknown place"])
def test_a_request_without_a_page_redirects_no_visible_page_to_an_unauthorized_site(
    gateway: Tenant, person: Person, visible: dict[str, str]
) -> None:
    site = "https://site.example/back"
    app = App(gateway.address, redirect_uris=[site])
    address = app.address(redirect_uri=site, prompt="none")
    for signed_in in (False, True):
        if signed_in:
            person.open(app.address(redirect_uri=site))
        page = person.web.get(address, headers=visible)
        assert page.status_code == 400 and "location" not in page.headers and "password" not in page.text
        assert f'href="{site}?error=' in page.text
    person.decide(app.address(redirect_uri=site))
    again = person.web.get(address, headers=visible)
    assert parameters(again.headers["location"])["error"] == "interaction_required"


def test_an_unknown_document_is_not_fetched_for_a_request_without_a_page(gateway: Tenant, app: App) -> None:
    answer = app.web.get(app.address(client_id="https://site.example/client.json", prompt="none"))
    assert answer.status_code == 401 and "location" not in answer.headers


@pytest.mark.parametrize(
    ("more", "status", "error"),
    [
        ({"code": "llmgac_" + "0" * 40}, 400, "invalid_grant"),
        ({"code": None}, 400, "invalid_request"),
        ({"code_verifier": "v" * 43}, 400, "invalid_grant"),
        ({"code_verifier": None}, 400, "invalid_request"),
        ({"code_verifier": "short"}, 400, "invalid_request"),
        ({"redirect_uri": "http://localhost:1/callback"}, 400, "invalid_grant"),
        ({"resource": "https://elsewhere.example/mcp"}, 400, "invalid_target"),
        ({"client_id": "client_unknown"}, 401, "invalid_client"),
        ({"client_id": None}, 401, "invalid_client"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        ({"grant_type": None}, 400, "invalid_request"),
    ],
)
def test_the_token_endpoint_says_what_is_wrong_and_the_code_stays_good(
    app: App, person: Person, more: dict, status: int, error: str
) -> None:
    code = parameters(person.decide(app.address()))["code"]
    wrong = app.post(**{"grant_type": "authorization_code", "code": code, "redirect_uri": BACK,
                       "code_verifier": app.verifier, **more})  # fmt: skip
    assert (wrong.status_code, wrong.json()["error"]) == (status, error)
    assert code not in wrong.text and app.verifier not in wrong.text and "no-store" in wrong.headers["cache-control"]
    assert app.exchange(code).status_code == 200


def test_a_code_of_another_client_and_a_code_used_twice_give_nothing(gateway: Tenant, app: App, person: Person) -> None:
    code = parameters(person.decide(app.address()))["code"]
    other_app = App(gateway.address)
    other_app.verifier = app.verifier
    assert other_app.exchange(code).json()["error"] == "invalid_grant"
    tokens = app.exchange(code).json()
    assert other_app.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
    assert ping(gateway.address, tokens["access_token"]) == 200
    assert app.exchange(code).json()["error"] == "invalid_grant"
    assert ping(gateway.address, tokens["access_token"]) == 401


def test_a_stolen_refresh_token_ends_the_family(gateway: Tenant, app: App, person: Person) -> None:
    first = app.connect(person)
    second = app.refresh(first["refresh_token"], scope="mcp:tools").json()
    assert second["scope"] == "mcp:tools"
    assert app.refresh(second["refresh_token"], scope="mcp:other").json()["error"] == "invalid_scope"
    third = app.refresh(second["refresh_token"]).json()
    assert app.refresh(first["refresh_token"]).json()["error"] == "invalid_grant"
    assert app.refresh(third["refresh_token"]).json()["error"] == "invalid_grant"
    assert {ping(gateway.address, one["access_token"]) for one in (first, second, third)} == {401}


def test_offline_access_is_accepted_wherever_an_application_sends_it(gateway: Tenant, app: App, person: Person) -> None:
    metadata = app.web.get(f"{gateway.address}/.well-known/oauth-authorization-server").json()
    assert "offline_access" in metadata["scopes_supported"]
    asked = "openid mcp:tools offline_access"
    registered = App(gateway.address, scope=asked)
    code = parameters(person.decide(registered.address(scope=asked)))["code"]
    first = registered.exchange(code).json()
    assert first["scope"] == "mcp:tools offline_access" and first["refresh_token"]
    second = registered.refresh(first["refresh_token"], scope=asked).json()
    assert second["scope"] == "mcp:tools offline_access"
    # Some applications send the scope at the refresh alone.
    other = app.connect(person)
    assert app.refresh(other["refresh_token"], scope=f"{SCOPE} offline_access").json()["scope"] == SCOPE
    wider = registered.refresh(second["refresh_token"], scope="mcp:tools mcp:prompts offline_access").json()
    assert wider["error"] == "invalid_scope"


def test_a_token_request_needs_no_redirect_address_and_a_wrong_one_is_refused(app: App, person: Person) -> None:
    """OAuth 2.1, section 4.1.3: the verifier of PKCE binds the code to the application."""
    code = parameters(person.decide(app.address()))["code"]
    assert app.exchange(code, redirect_uri="http://localhost:1/callback").json()["error"] == "invalid_grant"
    assert app.exchange(code, redirect_uri=None).json()["access_token"]


def test_the_key_gets_tokens_by_client_credentials(gateway: Tenant, person: Person) -> None:
    form = {"grant_type": "client_credentials", "client_id": "anything", "client_secret": gateway.key}
    web = httpx.Client(timeout=60)
    tokens = web.post(f"{gateway.address}/oauth/token", data=form).json()
    assert "refresh_token" not in tokens and ping(gateway.address, tokens["access_token"]) == 200
    basic = web.post(f"{gateway.address}/oauth/token", json={"grant_type": "client_credentials"},
                     auth=("x", gateway.key))  # fmt: skip
    assert basic.status_code == 200
    wrong = web.post(f"{gateway.address}/oauth/token", data=form | {"client_secret": "llmgtwy_" + "0" * 40})
    assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_client")
    # Neither a key that only generates nor an application without a secret gets tokens for itself.
    services = gateway.services
    owner = services.accounts.authentication.caller(gateway.key)
    draft = keys.Draft(gateway.project_id, owner.member_id, "An end user", "customer")
    customer = services.management.create_key(draft, Limits(), actor="test").token
    only = web.post(f"{gateway.address}/oauth/token", data=form | {"client_secret": customer})
    assert (only.status_code, only.json()["error"]) == (401, "invalid_client")
    assert App(gateway.address).post(grant_type="client_credentials").json()["error"] == "invalid_client"


def test_a_client_that_registers_with_a_key_has_tokens_of_it_until_it_is_rolled(
    gateway: Tenant, person: Person
) -> None:
    web = httpx.Client(headers={"Authorization": f"Bearer {gateway.key}"}, timeout=60)
    metadata = {"client_name": "A robot", "grant_types": ["client_credentials"]}
    registered = web.post(f"{gateway.address}/oauth/register", json=metadata).json()
    assert gateway.key not in str(registered) and registered["client_secret"] and "redirect_uris" not in registered
    form = {"grant_type": "client_credentials", "scope": "mcp:tools"}
    who = (registered["client_id"], registered["client_secret"])
    tokens = web.post(f"{gateway.address}/oauth/token", data=form, auth=who)
    assert tokens.status_code == 200 and ping(gateway.address, tokens.json()["access_token"]) == 200
    services = gateway.services
    key_id = services.accounts.authentication.caller(gateway.key).key_id
    services.management.roll_key(key_id, actor="test")
    assert ping(gateway.address, tokens.json()["access_token"]) == 401
    assert web.post(f"{gateway.address}/oauth/token", data=form, auth=who).status_code == 400
    assert web.post(f"{gateway.address}/oauth/register", json=metadata).status_code == 401


def test_broken_bodies_are_reported_as_such(gateway: Tenant, person: Person) -> None:
    web = httpx.Client(timeout=60)
    form = "application/x-www-form-urlencoded"
    cases = [
        ("/oauth/token", b"grant_type=a&grant_type=b", form),
        ("/oauth/token", b"\xff\xfe", form),
        ("/oauth/token", b"a=%00", form),
        ("/oauth/token", b"<a/>", "text/xml"),
        ("/oauth/token", b"[" * 10_000, "application/json"),
        ("/oauth/token", b"", form),
        ("/oauth/register", b"[]", "application/json"),
        ("/oauth/register", b"{", "application/json"),
        ("/oauth/register", b"a=b", form),
        ("/oauth/revoke", b"token=", form),
    ]
    for path, body, kind in cases:
        answer = web.post(gateway.address + path, content=body, headers={"Content-Type": kind})
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request"), (path, body)
    bad = web.post(f"{gateway.address}/oauth/token", content=b"grant_type=refresh_token",
                   headers={"Content-Type": form, "Authorization": "Basic /w=="})  # fmt: skip
    assert (bad.status_code, bad.json()["error"]) == (401, "invalid_client")


def test_authorizations_and_revocations_are_in_the_audit_log(gateway: Tenant, app: App, person: Person) -> None:
    tokens = app.connect(person)
    app.post("/oauth/revoke", token=tokens["access_token"])
    app.post("/oauth/revoke", token=tokens["refresh_token"])
    audit_entries = audit.list_entries(gateway.services.store.database, gateway.organization_id)
    actions = [one.action for one in audit_entries if one.action.startswith("oauth.")]
    assert actions == ["oauth.revoke", "oauth.revoke_token", "oauth.grant"]
    assert not any(secret in str(audit_entries) for secret in tokens.values() if str(secret).startswith("llmg"))


def test_too_many_registrations_and_requests_from_one_address_wait(
    gateway: Tenant, app: App, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gateway.surfaces.console import authorize
    from gateway.surfaces.oauth import routes

    monkeypatch.setattr(routes, "REGISTRATIONS_PER_MINUTE", 2)
    monkeypatch.setattr(routes, "TOKENS", 2)
    monkeypatch.setattr(authorize, "VIEWS", 2)
    registered = [App(gateway.address).answer for _ in range(2)]
    responses = [app.refresh("llmgrt_x") for _ in range(3)]
    looked = [app.web.get(app.address()) for _ in range(3)]
    for answers in (registered, responses, looked):
        assert answers[-1].status_code == 429 and int(answers[-1].headers["retry-after"]) > 0
    assert registered[-1].json()["error"] == responses[-1].json()["error"] == "temporarily_unavailable"
    person.web.close()


def test_an_application_may_be_known_by_the_address_of_its_document(gateway: Tenant, person: Person) -> None:
    # As if it had been fetched within the hour, by whatever worker.
    address = "https://app.example/client.json"
    document = {"client_name": "A described one", "redirect_uris": ["http://localhost/callback"]}
    metadata = read_metadata({**document, "token_endpoint_auth_method": "none"})
    kept = json.dumps({"until": 10**10, "metadata": metadata}).encode()
    gateway.services.store.documents.put(KIND, hashlib.sha256(address.encode()).hexdigest(), kept, 60)
    app = App(gateway.address)
    app.id = address
    assert address in person.open(app.address()).text
    tokens = app.connect(person)
    assert ping(gateway.address, tokens["access_token"]) == 200
    assert app.refresh(tokens["refresh_token"]).status_code == 200
    # A client with a document inside the network counts as unknown, and the error reveals nothing more about it.
    app.id = "https://127.0.0.1/client.json"
    assert "/console/login" in app.web.get(app.address()).headers["location"]  # never fetched while signed out
    refused = person.open(app.address())
    assert refused.status_code == 400 and "is no longer registered" in refused.text


def test_people_without_an_active_key_see_the_reason(gateway: Tenant, app: App, person: Person) -> None:
    services = gateway.services
    key_id = services.accounts.authentication.caller(gateway.key).key_id
    stores = services.store.database, services.store.control
    keys.update(*stores, key_id, keys.Change("deactivate"), actor="test")
    page = person.open(app.address())
    assert "no active API key" in page.text and 'value="allow"' not in page.text
    assert person.submit(page, decision="allow", key=key_id).status_code == 404
    assert person.submit(page, decision="deny").status_code == 302


def test_pages_of_other_origins_may_register_and_get_tokens_but_not_look_at_the_page_of_consent(
    gateway: Tenant, app: App
) -> None:
    headers = {"Origin": "https://inspector.example", "Access-Control-Request-Method": "POST"}
    for path in ("/oauth/register", "/oauth/token", "/oauth/revoke", "/.well-known/oauth-authorization-server"):
        answer = app.web.options(gateway.address + path, headers=headers)
        assert answer.status_code == 204 and answer.headers["access-control-allow-origin"] == "*", path
    response = app.web.post(f"{gateway.address}/oauth/token", data={}, headers={"Origin": headers["Origin"]})
    assert response.status_code == 400 and response.headers["access-control-allow-origin"] == "*"
    page = app.web.get(app.address(), headers={"Origin": headers["Origin"]})
    assert "access-control-allow-origin" not in page.headers


@pytest.mark.parametrize("place", ["elsewhere", "a%0Ab", "%C3%B8%0A%21", "a//b"])
@pytest.mark.parametrize("document", ["oauth-protected-resource", "oauth-authorization-server", "openid-configuration"])
def test_a_document_that_is_not_there_is_an_error_of_the_standard(
    gateway: Tenant, app: App, document: str, place: str
) -> None:
    answer = app.web.get(f"{gateway.address}/.well-known/{document}/{place}")
    assert answer.status_code == 404 and type(answer.json()["error"]) is str, answer.text
