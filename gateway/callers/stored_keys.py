"""The provider keys that organizations stored, as requests read them: from memory, under the control version."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import peewee
from msgspec import Struct

from gateway.callers.models import ProviderKey
from gateway.callers.vault import Vault
from gateway.control.version import Control, VersionedCache
from gateway.errors import Unavailable
from gateway.store.database import Database

CACHE_SIZE = 10_000  # organizations a worker remembers
SHORT_SECRET, LONG_SECRET, LAST_SHOWN = 16, 32, 4  # characters
CUT = "…"
OLD_MASK = "•"  # in masks of releases that did not show the last characters


class ProviderKeyInfo(Struct, frozen=True):
    """A provider key as it may be shown. `allowed_models` () = all; `max_spend_nusd` None = unbounded."""

    id: str
    organization_id: str
    provider: str
    mask: str
    label: str = ""
    base_url: str = ""
    region: str = ""
    allowed_models: tuple[str, ...] = ()
    max_spend_nusd: int | None = None
    status: str = "active"


@dataclass(frozen=True, slots=True)
class StoredCredential:
    """A usable provider key: what routing and the upstream call need."""

    info: ProviderKeyInfo
    secret: str = field(repr=False)


class StoredKeys:
    """Reads the provider keys of all organizations. `accounts/provider_keys.py` writes them."""

    def __init__(self, database: Database, control: Control, vault: Vault) -> None:
        self._database = database
        self._control = control
        self._vault = vault
        self._memory: VersionedCache[str, dict[str, tuple[StoredCredential, ...]]] = VersionedCache(control, CACHE_SIZE)

    def keys_for(self, organization_id: str, provider: str) -> tuple[StoredCredential, ...]:
        """Return the active keys in order of creation, () if there are none. Raises Unavailable if the store cannot be
        read."""
        return self.all_keys(organization_id).get(provider, ())

    def all_keys(self, organization_id: str) -> Mapping[str, tuple[StoredCredential, ...]]:
        """Return the organization's active keys by provider. Raises Unavailable if the store cannot be read."""
        return self._memory.get(organization_id, lambda version: self._read(organization_id))

    def show(self, row: ProviderKey) -> ProviderKeyInfo:
        """A row as it may be shown. The mask of an earlier release is made anew from the secret, where that can be
        read."""
        if OLD_MASK in row.mask and row.secret:
            with suppress(Unavailable):
                row.mask = mask_secret(self._vault.open(row.secret))
        return info_of(row)

    def _read(self, organization_id: str) -> dict[str, tuple[StoredCredential, ...]]:
        rows = self._database.read(lambda: list(select_keys(organization_id).where(ProviderKey.status == "active")))
        credentials: dict[str, tuple[StoredCredential, ...]] = {}
        for row in rows:
            credential = StoredCredential(self.show(row), self._vault.open(row.secret))
            credentials[row.provider] = (*credentials.get(row.provider, ()), credential)
        return credentials


def mask_secret(secret: str) -> str:
    """Return the part of a provider's key that may be shown: its first and last characters, which distinguish keys.
    Short keys show less. All service account documents end alike, so the mask of a document is a short hash."""
    if secret.startswith("{"):
        return f"{{{CUT}{hashlib.sha256(secret.encode()).hexdigest()[:LAST_SHOWN]}"
    if len(secret) < SHORT_SECRET:
        return secret[:2] + CUT
    first = 12 if len(secret) >= LONG_SECRET else 2
    return f"{secret[:first]}{CUT}{secret[-LAST_SHOWN:]}"


def select_keys(organization_id: str) -> "peewee.ModelSelect[ProviderKey]":
    """Return the query of an organization's keys that were not removed, oldest first."""
    return (
        ProviderKey.select()
        .where(ProviderKey.organization == organization_id, ProviderKey.status != "deleted")
        .order_by(ProviderKey.id)
    )


def info_of(row: ProviderKey) -> ProviderKeyInfo:
    """Return the value of a row."""
    return ProviderKeyInfo(
        id=row.id,
        organization_id=row.organization_id,
        provider=row.provider,
        mask=row.mask,
        label=row.label,
        base_url=row.base_url,
        region=row.region,
        allowed_models=tuple(json.loads(row.allowed_models)),
        max_spend_nusd=row.max_spend_nusd,
        status=row.status,
    )
