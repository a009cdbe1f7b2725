"""The custom providers of organizations, as requests read them: from memory, under the control version."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from gateway.callers.access import CUSTOM
from gateway.callers.models import CustomProvider
from gateway.control.version import Control, VersionedCache
from gateway.store.database import Database

CACHE_SIZE = 10_000


class CustomProviderInfo(Struct, frozen=True):
    """`models` are objects with an `id` and, where the operator set them, `prices` as in the catalogue's files;
    () = every model id is passed on."""

    id: str
    organization_id: str
    name: str
    base_url: str
    models: tuple[Mapping[str, Any], ...] = ()

    @property
    def provider_id(self) -> str:
        """How rules, mappings and provider keys name it."""
        return f"{CUSTOM}:{self.name}"


class StoredProviders:
    """Reads the custom providers of all organizations. `accounts/custom_providers.py` writes them."""

    def __init__(self, database: Database, control: Control) -> None:
        self._database = database
        self._control = control
        self._memory: VersionedCache[str, dict[str, CustomProviderInfo]] = VersionedCache(control, CACHE_SIZE)
        self._known: dict[str, tuple[tuple[str, ...], CustomProviderInfo]] = {}

    def providers_of(self, organization_id: str) -> Mapping[str, CustomProviderInfo]:
        """Return the organization's providers by name. An unchanged provider stays the same object. Raises Unavailable
        if the store cannot be read."""
        return self._memory.get(organization_id, lambda version: self._read(organization_id))

    def _read(self, organization_id: str) -> dict[str, CustomProviderInfo]:
        query = (
            CustomProvider.select().where(CustomProvider.organization == organization_id).order_by(CustomProvider.id)
        )
        rows: list[CustomProvider] = self._database.read(partial(list, query))
        return {row.name: self._keep(row) for row in rows}

    def _keep(self, row: CustomProvider) -> CustomProviderInfo:
        """The provider of a row: the one that was read before while the row says the same, since its list may be long
        and what is made of it is kept with it."""
        values = (row.name, row.base_url, row.models)
        known = self._known.get(row.id)
        if known is None or known[0] != values:
            if len(self._known) >= CACHE_SIZE:
                self._known.clear()
            known = self._known[row.id] = (values, info_of(row))
        return known[1]


def info_of(row: CustomProvider) -> CustomProviderInfo:
    """Return the value of a row."""
    return CustomProviderInfo(row.id, row.organization_id, row.name, row.base_url, tuple(json.loads(row.models)))
