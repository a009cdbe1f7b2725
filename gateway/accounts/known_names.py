"""Names in lists of what is allowed, checked when they are set: a slip of the pen in one would refuse every request.

Lists of what is denied are not checked: they may name what is not there yet.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from gateway.callers.access import CUSTOM
from gateway.callers.stored_providers import CustomProviderInfo
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Provider
from gateway.errors import InvalidRequest

MODELS = "models"
PROVIDERS = "providers"
# Type of an access rule, or member of a policy → what its list names.
RULES = {"allow_models": MODELS, "allow_providers": PROVIDERS}
POLICY = {"allowedModels": MODELS, "allowedProviders": PROVIDERS}


@dataclass(frozen=True)
class KnownNames:
    """The names that an organization's rules and policies may allow: the catalogue's providers and models, and the
    organization's custom ones."""

    catalogue: Catalogue
    own: tuple[CustomProviderInfo, ...] = ()

    @cached_property
    def _listed(self) -> dict[str, frozenset[str]]:
        """The models of each own provider, by its name and its id; none: it serves any."""
        listed: dict[str, frozenset[str]] = {}
        for provider in self.own:
            names = frozenset(str(model["id"]) for model in provider.models)
            listed[provider.name] = names
            listed[provider.provider_id] = names
        return listed

    def check_rule(self, type: str, value: Mapping[str, Any]) -> None:
        """InvalidRequest for an access rule that allows something unknown."""
        kind = RULES.get(type)
        if kind is not None:
            self._check(kind, value.get(kind), f"ruleValue.{kind}")

    def check_policy(self, policy: Mapping[str, Any]) -> None:
        """InvalidRequest for a compliance policy that allows something unknown."""
        for member, kind in POLICY.items():
            self._check(kind, policy.get(member), member)

    def check_names(self, kind: str, names: list[str], param: str) -> None:
        """InvalidRequest for a name that is neither known nor a pattern with *."""
        self._check(kind, [name for name in names if "*" not in name], param)

    def check_requested_model(self, name: str, param: str) -> None:
        """InvalidRequest for a model that requests could not name either; they may name an alias, a dated version and a
        region too."""
        names = (name, name.rpartition(":")[0])
        if not any(self.catalogue.find_version(one) for one in names if one):
            self._check(MODELS, [name], param)

    def _check(self, kind: str, names: Any, param: str) -> None:
        """Raise InvalidRequest for an unknown name. The reader of the value checks that it is a list of names."""
        known = self._is_model if kind == MODELS else self._is_provider
        for name in names if isinstance(names, list) else ():
            if isinstance(name, str) and name.strip() and not known(name.strip()):
                raise InvalidRequest(self._explain(kind, name.strip()), param=param)

    def _is_provider(self, name: str) -> bool:
        return name == CUSTOM or name in self._providers()

    def _is_model(self, name: str) -> bool:
        """Alone, with its provider, or with provider and region, as `access.model_names` has it."""
        if name in self.catalogue.models:
            return True
        if any(not listed or name in listed for listed in self._listed.values()):
            return True
        prefix, slash, model = name.partition("/")
        return bool(slash) and self._is_served(prefix, model, name)

    def _is_served(self, prefix: str, model: str, name: str) -> bool:
        if prefix == CUSTOM:
            return True
        listed = self._listed.get(prefix)
        if listed is not None:
            return not listed or model in listed
        provider = self.catalogue.provider(prefix)
        if provider is None:
            return False
        models = (self.catalogue.models.get(ident) for ident in (model, model.rpartition(":")[0]))
        mappings = [mapping for entry in models if entry is not None for mapping in entry.mappings]
        served = any(name in (mapping.key, f"{mapping.provider}/{mapping.model}") for mapping in mappings)
        return served or _tells_its_models(provider)

    def _explain(self, kind: str, name: str) -> str:
        if kind == PROVIDERS:
            return f"There is no provider {name}{_suggest_similar(name, self._providers())}."
        prefix, slash, rest = name.rpartition("/")
        entry = self.catalogue.find(rest)
        if entry is not None and entry.id != rest:
            return f"There is no model with the id {name}; its id is {prefix}{slash}{entry.id}."
        if entry is not None:
            providers = [mapping.provider for mapping in entry.mappings]
            return f"{entry.id} is not served by {prefix}{_suggest_similar(prefix, providers)}."
        near = self.catalogue.suggest(name)
        return f"There is no model {name}{_perhaps(near[0] if near else '')}."

    def _providers(self) -> list[str]:
        return [*self.catalogue.providers, *(provider.provider_id for provider in self.own)]


def _tells_its_models(provider: Provider) -> bool:
    """Return whether it is an engine that lists its models itself, so that they may be unknown here."""
    return not provider.key_required and not provider.address


def _suggest_similar(name: str, known: Iterable[str]) -> str:
    matches = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return _perhaps(matches[0] if matches else "")


def _perhaps(name: str) -> str:
    if name:
        return f"; perhaps {name} is meant"
    return ""
