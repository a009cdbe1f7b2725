"""Answers of the authorization server: metadata (RFC 8414, RFC 9728), registration (RFC 7591), tokens (RFC 6749) and
errors."""

from typing import Annotated, Literal, cast

from msgspec import UNSET, Meta, UnsetType, defstruct

from gateway.oauth import scopes
from gateway.oauth.clients import CREDENTIALS, GRANTS, METHODS, TEXTS
from gateway.surfaces.answer_structs import ModelApiAnswer, Url

NAME = "LLM gateway"
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
ALL_GRANTS = (*GRANTS, DEVICE)
SCOPE_TEXT = "Scopes, with a blank between them."
Grant = Annotated[str, Meta(extra_json_schema={"enum": GRANTS})]
Method = Annotated[str, Meta(extra_json_schema={"enum": METHODS})]
Scope = Annotated[str, Meta(description=SCOPE_TEXT)]
ServerGrant = Annotated[str, Meta(extra_json_schema={"enum": ALL_GRANTS})]


class OAuthProtectedResourceAnswer(ModelApiAnswer):
    resource: Annotated[Url, Meta(description="The address that tokens are issued for.")]
    authorization_servers: list[Url]
    resource_documentation: Url
    scopes_supported: tuple[str, ...] = scopes.DEFAULT_SCOPES
    bearer_methods_supported: tuple[str, ...] = ("header",)
    resource_name: str = NAME


class OAuthAuthorizationServerAnswer(ModelApiAnswer):
    issuer: Url
    authorization_endpoint: Annotated[Url, Meta(description="The page on which a person authorizes the application.")]
    token_endpoint: Url
    registration_endpoint: Url
    device_authorization_endpoint: Annotated[Url, Meta(description="For coding agents (RFC 8628).")]
    revocation_endpoint: Url
    service_documentation: Url
    response_types_supported: tuple[str, ...] = ("code",)
    response_modes_supported: tuple[str, ...] = ("query",)
    grant_types_supported: tuple[ServerGrant, ...] = ALL_GRANTS
    code_challenge_methods_supported: tuple[str, ...] = ("S256",)
    token_endpoint_auth_methods_supported: tuple[Method, ...] = METHODS
    revocation_endpoint_auth_methods_supported: tuple[Method, ...] = METHODS
    scopes_supported: tuple[str, ...] = scopes.SCOPES
    authorization_response_iss_parameter_supported: bool = True
    client_id_metadata_document_supported: Annotated[
        bool, Meta(description="Whether a client_id may be the https address of the application's own description.")
    ] = True


class _RegisteredAnswer(ModelApiAnswer, kw_only=True):
    """A registered application. A public one has no secret."""

    client_id: str
    client_id_issued_at: Annotated[int, Meta(description="Seconds since 1970.")]
    client_name: str
    grant_types: list[Grant]
    response_types: list[Literal["code"]]
    token_endpoint_auth_method: Method
    scope: Scope
    redirect_uris: list[Url] | UnsetType = UNSET
    client_secret: Annotated[str | UnsetType, Meta(description="Shown once; a public application has none.")] = UNSET
    client_secret_expires_at: Annotated[int | UnsetType, Meta(description="0: it does not expire.")] = UNSET


# With the texts of the application's metadata, which are returned unchanged.
OAuthClientAnswer = cast(
    type[_RegisteredAnswer],
    defstruct(
        "OAuthClientAnswer",
        [(name, str | UnsetType, UNSET) for name in TEXTS],
        bases=(_RegisteredAnswer,),
        kw_only=True,
    ),
)


class OAuthTokensAnswer(ModelApiAnswer, kw_only=True):
    access_token: str
    token_type: Literal["Bearer"]
    expires_in: Annotated[int, Meta(description="Seconds.")]
    refresh_token: Annotated[str | UnsetType, Meta(description=f"Not with {CREDENTIALS}.")] = UNSET
    scope: Scope
    email: Annotated[str | UnsetType, Meta(description="The person, with a device code only.")] = UNSET


class OAuthDeviceCodeAnswer(ModelApiAnswer):
    """The codes of a device (RFC 8628, section 3.2)."""

    device_code: Annotated[str, Meta(description="The secret of the agent: it polls the token endpoint with it.")]
    user_code: Annotated[str, Meta(description="The code that the person compares.")]
    verification_uri: Url
    verification_uri_complete: Url
    expires_in: Annotated[int, Meta(description="Seconds.")]
    interval: Annotated[int, Meta(description="Seconds between two polls.")]


class OAuthRevokedAnswer(ModelApiAnswer):
    """An empty object, even if the token is unknown."""


class OAuthErrorAnswer(ModelApiAnswer):
    error: str
    error_description: str | UnsetType = UNSET
