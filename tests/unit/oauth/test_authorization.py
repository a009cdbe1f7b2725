"""Authorization requests of applications: what is read, and what is sent back to the application as an error."""

from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import pytest

from gateway.callers import scopes as scopes_module
from gateway.oauth import authorization
from gateway.oauth.authorization import AuthorizationRejected
from gateway.oauth.clients import OAuthApp

ISSUER = "https://llm.example"
REDIRECT = "https://app.example/callback"
APP = OAuthApp("client_1", "An editor", (REDIRECT,), ("authorization_code",), "none")
GOOD = {
    "client_id": "client_1",
    "redirect_uri": REDIRECT,
    "response_type": "code",
    "scope": "mcp:tools",
    "state": "s",
    "code_challenge": "c" * 43,
    "code_challenge_method": "S256",
}


def read(parameters: Mapping[str, tuple[str, ...]]) -> authorization.AuthorizationRequest:
    return authorization.read_authorization(parameters, ISSUER, {APP.id: APP}.get)


@pytest.mark.parametrize("name", ["response_type", "scope", "state", "code_challenge", "code_challenge_method"])
def test_a_parameter_that_is_given_twice_is_sent_back_as_an_error(name: str) -> None:
    parameters = {key: (value,) * (1 + (key == name)) for key, value in GOOD.items()}
    with pytest.raises(AuthorizationRejected) as caught:
        read(parameters)
    query = parse_qs(urlsplit(caught.value.location).query)
    assert query["error"] == ["invalid_request"] and name in query["error_description"][0]


@pytest.mark.parametrize(
    ("requested", "given"),
    [
        ("", "mcp:tools mcp:resources mcp:prompts"),
        ("mcp:prompts mcp:tools", "mcp:tools mcp:prompts"),
        ("mcp:resources email", "mcp:resources"),
    ],
)
def test_an_application_gets_the_scopes_that_it_requests(requested: str, given: str) -> None:
    assert read({name: (value,) for name, value in (GOOD | {"scope": requested}).items()}).scope == given


@pytest.mark.parametrize(
    ("path", "audience"),
    [
        ("/mcp", f"{ISSUER}/mcp"),
        *((path, ISSUER) for path in ("/v1/messages", "/v1/messages/count_tokens", "/v1/models")),
        *((path, ISSUER) for path in ("/managed/settings", "/api/oauth/usage")),
        *((path, ISSUER) for path in ("/v1/metrics", "/v1/logs", "/v1/traces")),
        *((path, "") for path in ("/v1/chat/completions", "/v1/keys", "/orgs")),
    ],
)
def test_a_token_is_for_the_tools_or_for_the_paths_of_coding_agents(path: str, audience: str) -> None:
    assert scopes_module.audience_at(path, ISSUER) == audience
