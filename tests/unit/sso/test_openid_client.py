"""Answers of the token endpoint of an identity provider."""

import json
from typing import Any

import pytest

from gateway.accounts.identity_providers import IdentityProvider
from gateway.callers.issuer_keys import IssuerKeys
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
        self.token_headers: dict[str, str] = {}

    def request(self, method: str, url: str, headers: Any = (), body: bytes = b"", **more: Any) -> Answer:
        if method != "POST":
            return Answer(200, DISCOVERY)
        self.token_headers = dict(headers)
        return self.refusal


def refresh(status: int, error: str) -> None:
    refresh_at(Web(status, error))


def refresh_at(web: Web) -> None:
    clock = Clock()
    requests = ProviderRequests(web, 5, lambda provider: provider.organization_id)
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


def test_the_token_endpoint_gets_a_form_and_is_asked_for_json() -> None:
    """RFC 6749, section 4.1.3: the parameters are a form. Some providers answer with a form unless JSON is accepted."""
    web = Web(400, "invalid_grant")
    with pytest.raises(PersonRefused):
        refresh_at(web)
    assert web.token_headers["content-type"] == "application/x-www-form-urlencoded"
    assert web.token_headers["accept"] == "application/json"
