"""The token and revocation endpoints: Authlib's rules of RFC 6749, 7636 and 7009 over our clients and grants.

Authlib checks who the client is, what a grant needs and the code verifier; using a code or a refresh token and making
tokens is one step of `grants`, so that no crash lies between. What Authlib says is made strict where its defaults are
not: S256 alone, 401 for every unknown client, and nothing of a request in a sentence.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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

from gateway.accounts.authentication import Authentication
from gateway.errors import Conflict, Gone, NotFound, Unauthenticated
from gateway.oauth import scopes
from gateway.oauth.clients import CREDENTIALS, REFRESH, OAuthApp
from gateway.oauth.grant_values import Consent, FoundCode, FoundToken, IssuedTokens, TokenQuestion
from gateway.oauth.grants import ACCESS_S, Grants, Spent

# At debug it tells the tokens that it issues.
logging.getLogger("authlib").setLevel(logging.INFO)

METHODS = ["client_secret_basic", "client_secret_post", "none"]
NO_STORE = [("Cache-Control", "no-store"), ("Pragma", "no-cache")]
OVER = "The code or token is not valid: unknown, used, expired or revoked."

Reply = tuple[int, dict[str, Any], list[tuple[str, str]]]


class InvalidTargetError(OAuth2Error):
    """Another resource was asked for (RFC 8707)."""

    error = "invalid_target"


class _TokenRequest(OAuth2Request):
    """The request as Authlib reads it. Whether it came by TLS is the deployment's matter, not asked here."""

    def __init__(self, given: TokenQuestion) -> None:
        if given.authorization:
            headers = {"Authorization": given.authorization}
        else:
            headers = {}
        super().__init__("POST", "https://localhost/", headers=headers)
        self.payload = BasicOAuth2Payload(dict(given.fields))
        self.issuer = given.issuer

    @property
    def form(self) -> dict[str, str]:
        fields: dict[str, str] = self.payload.data
        return fields


class _S256(CodeChallenge):
    """S256 is what every code was made with (`authorization`), and its verifier is always needed."""

    CODE_CHALLENGE_METHODS = {"S256": CodeChallenge.CODE_CHALLENGE_METHODS["S256"]}

    def validate_code_verifier(self, grant: Any, result: Any) -> None:
        if not grant.request.form.get("code_verifier"):
            raise InvalidRequestError("code_verifier is missing.")
        super().validate_code_verifier(grant, result)

    def get_authorization_code_challenge(self, authorization_code: FoundCode) -> str:
        return authorization_code.challenge

    def get_authorization_code_challenge_method(self, authorization_code: FoundCode) -> str:
        return "S256"


class _CodeGrant(rules.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = METHODS

    def query_authorization_code(self, code: str, client: OAuthApp) -> FoundCode | None:
        found: FoundCode | None = self.server.grants.find_code(code)
        if found is not None and found.client == client.id:
            return found
        return None

    def create_token_response(self) -> Reply:
        code = self.request.authorization_code
        _check_target(self.request, code.audience)
        refreshable = self.request.client.check_grant_type(REFRESH)
        return _give(lambda: self.server.grants.exchange(code, refreshable=refreshable))


class _RefreshGrant(rules.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = METHODS

    def authenticate_refresh_token(self, refresh_token: str) -> "_Token | None":
        found = self.server.grants.find_token(refresh_token)
        if found is not None and found.kind == "refresh":
            return _Token(found)
        return None

    def create_token_response(self) -> Reply:
        token = self.request.refresh_token.found
        _check_target(self.request, token.audience)
        scope = scopes.read_scope(self.request.payload.scope or token.scope) or ()
        return _give(lambda: self.server.grants.refresh(token, " ".join(scope)))


class _CredentialsGrant(rules.ClientCredentialsGrant):
    """The secret is an API key, or that of a client which registered with one."""

    TOKEN_ENDPOINT_AUTH_METHODS = METHODS[:2]

    def create_token_response(self) -> Reply:
        request = self.request
        client = self.request.client
        audience = scopes.resource_of(request.issuer)
        _check_target(request, audience)
        scope = scopes.read_scope(request.payload.scope or "")
        if scope is None:
            raise InvalidScopeError()
        if isinstance(client, _KeyHolder):
            generation = None
        else:
            generation = client.generation
        consent = Consent(client.id, client.name, "", "", "", " ".join(scope), audience, client.key_id, "")
        return _give(lambda: self.server.grants.hold(consent, generation))


class _Revocation(RevocationEndpoint):
    CLIENT_AUTH_METHODS = METHODS

    def query_token(self, token_string: str, token_type_hint: str | None) -> "_Token | None":
        found = self.server.grants.find_token(token_string)
        if found is not None:
            return _Token(found)
        return None

    def revoke_token(self, token: "_Token", request: Any) -> None:
        self.server.grants.end_token(token.found)


class _Token:
    """A found token in the words that Authlib asks for."""

    def __init__(self, found: FoundToken) -> None:
        self.found = found

    def check_client(self, client: OAuthApp) -> bool:
        return self.found.client == client.id

    def get_scope(self) -> str:
        return self.found.scope


@dataclass(frozen=True, slots=True)
class _KeyHolder(OAuthApp):
    """Who sends an API key as the secret of a client; what they call themselves does not matter."""


class OAuthServer(AuthorizationServer):
    """Both endpoints. `find` gives a client by its id."""

    def __init__(self, find: Callable[[str], OAuthApp | None], grants: Grants, authentication: Authentication) -> None:
        super().__init__()
        self.grants = grants
        self._find = find
        self._authentication = authentication
        self.register_grant(_CodeGrant, [_S256(required=True)])
        self.register_grant(_RefreshGrant)
        self.register_grant(_CredentialsGrant)
        self.register_endpoint(_Revocation)

    def give_tokens(self, given: TokenQuestion) -> Reply:
        """The answer to a request for tokens: status, body, headers."""
        kind = given.fields.get("grant_type", "")
        if not kind:
            return self._refuse(given, InvalidRequestError("grant_type is missing."))
        if kind not in ("authorization_code", REFRESH, CREDENTIALS):
            return self._refuse(given, OAuth2Error("This grant_type is not served.", error="unsupported_grant_type"))
        reply: Reply = self.create_token_response(_TokenRequest(given))
        return reply

    def revoke(self, given: TokenQuestion) -> Reply:
        """The answer to a request to end a token: 200 also for one that nobody knows (RFC 7009, 2.2)."""
        if not given.fields.get("token"):
            return self._refuse(given, InvalidRequestError("token is missing."))
        reply: Reply = self.create_endpoint_response("revocation", _TokenRequest(given))
        return reply

    # What Authlib asks for.

    def query_client(self, client_id: str) -> OAuthApp | None:
        return self._find(client_id)

    def authenticate_client(self, request: _TokenRequest, methods: list[str], endpoint: str = "token") -> OAuthApp:
        holder = self._key_holder(request)
        if holder is not None:
            return holder
        try:
            client: OAuthApp = super().authenticate_client(request, methods, endpoint)
        except (InvalidClientError, ValueError):
            raise InvalidClientError("The client is unknown, or its secret is wrong; register it again.") from None
        return client

    def create_oauth2_request(self, request: _TokenRequest) -> _TokenRequest:
        return request

    def handle_response(self, status: int, body: Any, headers: list[tuple[str, str]]) -> Reply:
        return status, dict(body or {}), [*NO_STORE]

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        return None

    def _key_holder(self, request: _TokenRequest) -> "_KeyHolder | None":
        """Who sends an API key as the secret, for client credentials or to revoke what came of them."""
        if request.payload.grant_type not in (CREDENTIALS, None):
            return None
        try:
            named, secret = extract_basic_authorization(request.headers)
        except ValueError:
            return None
        named = named or request.payload.client_id
        secret = secret or request.form.get("client_secret")
        if not secret or (named and self._find(named) is not None):
            return None
        try:
            caller = self._authentication.caller(secret)
        except (Unauthenticated, Gone):
            return None
        if caller.key_kind != "user":
            return None
        return _KeyHolder(
            "", f"Holder of {caller.key_name}"[:120], (), (CREDENTIALS,), METHODS[0], key_id=caller.key_id
        )

    def _refuse(self, given: TokenQuestion, error: OAuth2Error) -> Reply:
        reply: Reply = self.handle_error_response(_TokenRequest(given), error)
        return reply

    def handle_error_response(self, request: _TokenRequest, error: OAuth2Error) -> Reply:
        """The error, with 401 for every client that is not let in (clients register anew at that alone)."""
        body = {"error": error.error, "error_description": error.get_error_description() or OVER}
        if not isinstance(error, InvalidClientError):
            return error.status_code, body, [*NO_STORE]
        tried = request.headers.get("Authorization", "").lower().startswith("basic")
        return 401, body, [*NO_STORE, *([("WWW-Authenticate", 'Basic realm="oauth"')] if tried else [])]


def _check_target(request: _TokenRequest, audience: str) -> None:
    """InvalidTargetError unless the resource, where one is named, is the one that the grant is for."""
    named = request.form.get("resource")
    if named and not scopes.names_resource(named, audience.removesuffix(scopes.PATH)):
        raise InvalidTargetError("The token would be for another resource.")


def _give(issue: Callable[[], IssuedTokens]) -> Reply:
    try:
        issued = issue()
    except (Spent, NotFound, Conflict):
        raise InvalidGrantError(OVER) from None
    body = {"access_token": issued.access, "token_type": "Bearer", "expires_in": ACCESS_S, "scope": issued.scope}
    return 200, body | ({"refresh_token": issued.refresh} if issued.refresh else {}), []
