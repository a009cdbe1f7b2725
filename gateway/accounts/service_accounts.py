"""Service accounts: credentials of an organization for the management API, with scopes, expiry and address rules.

A service account is a member of its organization that never signs in. API keys that it creates belong to
that member; as a member it is a developer, so that these keys read no more than their own usage.
"""

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
from gateway.accounts.organizations import read_name
from gateway.accounts.rules import insert_rule
from gateway.callers import tokens as tokens_module
from gateway.callers.models import AccessRule, MemberStatus, ServiceAccount
from gateway.callers.rule_values import RuleInfo, read_value
from gateway.control.version import Control
from gateway.errors import InvalidRequest, NotFound
from gateway.store.database import Database


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
