"""Client secrets (`ek_…`): short-lived, for a page or an app that opens realtime sessions without the API key.

One stands for the key that made it, and settles what its sessions are (neutral/realtime: SessionLock). It is kept in
Redis where there is one, otherwise in the database, by a keyed digest, sealed since its instructions are the caller's
own; it counts until its end, however often it is used.
"""

from typing import Any, NamedTuple

import orjson

from gateway import ids
from gateway.callers import tokens as tokens_module
from gateway.callers.authentication import Authentication, Caller
from gateway.callers.models import ApiKey
from gateway.callers.throttle import Throttle, ThrottleGate
from gateway.callers.vault import Vault
from gateway.clock import SECOND_US, Clock
from gateway.errors import Unauthenticated, Unavailable
from gateway.neutral.realtime import SessionLock
from gateway.store.documents import Documents
from gateway.store.installation_identity import Secrets
from gateway.store.redis import Redis, realtime_secret

PREFIX = "ek_"
KIND = "realtime_secret"
LOCKED = SessionLock.__struct_fields__
GENERATION = "key generation"  # of a caller's memo
MIN_LIFETIME_S = 10
MAX_LIFETIME_S = 300
DEFAULT_LIFETIME_S = 60
MAX_SECRETS = 1_000  # of a key, made within the longest life of one
MAX_ORGANIZATION_SECRETS = 5_000  # likewise, of an organization
TOO_MANY_SECRETS = "Client secrets are made faster than there may be sessions; wait, or use one for several sessions."
UNKNOWN = "The client secret is not valid or has expired: make another one with POST /v1/realtime/client_secrets."


class FoundSecret(NamedTuple):
    """A live secret: the id of its key with the generation that made it, and what it settles."""

    key_id: str
    generation: int
    lock: SessionLock


class RealtimeSecrets:
    """Makes client secrets and knows them again."""

    def __init__(
        self,
        documents: Documents,
        redis: Redis | None,
        own: Secrets,
        authentication: Authentication,
        clock: Clock,
        vault: Vault,
        throttle: Throttle,
    ) -> None:
        self._documents = documents
        self._redis = redis
        self._hash_keys = own.hash_keys
        self._authentication = authentication
        self._clock = clock
        self._vault = vault
        self._throttle = throttle

    def make(self, caller: Caller, lock: SessionLock, seconds: int | None) -> tuple[str, int]:
        """A secret of the caller's key and its end (Unix seconds); `seconds` are brought within MIN_LIFETIME_S and
        MAX_LIFETIME_S. RateLimited (too_many_client_secrets), Unavailable."""
        self._throttle.take(
            *(
                ThrottleGate(action, owner, maximum, MAX_LIFETIME_S, TOO_MANY_SECRETS, code="too_many_client_secrets")
                for action, owner, maximum in (
                    ("client secrets", caller.key_id, MAX_SECRETS),
                    ("client secrets of an organization", caller.organization_id, MAX_ORGANIZATION_SECRETS),
                )
            )
        )
        lasting = min(max(DEFAULT_LIFETIME_S if seconds is None else seconds, MIN_LIFETIME_S), MAX_LIFETIME_S)
        token = ids.token(PREFIX)
        ends_at = self._clock.now_us() // SECOND_US + lasting
        locked = {name: getattr(lock, name) for name in LOCKED}
        value = orjson.dumps(
            {
                "key": caller.key_id,
                "generation": self._generation(caller),
                "ends_at": ends_at,
                "lock": locked,
            }
        )
        digest = tokens_module.candidates(token, self._hash_keys)[0]
        sealed = self._vault.seal_bytes(value)
        if not self._put_in_redis(digest, sealed, lasting):
            self._documents.put(KIND, digest, sealed, lasting)
        return token, ends_at

    def find(self, token: str) -> FoundSecret:
        """Return the key and session lock of a secret. Raises Unauthenticated (invalid_client_secret), Unavailable."""
        known = tokens_module.candidates(token, self._hash_keys) if tokens_module.well_formed(token) else []
        for digest in known:
            value = self._get_from_redis(digest) or self._documents.get(KIND, digest)
            fields: Any = orjson.loads(self._vault.open_bytes(value)) if value else None
            if fields is not None and fields["ends_at"] > self._clock.now_us() / SECOND_US:
                # Another release may have settled more.
                lock = SessionLock(**{name: fields["lock"][name] for name in LOCKED if name in fields["lock"]})
                return FoundSecret(fields["key"], fields["generation"], lock)
        raise Unauthenticated(UNKNOWN, code="invalid_client_secret")

    def caller(self, secret: FoundSecret) -> Caller:
        """The caller of a secret's key now. Unauthenticated once it was rolled; errors of Authentication.caller."""
        caller = self._authentication.caller_of_key(secret.key_id)
        if self._generation(caller) != secret.generation:
            raise Unauthenticated(UNKNOWN, code="invalid_client_secret")
        return caller

    def _generation(self, caller: Caller) -> int:
        """How often the key was rolled or ended, remembered with its caller."""
        known: int | None = caller.memo.get(GENERATION)
        if known is None:
            chosen = ApiKey.select(ApiKey.generation).where(ApiKey.id == caller.key_id)
            known = caller.memo[GENERATION] = self._authentication.look_up(lambda: chosen.scalar() or 0)
        return known

    def _put_in_redis(self, digest: str, value: bytes, lasting: float) -> bool:
        if self._redis is None:
            return False
        try:
            self._redis.put(realtime_secret(digest), value, lasting)
        except Unavailable:
            return False
        return True

    def _get_from_redis(self, digest: str) -> bytes | None:
        if self._redis is None:
            return None
        try:
            return self._redis.get(realtime_secret(digest))
        except Unavailable:
            return None
