"""Providers that only one organization knows: a name, an address that speaks chat completions, and its models.

Their credential is a provider key of provider "custom:<name>". Calls to them are unbilled unless a model has prices.
"""

import json
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.changes import commit
from gateway.callers.access import CUSTOM
from gateway.callers.models import CustomProvider, Organization, ProviderKey
from gateway.callers.stored_providers import CustomProviderInfo, StoredProviders, info_of
from gateway.catalogue.field_checks import read_prices
from gateway.configuration import settings
from gateway.configuration.setting_checks import url_problem
from gateway.control.version import Control
from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.store.database import Database

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
RESERVED = frozenset(("auto", "custom", "dynamic", "llmgateway", "smart"))  # model texts begin so and mean other things
MAX_LIST = 1 << 20  # bytes of JSON
CAP_CODE = "custom_provider_cap_reached"


class ProviderCaps(Struct, frozen=True):
    """The most custom providers of an organization, and the most models that one of them lists; 0 = no cap."""

    providers: int = 0
    models: int = 0


NO_CAPS = ProviderCaps()


def read_provider_caps(limits: settings.LimitSettings) -> ProviderCaps:
    """The installation's caps."""
    return ProviderCaps(limits.max_custom_providers, limits.max_custom_models)


class CustomProviders(StoredProviders):
    """The custom providers of all organizations: kept in the store, read from memory."""

    def __init__(self, database: Database, control: Control, caps: ProviderCaps = NO_CAPS) -> None:
        super().__init__(database, control)
        self._caps = caps

    def add(
        self,
        organization_id: str,
        name: str,
        base_url: str,
        models: Sequence[Mapping[str, Any]] = (),
        *,
        actor: str,
        built_in: Container[str] = (),
    ) -> CustomProviderInfo:
        """Make one; `built_in` are the names of the catalogue's providers. InvalidRequest (name, address, models,
        caps), NotFound (organization), Conflict (name taken)."""
        self._check(name, base_url, models)
        if name in built_in:
            raise InvalidRequest(
                f"{name!r} is the name of a built-in provider, to which {name}/<model> would go. Choose another name, "
                f"or add a provider key for {name} with a base URL of your own.",
                param="name",
            )
        info = CustomProviderInfo(ids.new("cprov"), organization_id, name, base_url.rstrip("/"), tuple(models))
        return commit(self._database, self._control, lambda now: _insert(info, self._caps, actor, now))

    def list_providers(self, organization_id: str) -> list[CustomProviderInfo]:
        """The organization's providers as the store has them now, oldest first."""
        return list(self._read(organization_id).values())

    def update(
        self,
        organization_id: str,
        name: str,
        *,
        base_url: str | None = None,
        models: Sequence[Mapping[str, Any]] | None = None,
        actor: str,
    ) -> CustomProviderInfo:
        """Change address or models, in force when this returns. InvalidRequest, NotFound."""

        def work(now: int) -> CustomProviderInfo:
            before = info_of(_load(organization_id, name))
            info = replace(
                before,
                base_url=before.base_url if base_url is None else base_url.rstrip("/"),
                models=before.models if models is None else tuple(models),
            )
            self._check(name, info.base_url, models or ())
            values = {"base_url": info.base_url, "models": json.dumps(list(info.models)), "updated_at": now}
            CustomProvider.update(**values).where(CustomProvider.id == info.id).execute()
            _audit("custom_provider.update", info, actor, now)
            return info

        return commit(self._database, self._control, work)

    def remove(self, organization_id: str, name: str, *, actor: str) -> None:
        """Remove one together with its keys; unused everywhere when this returns. NotFound."""

        def work(now: int) -> None:
            row = _load(organization_id, name)
            row.delete_instance()
            keys = (ProviderKey.organization == organization_id) & (ProviderKey.provider == f"{CUSTOM}:{name}")
            ProviderKey.update(status="deleted", secret="", updated_at=now).where(keys).execute()
            _audit("custom_provider.delete", info_of(row), actor, now)

        commit(self._database, self._control, work)

    def _check(self, name: str, base_url: str, models: Sequence[Mapping[str, Any]]) -> None:
        _check(name, base_url, models)
        if 0 < self._caps.models < len(models):
            raise InvalidRequest(
                f"A custom provider may list {self._caps.models} models; these are {len(models)}. Without a list, any "
                "model can be called.",
                param="models",
                code=CAP_CODE,
            )


def _check(name: str, base_url: str, models: Sequence[Mapping[str, Any]]) -> None:
    if not NAME.fullmatch(name):
        raise InvalidRequest("name takes 1 to 64 of a-z, 0-9, '.', '_' and '-'.", param="name")
    if name in RESERVED:
        raise InvalidRequest(f"The name {name!r} is reserved by the gateway; choose another.", param="name")
    parts = None if url_problem(base_url, ("http", "https")) else urlsplit(base_url)
    if parts is None or parts.username or parts.query or parts.fragment:
        raise InvalidRequest("base_url must be an http(s) address without credentials and query.", param="baseUrl")
    if not all(isinstance(model.get("id"), str) and model["id"] for model in models):
        raise InvalidRequest("Every model needs an id.", param="models")
    for model in models:
        _check_prices(model)
    if len(json.dumps(list(models))) > MAX_LIST:
        raise InvalidRequest(f"The list of models takes more than {MAX_LIST:,} bytes.", param="models", code=CAP_CODE)


def _check_prices(model: Mapping[str, Any]) -> None:
    try:
        read_prices(model["prices"]) if "prices" in model else ()
    except ValueError as error:
        raise InvalidRequest(f"Prices of model {model['id']}: {error}.", param="models") from None


def _load(organization_id: str, name: str) -> CustomProvider:
    row = CustomProvider.get_or_none(CustomProvider.organization == organization_id, CustomProvider.name == name)
    if row is None:
        raise NotFound(f"There is no custom provider {name} in this organization.")
    return row


def _insert(info: CustomProviderInfo, caps: ProviderCaps, actor: str, now: int) -> CustomProviderInfo:
    organization_id = info.organization_id
    if not Organization.select().where(Organization.id == organization_id).exists():
        raise NotFound(f"There is no organization {organization_id}.")
    same = (CustomProvider.organization == organization_id) & (CustomProvider.name == info.name)
    if CustomProvider.select().where(same).exists():
        raise Conflict(f"There is already a custom provider {info.name}.", code="custom_provider_exists")
    of_organization = CustomProvider.organization == organization_id
    if 0 < caps.providers <= CustomProvider.select().where(of_organization).count():
        raise InvalidRequest(
            f"This organization has {caps.providers} custom providers, which is the limit.", param="name", code=CAP_CODE
        )
    CustomProvider.insert(
        id=info.id,
        organization=organization_id,
        name=info.name,
        base_url=info.base_url,
        models=json.dumps(list(info.models)),
        created_at=now,
        updated_at=now,
    ).execute()
    _audit("custom_provider.create", info, actor, now)
    return info


def _audit(action: str, info: CustomProviderInfo, actor: str, now: int) -> None:
    detail = {"name": info.name, "base_url": info.base_url}
    audit.append(action, info.id, actor=actor, at_us=now, organization_id=info.organization_id, detail=detail)
