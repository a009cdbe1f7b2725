"""An organization's own provider keys: encrypted at rest, remembered under the control version."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from gateway import ids
from gateway.accounts import audit, client_ids
from gateway.accounts.changes import MAX_PROVIDER_KEYS, check_quota, commit
from gateway.accounts.client_ids import ClientIdClaim
from gateway.callers.models import Organization, ProviderKey
from gateway.callers.stored_keys import (
    ProviderKeyInfo,
    StoredCredential,
    StoredKeys,
    info_of,
    mask_secret,
    select_keys,
)
from gateway.callers.vault import Vault
from gateway.catalogue.environment_credentials import WORKLOAD_IDENTITY
from gateway.control.version import Control
from gateway.errors import Internal, InvalidRequest, NotFound, Unavailable
from gateway.limits.owned_rows import forget_owner
from gateway.store.database import Database

# Other encrypted columns that persist: table, its key, the column.
ALSO_SEALED = (
    ("project", "id", "callback_secret"),
    ("alert_hook", "id", "secret"),
    ("second_factor", "user_id", "secret"),
    ("identity_provider", "id", "client_secret"),
    ("sso_login", "id", "refresh_token"),
    ("sso_login", "id", "id_token_hint"),
    ("guardrail_rule", "id", "checker_secret"),
)


@dataclass(frozen=True, slots=True)
class ProviderKeyDraft:
    """`provider` is a catalogue id or "custom:<name>"; `secret` the key itself."""

    provider: str
    secret: str = field(repr=False)
    label: str = ""
    base_url: str = ""
    region: str = ""
    allowed_models: Sequence[str] = ()
    max_spend_nusd: int | None = None


@dataclass(frozen=True, slots=True)
class ProviderKeyChange:
    """An update of a provider key. None leaves a value unchanged. `max_spend_nusd` applies only with `bounded`, where
    None means no bound."""

    secret: str | None = field(default=None, repr=False)
    label: str | None = None
    base_url: str | None = None
    region: str | None = None
    allowed_models: Sequence[str] | None = None
    active: bool | None = None
    bounded: bool = False
    max_spend_nusd: int | None = None


# Keeps what may be spent with a key (its id, nano-dollars or None) within the open transaction.
WriteBound = Callable[[str, int | None], None]


def refuse_bound(key_id: str, max_nusd: int | None) -> None:
    """Raise Internal for a spending bound. Without budgets, nothing would enforce it."""
    if max_nusd is not None:
        raise Internal(f"There is no budget for {key_id}, so its spending cannot be bounded here.")


class ProviderKeys(StoredKeys):
    """The provider keys of all organizations: kept in the store, read from memory."""

    def __init__(
        self, database: Database, control: Control, vault: Vault, write_bound: WriteBound = refuse_bound
    ) -> None:
        super().__init__(database, control, vault)
        self._write_bound = write_bound

    def add(
        self, organization_id: str, draft: ProviderKeyDraft, *, actor: str, claim: ClientIdClaim | None = None
    ) -> ProviderKeyInfo:
        """Keep a key. InvalidRequest (empty provider or key, negative bound), NotFound (organization)."""
        _check(draft)
        sealed = self._vault.seal(draft.secret.strip())
        key_id = ids.new("pkey")

        def work(now: int) -> ProviderKeyInfo:
            info = _insert(key_id, organization_id, draft, sealed, actor, now)
            if draft.max_spend_nusd is not None:
                self._write_bound(key_id, draft.max_spend_nusd)
            client_ids.insert(claim, key_id, now)
            return info

        return commit(self._database, self._control, work)

    def list_keys(self, organization_id: str) -> list[ProviderKeyInfo]:
        """All keys of the organization that were not removed, oldest first."""

        def read() -> list[ProviderKeyInfo]:
            return [self.show(row) for row in select_keys(organization_id)]

        return self._database.read(read)

    def find(self, organization_id: str, key_id: str) -> StoredCredential:
        """One key with its secret, whatever its state but removed. NotFound."""

        def read() -> ProviderKey:
            return _load(organization_id, key_id)

        row = self._database.read(read)
        return StoredCredential(self.show(row), self._vault.open(row.secret))

    def organization_of(self, key_id: str) -> str:
        """The organization that a key belongs to. NotFound."""

        def read() -> str:
            row = ProviderKey.get_or_none(ProviderKey.id == key_id, ProviderKey.status != "deleted")
            if row is None:
                raise NotFound(f"There is no provider key {key_id}.")
            return row.organization_id

        return self._database.read(read)

    def update(self, organization_id: str, key_id: str, change: ProviderKeyChange, *, actor: str) -> ProviderKeyInfo:
        """Change a key, its secret included, in force when this returns. NotFound, InvalidRequest."""
        values = self._read_change(change)

        def work(now: int) -> ProviderKeyInfo:
            row = _load(organization_id, key_id)
            ProviderKey.update(updated_at=now, **values).where(ProviderKey.id == key_id).execute()
            if change.bounded:
                self._write_bound(key_id, change.max_spend_nusd)
            shown = {name: value for name, value in values.items() if name not in ("secret", "mask")}
            detail = {"provider": row.provider, "rotated": "secret" in values, **shown}
            audit.append(
                "provider_key.update", key_id, actor=actor, at_us=now, organization_id=organization_id, detail=detail
            )
            return self.show(_load(organization_id, key_id))

        return commit(self._database, self._control, work)

    def _read_change(self, change: ProviderKeyChange) -> dict[str, object]:
        texts: dict[str, object] = {"label": change.label, "base_url": change.base_url, "region": change.region}
        values = {name: value for name, value in texts.items() if value is not None}
        if change.secret is not None:
            secret = change.secret.strip()
            _check_secret(secret)
            values |= {"secret": self._vault.seal(secret), "mask": mask_secret(secret)}
        if change.allowed_models is not None:
            values["allowed_models"] = json.dumps(list(change.allowed_models))
        if change.active is not None:
            if change.active:
                values["status"] = "active"
            else:
                values["status"] = "inactive"
        if change.bounded:
            _check_bound(change.max_spend_nusd)
            values["max_spend_nusd"] = change.max_spend_nusd
        if not values:
            raise InvalidRequest("Give at least one field to change.")
        return values

    def remove(
        self, organization_id: str, key_id: str, *, actor: str, check: Callable[[], None] = lambda: None
    ) -> None:
        """Remove a key and destroy its secret; unused everywhere when this returns. `check` raises within the
        transaction if `actor` may not remove it. NotFound."""

        def work(now: int) -> None:
            row = _load(organization_id, key_id)
            check()
            row.status = "deleted"
            row.updated_at = now
            row.secret = ""
            row.save()
            forget_owner(self._database, key_id)
            detail = {"provider": row.provider, "status": row.status}
            audit.append(
                "provider_key.delete",
                key_id,
                actor=actor,
                at_us=now,
                organization_id=organization_id,
                detail=detail,
            )

        commit(self._database, self._control, work)

    def reseal(self) -> int:
        """Encrypt every stored secret under the newest key, those of ALSO_SEALED too, so that older keys may go.
        Returns of how many provider keys. Changes wait meanwhile: a secret that is rotated or destroyed then would come
        back."""

        def work(now: int) -> int:
            rows = list(ProviderKey.select().where(ProviderKey.secret != ""))
            for row in rows:
                secret = self._vault.open(row.secret)
                ProviderKey.update(secret=self._vault.seal(secret), mask=mask_secret(secret)).where(
                    ProviderKey.id == row.id
                ).execute()
            for table, key, column in ALSO_SEALED:
                self._reseal_column(table, key, column)
            return len(rows)

        return commit(self._database, self._control, work)

    def _reseal_column(self, table: str, key: str, column: str) -> None:
        sql = f"SELECT {key}, {column} FROM {table} WHERE {column} <> ''"
        for ident, sealed in self._database.execute(sql).fetchall():
            with suppress(Unavailable):  # the key of this secret went before; it stays as it is
                fresh = self._vault.seal(self._vault.open(sealed))
                self._database.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (fresh, ident))


def _check(draft: ProviderKeyDraft) -> None:
    if not draft.provider.strip():
        raise InvalidRequest("A provider key requires the id of its provider.", param="provider")
    _check_secret(draft.secret.strip())
    _check_bound(draft.max_spend_nusd)


def _check_secret(secret: str) -> None:
    """InvalidRequest for what no header could carry; a document, as that of a service account, is not sent as it is."""
    if not secret:
        raise InvalidRequest("The provider key is empty.", param="token")
    if secret == WORKLOAD_IDENTITY:
        raise InvalidRequest("The identity of the gateway's host is not available to organizations.", param="token")
    if not secret.startswith("{") and not (secret.isascii() and secret.isprintable()):
        raise InvalidRequest(
            "A provider key must be one line of visible ASCII characters.",
            param="token",
        )


def _check_bound(max_spend_nusd: int | None) -> None:
    if max_spend_nusd is not None and max_spend_nusd < 0:
        raise InvalidRequest("The spending limit must not be negative.", param="maxSpend")


def _insert(
    key_id: str, organization_id: str, draft: ProviderKeyDraft, sealed: str, actor: str, now: int
) -> ProviderKeyInfo:
    if not Organization.select().where(Organization.id == organization_id).exists():
        raise NotFound(f"There is no organization {organization_id}.")
    check_quota(select_keys(organization_id), MAX_PROVIDER_KEYS, "provider keys")
    row = ProviderKey.create(
        id=key_id,
        organization=organization_id,
        provider=draft.provider.strip(),
        secret=sealed,
        mask=mask_secret(draft.secret.strip()),
        label=draft.label,
        base_url=draft.base_url,
        region=draft.region,
        allowed_models=json.dumps(list(draft.allowed_models)),
        max_spend_nusd=draft.max_spend_nusd,
        created_at=now,
        updated_at=now,
    )
    detail = {"provider": row.provider, "label": row.label, "base_url": row.base_url}
    audit.append("provider_key.create", key_id, actor=actor, at_us=now, organization_id=organization_id, detail=detail)
    return info_of(row)


def _load(organization_id: str, key_id: str) -> ProviderKey:
    row: ProviderKey | None = select_keys(organization_id).where(ProviderKey.id == key_id).first()
    if row is None:
        raise NotFound(f"There is no provider key {key_id} in this organization.")
    return row
