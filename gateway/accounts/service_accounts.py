"""Service accounts: credentials of an organization for the management API, with scopes, expiry and address rules.

A service account is a member of its organization that never signs in. API keys that it creates belong to
that member; as a member it is a developer, so that these keys read no more than their own usage.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway import ids
from gateway.accounts import audit, client_ids, members
from gateway.accounts.changes import MAX_SERVICE_ACCOUNTS, check_quota, commit
from gateway.accounts.client_ids import ClientIdClaim
from gateway.accounts.members import MemberInfo
from gateway.accounts.organizations import read_name
from gateway.accounts.rules import info_of as rule_of
from gateway.accounts.rules import insert_rule
from gateway.callers import tokens as tokens_module
from gateway.callers.access import Level, address_refusal, forbid
from gateway.callers.authentication import Authentication
from gateway.callers.models import AccessRule, MemberStatus, Organization, ServiceAccount, User
from gateway.callers.rule_values import ADDRESS_RULES, RuleInfo, compile_levels, read_value
from gateway.callers.tokens import renew_hash
from gateway.clock import SECOND_US, Clock
from gateway.control.version import Control, VersionedCache
from gateway.errors import GatewayError, Gone, InvalidRequest, NotFound, Unauthenticated
from gateway.store.database import Database
from gateway.store.installation_identity import Secrets


class ServiceAccountInfo(Struct, frozen=True):
    """A service account as it may be shown. `scopes` are those of the management table; times in µs, `expires_at_us`
    None = never, `last_used_at_us` 0 = never and otherwise accurate to some minutes. `created_by` is a user id or
    "operator"."""

    id: str
    organization_id: str
    member_id: str
    name: str
    scopes: tuple[str, ...]
    mask: str
    status: MemberStatus
    expires_at_us: int | None
    created_by: str
    created_at_us: int
    updated_at_us: int
    last_used_at_us: int


@dataclass(frozen=True, slots=True)
class NewServiceAccount:
    """A service account and its token, which is stored nowhere and not shown again."""

    info: ServiceAccountInfo
    token: str = field(repr=False)


class ServiceAccountDraft(Struct, frozen=True):
    """The values of a new service account. `networks` are the address ranges from which it may be used; () = any."""

    name: str
    scopes: Sequence[str]
    expires_at_us: int | None = None
    networks: Sequence[str] = ()


class ServiceAccountChange(Struct, frozen=True):
    """An update. None leaves a value unchanged; `expires_at_us` counts only if `sets_expiry`."""

    name: str | None = None
    scopes: Sequence[str] | None = None
    status: MemberStatus | None = None
    sets_expiry: bool = False
    expires_at_us: int | None = None


class ServiceAccounts:
    """Changes of service accounts. All are audited, and in force on all workers when they return."""

    def __init__(self, database: Database, control: Control, hash_keys: Sequence[bytes]) -> None:
        self._database = database
        self._control = control
        self._hash_keys = hash_keys

    def create(
        self, organization_id: str, draft: ServiceAccountDraft, *, actor: str, claim: ClientIdClaim | None = None
    ) -> NewServiceAccount:
        """Create a service account. Raises InvalidRequest (name, scopes, expiry, networks, code too_many)."""
        name = read_name(draft.name)
        scopes = _join_scopes(draft.scopes)
        if draft.networks:
            read_value("allow_ip_cidrs", {"ipCidrs": list(draft.networks)})
        account_id = ids.new("sa")
        member_id = ids.new("member")
        rule_id = ids.new("rule")
        token = ids.token(tokens_module.SERVICE_ACCOUNT)

        def work(now: int) -> ServiceAccountInfo:
            _check_expiry(draft.expires_at_us, now)
            own = ServiceAccount.select().where(ServiceAccount.organization == organization_id)
            check_quota(own, MAX_SERVICE_ACCOUNTS, "service accounts")
            members.insert((member_id, account_id), organization_id, name, actor=actor, now=now)
            ServiceAccount.insert(
                id=account_id,
                organization=organization_id,
                member=member_id,
                name=name,
                scopes=scopes,
                token_hash=tokens_module.hash_token(token, self._hash_keys[0]),
                mask=ids.mask(token),
                expires_at=draft.expires_at_us,
                created_by=actor,
                created_at=now,
                updated_at=now,
            ).execute()
            if draft.networks:
                value = {"ipCidrs": list(draft.networks)}
                rule = RuleInfo(rule_id, organization_id, "service_account", account_id, "allow_ip_cidrs", value)
                insert_rule(replace(rule, created_at_us=now), actor=actor, now=now)
            client_ids.insert(claim, account_id, now)
            detail = {"name": name, "scopes": scopes, "expires_at": draft.expires_at_us}
            _audit("service_account.create", account_id, organization_id, detail, actor, now)
            return _load(organization_id, account_id)

        return NewServiceAccount(commit(self._database, self._control, work, confirm=False), token)

    def list_accounts(self, organization_id: str) -> list[ServiceAccountInfo]:
        """Return the service accounts of an organization, oldest first."""
        query = (
            ServiceAccount.select()
            .where(ServiceAccount.organization == organization_id)
            .order_by(ServiceAccount.created_at, ServiceAccount.id)
        )
        return self._database.read(lambda: [info_of(row) for row in query])

    def find(self, organization_id: str, account_id: str) -> ServiceAccountInfo:
        """Return a service account of an organization. Raises NotFound."""
        return self._database.read(partial(_load, organization_id, account_id))

    def update(
        self, organization_id: str, account_id: str, change: ServiceAccountChange, *, actor: str
    ) -> ServiceAccountInfo:
        """Change a service account. An inactive one is refused; keys that it created keep working. Raises NotFound,
        InvalidRequest."""
        values = _values_of(change)
        if not values:
            raise InvalidRequest("Give at least one of name, scopes, status and expiresAt.")

        def work(now: int) -> ServiceAccountInfo:
            _load(organization_id, account_id)
            if change.sets_expiry:
                _check_expiry(change.expires_at_us, now)
            _set(account_id, values, now)
            if change.name is not None:
                members.rename(account_id, values["name"], now)
            _audit("service_account.update", account_id, organization_id, values, actor, now)
            return _load(organization_id, account_id)

        return commit(self._database, self._control, work)

    def roll(self, organization_id: str, account_id: str, *, actor: str) -> NewServiceAccount:
        """Give a service account a new token; the old one is refused everywhere on return. Raises NotFound."""
        token = ids.token(tokens_module.SERVICE_ACCOUNT)
        values = {"token_hash": tokens_module.hash_token(token, self._hash_keys[0]), "mask": ids.mask(token)}

        def work(now: int) -> ServiceAccountInfo:
            _load(organization_id, account_id)
            _set(account_id, values, now)
            _audit("service_account.roll", account_id, organization_id, {"mask": values["mask"]}, actor, now)
            return _load(organization_id, account_id)

        return NewServiceAccount(commit(self._database, self._control, work), token)

    def delete(self, organization_id: str, account_id: str, *, actor: str) -> None:
        """Delete a service account and refuse the keys that it created; their history stays. Raises NotFound."""

        def work(now: int) -> None:
            account = _load(organization_id, account_id)
            ServiceAccount.delete().where(ServiceAccount.id == account_id).execute()
            members.end(account.member_id, account.id, now)
            AccessRule.delete().where(
                AccessRule.scope == "service_account", AccessRule.scope_id == account_id
            ).execute()
            _audit("service_account.delete", account_id, organization_id, {"name": account.name}, actor, now)

        commit(self._database, self._control, work)


def info_of(row: ServiceAccount) -> ServiceAccountInfo:
    return ServiceAccountInfo(
        id=row.id,
        organization_id=row.organization_id,
        member_id=row.member_id,
        name=row.name,
        scopes=tuple(row.scopes.split()),
        mask=row.mask,
        status=row.status,
        expires_at_us=row.expires_at,
        created_by=row.created_by,
        created_at_us=row.created_at,
        updated_at_us=row.updated_at,
        last_used_at_us=row.last_used_at,
    )


def _values_of(change: ServiceAccountChange) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if change.name is not None:
        values["name"] = read_name(change.name)
    if change.scopes is not None:
        values["scopes"] = _join_scopes(change.scopes)
    if change.status is not None:
        values["status"] = change.status
    if change.sets_expiry:
        values["expires_at"] = change.expires_at_us
    return values


def _join_scopes(scopes: Sequence[str]) -> str:
    if not scopes:
        raise InvalidRequest("Give at least one scope.", param="scopes")
    return " ".join(sorted(set(scopes)))


def _check_expiry(expires_at_us: int | None, now: int) -> None:
    if expires_at_us is not None and expires_at_us <= now:
        raise InvalidRequest("expiresAt must lie in the future.", param="expiresAt")


def _set(account_id: str, values: dict[str, Any], now: int) -> None:
    ServiceAccount.update(updated_at=now, **values).where(ServiceAccount.id == account_id).execute()


def _load(organization_id: str, account_id: str) -> ServiceAccountInfo:
    row = ServiceAccount.get_or_none(ServiceAccount.id == account_id, ServiceAccount.organization == organization_id)
    if row is None:
        raise NotFound(f"There is no service account {account_id} in this organization.")
    return info_of(row)


def _audit(action: str, subject: str, organization_id: str, detail: dict[str, Any], actor: str, now: int) -> None:
    audit.append(action, subject, actor=actor, at_us=now, organization_id=organization_id, detail=detail)


# Authentication of service accounts by their tokens: cached in memory under the control lease.

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
    info = info_of(row)
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
    return compile_levels(info.organization_id, None, [rule_of(row) for row in query])
