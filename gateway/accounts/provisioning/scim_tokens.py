"""Tokens with which an identity provider manages the members of one organization over SCIM."""

import hashlib
from dataclasses import dataclass, field
from functools import partial

from msgspec import Struct

from gateway import ids
from gateway.accounts import audit, changes
from gateway.accounts.authority import is_owner_now
from gateway.accounts.changes import commit
from gateway.accounts.models import ScimToken
from gateway.accounts.organizations import read_name
from gateway.callers import tokens as tokens_module
from gateway.callers.authentication import Authentication
from gateway.callers.models import Organization
from gateway.callers.tokens import renew_hash
from gateway.clock import DAY_US, SECOND_US, Clock
from gateway.control.version import Control, VersionedCache
from gateway.errors import Gone, InvalidRequest, NotFound, Unauthenticated
from gateway.store.database import Database
from gateway.store.installation_identity import Secrets

PREFIX = "llmgscim_"
LIFE_US = 365 * DAY_US  # of a token without an expiry
MAX_TOKENS = 20  # of an organization
CACHE_SIZE = 5_000
REFUSAL_CACHE_SIZE = 1_000
USE_ACCURACY_S = 3600
UNKNOWN = "The SCIM token is not valid: it is unknown or was revoked. Create one in the settings of the organization."
EXPIRED = "The SCIM token has expired. Create another one in the settings of the organization."
BLOCKED = "The organization of this SCIM token is blocked."


class ScimTokenInfo(Struct, frozen=True):
    """A token as it may be shown. `used_at_us` is None before the first use. `by_owner`: its creator was an owner, and
    still is one."""

    id: str
    organization_id: str
    name: str
    mask: str
    by_owner: bool
    created_by: str
    created_at_us: int
    expires_at_us: int
    used_at_us: int | None


@dataclass(frozen=True, slots=True)
class NewScimToken:
    """A token and its secret, which is stored nowhere and not shown again."""

    info: ScimTokenInfo
    token: str = field(repr=False)


class ScimTokens:
    """The tokens of all organizations. The cache of valid tokens holds digests, never tokens."""

    def __init__(
        self, database: Database, control: Control, secrets: Secrets, authentication: Authentication, clock: Clock
    ) -> None:
        self._database = database
        self._control = control
        self._hash_keys = secrets.hash_keys
        self._authentication = authentication
        self._clock = clock
        self._memory: VersionedCache[bytes, ScimTokenInfo | str] = VersionedCache(
            control, CACHE_SIZE, _is_refusal, REFUSAL_CACHE_SIZE
        )

    def create(
        self, organization_id: str, name: str, expires_at_us: int | None = None, *, by_owner: bool, actor: str
    ) -> NewScimToken:
        """Create a token; without an expiry it is valid for a year. Raises InvalidRequest (name, expiry, too many
        tokens)."""
        name = read_name(name)
        token_id = ids.new("scim")
        token = ids.token(PREFIX)

        def work(now: int) -> ScimTokenInfo:
            expiry = expires_at_us or now + LIFE_US
            if expiry <= now:
                raise InvalidRequest("expiresAt must lie in the future.", param="expiresAt")
            rows = ScimToken.select().where(ScimToken.organization == organization_id)
            changes.check_quota(rows, MAX_TOKENS, "SCIM tokens", "revoke some")
            ScimToken.insert(
                id=token_id,
                organization=organization_id,
                name=name,
                token_hash=tokens_module.hash_token(token, self._hash_keys[0]),
                mask=ids.mask(token),
                by_owner=by_owner,
                created_by=actor,
                created_at=now,
                expires_at=expiry,
            ).execute()
            detail = {"name": name, "expires_at": expiry}
            _audit("scim_token.create", token_id, organization_id, detail, actor, now)
            return _info(ScimToken.get_by_id(token_id))

        return NewScimToken(commit(self._database, self._control, work, confirm=False), token)

    def list_tokens(self, organization_id: str) -> list[ScimTokenInfo]:
        """Return the tokens of an organization, oldest first; expired ones too."""
        query = ScimToken.select().where(ScimToken.organization == organization_id).order_by(ScimToken.id)
        return self._database.read(lambda: [_info(row) for row in query])

    def revoke(self, organization_id: str, token_id: str, *, actor: str) -> None:
        """Delete a token; every worker refuses it when this returns. Raises NotFound."""

        def work(now: int) -> None:
            row = ScimToken.get_or_none(ScimToken.id == token_id, ScimToken.organization == organization_id)
            if row is None:
                raise NotFound(f"There is no SCIM token {token_id} in this organization.")
            ScimToken.delete().where(ScimToken.id == token_id).execute()
            _audit("scim_token.revoke", token_id, organization_id, {"name": row.name}, actor, now)

        commit(self._database, self._control, work)

    def find(self, token: str) -> ScimTokenInfo:
        """Return the token with this secret. Raises Unauthenticated (invalid_scim_token), Gone (blocked organization)
        or Unavailable."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        entry = self._memory.get(digest, lambda version: self._read(token))
        if entry == BLOCKED:
            raise Gone(BLOCKED, code="organization_blocked")
        if isinstance(entry, str):
            raise Unauthenticated(entry, code="invalid_scim_token")
        if self._clock.now_us() >= entry.expires_at_us:
            raise Unauthenticated(EXPIRED, code="invalid_scim_token")
        return entry

    def note_use(self, info: ScimTokenInfo) -> None:
        """Store that the token was used, at most once an hour."""
        now = self._database.now_us()
        stale = (ScimToken.id == info.id) & (ScimToken.used_at <= now - USE_ACCURACY_S * SECOND_US)
        if self._database.read(ScimToken.select(ScimToken.id).where(stale).first) is not None:
            self._database.write(ScimToken.update(used_at=now).where(stale).execute)

    def _read(self, token: str) -> ScimTokenInfo | str:
        if not token.startswith(PREFIX) or not tokens_module.well_formed(token):
            return UNKNOWN
        hashes = tokens_module.candidates(token, self._hash_keys)
        found = self._authentication.look_up(partial(_find, hashes))
        if found is None:
            return UNKNOWN
        renew_hash(self._database, ScimToken.token_hash, hashes)
        info, status = found
        if status != "active":
            return BLOCKED
        return info


def is_scim_token(token: str) -> bool:
    """Return whether `token` has the prefix of SCIM tokens."""
    return token.startswith(PREFIX)


def _find(hashes: list[str]) -> tuple[ScimTokenInfo, str] | None:
    """Return the token with one of these hashes, and the status of its organization."""
    row = ScimToken.get_or_none(ScimToken.token_hash.in_(hashes))
    if row is None:
        return None
    return _info(row), Organization.get_by_id(row.organization).status


def _is_refusal(entry: ScimTokenInfo | str) -> bool:
    return isinstance(entry, str)


def _info(row: ScimToken) -> ScimTokenInfo:
    return ScimTokenInfo(
        row.id,
        row.organization,
        row.name,
        row.mask,
        bool(row.by_owner) and is_owner_now(row.organization, row.created_by),
        row.created_by,
        row.created_at,
        row.expires_at,
        row.used_at or None,
    )


def _audit(action: str, subject: str, organization_id: str, detail: dict[str, object], actor: str, now: int) -> None:
    audit.append(action, subject, actor=actor, at_us=now, organization_id=organization_id, detail=detail)
