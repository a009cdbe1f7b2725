"""What model lists show of an organization's own providers: a small catalogue of its own for each organization."""

from gateway.accounts.authentication import Caller
from gateway.accounts.memory import Memory
from gateway.catalogue.catalogue import Catalogue, Current
from gateway.control import Control
from gateway.engine.offers import Offers
from gateway.providers.credentials import CREDITS

REMEMBERED = 64  # organizations with models of their own, at most MOST_MODELS of the management API each
REMEMBERED_EMPTY = 10_000


class OwnModels:
    """Made once; answers from memory while the control version stands, so a change is seen within a second."""

    def __init__(self, control: Control, offers: Offers) -> None:
        self._offers = offers
        self._nothing = Current(Catalogue((), (), {}))
        self._memory: Memory[str, Current] = Memory(
            control, REMEMBERED, lambda value: value is self._nothing, REMEMBERED_EMPTY
        )

    def of(self, caller: Caller) -> Current:
        """The models that the caller's organization can call at its own providers, by the id that calls them
        (provider/model); none in a project that spends credits. Access rules are left to the reader. Unavailable."""
        if caller.mode == CREDITS:
            return self._nothing
        organization_id = caller.organization_id
        return self._memory.get(organization_id, lambda version: self._make(organization_id))

    def _make(self, organization_id: str) -> Current:
        offers = self._offers.known(organization_id)
        if not offers:
            return self._nothing
        providers = {offer.provider.id: offer.provider for offer in offers}
        return Current(Catalogue([offer.model for offer in offers], providers.values(), {}))
