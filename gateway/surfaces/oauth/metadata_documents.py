"""Metadata documents that lead applications from `/mcp` to a token: the protected resource's (RFC 9728) and the
authorization server's (RFC 8414), at the server's root and below the path of the resource and of a public URL that has
one."""

from urllib.parse import urlsplit

from gateway.errors import NotFound
from gateway.oauth import scopes
from gateway.surfaces.http import Inbound, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.surfaces.oauth.oauth_answers import OAuthAuthorizationServerAnswer, OAuthProtectedResourceAnswer
from gateway.worker.services import Services

DOCUMENTATION = "/docs"


def show_resource(services: Services, inbound: Inbound) -> Outbound:
    """Return the authorization servers that issue the tokens that `/mcp` accepts."""
    base = _base_of(inbound)
    answer = OAuthProtectedResourceAnswer(scopes.resource_of(base), [base], base + DOCUMENTATION)
    return json_reply(answer, inbound.shown_id)


def show_server(services: Services, inbound: Inbound) -> Outbound:
    """The endpoints and capabilities of the authorization server."""
    base = _base_of(inbound)
    answer = OAuthAuthorizationServerAnswer(
        issuer=base,
        authorization_endpoint=f"{base}/oauth/authorize",
        token_endpoint=f"{base}/oauth/token",
        registration_endpoint=f"{base}/oauth/register",
        device_authorization_endpoint=f"{base}/oauth/device_authorization",
        revocation_endpoint=f"{base}/oauth/revoke",
        service_documentation=base + DOCUMENTATION,
    )
    return json_reply(answer, inbound.shown_id)


def _base_of(inbound: Inbound) -> str:
    """Our address as callers see it. NotFound below a path that is neither the resource's nor ours."""
    base = inbound.base_url.rstrip("/")
    own = urlsplit(base).path.strip("/")
    named = inbound.params.get("place", "").strip("/")
    if named not in ("", own, f"{own}{scopes.PATH}".strip("/"), scopes.PATH.strip("/")):
        raise NotFound(f"There is nothing at {inbound.path[:200]}.")
    return base
