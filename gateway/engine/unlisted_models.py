"""Models that the catalogue does not list, for callers who may call them at their own risk."""

from collections.abc import Callable

from gateway.accounts.authentication import Caller
from gateway.accounts.compliance import CompliancePolicy
from gateway.accounts.project_modes import CREDITS
from gateway.accounts.versioned_cache import VersionedCache
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.unlisted_entries import ANY_KEYS, OWN_KEYS, belongs_to_account, make_unlisted
from gateway.control.version import Control
from gateway.limits.ledger import LedgerBook
from gateway.providers.credentials import Credentials
from gateway.routing.resolve import SANDBOX, CustomModel

ALL_PROVIDERS = "*"
CACHE_SIZE = 2_000
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
        self._unlimited: VersionedCache[str, bool] = VersionedCache(control, CACHE_SIZE)
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
        if self._catalogue_of_models is not catalogue or len(self._custom_models) >= CACHE_SIZE:
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
