"""JSON schemas of requests to the authorization server, for the API description: registration (RFC 7591), tokens
(RFC 6749), revocation (RFC 7009)."""

from typing import Any

from gateway.oauth.clients import CODE, CREDENTIALS, METHODS, MOST_REDIRECTS, REFRESH, TEXTS
from gateway.surfaces.oauth.oauth_answers import ALL_GRANTS, SCOPE_TEXT
from gateway.surfaces.shapes import named, one_of


def _described(value: dict[str, Any] | str, description: str) -> dict[str, Any]:
    """A member with a sentence about it."""
    return {**({"type": value} if isinstance(value, str) else value), "description": description}


ADDRESS = {"type": "string", "format": "uri"}
SCOPE = _described("string", SCOPE_TEXT)

REDIRECTS = {"type": "array", "items": ADDRESS, "minItems": 1, "maxItems": MOST_REDIRECTS}
OWN_WORDS = dict.fromkeys(TEXTS, "string")
METADATA = named(
    "OAuthClientMetadata",
    {
        "redirect_uris": _described(
            REDIRECTS, "https, a scheme of its own, or loopback with any port; needed for a code."
        ),
        "client_name": _described("string", "What people are shown."),
        "grant_types": _described(
            {"type": "array", "items": {"type": "string"}},
            f"{CODE} without it. {CREDENTIALS} needs an API key in the header Authorization.",
        ),
        "token_endpoint_auth_method": _described(one_of(*METHODS, null=True), "client_secret_basic without it."),
        "api_key": _described("string", "An API key, for who cannot send it as a header."),
        **OWN_WORDS,
    },
)
CLIENT = {
    "client_id": _described("string", "Of a public application, and of one that sends its secret in the body."),
    "client_secret": _described(
        "string", "Unless it comes as HTTP Basic; with client_credentials it may be an API key."
    ),
}
TOKEN_REQUEST = named(
    "OAuthTokenRequest",
    {
        "code": _described("string", f"With {CODE}: what the redirect brought, good for five minutes and once."),
        "redirect_uri": _described("string", f"With {CODE}: as the person was sent with it."),
        "code_verifier": _described("string", f"With {CODE}: what the challenge was made of (PKCE, S256)."),
        "refresh_token": _described("string", f"With {REFRESH}: the newest one; it works once."),
        "scope": SCOPE,
        "resource": _described("string", "The address that the token is for (RFC 8707): this resource or none."),
        "device_code": _described("string", "With a device code: the code that a coding agent got."),
        **CLIENT,
    },
    grant_type=one_of(*ALL_GRANTS),
)
DEVICE_REQUEST = named("OAuthDeviceRequest", {"surface": _described("string", "The name of the agent; optional.")})
REVOCATION = named(
    "OAuthRevocation",
    {"token_type_hint": _described("string", "Not needed."), **CLIENT},
    token=_described("string", "An access token; a refresh token ends the application's whole access."),
)
LOGOUT = named(
    "BackChannelLogout", logout_token=_described("string", "A logout token of the identity provider (a signed JWT).")
)
