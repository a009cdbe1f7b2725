import pytest

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import NotSupported
from gateway.providers.openai.address import address_of
from gateway.providers.protocol import Credential, Target

ACCOUNT = '{"type": "service_account", "private_key": "-----BEGIN"}'


def target(secret: str, auth: str = "google-oauth") -> Target:
    provider = Provider("vertex-openai", "Vertex", "openai", auth=auth)
    return Target(provider, Mapping("vertex-openai", "glm", "glm-maas"), Credential(secret), "https://up.example/v1")


def test_a_service_account_goes_out_as_its_access_token_only() -> None:
    _, headers = address_of(target(ACCOUNT), "/chat/completions", lambda secret: f"token-of-{len(secret)}")
    assert headers["authorization"] == f"Bearer token-of-{len(ACCOUNT)}"


def test_an_access_token_goes_out_as_it_is() -> None:
    assert address_of(target("ya29.own"), "/chat/completions")[1]["authorization"] == "Bearer ya29.own"


def test_without_a_token_service_a_service_account_never_leaves() -> None:
    with pytest.raises(NotSupported):
        address_of(target(ACCOUNT), "/chat/completions")


def test_a_bearer_key_that_looks_like_json_is_no_service_account() -> None:
    assert address_of(target("{x}", auth="bearer"), "/chat/completions")[1]["authorization"] == "Bearer {x}"
