"""The catalogue of an organization's custom providers, for model lists."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

from gateway.accounts.authentication import Caller
from gateway.catalogue.catalogue import Catalogue, Current
from gateway.engine.custom_models import CustomModels, ProviderModels, make_known
from gateway.providers.credentials import CREDITS
from gateway.runtime.call_merging import SharedCalls
from gateway.runtime.threads import compute_if

REMEMBERED = 60_000  # models, over all organizations; the most recent organization's list stays whatever its size
LISTS = 2  # cached for each organization; one list of 30,000 models takes 50 MB
FEW = 100  # models that are built at once; more are built in a thread, since they take a while

T = TypeVar("T")


class CustomCatalogue:
    """Built once, and again when the store's data changed, which is noticed within a second. Concurrent callers wait
    for the same build."""

    def __init__(self, offers: CustomModels) -> None:
        self._offers = offers
        self._nothing = Current(Catalogue((), (), {}))
        self._made: OrderedDict[str, tuple[tuple[ProviderModels, ...], Current]] = OrderedDict()
        self._shared_calls: SharedCalls[str, Current] = SharedCalls()

    def of(self, caller: Caller) -> Current:
        """The models that the caller's organization can call at its own providers, by the id to call them with
        (provider/model); none in a project that spends credits. Access rules are not applied. Unavailable."""
        if caller.mode == CREDITS:
            return self._nothing
        parts = self._offers.parts(caller.organization_id)
        if not parts:
            return self._nothing
        made = self._made.get(caller.organization_id)
        if made is not None and made[0] == parts:
            self._made.move_to_end(caller.organization_id)
            return made[1]
        size = sum(len(part.entries) for part in parts)
        current = self._shared_calls.run(caller.organization_id, lambda: compute_if(size > FEW, _make, parts))
        self._keep(caller.organization_id, parts, current)
        return current

    def listed(self, own: Current, key: Hashable, make: Callable[[], T]) -> T:
        """The result of `make` for an organization's models, cached with them under `key`. It must not wait."""
        size = len(own.current().models)
        return own.remember(key, lambda: compute_if(size > FEW, make))

    def _keep(self, organization_id: str, parts: tuple[ProviderModels, ...], current: Current) -> None:
        made = self._made
        made[organization_id] = (parts, current)
        made.move_to_end(organization_id)
        total = sum(len(one.current().models) for _, one in made.values())
        while total > REMEMBERED and len(made) > 1:
            _, (_, oldest) = made.popitem(last=False)
            total -= len(oldest.current().models)


def _make(parts: tuple[ProviderModels, ...]) -> Current:
    offers = make_known(parts)
    providers = {offer.provider.id: offer.provider for offer in offers}
    return Current(Catalogue([offer.model for offer in offers], providers.values(), {}), LISTS)
