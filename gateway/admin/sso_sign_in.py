"""Single sign-on: the way of a browser to an identity provider and back, and what it opens.

A flow is stored under the hash of its `state`, counts once, and belongs to the browser that began it: the browser has a
secret in a cookie, of which the flow has the hash. A sign-in that an attacker began is therefore refused.
"""

import hmac
import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gateway.accounts import audit
from gateway.accounts.identity_providers import IdentityProvider, IdentityProviders
from gateway.accounts.sessions import NewSession, SessionInfo, Sessions
from gateway.accounts.sso_logins import NewLogin, SsoLogins
from gateway.admin.sign_in import OPENED, Place
from gateway.admin.sso_accounts import SsoAccounts, actor_of
from gateway.callers.throttle import Throttle, ThrottleGate
from gateway.callers.tokens import hash_token
from gateway.callers.vault import Vault
from gateway.errors import Forbidden, GatewayError, Unauthenticated
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.threads import compute
from gateway.sso.discovery import Endpoints
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.transport.addresses import network_of

if TYPE_CHECKING:
    from gateway.sso.discovery import ClientParts
    from gateway.sso.openid_client import OpenIdClient

KIND = "sso_flow"
USED_TOKEN = "sso_logout"
FLOW_LIFETIME_S = 600
DAY_S = 86_400
MINUTE_S = 60
FLOWS_PER_MINUTE = 300
LOGOUTS = 600  # a minute, of one provider, from one place
LOGOUT_LIFETIME_S = 900.0
BACK_CHANNEL = "back-channel logout"
# Errors of a provider after a request that shows the person no page (prompt=none).
SILENT_ERRORS = frozenset(("login_required", "interaction_required", "consent_required", "account_selection_required"))
# Only refresh tokens of this scope are valid without a session at the provider (OpenID Connect Core, section 11), so
# only with it a refused refresh token means that the person may no longer sign in.
OFFLINE = "offline_access"
EXPIRED = "This sign-in has expired or was begun in another browser. Sign in again."

SIGNED_IN_MEANWHILE = "Another person is signed in in this browser meanwhile. Sign out, and then sign in again."

client = LazyImport("gateway.sso.openid_client")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SsoStart:
    """The beginning of a flow. `target` is the path to return to, `browser` the secret of the browser's cookie.
    `user_id` is the signed-in person who connects an identity, "" for a sign-in; `silent` shows no page; `replaced` is
    the session that the person agreed to end."""

    redirect_uri: str
    target: str
    browser: str = field(repr=False)
    user_id: str = ""
    silent: bool = False
    email: str = ""
    replaced: str = ""


class SsoResult(Struct, frozen=True):
    """The end of a flow: the session (None after connecting an identity), and the path to return to."""

    session: NewSession | None
    target: str


class SignInNeeded(Exception):
    """The provider cannot sign the person in without a page. `target` is the path to return to afterwards."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target


class SingleSignOnService:
    """Signs people in with identity providers."""

    def __init__(
        self,
        database: Database,
        documents: Documents,
        vault: Vault,
        hash_key: bytes,
        throttle: Throttle,
        sessions: Sessions,
        providers: IdentityProviders,
        logins: SsoLogins,
        accounts: SsoAccounts,
        parts: "ClientParts",
    ) -> None:
        self._database = database
        self._documents = documents
        self._vault = vault
        self._hash_key = hash_key
        self._throttle = throttle
        self._sessions = sessions
        self._parts = parts
        self.accounts = accounts
        self.providers = providers
        self.logins = logins

    @cached_property
    def client(self) -> "OpenIdClient":
        """Created on first use and off the event loop: importing Authlib takes 100 ms."""
        return compute(self._create_client)

    def _create_client(self) -> "OpenIdClient":
        parts = self._parts
        created: OpenIdClient = client.OpenIdClient(
            parts.requests, parts.discovery, parts.keys, parts.trusted_keys, parts.clock
        )
        return created

    def check(self, provider: IdentityProvider) -> Endpoints:
        """Return a provider's endpoints after loading its documents and keys. Raises Unavailable."""
        return self.client.check(provider)

    def begin(self, provider_id: str, start: SsoStart, peer: str) -> str:
        """Begin a flow and return the address of the provider for the browser. Raises NotFound, RateLimited or
        Unavailable."""
        self._throttle.take(ThrottleGate("single sign-on, begun", peer, FLOWS_PER_MINUTE, MINUTE_S))
        provider = self.providers.find(provider_id)
        state = secrets.token_urlsafe(24)
        nonce = secrets.token_urlsafe(24)
        verifier = secrets.token_urlsafe(48)
        prompt = "none" if start.silent else ""
        address = self.client.authorization_url(
            provider, start.redirect_uri, state, nonce, verifier, prompt=prompt, login_hint=start.email
        )
        flow = {
            "provider": provider.id,
            "redirect_uri": start.redirect_uri,
            "target": start.target,
            "browser": self._hash(start.browser),
            "user": start.user_id,
            "silent": start.silent,
            "replaced": start.replaced,
            "nonce": nonce,
            "verifier": verifier,
        }
        sealed = self._vault.seal(json.dumps(flow)).encode()
        self._documents.put(KIND, self._hash(state), sealed, FLOW_LIFETIME_S)
        return address

    def finish(
        self, provider_id: str, response: Mapping[str, str], browser: str, current: SessionInfo | None, place: Place
    ) -> SsoResult:
        """End a flow with the provider's response (its query parameters). `current` is the browser's session, if any.

        Raises SignInNeeded after a silent flow, else Unauthenticated (code sso_failed), Forbidden, Conflict, NotFound,
        RateLimited or Unavailable.
        """
        flow = self._take_flow(provider_id, response.get("state", ""), browser)
        provider = self.providers.find(provider_id)
        error = response.get("error", "")
        if flow["silent"] and error in SILENT_ERRORS:
            raise SignInNeeded(flow["target"])
        try:
            if error or not response.get("code"):
                advice = "Try again, or ask an administrator whether your account there is active."
                raise client.SignInRefused(f"{provider.name} did not accept the sign-in. {advice}")
            signed_in = self.client.exchange(
                provider,
                response["code"],
                flow["redirect_uri"],
                flow["verifier"],
                flow["nonce"],
                response.get("iss", ""),
            )
        except client.SignInRefused as refusal:
            self._note(provider, place, str(refusal))
            raise Unauthenticated(f"You could not be signed in. {refusal}", code="sso_failed") from None
        identity = signed_in.identity
        try:
            if flow["user"]:
                if current is None or current.user_id != flow["user"]:
                    raise Unauthenticated(EXPIRED, code="sso_failed")
                self.accounts.connect(provider, identity, current.user_id)
                return SsoResult(None, flow["target"])
            signed_in_user = self.accounts.sign_in(provider, identity)
            if current is not None and current.user_id != signed_in_user and current.id != flow["replaced"]:
                raise Forbidden(SIGNED_IN_MEANWHILE, code="sso_failed")
        except GatewayError as refused:
            if refused.blame == "caller":
                self._note(provider, place, refused.code)
            raise
        self._throttle.take(ThrottleGate("sign in, in a day", signed_in_user, OPENED, DAY_S))
        login_id = self.logins.create(
            NewLogin(
                signed_in_user,
                provider.organization_id,
                provider.id,
                identity.issuer,
                identity.subject,
                identity.sid,
                signed_in.refresh_token,
                signed_in.id_token,
            )
        )
        if current is not None and current.id == flow["replaced"]:
            self._sessions.close(current.id, actor=current.user_id)
        return SsoResult(self._sessions.open(signed_in_user, place.agent, login_id), flow["target"])

    def sign_out(self, session: SessionInfo, return_uri: str) -> str:
        """Sign a person out of a session, and return the URL at which the identity provider signs the person out too:
        "" if the session or the provider has none, or the provider is unavailable."""
        self._sessions.close(session.id, actor=session.user_id)
        if not session.sso_login:
            return ""
        try:
            id_token = self.logins.id_token_of(session.sso_login)
            provider = self.providers.find(session.provider_id)
            if OFFLINE not in provider.scopes:
                # The refresh token ends at the provider now, which says nothing about the person.
                self.logins.end_unused(session.sso_login)
            return self.client.logout_url(provider, id_token, return_uri)
        except GatewayError as error:
            log.info("the identity provider %s cannot sign a person out: %s", session.provider_id, error)
            return ""

    def log_out(self, provider_id: str, logout_token: str, peer: str) -> int:
        """End the sessions that a logout token of the provider names; how many ended. Raises Forbidden (an invalid or
        repeated token), NotFound, RateLimited or Unavailable."""
        self._throttle.take(ThrottleGate("back-channel logout", f"{provider_id} {network_of(peer)}", LOGOUTS, MINUTE_S))
        provider = self.providers.find(provider_id)
        try:
            asked = self.client.read_logout_token(provider, logout_token)
        except client.SignInRefused as refusal:
            raise Forbidden(str(refusal), code="sso_failed") from None
        if not self._documents.put_if_absent(
            USED_TOKEN, self._hash(f"{provider.id}\n{asked.token_id}"), b"", LOGOUT_LIFETIME_S
        ):
            raise Forbidden("This logout token was used before.", code="sso_failed")
        return self.logins.end_matching(
            provider.id, provider.issuer, asked.subject, asked.sid, BACK_CHANNEL, actor=actor_of(provider)
        )

    def _take_flow(self, provider_id: str, state: str, browser: str) -> dict[str, Any]:
        """Return a flow, once. Raises Unauthenticated unless this browser began it at this provider."""
        key = self._hash(state[:256])
        sealed = self._documents.get(KIND, key)
        if sealed is None or not browser:
            raise Unauthenticated(EXPIRED, code="sso_failed")
        flow: dict[str, Any] = json.loads(self._vault.open(sealed.decode()))
        is_own = hmac.compare_digest(flow["browser"].encode(), self._hash(browser).encode())
        if not is_own or flow["provider"] != provider_id or not self._documents.delete(KIND, key):
            raise Unauthenticated(EXPIRED, code="sso_failed")
        return flow

    def _note(self, provider: IdentityProvider, place: Place, reason: str) -> None:
        now = self._database.now_us()
        detail = {"from": place.peer, "reason": reason}
        self._database.write(
            lambda: audit.append(
                "sso.refuse",
                provider.id,
                actor="anonymous",
                at_us=now,
                organization_id=provider.organization_id,
                detail=detail,
            )
        )

    def _hash(self, text: str) -> str:
        return hash_token(f"single sign-on\n{text}", self._hash_key)
