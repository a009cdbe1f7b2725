"""The official client completes the whole OAuth flow without help, from a 401 to calls of every tool."""

import pytest
from fakes.openai import Answer, FakeOpenAI
from support.oauth import Person, owner_of
from support.oauth_client import CALLS, Storage, visit
from support.shared import Share, Tenant


@pytest.fixture
def gateway(share: Share, upstream_environment: dict[str, str]) -> Tenant:
    """A gateway with images from the sandbox, since the fake provider makes none."""
    models = {"GATEWAY_MEDIA_IMAGE_MODEL": "sandbox-image", "GATEWAY_MEDIA_ALT_IMAGE_MODEL": "sandbox-image"}
    return share.gateway({**upstream_environment, **models})


@pytest.fixture
def person(gateway: Tenant) -> Person:
    return owner_of(gateway)


def test_the_official_client_signs_in_by_itself_and_calls_every_tool(
    gateway: Tenant, person: Person, upstream: FakeOpenAI
) -> None:
    upstream.script(Answer("Good day.", prompt=7, completion=3))
    storage = Storage()
    names, results, _ = visit(gateway.address, person.decide, storage, CALLS)
    assert sorted(names) == sorted(name for name, _ in CALLS)
    assert not any(result.is_error for result in results), results
    assert results[3].content[0].text.startswith("Good day.")
    # The client's usage belongs to the chosen key.
    assert results[0].structured_content["role"] == "owner"
    assert storage.tokens.refresh_token and storage.client.client_id


def test_a_client_with_tokens_does_not_ask_its_person_again(gateway: Tenant, person: Person) -> None:
    storage = Storage()
    visit(gateway.address, person.decide, storage, [])
    _, _, requests = visit(gateway.address, person.decide, storage, [("get-account", {})])
    assert "POST /oauth/register" not in requests and "POST /oauth/token" not in requests
    # A client with revoked tokens asks once more, without a loop.
    grants = gateway.services.accounts.oauth.grants
    for grant in grants.list_grants(user_id=gateway.services.accounts.authentication.caller(gateway.key).user_id):
        grants.end(grant.id, "revoked", actor="test")
    _, results, requests = visit(gateway.address, person.decide, storage, [("get-account", {})])
    assert not results[0].is_error and requests.count("POST /oauth/token") == 1
