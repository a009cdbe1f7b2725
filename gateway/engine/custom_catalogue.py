"""The catalogue of an organization's custom providers, for model lists."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeVar

from gateway.accounts.authentication import Caller
from gateway.catalogue.catalogue import Catalogue, CurrentCatalogue
from gateway.engine.custom_models import CustomModels, ProviderModels, make_known
from gateway.providers.credentials import CREDITS
from gateway.runtime.call_merging import SharedCalls
from gateway.runtime.threads import compute_if

CACHE_SIZE = 60_000  # models over all organizations; the latest organization's list is kept whatever its size
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
        build = partial(compute_if, size > INLINE_MODELS, _make, parts)
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
        while total > CACHE_SIZE and len(cached) > 1:
            _, (_, oldest) = cached.popitem(last=False)
            total -= len(oldest.current().models)


def _make(parts: tuple[ProviderModels, ...]) -> CurrentCatalogue:
    models = make_known(parts)
    providers = {custom.provider.id: custom.provider for custom in models}
    return CurrentCatalogue(Catalogue([custom.model for custom in models], providers.values(), {}), LISTS)
