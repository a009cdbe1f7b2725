"""OAuth through the whole gateway: from the challenge of `/mcp` to a token that works there, and nowhere else."""

from typing import Any

import httpx
import pytest
from support.gateways import LocalGateway

from gateway.accounts import keys
from gateway.callers.scopes import SCOPES
from gateway.oauth.grant_values import Consent, IssuedTokens

Json = dict[str, Any]
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def issue(gateway: LocalGateway, **more: str) -> IssuedTokens:
    """Tokens for the gateway's key, as if its owner had allowed an application."""
    caller = gateway.services.accounts.authentication.caller(gateway.key)
    fields = {"scope": " ".join(SCOPES), "audience": f"{gateway.address}/mcp", **more}
    consent = Consent(
        "client_x", "An editor", "http://localhost/cb", "localhost", "c" * 43, key_id=caller.key_id,
        user_id=caller.user_id, **fields,
    )  # fmt: skip
    grants = gateway.services.accounts.oauth.grants
    code = grants.find_code(grants.allow(consent))
    assert code is not None
    return grants.exchange(code, refreshable=True)


def send(gateway: LocalGateway, token: str, path: str = "/mcp", body: Any = PING, **headers: str) -> httpx.Response:
    named = {"Accept": "application/json, text/event-stream", **headers}
    bearer = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(timeout=20) as http:
        return http.post(f"{gateway.address}{path}", json=body, headers=named | bearer)


def call(gateway: LocalGateway, token: str, tool: str, **arguments: Any) -> Json:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    result: Json = send(gateway, token, body=body).json()["result"]
    return result


def test_a_token_calls_tools_as_its_key(gateway: LocalGateway) -> None:
    account = call(gateway, issue(gateway).access, "get-account")
    assert account == call(gateway, gateway.key, "get-account") and "isError" not in account


def test_a_token_is_good_with_a_long_body_and_an_idempotency_key(gateway: LocalGateway) -> None:
    token = issue(gateway).access
    body = PING | {"params": {"_meta": {"filling": "x" * 40_000}}}
    assert send(gateway, token, body=body).json()["result"] == {}
    assert send(gateway, token, **{"Idempotency-Key": "once"}).json()["result"] == {}


def test_a_token_is_a_wrong_key_everywhere_else(gateway: LocalGateway) -> None:
    token = issue(gateway).access
    body = {"model": "openai/gpt-4o-mini", "messages": [{"role": "user", "content": "Hi"}]}
    # On one connection, so that what is remembered of it is tried as well.
    with httpx.Client(base_url=gateway.address, headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        assert http.post("/mcp", json=PING).status_code == 200
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/embeddings", "/v1/responses", "/chat/completions"):
            answer = http.post(path, json=body)
            assert answer.status_code == 401 and token not in answer.text, path
        assert http.post("/mcp", json=PING).status_code == 200
        assert http.get("/v1/key").status_code == 401 and http.get("/keys/api").status_code == 401
        large = http.post("/v1/chat/completions", json=body | {"padding": "x" * 40_000})
        assert large.status_code == 401 and large.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("wrong", ["none", "rolled", "deleted", "audience", "unknown", "refresh"])
def test_an_invalid_token_is_refused_with_the_address_of_the_metadata(gateway: LocalGateway, wrong: str) -> None:
    services, issued = gateway.services, issue(gateway)
    key_id = services.accounts.authentication.caller(gateway.key).key_id
    stores = services.store.database, services.store.control
    token = issued.access
    assert send(gateway, token).status_code == 200
    if wrong == "rolled":
        keys.roll(*stores, services.store.secrets.hash_keys, key_id, actor="test")
    elif wrong == "deleted":
        keys.delete(*stores, key_id, actor="test")
    elif wrong == "audience":
        token = issue(gateway, audience="https://elsewhere.example/mcp").access
    elif wrong == "none":
        token = ""
    else:
        token = "llmgat_" + "0" * 40 if wrong == "unknown" else issued.refresh
    answer = send(gateway, token)
    where = f'scope="mcp:tools", resource_metadata="{gateway.address}/.well-known/oauth-protected-resource/mcp"'
    problem = 'error="invalid_token", ' if token else ""
    assert answer.status_code == 401 and answer.headers["www-authenticate"] == f"Bearer {problem}{where}"
    assert answer.json()["error"]["code"] == -32001 and answer.json()["id"] == PING["id"]


def test_a_token_without_the_tools_scope_is_refused_with_the_missing_scope(gateway: LocalGateway) -> None:
    answer = send(gateway, issue(gateway, scope="mcp:prompts").access)
    challenge = answer.headers["www-authenticate"]
    assert answer.status_code == 403 and challenge.startswith('Bearer error="insufficient_scope", scope="mcp:tools"')
    assert "resource_metadata=" in challenge and answer.json()["error"]["data"]["code"] == "insufficient_scope"
