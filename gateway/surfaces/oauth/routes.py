"""The operations of the authorization server."""

from typing import Any

from gateway.surfaces.answer_structs import Answer
from gateway.surfaces.http import About, Handler, Operation, Surface
from gateway.surfaces.oauth import back_channel_logout, device_sign_in, endpoints, metadata_documents
from gateway.surfaces.oauth.oauth_answers import (
    OAuthAuthorizationServerAnswer,
    OAuthClientAnswer,
    OAuthDeviceCodeAnswer,
    OAuthProtectedResourceAnswer,
    OAuthRevokedAnswer,
    OAuthTokensAnswer,
)
from gateway.surfaces.oauth.oauth_requests import ClientRegistration, DeviceForm, LogoutForm, RevocationForm, TokenForm

TAG = "OAuth"
RESOURCE = OAuthProtectedResourceAnswer
SERVER = OAuthAuthorizationServerAnswer


def _document(path: str, handler: Handler, summary: str, answer: type[Answer]) -> tuple[Operation, ...]:
    about = About(summary, TAG, access="none", answer=answer)
    below = About(f"{summary}, below a path", TAG, access="none", answer=answer, errors=(404,))
    return Operation("GET", path, handler, about=about), Operation("GET", f"{path}/<path:place>", handler, about=below)


def _form(summary: str, body: type, answer: type[Answer], example: dict[str, Any] | None = None) -> About:
    """Describe an operation that accepts a form, as the standards require, or the same members as JSON."""
    return About(summary, TAG, body, answer=answer, errors=(400, 401, 429), access="none",
                 form=body, form_media=endpoints.FORM_TYPE, example=example)  # fmt: skip


REGISTER = About("Register an application", TAG, ClientRegistration, answer=OAuthClientAnswer, success=(201,),
                 access="optional", example={"client_name": "An editor", "redirect_uris": ["http://localhost:8123/cb"],
                                             "grant_types": ["authorization_code"]})  # fmt: skip
CLIENT = {"client_id": "0" * 32, "client_secret": "0" * 43}
TOKEN = _form("Issue tokens to an application", TokenForm, OAuthTokensAnswer,
              {"grant_type": "client_credentials", **CLIENT})  # fmt: skip
DEVICE = _form("Start the sign-in of a coding agent", DeviceForm, OAuthDeviceCodeAnswer)
REVOKE = _form("Revoke a token", RevocationForm, OAuthRevokedAnswer, {"token": "llmgat_" + "0" * 40, **CLIENT})
LOGOUT = _form("End sessions by a logout token of an identity provider", LogoutForm, OAuthRevokedAnswer)

OPERATIONS: tuple[Operation, ...] = (
    *_document("/.well-known/oauth-protected-resource", metadata_documents.show_resource, "The protected resource",
               RESOURCE),
    *_document("/.well-known/oauth-authorization-server", metadata_documents.show_server, "The authorization server",
               SERVER),
    *_document("/.well-known/openid-configuration", metadata_documents.show_server,
               "The same for clients of OpenID Connect", SERVER),
    # Some look for it below the resource's own address (RFC 8414, 5, as OpenID Connect has it).
    Operation("GET", "/mcp/.well-known/openid-configuration", metadata_documents.show_server,
              about=About("The same, for the path of a resource", TAG, access="none", answer=SERVER)),
    Operation("POST", "/oauth/register", endpoints.register, body="any", about=REGISTER),
    Operation("POST", "/oauth/device_authorization", device_sign_in.start, body="any", about=DEVICE),
    Operation("POST", "/oauth/token", endpoints.give_tokens, body="any", about=TOKEN),
    Operation("POST", "/oauth/revoke", endpoints.revoke, body="any", about=REVOKE),
    Operation("POST", "/oauth/back-channel-logout/<provider_id>", back_channel_logout.log_out, body="any",
              about=LOGOUT),
)  # fmt: skip
# Below these even a path that no operation matches (a line feed in it, say) gets an error of the standard.
SURFACE = Surface("oauth", endpoints.ERRORS, OPERATIONS, prefixes=("/oauth", "/.well-known"))
