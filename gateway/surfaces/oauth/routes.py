"""The operations of the authorization server."""

from gateway.surfaces.http import About, Handler, Operation, Surface
from gateway.surfaces.oauth import discovery, endpoints

TAG = "OAuth"
OBJECT = {"type": "object"}


def _document(path: str, handler: Handler, summary: str) -> tuple[Operation, ...]:
    about = About(summary, TAG, access="none", answer=OBJECT)
    below = About(f"{summary}, below a path", TAG, access="none", answer=OBJECT, errors=(404,))
    return Operation("GET", path, handler, about=about), Operation("GET", f"{path}/<path:place>", handler, about=below)


REGISTER = About("Register an application", TAG, access="none", answer=OBJECT, success=(201,), errors=(400, 401, 429))
TOKEN = About("Tokens for an application", TAG, access="none", answer=OBJECT, errors=(400, 401, 429))
REVOKE = About("End a token", TAG, access="none", answer=OBJECT, errors=(400, 401, 429))

OPERATIONS: tuple[Operation, ...] = (
    *_document("/.well-known/oauth-protected-resource", discovery.show_resource, "The protected resource"),
    *_document("/.well-known/oauth-authorization-server", discovery.show_server, "The authorization server"),
    *_document("/.well-known/openid-configuration", discovery.show_server, "The same for clients of OpenID Connect"),
    # Some look for it below the resource's own address (RFC 8414, 5, as OpenID Connect has it).
    Operation("GET", "/mcp/.well-known/openid-configuration", discovery.show_server,
              about=About("The same, below the resource", TAG, access="none", answer=OBJECT)),
    Operation("POST", "/oauth/register", endpoints.register, body="any", about=REGISTER),
    Operation("POST", "/oauth/token", endpoints.give_tokens, body="any", about=TOKEN),
    Operation("POST", "/oauth/revoke", endpoints.revoke, body="any", about=REVOKE),
)  # fmt: skip
SURFACE = Surface("oauth", endpoints.ERRORS, OPERATIONS, prefixes=("/oauth",))
