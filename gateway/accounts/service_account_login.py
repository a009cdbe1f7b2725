"""Authentication of service accounts by their tokens: cached in memory under the control lease."""

import hashlib
from functools import partial

from msgspec import Struct

from gateway.accounts.members import MemberInfo
from gateway.accounts.rules import info_of
from gateway.accounts.service_accounts import ServiceAccountInfo
from gateway.accounts.service_accounts import info_of as account_of
from gateway.callers import tokens as tokens_module
from gateway.callers.access import Level, address_refusal, forbid
from gateway.callers.authentication import Authentication
from gateway.callers.models import AccessRule, Organization, ServiceAccount, User
from gateway.callers.rule_values import ADDRESS_RULES, compile_levels
from gateway.callers.tokens import renew_hash
from gateway.clock import SECOND_US, Clock
from gateway.control.version import Control, VersionedCache
from gateway.errors import GatewayError, Gone, Unauthenticated
from gateway.store.database import Database
from gateway.store.installation_identity import Secrets

CACHE_SIZE = 10_000
REFUSAL_CACHE_SIZE = 10_000
# The time of the last use is written at most once in this time.
USE_ACCURACY_S = 300
UNKNOWN = "The token of the service account is not valid."
INACTIVE = "The service account is inactive."
EXPIRED = "The token of the service account has expired."
BLOCKED = "The organization of this service account is blocked."


class KnownServiceAccount(Struct, frozen=True):
    """A service account that may be used. `member` is its membership, for the checks of the management API. `rules` are
    its address rules and those of its organization."""

    info: ServiceAccountInfo
    member: MemberInfo
    rules: tuple[Level, ...]


class ServiceAccountTokens:
    """Finds service accounts by their tokens. The cache holds digests of tokens, never tokens."""

    def __init__(
        self, database: Database, authentication: Authentication, control: Control, secrets: Secrets, clock: Clock
    ) -> None:
        self._database = database
        self._authentication = authentication
        self._clock = clock
        self._hash_keys = secrets.hash_keys
        self._memory: VersionedCache[bytes, KnownServiceAccount | str] = VersionedCache(
            control, CACHE_SIZE, _is_refusal, REFUSAL_CACHE_SIZE
        )
        # Account id → µs of the use that was recorded last.
        self._recorded: dict[str, int] = {}

    def find(self, token: str, address: str) -> KnownServiceAccount:
        """Return the service account of a token that is used from a network address ("" = unknown).

        Raises Unauthenticated (code token_invalid: unknown, inactive or expired), Gone (blocked organization),
        Forbidden (refused by an address rule).
        """
        known = self._find(token)
        refusal = address_refusal(known.rules, address)
        if refusal:
            raise forbid(refusal)
        self._record_use(known.info)
        return known

    def check(self, token: str) -> KnownServiceAccount:
        """Return the service account of a token, whatever the address. Raises as `find`."""
        return self._find(token)

    def _find(self, token: str) -> KnownServiceAccount:
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._memory.get(digest, lambda version: self._read(token))
        if known == BLOCKED:
            raise Gone(BLOCKED, code="organization_blocked")
        if isinstance(known, str):
            raise Unauthenticated(known, code="token_invalid")
        expires_at_us = known.info.expires_at_us
        if expires_at_us is not None and self._clock.now_us() >= expires_at_us:
            raise Unauthenticated(EXPIRED, code="token_invalid")
        return known

    def _read(self, token: str) -> KnownServiceAccount | str:
        if not tokens_module.well_formed(token):
            return UNKNOWN
        hashes = tokens_module.candidates(token, self._hash_keys)
        known = self._authentication.look_up(partial(_look_up, hashes)) or UNKNOWN
        if not isinstance(known, str):
            renew_hash(self._database, ServiceAccount.token_hash, hashes)
        return known

    def _record_use(self, info: ServiceAccountInfo) -> None:
        """Write the time of use, at most once in USE_ACCURACY_S. It is no change of the account: no other worker has to
        know it."""
        now = self._clock.now_us()
        last = max(info.last_used_at_us, self._recorded.get(info.id, 0))
        if now - last < USE_ACCURACY_S * SECOND_US:
            return
        if len(self._recorded) >= CACHE_SIZE:
            self._recorded.clear()
        self._recorded[info.id] = now
        update = ServiceAccount.update(last_used_at=now).where(ServiceAccount.id == info.id)
        try:
            self._database.write(update.execute)
        except GatewayError:
            return


def is_service_account_token(token: str) -> bool:
    """Return whether `token` has the prefix of service accounts."""
    return token.startswith(tokens_module.SERVICE_ACCOUNT)


def _is_refusal(known: KnownServiceAccount | str) -> bool:
    return isinstance(known, str)


def _look_up(hashes: list[str]) -> KnownServiceAccount | str:
    """Return the service account with one of the token hashes, or why it is refused."""
    row = ServiceAccount.get_or_none(ServiceAccount.token_hash.in_(hashes))
    if row is None:
        return UNKNOWN
    if row.status != "active":
        return INACTIVE
    if Organization.get_by_id(row.organization_id).status != "active":
        return BLOCKED
    info = account_of(row)
    user = User.get_by_id(info.id)
    # Its scopes decide what it may do; within them it may do what an admin may.
    member = MemberInfo(info.member_id, info.organization_id, info.id, user.email, info.name, "admin", "active")
    return KnownServiceAccount(info, member, _levels_of(info))


def _levels_of(info: ServiceAccountInfo) -> tuple[Level, ...]:
    places = ((AccessRule.scope == "organization") & (AccessRule.scope_id == info.organization_id)) | (
        (AccessRule.scope == "service_account") & (AccessRule.scope_id == info.id)
    )
    query = AccessRule.select().where(
        AccessRule.organization == info.organization_id,
        AccessRule.active == True,  # noqa: E712
        AccessRule.type.in_(ADDRESS_RULES),
        places,
    )
    return compile_levels(info.organization_id, None, [info_of(row) for row in query])
