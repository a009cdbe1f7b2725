"""Metadata documents that lead applications from `/mcp` to a token: the protected resource's (RFC 9728) and the
authorization server's (RFC 8414), at the server's root and below the path of the resource and of a public URL that has
one."""

from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from gateway.errors import NotFound
from gateway.oauth import scopes
from gateway.oauth.clients import CODE, CREDENTIALS, METHODS, REFRESH
from gateway.surfaces.answer_structs import ModelApiAnswer, Url
from gateway.surfaces.http import Inbound, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.worker.services import Services

NAME = "LLM gateway"
DOCUMENTATION = "/docs"
GRANTS = (CODE, CREDENTIALS, REFRESH)
Grant = Annotated[str, Meta(extra_json_schema={"enum": GRANTS})]
Method = Annotated[str, Meta(extra_json_schema={"enum": METHODS})]


class OAuthProtectedResourceAnswer(ModelApiAnswer):
    resource: Annotated[Url, Meta(description="The address that tokens are issued for.")]
    authorization_servers: list[Url]
    resource_documentation: Url
    scopes_supported: tuple[str, ...] = scopes.SCOPES
    bearer_methods_supported: tuple[str, ...] = ("header",)
    resource_name: str = NAME


class OAuthAuthorizationServerAnswer(ModelApiAnswer):
    issuer: Url
    authorization_endpoint: Annotated[Url, Meta(description="The page on which a person authorizes the application.")]
    token_endpoint: Url
    registration_endpoint: Url
    revocation_endpoint: Url
    service_documentation: Url
    response_types_supported: tuple[str, ...] = ("code",)
    response_modes_supported: tuple[str, ...] = ("query",)
    grant_types_supported: tuple[Grant, ...] = GRANTS
    code_challenge_methods_supported: tuple[str, ...] = ("S256",)
    token_endpoint_auth_methods_supported: tuple[Method, ...] = METHODS
    revocation_endpoint_auth_methods_supported: tuple[Method, ...] = METHODS
    scopes_supported: tuple[str, ...] = scopes.SCOPES
    authorization_response_iss_parameter_supported: bool = True
    client_id_metadata_document_supported: Annotated[
        bool, Meta(description="Whether a client_id may be the https address of the application's own description.")
    ] = True


def show_resource(services: Services, inbound: Inbound) -> Outbound:
    """Return the authorization servers that issue the tokens that `/mcp` accepts."""
    base = _base_of(inbound)
    answer = OAuthProtectedResourceAnswer(scopes.resource_of(base), [base], base + DOCUMENTATION)
    return json_reply(answer.encode(), inbound.shown_id)


def show_server(services: Services, inbound: Inbound) -> Outbound:
    """The endpoints and capabilities of the authorization server."""
    base = _base_of(inbound)
    answer = OAuthAuthorizationServerAnswer(
        issuer=base,
        authorization_endpoint=f"{base}/oauth/authorize",
        token_endpoint=f"{base}/oauth/token",
        registration_endpoint=f"{base}/oauth/register",
        revocation_endpoint=f"{base}/oauth/revoke",
        service_documentation=base + DOCUMENTATION,
    )
    return json_reply(answer.encode(), inbound.shown_id)


def _base_of(inbound: Inbound) -> str:
    """Our address as callers see it. NotFound below a path that is neither the resource's nor ours."""
    base = inbound.base_url.rstrip("/")
    own = urlsplit(base).path.strip("/")
    named = inbound.params.get("place", "").strip("/")
    if named not in ("", own, f"{own}{scopes.PATH}".strip("/"), scopes.PATH.strip("/")):
        raise NotFound(f"There is nothing at {inbound.path[:200]}.")
    return base
