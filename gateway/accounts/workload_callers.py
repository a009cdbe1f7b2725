"""Callers by signed tokens of identity providers (RFC 7519), checked by the rules of workload identities.

Only tokens of configured issuers cause a request to an issuer, and the result of a check is cached with the callers of
API keys until the token expires or an account changes.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeGuard

from gateway.accounts import workload_identities
from gateway.accounts.models import WorkloadIdentity
from gateway.accounts.workload_identities import WorkloadIdentityInfo, info_of
from gateway.callers import issuer_keys as issuer_keys_module
from gateway.callers.authentication import TOKEN_EXPIRED, Authentication, CachedRefusal, Caller
from gateway.callers.issuer_keys import InvalidToken, IssuerKeys, UncheckedToken
from gateway.clock import SECOND_US, Clock
from gateway.control.version import Control, VersionedCache
from gateway.errors import Unauthenticated

CACHE_SIZE = 2_000
REFUSAL_CACHE_SIZE = 10_000
MAX_AUDIENCES = 20
MAX_ISSUER_LENGTH = 255
MAX_TAG_LENGTH = 256
# Difference of the clocks of issuer and gateway, for tokens that are not valid yet.
CLOCK_LEEWAY_S = 60
MAX_EXPIRY_S = 1 << 40  # an expiry beyond it is no time
NOT_YET_VALID = "The token is not valid yet."
NO_EXPIRY = "The token has no valid expiry (exp)."
UNKNOWN = "No workload identity accepts tokens of this issuer and audience."
AMBIGUOUS = "The token has audiences of several organizations. Request a token for one of them."
NO_CLAIMS = "No workload identity of this issuer and audience accepts the claims of this token."

Identities = tuple[WorkloadIdentityInfo, ...]


class WorkloadCallers:
    """Finds the callers of signed tokens."""

    def __init__(self, authentication: Authentication, keys: IssuerKeys, control: Control, clock: Clock) -> None:
        self._authentication = authentication
        self._keys = keys
        self._clock = clock
        # By digest of the issuer; an issuer without a rule counts as a refusal.
        self._identities: VersionedCache[bytes, Identities] = VersionedCache(
            control, CACHE_SIZE, lambda identities: not identities, REFUSAL_CACHE_SIZE
        )

    def read(self, token: str, version: int) -> Caller | CachedRefusal:
        """Return the caller of a token, or a refusal that does not depend on time.

        Raises Unauthenticated for a refusal that may end, Unavailable if the issuer's keys cannot be loaded, and the
        errors of `Authentication.caller_of_key`.
        """
        try:
            unchecked = issuer_keys_module.decode(token)
        except InvalidToken as error:
            return _refuse(str(error))
        identities = self._find_identities(unchecked.claims)
        if isinstance(identities, CachedRefusal):
            return identities
        expires_at_us = _expiry_of(unchecked.claims)
        if expires_at_us is None:
            return _refuse(NO_EXPIRY)
        if self._clock.now_us() >= expires_at_us:
            return _refuse(TOKEN_EXPIRED)
        self._check_begun(unchecked.claims)
        identity = self._verify(unchecked, identities)
        if identity is None:
            return _refuse(NO_CLAIMS)
        base = self._authentication.caller_of_key(identity.api_key_id)
        if base.expires_at_us is not None:
            expires_at_us = min(expires_at_us, base.expires_at_us)
        tags = {**_tags_of(identity.attribution, unchecked.claims), **base.tags}
        return replace(base, expires_at_us=expires_at_us, tags=tags, identity_id=identity.id)

    def _verify(self, token: UncheckedToken, identities: Identities) -> WorkloadIdentityInfo | None:
        """Check the signature with the keys of the identities, and return the first one whose claims fit."""
        refusal: InvalidToken | None = None
        for source in dict.fromkeys(identity.source for identity in identities):
            try:
                self._keys.verify(token, source)
            except InvalidToken as error:
                refusal = error
                continue
            for identity in identities:
                if identity.source == source and workload_identities.matches(identity.claims, token.claims):
                    return identity
            refusal = None
        if refusal is not None:
            # Not cached: the issuer may have rotated its keys, which are loaded again after a while.
            raise Unauthenticated(str(refusal), code="invalid_token")
        return None

    def _find_identities(self, claims: Mapping[str, Any]) -> Identities | CachedRefusal:
        """Return the active rules for issuer and audience, the most specific first; all of one organization."""
        issuer = claims.get("iss")
        if not isinstance(issuer, str) or len(issuer) > MAX_ISSUER_LENGTH or "\0" in issuer:
            return _refuse(UNKNOWN)
        audiences = _audiences_of(claims)
        digest = hashlib.sha256(issuer.encode("utf-8", "surrogatepass")).digest()
        known = self._identities.get(digest, lambda version: self._authentication.look_up(partial(_of_issuer, issuer)))
        identities = tuple(identity for identity in known if identity.audience in audiences)
        if not identities:
            return _refuse(UNKNOWN)
        if len({identity.organization_id for identity in identities}) > 1:
            return _refuse(AMBIGUOUS)
        return identities

    def _check_begun(self, claims: Mapping[str, Any]) -> None:
        """Raise Unauthenticated for a token whose validity begins in the future."""
        latest = self._clock.now_us() / SECOND_US + CLOCK_LEEWAY_S
        for name in ("nbf", "iat"):
            begin = claims.get(name, 0)
            if not _is_number(begin) or begin > latest:
                raise Unauthenticated(NOT_YET_VALID, code="invalid_token")


def _refuse(text: str) -> CachedRefusal:
    return CachedRefusal(Unauthenticated, text, "invalid_token")


def _of_issuer(issuer: str) -> Identities:
    try:
        issuer.encode()
    except UnicodeEncodeError:
        return ()
    query = WorkloadIdentity.select().where(WorkloadIdentity.issuer == issuer, WorkloadIdentity.status == "active")
    identities = [info_of(row) for row in query]
    return tuple(sorted(identities, key=lambda identity: (-len(identity.claims), identity.created_at_us, identity.id)))


def _audiences_of(claims: Mapping[str, Any]) -> frozenset[str]:
    audience = claims.get("aud")
    if isinstance(audience, str):
        return frozenset((audience,))
    if isinstance(audience, list):
        return frozenset(text for text in audience[:MAX_AUDIENCES] if isinstance(text, str))
    return frozenset()


def _expiry_of(claims: Mapping[str, Any]) -> int | None:
    """Return `exp` in µs, None unless it is a time."""
    expiry = claims.get("exp")
    if not _is_number(expiry) or not 0 < expiry < MAX_EXPIRY_S:
        return None
    return int(expiry * SECOND_US)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _tags_of(attribution: Mapping[str, str], claims: Mapping[str, Any]) -> dict[str, str]:
    """Return the metadata of requests with this token; claims that are absent or not a single value are left out."""
    texts = {
        name: workload_identities.text_of(workload_identities.find_claim(claims, claim))
        for name, claim in attribution.items()
    }
    return {
        name: text.replace("\0", "").encode("utf-8", "replace").decode()[:MAX_TAG_LENGTH]
        for name, text in texts.items()
        if text
    }
