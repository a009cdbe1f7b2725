"""From an access token to its caller: from memory under the control lease, from the store on a miss."""

import hashlib
from dataclasses import dataclass, field, replace

from gateway.accounts import tokens
from gateway.accounts.authentication import Authentication, Caller
from gateway.accounts.memory import Memory
from gateway.accounts.models import ApiKey
from gateway.clock import Clock
from gateway.control.version import Control
from gateway.errors import Unauthenticated
from gateway.oauth.models import OAuthGrant, OAuthToken
from gateway.store.installation_identity import Secrets

PREFIX = "llmgat_"
REMEMBERED = 20_000
REFUSALS = 10_000
UNKNOWN = "The access token is not valid any more; refresh it, or connect the application again."
EXPIRED = "The access token has expired; refresh it."
ELSEWHERE = "The access token was made for another resource; connect the application to this address again."


@dataclass(slots=True)
class AccessToken:
    """A live token. `made` is the caller that was made of the key's caller `base` the last time."""

    grant_id: str
    key_id: str
    scopes: tuple[str, ...]
    audience: str
    expires_at_us: int
    base: Caller | None = field(default=None, repr=False)
    made: Caller | None = field(default=None, repr=False)

    def caller_of(self, base: Caller) -> Caller:
        """The key's caller as one who came by this token."""
        if self.made is None or self.base is not base:
            own = base.expires_at_us
            if own is None:
                end = self.expires_at_us
            else:
                end = min(own, self.expires_at_us)
            self.base, self.made = base, replace(base, grant_id=self.grant_id, scopes=self.scopes, expires_at_us=end)
        return self.made


class TokenCallers:
    """Knows the callers of access tokens. Memory holds digests, never a token."""

    def __init__(self, authentication: Authentication, control: Control, secrets: Secrets, clock: Clock) -> None:
        self._authentication = authentication
        self._clock = clock
        self._hash_keys = secrets.hash_keys
        self._memory: Memory[bytes, AccessToken | str] = Memory(
            control, REMEMBERED, lambda value: isinstance(value, str), REFUSALS
        )

    def caller(self, token: str, resource: str = "") -> Caller:
        """The caller of a token that is made for `resource` ("": any), with its `grant_id` and `scopes`.

        Unauthenticated (invalid_token): unknown, ended, expired, for another resource. For its key also what
        `Authentication.caller` raises.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        found = self._memory.get(digest, lambda version: self._read(token))
        if isinstance(found, str):
            raise Unauthenticated(found, code="invalid_token")
        if self._clock.now_us() >= found.expires_at_us:
            raise Unauthenticated(EXPIRED, code="invalid_token")
        if resource and found.audience != resource:
            raise Unauthenticated(ELSEWHERE, code="invalid_token")
        return found.caller_of(self._authentication.caller_of_key(found.key_id))

    def _read(self, token: str) -> AccessToken | str:
        if not tokens.well_formed(token):
            return UNKNOWN
        hashes = tokens.candidates(token, self._hash_keys)
        row = self._authentication.look_up(lambda: _find(hashes))
        if row is None:
            return UNKNOWN
        grant = row.grant
        scopes = tuple(row.scope.split())
        return AccessToken(grant.id, grant.api_key_id, scopes, grant.audience, row.expires_at)


def _find(hashes: list[str]) -> OAuthToken | None:
    """The token's row with its grant, where the key is of the same generation still."""
    found: OAuthToken | None = (
        OAuthToken.select(OAuthToken, OAuthGrant)
        .join(OAuthGrant)
        .join(ApiKey)
        .where(
            OAuthToken.token_hash.in_(hashes), OAuthToken.kind == "access", OAuthGrant.generation == ApiKey.generation
        )
        .first()
    )
    return found


def is_access_token(token: str) -> bool:
    """Whether `token` looks like one of ours."""
    return token.startswith(PREFIX)
