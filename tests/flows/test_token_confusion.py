"""Each credential opens its own surfaces and no other, in every place where a caller may put it."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from support.issuers import Issuer, encode_part, make_key
from support.oauth import App, Person, owner_of
from support.scim_client import IdentityProvider
from support.shared import Share, Tenant

from gateway.accounts.service_accounts import ServiceAccountDraft
from gateway.accounts.workload_identities import WorkloadIdentityDraft
from gateway.limits.budgets import Limits
from gateway.surfaces.management.access_groups import SCOPES

METRICS = "the operator's token for metrics"
ISSUER = Issuer("https://issuer.example", make_key("one"))
GRANT = "urn:ietf:params:oauth:grant-type:device_code"
CHAT = {"model": "sandbox-echo", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
PROMPT = {"prompt": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]}
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
MODEL = {"ai-language-model-id": "sandbox/sandbox-echo", "ai-language-model-specification-version": "2"}
MCP = {"Accept": "application/json, text/event-stream"}
# Surface: method, path, body, headers.
SURFACES: dict[str, tuple[str, str, Any, dict[str, str]]] = {
    "chat": ("POST", "/v1/chat/completions", CHAT, {}),
    "messages": ("POST", "/v1/messages", CHAT, {}),
    "responses": ("POST", "/v1/responses", {"model": "sandbox-echo", "input": "Hello"}, {}),
    "gemini": ("POST", "/v1beta/models/sandbox-echo:generateContent", CONTENTS, {}),
    "ai sdk": ("POST", "/v1/ai/language-model", PROMPT, MODEL),
    "key": ("GET", "/v1/key", None, {}),
    "mcp": ("POST", "/mcp", PING, MCP),
    "scim": ("GET", "/scim/v2/Users", None, {}),
    "keys": ("GET", "/keys/api", None, {}),
    "person": ("GET", "/user/me", None, {}),
    "sessions": ("GET", "/auth/sessions", None, {}),
    "metrics": ("GET", "/metrics", None, {}),
    "settings": ("GET", "/managed/settings", None, {}),
    "telemetry": ("POST", "/v1/logs", {"resourceLogs": []}, {}),
    "client registration": ("POST", "/oauth/register", {"client_name": "x", "grant_types": ["client_credentials"]}, {}),
}
INFERENCE = {"chat", "messages", "responses", "gemini", "ai sdk"}
# Credential → the surfaces that accept it as a bearer token.
OPENS = {
    "API key": {*INFERENCE, "key", "mcp", "settings", "telemetry", "client registration"},
    "session": {"keys", "person", "sessions"},
    "access token": {"mcp"},
    "refresh token": set(),
    "client secret": set(),
    "SCIM token": {"scim"},
    "service account": {"keys"},
    "Claude Code": {"messages", "settings", "telemetry"},
    "Claude Code refresh": set(),
    "workload identity": {*INFERENCE, "mcp", "telemetry"},
    "realtime secret": set(),
    "metrics token": {"metrics"},
    "device code": set(),
    "key id": set(),
    "session id": set(),
}


@pytest.fixture
def gateway(share: Share) -> Tenant:
    return share.gateway({"GATEWAY_METRICS_TOKEN": METRICS, "GATEWAY_BOOTSTRAP_PASSWORD": "correct horse battery"})


@pytest.fixture
def person(gateway: Tenant) -> Person:
    return owner_of(gateway)


def call(gateway: Tenant, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    return httpx.request(method, gateway.address + path, json=body, headers=headers, timeout=60)


def sign_in_agent(gateway: Tenant, person: Person) -> tuple[dict[str, str], str]:
    web = httpx.Client(base_url=gateway.address, timeout=60)
    document = web.get("/.well-known/oauth-authorization-server").json()
    device = web.post(document["device_authorization_endpoint"], data={"surface": "claude_code"}).json()
    person.submit(person.open(device["verification_uri_complete"]), decision="approve")
    answer = web.post(document["token_endpoint"], data={"grant_type": GRANT, "device_code": device["device_code"]})
    waiting = web.post(document["device_authorization_endpoint"], data={"surface": "claude_code"}).json()
    tokens: dict[str, str] = answer.json()
    return tokens, waiting["device_code"]


def make_credentials(gateway: Tenant, person: Person) -> dict[str, str]:
    services = gateway.services
    management = services.management
    organization = gateway.organization_id
    caller = services.accounts.authentication.caller(gateway.key)
    session = management.sessions.open(caller.user_id)
    agent, device_code = sign_in_agent(gateway, person)
    app = App(gateway.address)
    tokens = app.connect(person)
    confidential = App(gateway.address, token_endpoint_auth_method="client_secret_post")
    account = management.service_accounts.create(organization, ServiceAccountDraft("All", list(SCOPES)), actor="test")
    draft = WorkloadIdentityDraft(
        organization,
        gateway.project_id,
        "CI",
        ISSUER.url,
        f"aud-{organization}",
        {"sub": "ci"},
        jwks=json.dumps(ISSUER.key_set()),
    )
    management.create_workload_identity(draft, Limits(), actor="test")
    body = {"session": {"type": "realtime", "model": "sandbox-realtime"}}
    secret = call(gateway, "POST", "/v1/realtime/client_secrets", body, Authorization=f"Bearer {gateway.key}").json()
    put = {"settings": {"env": {}}}
    call(gateway, "PUT", f"/orgs/{organization}/managed-settings", put, Authorization=f"Bearer {session.token}")
    return {
        "API key": gateway.key,
        "session": session.token,
        "access token": tokens["access_token"],
        "refresh token": tokens["refresh_token"],
        "client secret": confidential.secret,
        "SCIM token": IdentityProvider.of(gateway, organization).token,
        "service account": account.token,
        "Claude Code": agent["access_token"],
        "Claude Code refresh": agent["refresh_token"],
        "workload identity": sign(organization),
        "realtime secret": secret["value"],
        "metrics token": METRICS,
        "device code": device_code,
        "key id": caller.key_id,
        "session id": session.info.id,
    }


def sign(organization: str, **more: Any) -> str:
    claims = {"aud": f"aud-{organization}", "sub": "ci", "exp": int(time.time()) + 600}
    return ISSUER.sign({**claims, **more})


def accepted(gateway: Tenant, place: Callable[[str], dict[str, str]], token: str, query: str = "") -> set[str]:
    """Return the surfaces that accept a token in a place of the request."""
    database = gateway.services.store.database
    database.write(lambda: database.execute("DELETE FROM attempt"))
    found = set()
    for name, (method, path, body, headers) in SURFACES.items():
        address = path + (f"?{query}" if query else "")
        answer = call(gateway, method, address, body, **headers, **({} if query else place(token)))
        assert answer.status_code in (200, 201, 400, 401, 403, 404), (name, answer.status_code, answer.text)
        if answer.status_code in (200, 201):
            found.add(name)
    return found


def as_bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def as_key(token: str) -> dict[str, str]:
    return {"x-api-key": token}


def as_google_key(token: str) -> dict[str, str]:
    return {"x-goog-api-key": token}


def as_cookie(token: str) -> dict[str, str]:
    return {"Cookie": f"llmgateway.session_token={token}"}


def test_each_credential_opens_its_own_surfaces_only(gateway: Tenant, person: Person) -> None:
    credentials = make_credentials(gateway, person)
    assert set(credentials) == set(OPENS)
    wrong = {}
    for name, token in credentials.items():
        assert token, name
        found = accepted(gateway, as_bearer, token)
        if found != OPENS[name]:
            wrong[name] = (found - OPENS[name], OPENS[name] - found)
    assert wrong == {}


def test_other_places_of_a_request_open_no_more(gateway: Tenant, person: Person) -> None:
    credentials = make_credentials(gateway, person)
    for name, token in credentials.items():
        assert accepted(gateway, as_key, token) <= OPENS[name], name
        assert accepted(gateway, as_google_key, token) <= OPENS[name], name
        by_cookie = accepted(gateway, as_cookie, token)
        assert by_cookie <= (OPENS["session"] if name == "session" else set()), name
        in_query = accepted(gateway, as_bearer, token, f"access_token={token}&token={token}&key={token}")
        assert in_query <= OPENS[name] & {"gemini"}, name


def test_tokens_of_one_endpoint_are_no_grants_of_another(gateway: Tenant, person: Person) -> None:
    credentials = make_credentials(gateway, person)
    app = App(gateway.address)
    web = httpx.Client(base_url=gateway.address, timeout=60)
    agent = web.get("/.well-known/oauth-authorization-server").json()["token_endpoint"]
    for name, token in credentials.items():
        assert app.refresh(token).status_code == 400, name  # not even the refresh token of another client
        answer = web.post(agent, data={"grant_type": GRANT, "device_code": token})
        assert answer.status_code == 400, (name, answer.text)
        if name != "Claude Code refresh":
            fields = {"grant_type": "refresh_token", "refresh_token": token}
            assert web.post(agent, data=fields).status_code in (400, 401), name
    # Nothing of this ended the credentials.
    assert accepted(gateway, as_bearer, credentials["access token"]) == OPENS["access token"]
    assert accepted(gateway, as_bearer, credentials["Claude Code"]) == OPENS["Claude Code"]


# Headers of tokens without a usable algorithm.
HEADERS: tuple[dict[str, Any], ...] = (
    {"alg": "none"},
    {"alg": "None", "kid": "one"},
    {"kid": "one"},
    {"alg": ["RS256"], "kid": "one"},
    {"alg": "HS256", "kid": "one"},
)


def test_a_workload_identity_reads_no_account_over_mcp(gateway: Tenant, person: Person) -> None:
    token = make_credentials(gateway, person)["workload identity"]
    for tool, arguments in (("get-account", {}), ("get-usage", {}), ("get-usage-breakdown", {"group_by": "model"})):
        body = {**PING, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        answer = call(gateway, "POST", "/mcp", body, **MCP, **as_bearer(token)).json()
        assert answer["result"]["isError"] is True, tool


def sign_with_public_key(claims: dict[str, Any]) -> str:
    """Return a token whose HMAC has the public key of the issuer as its secret."""
    text = f"{encode_part({'alg': 'HS256', 'kid': 'one'})}.{encode_part(claims)}"
    digest = hmac.new(ISSUER.key.as_pem(private=False), text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def test_forged_tokens_of_an_issuer_open_nothing(gateway: Tenant, person: Person) -> None:
    make_credentials(gateway, person)
    organization = gateway.organization_id
    claims = {"iss": ISSUER.url, "aud": f"aud-{organization}", "sub": "ci", "exp": int(time.time()) + 600}
    forged = [f"{encode_part(header)}.{encode_part(claims)}.AAAA" for header in HEADERS]
    forged.append(f"{encode_part(HEADERS[0])}.{encode_part(claims)}.")
    forged.append(sign_with_public_key(claims))
    thief = Issuer(ISSUER.url, make_key("one"))
    key_url = f"{gateway.address}/keys"
    headers = (
        {},
        {"jku": key_url},
        {"x5u": key_url},
        {"jwk": thief.key.as_dict(private=False)},
        {"kid": "../../one"},
    )
    forged.extend(thief.sign(claims, **header) for header in headers)
    head, body, signature = sign(organization).split(".")
    forged += [f"{head}.{encode_part({**claims, 'sub': 'ci', 'admin': True})}.{signature}", f"{head}.{body}."]
    for token in forged:
        assert accepted(gateway, as_bearer, token) == set(), token[:60]
    for changed in ({"aud": "another"}, {"sub": "other"}, {"iss": "https://other.example"}, {"exp": 1_000_000_000}):
        assert accepted(gateway, as_bearer, sign(organization, **changed)) == set(), changed
