"""An organization's custom providers as routing targets: any model at the organization's own address."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from collections.abc import Mapping as Values
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from gateway.callers.access import CUSTOM
from gateway.callers.authentication import Caller
from gateway.callers.compliance import CompliancePolicy
from gateway.callers.credential_sources import CREDITS
from gateway.callers.stored_keys import StoredCredential, StoredKeys
from gateway.callers.stored_providers import CustomProviderInfo, StoredProviders
from gateway.catalogue.base_urls import join_base
from gateway.catalogue.catalogue import Catalogue, CurrentCatalogue
from gateway.catalogue.entries import Mapping, Model, Prices, Provider, TokenRates
from gateway.catalogue.field_checks import read_prices
from gateway.catalogue.unlisted_entries import ALL_CAPABILITIES, ANY_KEYS, OWN_KEYS, belongs_to_account, make_unlisted
from gateway.control.version import Control, VersionedCache
from gateway.errors import InvalidRequest, UnknownModel
from gateway.limits.ledger import LedgerBook
from gateway.neutral import operations
from gateway.providers.credentials import Credentials
from gateway.routing.resolve import SANDBOX, CustomModel
from gateway.runtime.call_merging import SharedCalls
from gateway.runtime.threads import compute_if

# Models that the catalogue does not list, for callers who may call them at their own risk.

ALL_PROVIDERS = "*"
UNLISTED_CACHE_SIZE = 2_000
NO_POLICY = CompliancePolicy()


class UnlistedModels:
    """Decides by the organization's policy, by who pays, and by the caller's rules."""

    def __init__(
        self,
        catalogue: Callable[[], Catalogue],
        credentials: Credentials,
        control: Control,
        ledger: LedgerBook,
        provider_objects: bool = False,
    ) -> None:
        self._catalogue = catalogue
        self._credentials = credentials
        self._ledger = ledger
        self._provider_objects = provider_objects
        self._unlimited: VersionedCache[str, bool] = VersionedCache(control, UNLISTED_CACHE_SIZE)
        self._custom_models: dict[tuple[str, str, str], CustomModel] = {}
        self._catalogue_of_models: Catalogue | None = None

    def find(self, caller: Caller, provider_id: str, name: str) -> CustomModel | None:
        """Return the model `name` of a provider, None where the caller may not call it. Unavailable.

        An allowed one may be paid with every key. Without a setting of the organization, provider keys of its own may
        pay, and with unlimited credits the platform's too. A setting of the organization opens no models of the
        platform's accounts, such as its fine-tuned ones, unless the operator allows their objects. A caller with denied
        models may call none: the provider may know a denied model under another name.
        """
        provider = self._catalogue().provider(provider_id)
        if provider is None or provider.protocol == SANDBOX or not name:
            return None
        if any(level.deny_models or level.deny_pricing for level in caller.rules):
            return None
        policy = next((level.policy for level in caller.rules if level.policy is not None), NO_POLICY)
        if policy.blocked_models or not policy.blocked_unlisted.isdisjoint((ALL_PROVIDERS, provider_id)):
            return None
        allowed = not policy.allowed_unlisted.isdisjoint((ALL_PROVIDERS, provider_id))
        if belongs_to_account(name) and not self._provider_objects:
            allowed = False
        if allowed or self._is_unlimited(caller.organization_id):
            payers = ANY_KEYS
        elif caller.mode != CREDITS:
            payers = OWN_KEYS
        else:
            return None
        custom_model = self._make(provider_id, name, payers)
        if custom_model is None or not self._credentials.usable(caller)(custom_model.mapping):
            return None
        return custom_model

    def _is_unlimited(self, organization_id: str) -> bool:
        return self._unlimited.get(organization_id, lambda version: self._ledger.balance(organization_id).unlimited)

    def _make(self, provider_id: str, name: str, payers: str) -> CustomModel | None:
        catalogue = self._catalogue()
        if self._catalogue_of_models is not catalogue or len(self._custom_models) >= UNLISTED_CACHE_SIZE:
            self._custom_models.clear()
            self._catalogue_of_models = catalogue
        key = (provider_id, name, payers)
        known = self._custom_models.get(key)
        if known is not None:
            return known
        model = make_unlisted(catalogue, provider_id, name, payers)
        if model is None:
            return None
        custom_model = self._custom_models[key] = CustomModel(
            model, catalogue.providers[provider_id], model.mappings[0]
        )
        return custom_model


PROTOCOL = "openai"
VERSION_PATH = "/v1"  # may be omitted in a base URL
CACHE_SIZE = 4_000
UNBILLED = (Prices(TokenRates(prompt=0, completion=0)),)
MAX_LISTED = 8  # models that an error lists


class ProviderModels(NamedTuple):
    """One provider for model lists: its models, and the models that each of its keys is restricted to."""

    name: str
    provider_id: str
    entries: tuple[Values[str, Any], ...]
    allowed: tuple[tuple[str, ...], ...]


class CustomModels:
    """Resolves custom models for callers, answering from memory."""

    def __init__(self, custom_providers: StoredProviders, provider_keys: StoredKeys) -> None:
        self._custom_providers = custom_providers
        self._provider_keys = provider_keys
        self._cached: dict[tuple[str, str], tuple[CustomProviderInfo, CustomModel]] = {}

    def routes_of(self, caller: Caller, unlisted: UnlistedModels) -> "Routes":
        """Return the custom routes of the caller's organization."""
        return Routes(self, caller, unlisted)

    def custom_model(self, caller: Caller, name: str, model: str) -> CustomModel | None:
        """Return the model at the organization's provider `name`, None when it has no such provider.

        InvalidRequest in a project that spends credits (the platform has no key there) and for invalid prices;
        UnknownModel for a model outside the provider's list.
        """
        info = self._custom_providers.providers_of(caller.organization_id).get(name)
        if info is None:
            if name == CUSTOM:
                return self._generic(caller, model)
            return None
        _check_mode(caller, name)
        return self._resolve(info, model)

    def find_for_job(self, organization_id: str, provider_id: str, model: str) -> CustomModel | None:
        """Return the model that a job began at, None when the organization no longer has it."""
        if provider_id == CUSTOM:
            key = next((key.info for key in self._provider_keys.keys_for(organization_id, CUSTOM)), None)
            if key is None:
                return None
            return _make(CUSTOM, key.base_url, {"id": model})
        providers = self._custom_providers.providers_of(organization_id).values()
        info = next((provider for provider in providers if provider.provider_id == provider_id), None)
        try:
            if info is None:
                return None
            return self._resolve(info, model)
        except InvalidRequest:
            return None

    def _resolve(self, info: CustomProviderInfo, model: str) -> CustomModel:
        cached = self._cached.get((info.id, model))
        if cached is None or cached[0] is not info:
            if len(self._cached) >= CACHE_SIZE:
                self._cached.clear()
            cached = self._cached[info.id, model] = (info, _make(info.provider_id, info.base_url, _find(info, model)))
        return cached[1]

    def parts(self, organization_id: str) -> tuple[ProviderModels, ...]:
        """Return the organization's providers that have a usable key and models known by name.

        Names come from the provider's list of models, else from the models that its keys are restricted to.
        """
        keys_for = self._provider_keys.keys_for
        providers = [
            _part(info.name, info.provider_id, info.models, keys_for(organization_id, info.provider_id))
            for info in self._custom_providers.providers_of(organization_id).values()
        ]
        generic = [key for key in keys_for(organization_id, CUSTOM) if key.info.base_url]
        providers.append(_part(CUSTOM, CUSTOM, (), generic))
        return tuple([provider for provider in providers if provider.entries and provider.allowed])

    def known(self, organization_id: str) -> list[CustomModel]:
        """Return every model known by name that a key of the organization can call (see `make_known`)."""
        return make_known(self.parts(organization_id))

    def _generic(self, caller: Caller, model: str) -> CustomModel | None:
        """Return a model of the provider key "custom", which has only an address. Its only model is the default."""
        keys = self._provider_keys.keys_for(caller.organization_id, CUSTOM)
        key = next((key.info for key in keys if key.info.base_url), None)
        if key is None:
            return None
        _check_mode(caller, CUSTOM)
        only = key.allowed_models[0] if len(key.allowed_models) == 1 else CUSTOM
        return _make(CUSTOM, key.base_url, {"id": model or only})


class Routes:
    """One caller's `CustomRoutes` for routing."""

    __slots__ = ("_caller", "_custom_models", "_unlisted")

    def __init__(self, custom_models: CustomModels, caller: Caller, unlisted: UnlistedModels) -> None:
        self._custom_models = custom_models
        self._caller = caller
        self._unlisted = unlisted

    def custom_model(self, name: str, model: str) -> CustomModel | None:
        return self._custom_models.custom_model(self._caller, name, model)

    def unlisted_model(self, provider: str, model: str) -> CustomModel | None:
        return self._unlisted.find(self._caller, provider, model)


def _check_mode(caller: Caller, name: str) -> None:
    if caller.mode == CREDITS:
        raise InvalidRequest(
            f"The custom provider {name!r} uses your organization's own key, and this project spends credits: "
            "set its mode to api-keys or hybrid.",
            param="model",
            code="custom_provider_needs_own_keys",
        )


def _find(info: CustomProviderInfo, model: str) -> Values[str, Any]:
    if not model:
        raise UnknownModel(f"Name a model behind the custom provider: {info.name}/<model>.", param="model")
    if not info.models:
        return {"id": model}
    for entry in info.models:
        if entry["id"] == model:
            return entry
    known = ", ".join(f"{info.name}/{entry['id']}" for entry in info.models[:MAX_LISTED])
    raise UnknownModel(f"The custom provider {info.name!r} has no model {model!r}; it has: {known}.", param="model")


def make_known(parts: Iterable[ProviderModels]) -> list[CustomModel]:
    """Return the models of the parts under the ids to call them with. A model with invalid prices is omitted, since
    calls to it are refused."""
    return [model for part in parts for model in _known(part)]


def _known(part: ProviderModels) -> Iterator[CustomModel]:
    opened = None
    if all(part.allowed):
        opened = frozenset(_flat(part.allowed))
    provider = _provider(part.provider_id, "")
    read: dict[str, tuple[Prices, ...]] = {}
    for entry in part.entries:
        ident = entry["id"]
        if opened is None or ident in opened:
            written = repr(entry.get("prices"))
            try:
                prices = read[written] = read.get(written) or _prices(part.provider_id, entry)
            except InvalidRequest:
                continue
            mapping = _mapping(part.provider_id, "", entry, prices)
            yield CustomModel(_model(f"{part.name}/{ident}", mapping), provider, mapping)


def _part(
    name: str, provider_id: str, entries: tuple[Values[str, Any], ...], keys: Sequence[StoredCredential]
) -> ProviderModels:
    allowed = tuple([key.info.allowed_models for key in keys])
    if not entries:
        entries = tuple([{"id": ident} for ident in dict.fromkeys(_flat(allowed))])
    return ProviderModels(name, provider_id, entries, allowed)


def _flat(groups: Iterable[Iterable[str]]) -> Iterator[str]:
    return (item for group in groups for item in group)


def _make(provider_id: str, base_url: str, entry: Values[str, Any]) -> CustomModel:
    mapping = _mapping(provider_id, base_url, entry, _prices(provider_id, entry))
    return CustomModel(_model(mapping.model, mapping), _provider(provider_id, base_url), mapping)


def _mapping(provider_id: str, base_url: str, entry: Values[str, Any], prices: tuple[Prices, ...]) -> Mapping:
    ident = entry["id"]
    return Mapping(
        provider=provider_id,
        model=ident,
        external_id=ident,
        address=base_url,
        prices=prices,
        context_length=_size(entry, "context_length"),
        max_output=_size(entry, "max_output"),
        **ALL_CAPABILITIES,
        operations=operations.names(),
    )


def _model(ident: str, mapping: Mapping) -> Model:
    return Model(ident, name=mapping.model, output_modalities=("text", "image"), mappings=(mapping,))


def _provider(provider_id: str, base_url: str) -> Provider:
    bare = Provider(provider_id, provider_id, PROTOCOL, version_path=VERSION_PATH)
    if base_url:
        return replace(bare, address=join_base(bare, base_url))
    return bare


def _prices(provider_id: str, entry: Values[str, Any]) -> tuple[Prices, ...]:
    """Return the organization's prices (format of the catalogue's files); without any, calls are unbilled."""
    if not entry.get("prices"):
        return UNBILLED
    try:
        return read_prices(entry["prices"])
    except ValueError as error:
        raise InvalidRequest(
            f"The prices of {entry['id']!r} at {provider_id} cannot be read: {error}.",
            param="model",
            code="custom_provider_prices_invalid",
        ) from None


def _size(entry: Values[str, Any], name: str) -> int:
    size = entry.get(name, 0)
    if isinstance(size, int) and size > 0:
        return size
    return 0


# The catalogue of an organization's custom providers, for model lists.

CATALOGUE_CACHE_SIZE = 60_000  # models over all organizations; the latest organization's list is kept whatever its size
LISTS = 2  # cached per organization; one list of 30,000 models takes 50 MB
INLINE_MODELS = 100  # models that are built on the event loop; more take long and are built in a thread

T = TypeVar("T")


class CustomCatalogue:
    """Builds and caches the catalogues. A changed list of models is noticed within a second; concurrent callers wait
    for the same build."""

    def __init__(self, custom_models: CustomModels) -> None:
        self._custom_models = custom_models
        self._nothing = CurrentCatalogue(Catalogue((), (), {}))
        self._cached: OrderedDict[str, tuple[tuple[ProviderModels, ...], CurrentCatalogue]] = OrderedDict()
        self._shared_calls: SharedCalls[str, CurrentCatalogue] = SharedCalls()

    def of(self, caller: Caller) -> CurrentCatalogue:
        """Return the models that the caller's organization can call at its own providers, by id (provider/model).

        None in a project that spends credits. Access rules are not applied. Unavailable.
        """
        if caller.mode == CREDITS:
            return self._nothing
        parts = self._custom_models.parts(caller.organization_id)
        if not parts:
            return self._nothing
        cached = self._cached.get(caller.organization_id)
        if cached is not None and cached[0] == parts:
            self._cached.move_to_end(caller.organization_id)
            return cached[1]
        size = sum(len(part.entries) for part in parts)
        build = partial(compute_if, size > INLINE_MODELS, _make_catalogue, parts)
        current = self._shared_calls.run(caller.organization_id, build)
        self._keep(caller.organization_id, parts, current)
        return current

    def listed(self, own: CurrentCatalogue, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make` for an organization's models, cached under `key`. `make` must not wait."""
        size = len(own.current().models)
        return own.remember(key, partial(compute_if, size > INLINE_MODELS, make))

    def _keep(self, organization_id: str, parts: tuple[ProviderModels, ...], current: CurrentCatalogue) -> None:
        cached = self._cached
        cached[organization_id] = (parts, current)
        cached.move_to_end(organization_id)
        total = sum(len(catalogue.current().models) for _, catalogue in cached.values())
        while total > CATALOGUE_CACHE_SIZE and len(cached) > 1:
            _, (_, oldest) = cached.popitem(last=False)
            total -= len(oldest.current().models)


def _make_catalogue(parts: tuple[ProviderModels, ...]) -> CurrentCatalogue:
    models = make_known(parts)
    providers = {custom.provider.id: custom.provider for custom in models}
    return CurrentCatalogue(Catalogue([custom.model for custom in models], providers.values(), {}), LISTS)
