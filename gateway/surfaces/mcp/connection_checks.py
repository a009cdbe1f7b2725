"""Checks of a connection to `/mcp` before any message is read: page origins, versions, keys."""

import re
from urllib.parse import urlsplit

from gateway.accounts.authentication import Caller
from gateway.errors import Forbidden, GatewayError, Gone, InvalidRequest, Unauthenticated
from gateway.oauth import scopes
from gateway.oauth.redirects import LOOPBACK
from gateway.surfaces import auth
from gateway.surfaces.http import Inbound
from gateway.worker.services import Services

PATH = "/mcp"
VERSION_HEADER = "mcp-protocol-version"
# Revisions that begin with `initialize`, the newest first, and the revision in which each message declares its
# version.
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
STATELESS = "2026-07-28"
SUPPORTED = (STATELESS, *VERSIONS)
LOCAL_PAGE = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
VARY = ("Vary", "Accept, Origin")  # headers of every response
METADATA = "/.well-known/oauth-protected-resource/mcp"


def check_origin(services: Services, inbound: Inbound) -> None:
    """Raise Forbidden for pages of origins that are not allowed, and on loopback for pages under another host name (DNS
    rebinding). Programs send no origin and pass.

    The protocol requires this even with a valid key, so each origin has to be listed: a `*` for the other routes does
    not count. Pages on this computer, such as those of MCP Inspector, have a loopback name, which DNS cannot rebind.
    """
    origin = inbound.header("origin").rstrip("/").lower()
    if not origin:
        return
    server = services.settings.server
    security = services.settings.security
    if server.host in LOOPBACK:
        host = (urlsplit(f"//{inbound.header('host')}").hostname or "").lower()
        named = {(urlsplit(server.public_url).hostname or "").lower(), *server.allowed_hosts} - {""}
        if host not in LOOPBACK | named:
            raise _foreign(
                "Only local host names are allowed; the operator sets GATEWAY_SERVER_PUBLIC_URL to use another one."
            )
    if LOCAL_PAGE.fullmatch(origin):
        return
    own = urlsplit(inbound.base_url)
    allowed = {f"{own.scheme}://{own.netloc}", *security.trusted_origins, *security.cors_origins}
    if origin not in {address.rstrip("/").lower() for address in allowed}:
        raise _foreign(
            "This origin is not allowed; the operator lists origins in security.cors_origins, beside * if it is there."
        )


def _foreign(message: str) -> Forbidden:
    return Forbidden(message, code="origin_not_allowed")


def check_version(inbound: Inbound) -> None:
    """Raise InvalidRequest for an unsupported version; a request without a version comes from an older client."""
    version = inbound.header(VERSION_HEADER)
    if version and version not in SUPPORTED:
        raise InvalidRequest(
            f"This version of the protocol is not supported; send one of {', '.join(SUPPORTED)}.",
            code="unsupported_protocol_version",
        )


def caller_of(services: Services, inbound: Inbound) -> Caller:
    """Return the caller of the key or the access token. Raises Unauthenticated with the challenge that clients follow,
    and Forbidden for a token without the tools scope or a key with a closed project or organization."""
    try:
        caller = auth.caller_of(services, inbound)
        if caller.by_token and scopes.TOOLS not in caller.scopes:
            raise Forbidden(f"This requires an access token with the scope {scopes.TOOLS}.", code="insufficient_scope")
        return caller
    except (Unauthenticated, Forbidden, Gone) as error:
        raise convert_error(error, inbound) from None


def convert_error(error: GatewayError, inbound: Inbound) -> GatewayError:
    """Convert the error of a credential to the form that the protocol requires."""
    if isinstance(error, Gone):
        return Forbidden(error.message, code=error.code)
    if isinstance(error, Unauthenticated):
        return _challenge(error, inbound, "invalid_token" if auth.token_of(inbound) else "")
    if error.code == "insufficient_scope":
        return _challenge(error, inbound, error.code)
    return error


def _challenge(error: GatewayError, inbound: Inbound, problem: str) -> GatewayError:
    """Return the error with the challenge that leads clients to a token (RFC 9728, section 5.1; RFC 6750, section
    3)."""
    if problem:
        detail = f'error="{problem}", '
    else:
        detail = ""
    where = f'resource_metadata="{inbound.base_url}{METADATA}"'
    error.headers = (*error.headers, ("WWW-Authenticate", f'Bearer {detail}scope="{scopes.TOOLS}", {where}'))
    return error
