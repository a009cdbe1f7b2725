"""Find the caller of an access token: cached in memory under the control lease, read from the store on a miss."""

import hashlib
from dataclasses import dataclass, field, replace
from functools import partial

from gateway.callers import tokens as tokens_module
from gateway.callers.authentication import Authentication, Caller
from gateway.callers.models import ApiKey, OAuthGrant, OAuthToken
from gateway.clock import Clock
from gateway.control.version import Control, VersionedCache
from gateway.errors import Unauthenticated
from gateway.store.installation_identity import Secrets

PREFIX = "llmgat_"
CACHE_SIZE = 20_000
REFUSAL_CACHE_SIZE = 10_000
UNKNOWN = "The access token is not valid. Refresh it, or connect the application again."
EXPIRED = "The access token has expired. Refresh it."
WRONG_RESOURCE = "The access token is for another resource. Connect the application to this URL again."


@dataclass(slots=True)
class AccessToken:
    """A valid access token. `cached_caller` was derived from the key's caller `base`."""

    grant_id: str
    key_id: str
    scopes: tuple[str, ...]
    audience: str
    expires_at_us: int
    team_id: str = ""
    base: Caller | None = field(default=None, repr=False)
    cached_caller: Caller | None = field(default=None, repr=False)

    def caller_of(self, base: Caller) -> Caller:
        """Return the key's caller `base` with the grant, scopes and expiry of this token."""
        if self.cached_caller is None or self.base is not base:
            expires_at_us = self.expires_at_us
            if base.expires_at_us is not None:
                expires_at_us = min(base.expires_at_us, expires_at_us)
            self.base = base
            self.cached_caller = replace(
                base, grant_id=self.grant_id, scopes=self.scopes, team_id=self.team_id, expires_at_us=expires_at_us
            )
        return self.cached_caller


class TokenCallers:
    """Returns the callers of access tokens. The cache holds digests of tokens, never tokens."""

    def __init__(self, authentication: Authentication, control: Control, secrets: Secrets, clock: Clock) -> None:
        self._authentication = authentication
        self._clock = clock
        self._hash_keys = secrets.hash_keys
        self._memory: VersionedCache[bytes, AccessToken | str] = VersionedCache(
            control, CACHE_SIZE, _is_refusal, REFUSAL_CACHE_SIZE
        )

    def caller(self, token: str, resource: str = "") -> Caller:
        """Return the caller of a token for `resource` ("": any), with its `grant_id` and `scopes`.

        Raises Unauthenticated (invalid_token) for a token that is unknown, revoked, expired or for another resource,
        and the errors of `Authentication.caller` for its key.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        entry = self._memory.get(digest, lambda version: self._read(token))
        if isinstance(entry, str):
            raise _refusal(entry)
        if self._clock.now_us() >= entry.expires_at_us:
            raise _refusal(EXPIRED)
        if resource and entry.audience != resource:
            raise _refusal(WRONG_RESOURCE)
        return entry.caller_of(self._authentication.caller_of_key(entry.key_id))

    def _read(self, token: str) -> AccessToken | str:
        if not tokens_module.well_formed(token):
            return UNKNOWN
        hashes = tokens_module.candidates(token, self._hash_keys)
        row = self._authentication.look_up(partial(_find, hashes))
        if row is None:
            return UNKNOWN
        grant = row.grant
        scopes = tuple(row.scope.split())
        return AccessToken(grant.id, grant.api_key_id, scopes, grant.audience, row.expires_at, grant.team)


def _refusal(message: str) -> Unauthenticated:
    """Return the error; the header makes coding agents ask for a new sign-in at once instead of after retries."""
    return Unauthenticated(message, code="invalid_token", headers=(("x-should-retry", "false"),))


def _is_refusal(entry: AccessToken | str) -> bool:
    return isinstance(entry, str)


def _find(hashes: list[str]) -> OAuthToken | None:
    """Return the token's row with its grant if the key still has the grant's generation."""
    row: OAuthToken | None = (
        OAuthToken.select(OAuthToken, OAuthGrant)
        .join(OAuthGrant)
        .join(ApiKey)
        .where(
            OAuthToken.token_hash.in_(hashes), OAuthToken.kind == "access", OAuthGrant.generation == ApiKey.generation
        )
        .first()
    )
    return row


def is_access_token(token: str) -> bool:
    """Return whether `token` has the prefix of our access tokens."""
    return token.startswith(PREFIX)
