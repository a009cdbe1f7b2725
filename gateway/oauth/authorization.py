"""Authorization requests (RFC 6749, section 4.1.1, with RFC 7636, 8707 and 9207): validation and the redirect back."""

import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlencode

from msgspec import Struct

from gateway.callers import scopes as scopes_module
from gateway.errors import InvalidRequest
from gateway.oauth import clients
from gateway.oauth.clients import CODE, OAuthApp

CHALLENGE = re.compile(r"[A-Za-z0-9\-._~]{43,128}")
MAX_STATE_LENGTH = 4_000
ONCE = ("response_type", "scope", "state", "code_challenge", "code_challenge_method", "prompt")
SILENT = "none"  # the value of prompt with which an application wants an answer without a page
UNKNOWN_CLIENT = (
    "This application is no longer registered. Remove the connection in the application and connect it again."
)
WRONG_REDIRECT = (
    "The redirect_uri of this request is not registered for the application. You are therefore not redirected to it."
)

Parameters = Mapping[str, Sequence[str]]


class AuthorizationRejected(Exception):
    """The request of `client` is invalid. `location` is the client's redirect URI with the error."""

    def __init__(self, client: OAuthApp, location: str, description: str) -> None:
        super().__init__(description)
        self.client = client
        self.location = location
        self.description = description

    @property
    def redirects_to_website(self) -> bool:
        """Whether `location` is a website, which needs protection from open redirects (RFC 9700, section 4.11.2)."""
        return self.location.startswith("https:")


class AuthorizationRequest(Struct, frozen=True):
    """A valid authorization request. `issuer` is our issuer URL."""

    client: OAuthApp
    redirect_uri: str
    state: str
    challenge: str
    scope: str
    audience: str
    issuer: str

    def response_url(self, **parameters: str) -> str:
        """Return the redirect URI with the parameters of the response."""
        return build_response_url(self.redirect_uri, self.state, self.issuer, parameters)

    def deny(self) -> str:
        """Return the redirect URI with the error access_denied."""
        return self.response_url(error="access_denied", error_description="The request was denied.")

    def refuse_silently(self, signed_in: bool) -> AuthorizationRejected:
        """Return the error for a request that may show no page (OpenID Connect Core 1.0, section 3.1.2.6)."""
        error, description = "login_required", "The person is not signed in."
        if signed_in:
            error, description = "interaction_required", "The person must choose an API key on a page."
        location = self.response_url(error=error, error_description=description)
        return AuthorizationRejected(self.client, location, description)


def read_authorization(
    parameters: Parameters, issuer: str, find: Callable[[str], OAuthApp | None]
) -> AuthorizationRequest:
    """Validate the parameters of a request; `find` returns a client by its id.

    Raises InvalidRequest if the client or its redirect URI is unknown: then there is no redirect. Raises
    AuthorizationRejected for any other error.
    """
    client_id = _single(parameters, "client_id")
    redirect_uri = _single(parameters, "redirect_uri")
    if not client_id:
        raise InvalidRequest("The parameter client_id is missing.", param="client_id")
    client = find(client_id)
    if client is None:
        raise InvalidRequest(UNKNOWN_CLIENT, param="client_id")
    if not redirect_uri or not client.allows_redirect(redirect_uri):
        raise InvalidRequest(WRONG_REDIRECT, param="redirect_uri")
    state = parameters.get("state", ("",))[0]

    def reject(error: str, description: str) -> AuthorizationRejected:
        parameters = {"error": error, "error_description": description}
        returned_state = ""
        if len(state) <= MAX_STATE_LENGTH:
            returned_state = state
        location = build_response_url(redirect_uri, returned_state, issuer, parameters)
        return AuthorizationRejected(client, location, description)

    problem = _problem_of(parameters, client, issuer)
    if problem is not None:
        raise reject(*problem)
    scope = scopes_module.read_scope(_first(parameters, "scope"))
    if scope is None:
        raise reject("invalid_scope", f"The supported scopes are {', '.join(scopes_module.SCOPES)}.")
    return AuthorizationRequest(
        client=client,
        redirect_uri=redirect_uri,
        state=state,
        challenge=_first(parameters, "code_challenge"),
        scope=" ".join(scope),
        audience=scopes_module.resource_of(issuer),
        issuer=issuer,
    )


def is_silent(parameters: Parameters) -> bool:
    """Return whether the application wants an answer without a page."""
    return any(SILENT in text.split() for text in parameters.get("prompt", ()))


def build_response_url(redirect_uri: str, state: str, issuer: str, parameters: Mapping[str, str]) -> str:
    """Return the redirect URI with the parameters of a response, the state and the issuer (RFC 9207)."""
    query = dict(parameters)
    if state:
        query["state"] = state
    query["iss"] = issuer
    separator = "&" if "?" in redirect_uri else "?"
    return redirect_uri + separator + urlencode(query)


def _problem_of(parameters: Parameters, client: OAuthApp, issuer: str) -> tuple[str, str] | None:
    """Return the error code and description of an invalid request of a known client, or None for a valid request."""
    repeated = [name for name in ONCE if len(parameters.get(name, ())) > 1]
    if repeated:
        return "invalid_request", f"The parameter {repeated[0]} is repeated."
    if len(_first(parameters, "state")) > MAX_STATE_LENGTH:
        return "invalid_request", f"state must have at most {MAX_STATE_LENGTH} characters."
    kind = _first(parameters, "response_type")
    if kind != "code":
        error = "unsupported_response_type" if kind else "invalid_request"
        return error, "Send response_type=code."
    if not client.check_grant_type(CODE):
        return "unauthorized_client", "The application did not register for authorization codes."
    if _first(parameters, "code_challenge_method") != "S256" or not CHALLENGE.fullmatch(
        _first(parameters, "code_challenge")
    ):
        return "invalid_request", "Send code_challenge with code_challenge_method=S256 (PKCE)."
    if is_silent(parameters) and _first(parameters, "prompt").strip() != SILENT:
        return "invalid_request", "prompt=none excludes other values of prompt."
    if not all(scopes_module.names_resource(resource, issuer) for resource in parameters.get("resource", ())):
        return "invalid_target", f"Tokens are issued only for {scopes_module.resource_of(issuer)}."
    return None


def _first(parameters: Parameters, name: str) -> str:
    return next(iter(parameters.get(name, ())), "")


def _single(parameters: Parameters, name: str) -> str:
    """Return a parameter that occurs exactly once, otherwise ""."""
    values = parameters.get(name, ())
    if len(values) == 1:
        return values[0]
    return ""


def shown_host(request: AuthorizationRequest) -> str:
    """Return the host of the redirect URI, for display."""
    return clients.host_of(request.redirect_uri)
