"""Metadata documents that lead applications from `/mcp` to a token: the protected resource's (RFC 9728) and the
authorization server's (RFC 8414), at the server's root and below the path of the resource and of a public URL that has
one."""

from typing import Any
from urllib.parse import urlsplit

from gateway.errors import NotFound
from gateway.oauth import scopes
from gateway.oauth.clients import CODE, CREDENTIALS, METHODS, REFRESH
from gateway.surfaces.http import Inbound, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.worker.services import Services

NAME = "LLM gateway"
DOCUMENTATION = "/docs"


def show_resource(services: Services, inbound: Inbound) -> Outbound:
    """Return the authorization servers that issue the tokens that `/mcp` accepts."""
    base = _base_of(inbound)
    body: dict[str, Any] = {
        "resource": scopes.resource_of(base),
        "authorization_servers": [base],
        "scopes_supported": list(scopes.SCOPES),
        "bearer_methods_supported": ["header"],
        "resource_name": NAME,
        "resource_documentation": base + DOCUMENTATION,
    }
    return json_reply(body, inbound.shown_id)


def show_server(services: Services, inbound: Inbound) -> Outbound:
    """The endpoints and capabilities of the authorization server."""
    base = _base_of(inbound)
    body: dict[str, Any] = {
        "issuer": base,
        "authorization_endpoint": f"{base}/oauth/authorize",
        "token_endpoint": f"{base}/oauth/token",
        "registration_endpoint": f"{base}/oauth/register",
        "revocation_endpoint": f"{base}/oauth/revoke",
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": [CODE, CREDENTIALS, REFRESH],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": list(METHODS),
        "revocation_endpoint_auth_methods_supported": list(METHODS),
        "scopes_supported": list(scopes.SCOPES),
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": True,
        "service_documentation": base + DOCUMENTATION,
    }
    return json_reply(body, inbound.shown_id)


def _base_of(inbound: Inbound) -> str:
    """Our address as callers see it. NotFound below a path that is neither the resource's nor ours."""
    base = inbound.base_url.rstrip("/")
    own = urlsplit(base).path.strip("/")
    named = inbound.params.get("place", "").strip("/")
    if named not in ("", own, f"{own}{scopes.PATH}".strip("/"), scopes.PATH.strip("/")):
        raise NotFound(f"There is nothing at {inbound.path[:200]}.")
    return base
