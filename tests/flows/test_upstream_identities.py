"""Tokens of the gateway's host instead of stored keys, through the whole gateway: Vertex AI, Azure and Bedrock."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gevent
import httpx2
import pytest
from fakes.azure import FakeAzure
from fakes.bedrock import FakeBedrock
from fakes.google import FakeGoogle
from fakes.identity_services import (
    CLIENT,
    ROLE,
    TENANT,
    Failure,
    FakeAwsIdentity,
    FakeEntra,
    FakeGoogleIdentity,
    IdentityServer,
)
from fakes.server import FakeServer
from openai import APIStatusError, OpenAI
from support.gateways import LocalGateway
from support.shared import Share

from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provider_keys import ProviderKeyDraft
from gateway.errors import InvalidRequest
from gateway.telemetry.presence import read_presence

HELLO: Any = [{"role": "user", "content": "Hello"}]


class Cloud(NamedTuple):
    """A vendor: the fake of its models, the fake of its identity services, and a gateway with its variables.

    `accept` makes all tokens valid that were issued, `reject` the last one invalid.
    """

    model: str
    provider: FakeServer
    identity: IdentityServer
    gateway: LocalGateway
    accept: Callable[[], None]
    reject: Callable[[], None]


def open_google(share: Share) -> Cloud:
    provider = share.fake(FakeGoogle)
    identity = share.fake(FakeGoogleIdentity)
    environment = {
        "LLM_GOOGLE_VERTEX_API_KEY": "workload-identity",
        "LLM_GOOGLE_VERTEX_BASE_URL": provider.address,
        "GCE_METADATA_HOST": identity.host,
    }
    return Cloud(
        "google-vertex/gemini-3.5-flash",
        provider,
        identity,
        share.gateway(environment),
        lambda: None,
        lambda: provider.rejected.add(identity.issued[-1]),
    )


def open_azure(share: Share) -> Cloud:
    provider = share.fake(FakeAzure, "gpt-4o")
    identity = share.fake(FakeEntra)

    def environment(place: Path) -> dict[str, str]:
        (place / "federated").write_text("federated-1")
        return {
            "LLM_AZURE_API_KEY": "workload-identity",
            "LLM_AZURE_BASE_URL": f"{provider.address}/openai/v1",
            "LLM_AZURE_RESOURCE": "acme",
            "LLM_AZURE_USE_RESPONSES_API": "false",
            "AZURE_FEDERATED_TOKEN_FILE": str(place / "federated"),
            "AZURE_CLIENT_ID": CLIENT,
            "AZURE_TENANT_ID": TENANT,
            "AZURE_AUTHORITY_HOST": identity.address,
        }

    gateway = share.gateway(environment, "azure")
    provider.tokens = identity.issued
    return Cloud(
        "azure/gpt-4o",
        provider,
        identity,
        gateway,
        lambda: setattr(provider, "tokens", identity.issued),
        lambda: setattr(provider, "tokens", ["another"]),
    )


def open_bedrock(share: Share) -> Cloud:
    provider = share.fake(FakeBedrock)
    identity = share.fake(FakeAwsIdentity)

    def environment(place: Path) -> dict[str, str]:
        (place / "web").write_text("web-1")
        return {
            "LLM_AWS_BEDROCK_API_KEY": "workload-identity",
            "LLM_AWS_BEDROCK_BASE_URL": provider.address,
            "LLM_AWS_BEDROCK_REGION": "eu-west-1",
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(place / "web"),
            "AWS_ROLE_ARN": ROLE,
            "AWS_ENDPOINT_URL_STS": identity.address,
        }

    gateway = share.gateway(environment, "bedrock")
    provider.keys = identity.keys
    return Cloud(
        "aws-bedrock/nova-2-lite",
        provider,
        identity,
        gateway,
        lambda: None,
        lambda: provider.expired.add(identity.issued[-1]),
    )


CLOUDS = {"google": open_google, "azure": open_azure, "bedrock": open_bedrock}


@pytest.fixture(params=sorted(CLOUDS))
def cloud(request: pytest.FixtureRequest, share: Share) -> Cloud:
    return CLOUDS[request.param](share)


def forget_tokens(gateway: LocalGateway) -> None:
    """Make every identity of the gateway start without a token, after the first one came in the background."""
    identities = gateway.services.routing.identities._identities
    while not identities or not all(identity.secret for identity in identities.values()):
        gevent.sleep(0.01)
    for identity in identities.values():
        identity._until = identity._retry_at = identity._replace_at = 0.0
        identity._failure = None


def send_chat(cloud: Cloud, stream: bool) -> str:
    client = OpenAI(base_url=cloud.gateway.url, api_key=cloud.gateway.key, max_retries=0)
    answer = client.chat.completions.create(model=cloud.model, messages=HELLO, stream=stream)
    if not stream:
        return answer.choices[0].message.content
    return "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)


@pytest.mark.parametrize("stream", [False, True])
def test_chat_is_answered_with_a_token_of_the_host(cloud: Cloud, stream: bool) -> None:
    forget_tokens(cloud.gateway)
    before = len(cloud.identity.issued)
    assert send_chat(cloud, stream) == send_chat(cloud, stream) == "Hello."
    assert len(cloud.identity.issued) == before + 1 and cloud.identity.problems == []
    sent = cloud.provider.calls[-1].headers
    assert cloud.identity.issued[-1] in sent["authorization"] and "api-key" not in sent and "x-goog-api-key" not in sent


@pytest.mark.parametrize("stream", [False, True])
def test_rejected_token_is_replaced_and_the_call_repeated(cloud: Cloud, stream: bool) -> None:
    forget_tokens(cloud.gateway)
    send_chat(cloud, False)
    before = len(cloud.identity.issued)
    cloud.reject()
    issue = cloud.identity.issue
    cloud.identity.issue = lambda: [issue(), cloud.accept()][0]
    assert send_chat(cloud, stream) == "Hello."
    assert len(cloud.identity.issued) == before + 1
    assert cloud.identity.issued[-1] in cloud.provider.calls[-1].headers["authorization"]


@pytest.mark.parametrize("stream", [False, True])
def test_failing_token_service_is_a_clear_error_of_the_provider(cloud: Cloud, stream: bool) -> None:
    forget_tokens(cloud.gateway)
    cloud.identity.script(Failure(500, {"error": "server_error"}), Failure(500, {"error": "server_error"}))
    with pytest.raises(APIStatusError) as caught:
        send_chat(cloud, stream)
    assert caught.value.status_code == 502 and "answered 500" in caught.value.message
    assert cloud.identity.host not in caught.value.message and cloud.provider.calls == []
    (cooling,) = cloud.gateway.services.routing.health.cooldowns.active()
    assert cooling.startswith(f"{cloud.model.partition('/')[0]}#")


@pytest.mark.parametrize("path", ["/v1/messages", "/v1beta/models/{model}:generateContent"])
def test_error_comes_in_the_dialect_of_the_caller(cloud: Cloud, path: str) -> None:
    forget_tokens(cloud.gateway)
    cloud.identity.script(Failure(500, {}), Failure(500, {}))
    body = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}
    if path == "/v1/messages":
        body = {"model": cloud.model, "max_tokens": 9, "messages": HELLO}
    headers = {"x-api-key": cloud.gateway.key, "x-goog-api-key": cloud.gateway.key}
    url = cloud.gateway.address + path.format(model=cloud.model)
    answer = httpx2.post(url, json=body, headers=headers)
    assert answer.status_code == 502 and "answered 500" in answer.json()["error"]["message"]


def test_provider_key_of_an_organization_cannot_use_the_identity_of_the_host(cloud: Cloud, tmp_path: Path) -> None:
    provider = cloud.model.partition("/")[0]
    forget_tokens(cloud.gateway)
    services = cloud.gateway.services
    keys = services.management.provider_keys
    before = list(cloud.identity.calls)
    with pytest.raises(InvalidRequest, match="identity of the gateway's host"):
        keys.add(cloud.gateway.organization_id, ProviderKeyDraft(provider, "workload-identity"), actor="test")
    (tmp_path / "token").write_text("subject-1")
    stolen = FakeGoogleIdentity().federation(credential_source={"file": str(tmp_path / "token")})
    keys.add(cloud.gateway.organization_id, ProviderKeyDraft(provider, json.dumps(stolen)), actor="test")
    change = ProjectChange(mode="api-keys")
    update_project(services.store.database, services.store.control, cloud.gateway.project_id, change, actor="test")
    with pytest.raises(APIStatusError):
        send_chat(cloud, False)
    assert cloud.identity.calls == before


def test_status_shows_source_and_failure_without_the_token(cloud: Cloud) -> None:
    forget_tokens(cloud.gateway)
    services = cloud.gateway.services
    send_chat(cloud, False)
    services.telemetry.presence.report(
        services.routing.catalogue.current(), services.routing.health, services.routing.credentials.identities()
    )
    facts = read_presence(services.store.documents)[services.store.control.epoch]
    ((provider, source, expires_us, failure),) = facts.identities
    assert provider == cloud.model.partition("/")[0] and source and expires_us > services.clock.now_us()
    assert failure == "" and cloud.identity.issued[-1] not in repr(facts)
