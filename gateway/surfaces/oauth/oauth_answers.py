"""Answers of the authorization server: metadata (RFC 8414, RFC 9728), registration (RFC 7591), tokens (RFC 6749) and
errors."""

from typing import Annotated, Any, Literal, TypeVar, cast

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, structs

from gateway.callers import scopes as scopes_module
from gateway.oauth.clients import CODE, CREDENTIALS, GRANTS, MAX_REDIRECTS, METHODS, REFRESH, TEXTS
from gateway.surfaces.web.answer_structs import ModelApiAnswer, Url

NAME = "LLM gateway"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
ALL_GRANTS = (*GRANTS, DEVICE_GRANT)
SCOPE_TEXT = "Scopes, with a blank between them."
Grant = Annotated[str, Meta(extra_json_schema={"enum": GRANTS})]
Method = Annotated[str, Meta(extra_json_schema={"enum": METHODS})]
Scope = Annotated[str, Meta(description=SCOPE_TEXT)]
ServerGrant = Annotated[str, Meta(extra_json_schema={"enum": ALL_GRANTS})]


class OAuthProtectedResourceAnswer(ModelApiAnswer):
    resource: Annotated[Url, Meta(description="The address that tokens are issued for.")]
    authorization_servers: list[Url]
    resource_documentation: Url
    scopes_supported: tuple[str, ...] = scopes_module.DEFAULT_SCOPES
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
    scopes_supported: tuple[str, ...] = scopes_module.SCOPES
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


# Requests to the authorization server as types: registration (RFC 7591), tokens (RFC 6749), revocation (RFC 7009).
#
# The endpoints read only members that these types name, and the API description shows the same members.

Form = TypeVar("Form", bound=Struct)


class _Registration(Struct, kw_only=True):
    """The metadata of an application."""

    redirect_uris: Annotated[
        list[Url] | UnsetType,
        Meta(
            description="URLs with https, with a scheme of the application, or loopback URLs with any port. "
            f"Required for {CODE}.",
            extra_json_schema={"minItems": 1, "maxItems": MAX_REDIRECTS},
        ),
    ] = UNSET
    client_name: Annotated[str | UnsetType, Meta(description="The name that people see.")] = UNSET
    grant_types: Annotated[
        list[str] | UnsetType,
        Meta(description=f"Default: {CODE}. {CREDENTIALS} requires an API key in the Authorization header."),
    ] = UNSET
    token_endpoint_auth_method: Annotated[
        str | UnsetType | None,
        Meta(description="Default: client_secret_basic.", extra_json_schema={"enum": [*METHODS, None]}),
    ] = UNSET
    api_key: Annotated[
        str | UnsetType, Meta(description="An API key, for clients that cannot send it as a header.")
    ] = UNSET


# With the texts that are returned unchanged.
ClientRegistration = cast(
    type[_Registration],
    defstruct(
        "ClientRegistration",
        [(name, str | UnsetType, UNSET) for name in TEXTS],
        bases=(_Registration,),
        module=__name__,
        kw_only=True,
    ),
)


class ClientForm(Struct, kw_only=True):
    """The members with which an application authenticates itself."""

    client_id: Annotated[
        str | UnsetType,
        Meta(description="Required for public applications and for those that send their secret in the body."),
    ] = UNSET
    client_secret: Annotated[
        str | UnsetType,
        Meta(description=f"Instead of HTTP Basic. With {CREDENTIALS} it may be an API key."),
    ] = UNSET


class TokenForm(ClientForm, kw_only=True):
    """A request for tokens."""

    grant_type: Annotated[str, Meta(extra_json_schema={"enum": ALL_GRANTS})]
    code: Annotated[
        str | UnsetType, Meta(description=f"With {CODE}: the code of the redirect. It is valid for five minutes, once.")
    ] = UNSET
    redirect_uri: Annotated[
        str | UnsetType, Meta(description=f"With {CODE}: the redirect URI of the authorization request.")
    ] = UNSET
    code_verifier: Annotated[
        str | UnsetType, Meta(description=f"With {CODE}: the verifier of the challenge (PKCE, S256).")
    ] = UNSET
    refresh_token: Annotated[
        str | UnsetType, Meta(description=f"With {REFRESH}: the newest refresh token. It works once.")
    ] = UNSET
    scope: Annotated[str | UnsetType, Meta(description=SCOPE_TEXT)] = UNSET
    resource: Annotated[
        str | UnsetType, Meta(description="The URL of the resource that the token is for (RFC 8707); this one or none.")
    ] = UNSET
    device_code: Annotated[
        str | UnsetType, Meta(description="With a device code: the code that the coding agent received.")
    ] = UNSET


class DeviceForm(Struct):
    """A request for a device code. The endpoint reads nothing of it."""

    surface: Annotated[str | UnsetType, Meta(description="The name of the coding agent. It has no effect.")] = UNSET


class RevocationForm(ClientForm, kw_only=True):
    """A request to revoke a token."""

    token: Annotated[
        str, Meta(description="An access token. A refresh token ends the whole access of the application.")
    ]
    token_type_hint: Annotated[str | UnsetType, Meta(description="It has no effect.")] = UNSET


class LogoutForm(Struct):
    """A request of an identity provider to end sessions (OpenID Connect Back-Channel Logout)."""

    logout_token: Annotated[str, Meta(description="A logout token of the identity provider (a signed JWT).")]


def read_form(kind: type[Form], fields: dict[str, str]) -> Form:
    """Return a request; a required member that is missing is empty."""
    required = {field.name: "" for field in structs.fields(kind) if field.required}
    return kind(**required | known_members(kind, fields))


def known_members(kind: type[Struct], given: dict[str, Any]) -> dict[str, Any]:
    """Return the members that a type names; all others have no effect."""
    return {name: given[name] for name in kind.__struct_fields__ if name in given}
