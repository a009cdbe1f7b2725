"""The request of an application to be let in (RFC 6749, 4.1.1, with RFC 7636, 8707 and 9207), checked before a person
sees it, and where its answer goes."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from gateway.errors import InvalidRequest
from gateway.oauth import redirects, scopes
from gateway.oauth.clients import CODE, OAuthApp

CHALLENGE = re.compile(r"[A-Za-z0-9\-._~]{43,128}")
LONGEST_STATE = 4_000
ONCE = ("response_type", "scope", "state", "code_challenge", "code_challenge_method")
UNKNOWN_CLIENT = (
    "This application is not known here any more. Remove the connection in the application and connect it again."
)
WRONG_REDIRECT = (
    "This request names another address to go back to than the application registered, so it is not followed."
)

Parameters = Mapping[str, Sequence[str]]


class AuthorizationRejected(Exception):
    """What `client` hears at `location`, its own address, once it may: `description`, a sentence for people too."""

    def __init__(self, client: OAuthApp, location: str, description: str) -> None:
        super().__init__(description)
        self.client = client
        self.location = location
        self.description = description

    @property
    def leads_elsewhere(self) -> bool:
        """Whether that is a site. Anybody may register one, so nobody is led there unasked (RFC 9700, 4.11.2)."""
        return self.location.startswith("https:")


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """A request that is in order. `issuer` is who answers it."""

    client: OAuthApp
    redirect_uri: str
    state: str
    challenge: str
    scope: str
    audience: str
    issuer: str

    def answer(self, **given: str) -> str:
        """The address with the answer's parameters, at which the application hears of it."""
        return answer_at(self.redirect_uri, self.state, self.issuer, given)

    def deny(self) -> str:
        """The answer of who does not want to."""
        return self.answer(error="access_denied", error_description="The request was denied.")


def read(given: Parameters, issuer: str, find: Callable[[str], OAuthApp | None]) -> AuthorizationRequest:
    """The request of these parameters; `find` gives a client by its id.

    InvalidRequest for one whose sender cannot be told: nobody is led on then. AuthorizationRejected for what it asks for.
    """
    client_id = _one(given, "client_id")
    redirect_uri = _one(given, "redirect_uri")
    client = find(client_id) if client_id else None
    if client is None:
        raise InvalidRequest(UNKNOWN_CLIENT if client_id else "The parameter client_id is missing.", param="client_id")
    if not redirect_uri or not client.allows_redirect(redirect_uri):
        raise InvalidRequest(WRONG_REDIRECT, param="redirect_uri")
    state = given.get("state", ("",))[0]

    def refuse(error: str, description: str) -> AuthorizationRejected:
        parameters = {"error": error, "error_description": description}
        location = answer_at(redirect_uri, state if len(state) <= LONGEST_STATE else "", issuer, parameters)
        return AuthorizationRejected(client, location, description)

    problem = _problem_of(given, client, issuer)
    if problem is not None:
        raise refuse(*problem)
    scope = scopes.read_scope(_first(given, "scope"))
    if scope is None:
        raise refuse("invalid_scope", f"Scopes are {', '.join(scopes.SCOPES)}.")
    place = _first(given, "code_challenge"), " ".join(scope), scopes.resource_of(issuer), issuer
    return AuthorizationRequest(client, redirect_uri, state, *place)


def answer_at(redirect_uri: str, state: str, issuer: str, given: Mapping[str, str]) -> str:
    """An address of an application with parameters of an answer, its state and who answers (RFC 9207)."""
    query = urlencode({**given, **({"state": state} if state else {}), "iss": issuer})
    return f"{redirect_uri}{'&' if '?' in redirect_uri else '?'}{query}"


def _problem_of(given: Parameters, client: OAuthApp, issuer: str) -> tuple[str, str] | None:
    """The error of a request whose sender is known, and a sentence; None: there is none."""
    repeated = [name for name in ONCE if len(given.get(name, ())) > 1]
    if repeated:
        return "invalid_request", f"The parameter {repeated[0]} stands there more than once."
    if len(_first(given, "state")) > LONGEST_STATE:
        return "invalid_request", f"state has at most {LONGEST_STATE} characters."
    kind = _first(given, "response_type")
    if kind != "code":
        if kind:
            error = "unsupported_response_type"
        else:
            error = "invalid_request"
        return error, "Send response_type=code."
    if not client.check_grant_type(CODE):
        return "unauthorized_client", "The application did not register for authorization codes."
    if _first(given, "code_challenge_method") != "S256" or not CHALLENGE.fullmatch(_first(given, "code_challenge")):
        return "invalid_request", "Send code_challenge with code_challenge_method=S256 (PKCE)."
    if not all(scopes.names_resource(one, issuer) for one in given.get("resource", ())):
        return "invalid_target", f"Tokens are made for {scopes.resource_of(issuer)} alone."
    return None


def _first(given: Parameters, name: str) -> str:
    return next(iter(given.get(name, ())), "")


def _one(given: Parameters, name: str) -> str:
    """A parameter that stands there once; "" otherwise."""
    values = given.get(name, ())
    if len(values) == 1:
        return values[0]
    return ""


def shown_host(request: AuthorizationRequest) -> str:
    """Where the answer goes, as people are told."""
    return redirects.host_of(request.redirect_uri)
