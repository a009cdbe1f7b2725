"""The token and revocation endpoints: Authlib's implementation of RFC 6749, 7636 and 7009 with our clients and grants.

Authlib authenticates the client and checks the grant's parameters and the code verifier. `grants` then uses the code or
refresh token and creates the new tokens in one transaction. Stricter than Authlib's defaults: only S256, status 401 for
every unknown client, and error descriptions that quote nothing from the request.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from authlib.oauth2.rfc6749 import (
    AuthorizationServer,
    InvalidClientError,
    InvalidGrantError,
    InvalidRequestError,
    InvalidScopeError,
    OAuth2Error,
    OAuth2Request,
)
from authlib.oauth2.rfc6749 import grants as rules
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc6749.util import extract_basic_authorization
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from msgspec import structs

from gateway.callers import scopes as scopes_module
from gateway.callers.authentication import Authentication
from gateway.errors import Conflict, Gone, NotFound, Unauthenticated
from gateway.oauth import clients
from gateway.oauth.clients import CREDENTIALS, REFRESH, OAuthApp
from gateway.oauth.grant_values import Consent, IssuedTokens, OAuthCall, StoredToken, ValidCode
from gateway.oauth.grants import ACCESS_LIFETIME_S, AlreadyUsed, Grants

# At debug level Authlib logs the tokens that it issues.
logging.getLogger("authlib").setLevel(logging.INFO)

CONFIDENTIAL = [method for method in clients.METHODS if method != clients.PUBLIC]
METHODS = [*CONFIDENTIAL, clients.PUBLIC]
INVALID_TOKEN = "The code or token is invalid: it is unknown, used, expired or revoked."

Reply = tuple[int, dict[str, Any], list[tuple[str, str]]]


class InvalidTargetError(OAuth2Error):
    """The request names another resource (RFC 8707)."""

    error = "invalid_target"


class _AuthlibRequest(OAuth2Request):
    """The request as Authlib reads it. Its URL is always https, because the deployment decides about TLS."""

    def __init__(self, given: OAuthCall) -> None:
        headers = {}
        if given.authorization:
            headers["Authorization"] = given.authorization
        super().__init__("POST", "https://localhost/", headers=headers)
        self.payload = BasicOAuth2Payload(dict(given.fields))
        self.issuer = given.issuer

    @property
    def form(self) -> dict[str, str]:
        fields: dict[str, str] = self.payload.data
        return fields


class _S256(CodeChallenge):
    """PKCE that requires a verifier; `authorization` accepts only codes with an S256 challenge."""

    CODE_CHALLENGE_METHODS: ClassVar[dict[str, Any]] = {"S256": CodeChallenge.CODE_CHALLENGE_METHODS["S256"]}

    def validate_code_verifier(self, grant: Any, result: Any) -> None:
        if not grant.request.form.get("code_verifier"):
            raise InvalidRequestError("code_verifier is missing.")
        super().validate_code_verifier(grant, result)

    def get_authorization_code_challenge(self, authorization_code: ValidCode) -> str:
        return authorization_code.challenge

    def get_authorization_code_challenge_method(self, authorization_code: ValidCode) -> str:
        return "S256"


class _CodeGrant(rules.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = METHODS

    def query_authorization_code(self, code: str, client: OAuthApp) -> ValidCode | None:
        valid_code: ValidCode | None = self.server.grants.find_code(code)
        if valid_code is None or valid_code.client != client.id:
            return None
        if not self.request.form.get("redirect_uri"):
            # OAuth 2.1 has no such parameter here: PKCE binds the code to the client that requested it.
            return structs.replace(valid_code, redirect_uri="")
        return valid_code

    def create_token_response(self) -> Reply:
        code = self.request.authorization_code
        _check_target(self.request, code.audience)
        refreshable = self.request.client.check_grant_type(REFRESH)
        return _token_response(partial(self.server.grants.exchange, code, refreshable=refreshable))


class _RefreshGrant(rules.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = METHODS

    def authenticate_refresh_token(self, refresh_token: str) -> "_Token | None":
        token = self.server.grants.find_token(refresh_token)
        if token is not None and token.kind == "refresh":
            return _Token(token)
        return None

    def _validate_token_scope(self, token: "_Token") -> None:
        """Accept what an authorization accepts; Authlib refuses every scope that the grant does not name."""
        if scopes_module.narrow_scope(self.request.payload.scope or "", token.get_scope()) is None:
            raise InvalidScopeError()

    def create_token_response(self) -> Reply:
        token = self.request.refresh_token.stored
        _check_target(self.request, token.audience)
        scope = scopes_module.narrow_scope(self.request.payload.scope or "", token.scope) or ()
        return _token_response(partial(self.server.grants.refresh, token, " ".join(scope)))


class _CredentialsGrant(rules.ClientCredentialsGrant):
    """Client credentials: the secret is an API key, or the secret of a client that registered with an API key."""

    TOKEN_ENDPOINT_AUTH_METHODS = CONFIDENTIAL

    def create_token_response(self) -> Reply:
        request = self.request
        client = self.request.client
        audience = scopes_module.resource_of(request.issuer)
        _check_target(request, audience)
        scope = scopes_module.read_scope(request.payload.scope or "")
        if scope is None:
            raise InvalidScopeError()
        generation = None if isinstance(client, _KeyHolder) else client.generation
        consent = Consent(client.id, client.name, "", "", "", " ".join(scope), audience, client.key_id, "")
        return _token_response(partial(self.server.grants.issue_for_key, consent, generation))


class _Revocation(RevocationEndpoint):
    CLIENT_AUTH_METHODS = METHODS

    def query_token(self, token_string: str, token_type_hint: str | None) -> "_Token | None":
        token = self.server.grants.find_token(token_string)
        if token is not None:
            return _Token(token)
        return None

    def revoke_token(self, token: "_Token", request: Any) -> None:
        self.server.grants.end_token(token.stored)


class _Token:
    """A stored token with the methods that Authlib calls."""

    def __init__(self, stored: StoredToken) -> None:
        self.stored = stored

    def check_client(self, client: OAuthApp) -> bool:
        return self.stored.client == client.id

    def get_scope(self) -> str:
        return self.stored.scope


@dataclass(frozen=True, slots=True)
class _KeyHolder(OAuthApp):
    """The client of a request that has an API key as its client secret. Its client_id is ignored."""


class OAuthServer(AuthorizationServer):
    """The token endpoint and the revocation endpoint. `find` returns a client by its id."""

    def __init__(self, find: Callable[[str], OAuthApp | None], grants: Grants, authentication: Authentication) -> None:
        super().__init__()
        self.grants = grants
        self._find = find
        self._authentication = authentication
        self.register_grant(_CodeGrant, [_S256(required=True)])
        self.register_grant(_RefreshGrant)
        self.register_grant(_CredentialsGrant)
        self.register_endpoint(_Revocation)

    def give_tokens(self, given: OAuthCall) -> Reply:
        """Answer a token request. Returns status, body and headers."""
        kind = given.fields.get("grant_type", "")
        if not kind:
            return self._refuse(given, InvalidRequestError("grant_type is missing."))
        if kind not in clients.GRANTS:
            return self._refuse(given, OAuth2Error("This grant_type is not supported.", error="unsupported_grant_type"))
        reply: Reply = self.create_token_response(_AuthlibRequest(given))
        return reply

    def revoke(self, given: OAuthCall) -> Reply:
        """Answer a revocation request: 200 even for an unknown token (RFC 7009, section 2.2)."""
        if not given.fields.get("token"):
            return self._refuse(given, InvalidRequestError("token is missing."))
        reply: Reply = self.create_endpoint_response("revocation", _AuthlibRequest(given))
        return reply

    # Methods that Authlib calls.

    def query_client(self, client_id: str) -> OAuthApp | None:
        return self._find(client_id)

    def authenticate_client(self, request: _AuthlibRequest, methods: list[str], endpoint: str = "token") -> OAuthApp:
        holder = self._key_holder(request)
        if holder is not None:
            return holder
        try:
            client: OAuthApp = super().authenticate_client(request, methods, endpoint)
        except (InvalidClientError, ValueError):
            raise InvalidClientError(
                "The client is unknown, or its secret is wrong. Register the client again."
            ) from None
        return client

    def create_oauth2_request(self, request: _AuthlibRequest) -> _AuthlibRequest:
        return request

    def handle_response(self, status: int, body: Any, headers: list[tuple[str, str]]) -> Reply:
        return status, dict(body or {}), []

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        return None

    def _key_holder(self, request: _AuthlibRequest) -> "_KeyHolder | None":
        """Return the client of a request with an API key as its secret (client credentials or revocation), or None."""
        if request.payload.grant_type not in (CREDENTIALS, None):
            return None
        try:
            client_id, secret = extract_basic_authorization(request.headers)
        except ValueError:
            return None
        client_id = client_id or request.payload.client_id
        secret = secret or request.form.get("client_secret")
        if not secret or (client_id and self._find(client_id) is not None):
            return None
        try:
            caller = self._authentication.caller(secret)
        except (Unauthenticated, Gone):
            return None
        if caller.key_kind != "user":
            return None
        return _KeyHolder(
            "", f"Holder of {caller.key_name}"[:120], (), (CREDENTIALS,), CONFIDENTIAL[0], key_id=caller.key_id
        )

    def _refuse(self, given: OAuthCall, error: OAuth2Error) -> Reply:
        reply: Reply = self.handle_error_response(_AuthlibRequest(given), error)
        return reply

    def handle_error_response(self, request: _AuthlibRequest, error: OAuth2Error) -> Reply:
        """Return the error, with status 401 for every rejected client: clients register again only after a 401."""
        body = {"error": error.error, "error_description": error.get_error_description() or INVALID_TOKEN}
        if not isinstance(error, InvalidClientError):
            return error.status_code, body, []
        headers: list[tuple[str, str]] = []
        if request.headers.get("Authorization", "").lower().startswith("basic"):
            headers.append(("WWW-Authenticate", 'Basic realm="oauth"'))
        return 401, body, headers


def _check_target(request: _AuthlibRequest, audience: str) -> None:
    """Raise InvalidTargetError if the request names another resource than the grant's."""
    resource = request.form.get("resource")
    if resource and not scopes_module.names_resource(resource, audience.removesuffix(scopes_module.PATH)):
        raise InvalidTargetError("The grant is for another resource.")


def _token_response(issue: Callable[[], IssuedTokens]) -> Reply:
    try:
        issued = issue()
    except (AlreadyUsed, NotFound, Conflict):
        raise InvalidGrantError(INVALID_TOKEN) from None
    body = {
        "access_token": issued.access,
        "token_type": "Bearer",
        "expires_in": ACCESS_LIFETIME_S,
        "scope": issued.scope,
    }
    if issued.refresh:
        body["refresh_token"] = issued.refresh
    return 200, body, []
