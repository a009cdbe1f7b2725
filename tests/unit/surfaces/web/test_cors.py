"""The paths that pages of other origins may call: those with keys, and no path with a session of the console."""

import pytest

from gateway.surfaces.web.cors import takes_keys


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/chat/completions", "/v1/ai/language-model", "/v3/ai/language-model", "/v4/ai/language-model"),
        *("/v1beta/models/gemini:generateContent", "/mcp", "/mcp/.well-known/openid-configuration"),
        *("/oauth/register", "/oauth/token", "/oauth/revoke", "/.well-known/oauth-authorization-server"),
    ],
)
def test_a_page_may_call_what_takes_keys(path: str) -> None:
    assert takes_keys(path)


@pytest.mark.parametrize("path", ["/console/keys", "/orgs", "/auth/login", "/oauth/authorize", "/metrics"])
def test_a_page_may_not_call_what_takes_sessions(path: str) -> None:
    assert not takes_keys(path)
