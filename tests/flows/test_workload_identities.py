"""Tokens of an identity provider as credentials, over HTTP: discovery, calls, limits, metadata, logs and attacks."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fakes.issuer import KEY, FakeIssuer
from fakes.upstream import FakeUpstream
from support.gateways import LocalGateway
from support.issuers import Issuer
from support.shared import Share, usage_of
from support.spending import write_mint

from gateway.accounts import keys
from gateway.accounts.workload_identities import WorkloadIdentityDraft, WorkloadIdentityInfo
from gateway.limits.budgets import Limits

AUDIENCE = "llm-gateway"
CALL = {"model": "mint/coin", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")


@pytest.fixture
def mint(share: Share) -> FakeUpstream:
    return share.fake(FakeUpstream)


@pytest.fixture
def issuer(share: Share) -> FakeIssuer:
    return share.fake(FakeIssuer)


@pytest.fixture
def gateway(share: Share, mint: FakeUpstream) -> Iterator[LocalGateway]:
    running = share.gateway(
        lambda folder: {**write_mint(folder / "catalogue", mint.url), "GATEWAY_ALLOW_PRIVATE_UPSTREAMS": "true"}
    )
    yield running
    running.services.store.journal.flush(60)


@pytest.fixture
def identity(gateway: LocalGateway, issuer: FakeIssuer) -> Iterator[WorkloadIdentityInfo]:
    management = gateway.services.management
    draft = WorkloadIdentityDraft(
        gateway.organization_id,
        gateway.project_id,
        "Deployments",
        issuer.address,
        AUDIENCE,
        {"sub": "repo:acme/*"},
        {"user": "actor", "repository": "repository"},
        allow_private=True,
    )
    info = management.create_workload_identity(draft, Limits(total_nusd=10**9), actor="operator")
    yield info
    management.workload_identities.delete(gateway.organization_id, info.id, actor="operator")


def token_of(issuer: FakeIssuer, **more: Any) -> str:
    claims = {"aud": AUDIENCE, "sub": "repo:acme/app", "exp": int(time.time()) + 600, "actor": "ada"}
    return issuer.provider.sign({**claims, "repository": "acme/app", **more})


def send(
    gateway: LocalGateway, token: str, path: str = PATHS[0], headers: dict[str, str] | None = None, **body: Any
) -> httpx.Response:
    all_headers = {"Authorization": f"Bearer {token}", **(headers or {})}
    content: dict[str, Any] = {**CALL, **body}
    if path == "/v1/responses":
        content = {"model": CALL["model"], "input": "Hello", **body}
    with httpx.Client(timeout=60) as http:
        return http.post(gateway.address + path, headers=all_headers, json=content)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_a_token_calls_models_in_every_dialect(
    gateway: LocalGateway, issuer: FakeIssuer, identity: WorkloadIdentityInfo, path: str, stream: bool
) -> None:
    token = token_of(issuer)
    for _ in range(2):
        answer = send(gateway, token, path, stream=stream)
        assert answer.status_code == 200, answer.text
    assert len(issuer.calls) <= 2


def test_usage_and_metadata_are_those_of_the_identity(
    gateway: LocalGateway, issuer: FakeIssuer, identity: WorkloadIdentityInfo
) -> None:
    forged = {"X-LLMGateway-User": "eve", "X-LLMGateway-Team": "search"}
    answer = send(gateway, token_of(issuer), headers=forged, user="mallory")
    assert answer.status_code == 200, answer.text
    gateway.services.store.journal.flush(60)
    row = usage_of(gateway)[-1]
    assert json.loads(row.tags) == {"user": "ada", "repository": "acme/app", "team": "search"}
    spent = gateway.services.management.budgets.status(identity.api_key_id).usage_nusd
    assert spent > 0


def test_the_limits_of_the_identity_hold(
    gateway: LocalGateway, issuer: FakeIssuer, identity: WorkloadIdentityInfo
) -> None:
    management = gateway.services.management
    key = keys.find(gateway.services.store.database, identity.api_key_id)
    management.set_key_limits(key, lambda before: Limits(total_nusd=1), actor="operator")
    assert send(gateway, token_of(issuer)).status_code == 402


def test_refused_tokens_get_an_error_of_the_dialect(
    gateway: LocalGateway, issuer: FakeIssuer, identity: WorkloadIdentityInfo
) -> None:
    for more in ({"exp": 1}, {"aud": "other"}, {"sub": "repo:rival/app"}, {"nbf": 4_000_000_000}):
        answer = send(gateway, token_of(issuer, **more))
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_token")
    stranger = Issuer("https://stranger.example", KEY).sign({"aud": AUDIENCE, "exp": 4_000_000_000})
    assert send(gateway, stranger).status_code == 401


def test_tokens_open_neither_the_management_api_nor_account_data(
    gateway: LocalGateway, issuer: FakeIssuer, identity: WorkloadIdentityInfo
) -> None:
    headers = {"Authorization": f"Bearer {token_of(issuer)}"}
    with httpx.Client(timeout=60, base_url=gateway.address, headers=headers) as http:
        assert http.get("/keys/api").status_code == 401
        assert http.get(f"/orgs/{gateway.organization_id}/audit").status_code == 401
        assert http.get("/v1/key").status_code in (403, 404)
        assert http.get("/v1/models").status_code == 200


def test_a_large_body_is_admitted_by_its_token(
    gateway: LocalGateway, issuer: FakeIssuer, identity: WorkloadIdentityInfo
) -> None:
    messages = [{"role": "user", "content": "Hello " * 50_000}]
    assert send(gateway, token_of(issuer), messages=messages).status_code in (200, 400)
    assert send(gateway, token_of(issuer, aud="other"), messages=messages).status_code == 401
