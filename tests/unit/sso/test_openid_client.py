"""Answers of the token endpoint of an identity provider."""

import json
from typing import Any

import pytest

from gateway.accounts.identity_providers import IdentityProvider
from gateway.accounts.issuer_keys import IssuerKeys
from gateway.clock import Clock
from gateway.errors import Unavailable
from gateway.sso.discovery import ProviderDiscovery, ProviderRequests
from gateway.sso.openid_client import OpenIdClient, PersonRefused, SignInRefused

ISSUER = "https://id.example"
DISCOVERY = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "jwks_uri": f"{ISSUER}/keys",
}
PROVIDER = IdentityProvider("idp_1", "org_1", "Acme", ISSUER, "gateway")


class Answer:
    def __init__(self, status: int, document: Any) -> None:
        self.status = status
        self.body = json.dumps(document).encode()


class Web:
    """An issuer that answers each request for tokens with an error."""

    def __init__(self, status: int, error: str) -> None:
        self.refusal = Answer(status, {"error": error})

    def request(self, method: str, url: str, headers: Any = (), body: bytes = b"", **more: Any) -> Answer:
        return self.refusal if method == "POST" else Answer(200, DISCOVERY)


def refresh(status: int, error: str) -> None:
    clock = Clock()
    requests = ProviderRequests(Web(status, error), 5)
    keys = IssuerKeys(lambda url: (404, b""), {}, clock)  # type: ignore[arg-type]  # no answer here has a token
    client = OpenIdClient(requests, ProviderDiscovery(requests, clock, False), keys, {}, clock)
    client.refresh(PROVIDER, "refresh-token", "subject")


@pytest.mark.parametrize(
    "error",
    [
        "invalid_grant",
        "access_denied",
        "login_required",
        "interaction_required",
        "consent_required",
        "account_disabled",
    ],
)
def test_a_person_whom_the_provider_no_longer_signs_in_is_refused(error: str) -> None:
    with pytest.raises(PersonRefused):
        refresh(400, error)


@pytest.mark.parametrize(("status", "error"), [(500, "server_error"), (429, "slow_down"), (400, "")])
def test_a_provider_with_a_fault_refuses_no_person(status: int, error: str) -> None:
    with pytest.raises(Unavailable):
        refresh(status, error)


def test_a_refused_gateway_is_told_apart_from_a_refused_person() -> None:
    with pytest.raises(SignInRefused, match="invalid_client") as caught:
        refresh(401, "invalid_client")
    assert not isinstance(caught.value, PersonRefused)
