"""The gateway as a relying party: authorization requests, codes, refresh tokens, ID tokens and logout tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

from authlib.common.urls import add_params_to_uri
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.claims import JWTClaims
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from joserfc.errors import JoseError
from msgspec import Struct

from gateway.accounts.identity_providers import IdentityProvider
from gateway.callers import issuer_keys as issuer_keys_module
from gateway.callers.issuer_keys import InvalidKeys, InvalidToken, IssuerKeys, KeySource
from gateway.clock import SECOND_US, Clock
from gateway.errors import GatewayError, Unavailable
from gateway.sso.discovery import Endpoints, ProviderDiscovery, ProviderRequests
from gateway.sso.provider_identity import ProviderIdentity, read_attributes, read_groups, read_identity

CLOCK_LEEWAY_S = 60
MAX_SUBJECT_LENGTH = 255
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
MAX_LOGOUT_AGE_S = 300
FORM_HEADERS = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
# Errors of a token endpoint with which a provider refuses the person, not the gateway.
REFUSAL_CODES = frozenset(
    ("invalid_grant", "access_denied", "login_required", "interaction_required", "consent_required", "account_disabled")
)


class SignInRefused(Exception):
    """The provider refused, or its answer is not valid. The text is safe to show and quotes no token."""


class PersonRefused(SignInRefused):
    """The provider no longer signs this person in."""


@dataclass(frozen=True, slots=True)
class SignedInIdentity:
    """The identity after a sign-in, the refresh token ("" without one), and the ID token."""

    identity: ProviderIdentity
    refresh_token: str = field(repr=False)
    id_token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RefreshedIdentity:
    """The answer to a check: the next refresh token, the groups, None if the provider did not state them, and the
    attributes that it stated."""

    refresh_token: str = field(repr=False)
    groups: tuple[str, ...] | None
    attributes: Mapping[str, str] = field(default_factory=dict)


class LogoutRequest(Struct, frozen=True):
    """A checked logout token: it ends sign-ins with this subject and session id; either may be ""."""

    token_id: str
    subject: str
    sid: str


class OpenIdClient:
    """Requests to providers, and checks of their tokens. `keys` and `trusted_keys` cache the keys of guarded issuers,
    and of those that the operator configured."""

    def __init__(
        self,
        requests: ProviderRequests,
        discovery: ProviderDiscovery,
        keys: IssuerKeys,
        trusted_keys: Mapping[str, IssuerKeys],
        clock: Clock,
    ) -> None:
        self._requests = requests
        self._discovery = discovery
        self._keys = keys
        self._trusted_keys = trusted_keys
        self._clock = clock

    def check(self, provider: IdentityProvider) -> Endpoints:
        """Return the endpoints of a provider after loading its keys too. Raises Unavailable."""
        endpoints = self._discovery.find(provider)
        self._keys_of(provider).find(KeySource(provider.issuer, endpoints.keys), "")
        return endpoints

    def authorization_url(
        self, provider: IdentityProvider, redirect_uri: str, state: str, nonce: str, verifier: str, **more: str
    ) -> str:
        """Return the URL to which the browser is sent. `more` are further parameters (prompt, login_hint). Raises
        Unavailable."""
        url: str = prepare_grant_uri(
            self._discovery.find(provider).authorization,
            client_id=provider.client_id,
            response_type="code",
            redirect_uri=redirect_uri,
            scope=list(provider.scopes),
            state=state,
            nonce=nonce,
            code_challenge=create_s256_code_challenge(verifier),
            code_challenge_method="S256",
            **{name: value for name, value in more.items() if value},
        )
        return url

    def exchange(
        self, provider: IdentityProvider, code: str, redirect_uri: str, verifier: str, nonce: str, issuer: str
    ) -> SignedInIdentity:
        """Exchange the code of a response and return the person. `issuer` is the parameter iss of the response ("":
        absent). Raises SignInRefused or Unavailable."""
        endpoints = self._discovery.find(provider)
        if issuer != provider.issuer and (issuer or endpoints.states_issuer):
            raise SignInRefused("The response came from another identity provider.")
        answer = self._ask(
            provider,
            endpoints,
            "authorization_code",
            {"code": code, "redirect_uri": redirect_uri, "code_verifier": verifier},
        )
        claims = self._read_id_token(provider, endpoints, answer, nonce)
        claims, is_complete = self._with_userinfo(provider, endpoints, answer, claims)
        return SignedInIdentity(
            read_identity(provider, claims, is_complete),
            _text(answer.get("refresh_token")),
            _text(answer.get("id_token")),
        )

    def logout_url(self, provider: IdentityProvider, id_token: str, return_uri: str) -> str:
        """Return the URL at which the browser ends the person's session at the provider, "" if the provider has none
        (OpenID Connect RP-Initiated Logout 1.0). Raises Unavailable."""
        endpoint = self._discovery.find(provider).end_session
        if not endpoint:
            return ""
        fields = {"client_id": provider.client_id, "post_logout_redirect_uri": return_uri}
        if id_token:
            fields["id_token_hint"] = id_token
        url: str = add_params_to_uri(endpoint, list(fields.items()))
        return url

    def refresh(self, provider: IdentityProvider, refresh_token: str, subject: str) -> RefreshedIdentity:
        """Ask the provider whether a person may still sign in. Raises PersonRefused, SignInRefused (an invalid answer)
        or Unavailable."""
        endpoints = self._discovery.find(provider)
        answer = self._ask(provider, endpoints, "refresh_token", {"refresh_token": refresh_token})
        groups = None
        attributes: dict[str, str] = {}
        if answer.get("id_token"):
            claims = self._read_id_token(provider, endpoints, answer, "")
            claims, is_complete = self._with_userinfo(provider, endpoints, answer, claims)
            if claims["sub"] != subject:
                raise PersonRefused("The identity provider answered for another person.")
            groups = read_groups(provider, claims, is_complete)
            attributes = read_attributes(provider, claims)
        return RefreshedIdentity(_text(answer.get("refresh_token")) or refresh_token, groups, attributes)

    def read_logout_token(self, provider: IdentityProvider, text: str) -> LogoutRequest:
        """Check a logout token (OpenID Connect Back-Channel Logout 1.0, section 2.6). Raises SignInRefused, or
        Unavailable if the keys cannot be loaded."""
        claims = self._verify(provider, self._discovery.find(provider), text)
        self._check_claims(JWTClaims(claims, {}, self._required(provider)), MAX_LOGOUT_AGE_S)
        events = claims.get("events")
        is_logout = isinstance(events, dict) and isinstance(events.get(LOGOUT_EVENT), dict)
        token_id, subject, sid = (_text(claims.get(name)) for name in ("jti", "sub", "sid"))
        if not is_logout or "nonce" in claims or not token_id or not (subject or sid):
            raise SignInRefused("The token is not a logout token.")
        return LogoutRequest(token_id, subject, sid)

    def _ask(
        self, provider: IdentityProvider, endpoints: Endpoints, grant: str, fields: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return the answer of the token endpoint. Raises PersonRefused, SignInRefused or Unavailable."""
        body = prepare_token_request(grant, **fields)
        url, headers, body = _authenticate(provider, endpoints, body)
        try:
            status, text = self._requests.send(provider, "POST", url, headers, body.encode())
        except GatewayError as error:
            raise Unavailable(f"The identity provider cannot be used now: {error.message}", code="sso_failed") from None
        answer = _read_object(text)
        code = _text(answer.get("error"))
        if status == 200 and not code:
            return answer
        if code in REFUSAL_CODES:
            raise PersonRefused("The identity provider refused the sign-in.")
        if status >= 500 or status in (408, 429) or not code:
            raise Unavailable(f"The identity provider answered with status {status}.", code="sso_failed")
        raise SignInRefused(f"The identity provider refused the request of this gateway: {_shown(code)}.")

    def _read_id_token(
        self, provider: IdentityProvider, endpoints: Endpoints, answer: Mapping[str, Any], nonce: str
    ) -> dict[str, Any]:
        text = _text(answer.get("id_token"))
        if not text:
            raise SignInRefused("The identity provider sent no ID token.")
        claims = self._verify(provider, endpoints, text)
        algorithm = issuer_keys_module.decode(text).algorithm
        params = {"nonce": nonce, "client_id": provider.client_id}
        if not algorithm.startswith("Ed"):  # no specification says which hash an at_hash has there
            params["access_token"] = _text(answer.get("access_token"))
        token = CodeIDToken(claims, {"alg": algorithm}, self._required(provider), params)
        self._check_claims(token)
        subject = claims["sub"]
        if not isinstance(subject, str) or not 1 <= len(subject) <= MAX_SUBJECT_LENGTH or "\0" in subject:
            raise SignInRefused("The ID token has no usable subject.")
        return claims

    def _with_userinfo(
        self, provider: IdentityProvider, endpoints: Endpoints, answer: Mapping[str, Any], claims: dict[str, Any]
    ) -> tuple[dict[str, Any], bool]:
        """Return the claims, with those of the userinfo endpoint where the ID token lacks the e-mail address, groups or
        an attribute; an empty list of groups counts as lacking. Also return False if that endpoint gave no answer for
        the person, so that claims may be missing."""
        access_token = _text(answer.get("access_token"))
        lacking = "email" not in claims or (provider.groups_claim and not read_groups(provider, claims))
        lacking = lacking or len(read_attributes(provider, claims)) < len(provider.attribute_claims)
        if not lacking or not endpoints.userinfo or not access_token:
            return claims, True
        headers = {"accept": "application/json", "authorization": f"Bearer {access_token}"}
        try:
            status, text = self._requests.send(provider, "GET", endpoints.userinfo, headers)
        except GatewayError:
            return claims, False
        more = _read_object(text)
        # Section 5.3.2: the response must not be used for another subject.
        if status != 200 or more.get("sub") != claims["sub"]:
            return claims, False
        merged = {**more, **claims}
        groups = read_groups(provider, more)
        if groups and not read_groups(provider, claims):
            merged[provider.groups_claim] = list(groups)
        return merged, True

    def _verify(self, provider: IdentityProvider, endpoints: Endpoints, text: str) -> dict[str, Any]:
        """Return the claims of a token after checking its signature."""
        try:
            token = issuer_keys_module.decode(text)
            self._keys_of(provider).verify(token, KeySource(provider.issuer, endpoints.keys))
        except InvalidToken as error:
            raise SignInRefused(str(error)) from None
        return dict(token.claims)

    def _check_claims(self, claims: Any, max_age_s: int = 0) -> None:
        now = self._clock.now_us() // SECOND_US
        try:
            claims.validate(now, CLOCK_LEEWAY_S)
        except (JoseError, ValueError, TypeError) as error:
            claim = getattr(error, "claim", "")
            raise SignInRefused(f"The token of the identity provider is not valid: {claim or error}.") from None
        if max_age_s and claims["iat"] < now - max_age_s - CLOCK_LEEWAY_S:
            raise SignInRefused("The token of the identity provider is too old.")

    def _required(self, provider: IdentityProvider) -> dict[str, Any]:
        return {
            "iss": {"essential": True, "value": provider.issuer},
            "aud": {"essential": True, "value": provider.client_id},
            "iat": {"essential": True},
            "exp": {"essential": True},
        }

    def _keys_of(self, provider: IdentityProvider) -> IssuerKeys:
        if provider.trusted:
            return self._trusted_keys[provider.id]
        return self._keys


def _authenticate(provider: IdentityProvider, endpoints: Endpoints, body: str) -> tuple[str, dict[str, str], str]:
    """Return address, headers and body of a token request with the client's authentication."""
    client_id = provider.client_id
    secret = provider.client_secret
    methods = endpoints.auth_methods
    if not secret:
        method = "none"
    elif "client_secret_post" in methods and "client_secret_basic" not in methods:
        method = "client_secret_post"
    else:
        method = "client_secret_basic"
        client_id = quote_plus(client_id)  # RFC 6749, section 2.3.1
        secret = quote_plus(secret)
    url, headers, body = ClientAuth(client_id, secret, method).prepare(
        "POST", endpoints.token, dict(FORM_HEADERS), body
    )
    return url, headers, body


def _read_object(text: bytes) -> dict[str, Any]:
    try:
        return issuer_keys_module.read_object(text)
    except InvalidKeys:
        return {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _shown(text: str) -> str:
    """Return an error code as it may be shown."""
    return "".join(character for character in text[:60] if character.isalnum() or character in "_-. ")
