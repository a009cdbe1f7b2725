"""An organization's compliance policy: which providers meet it, judged by what the catalogue says of them.

The names of the flags are those of the HTTP API. A provider does not comply if the relevant fact is unknown.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from gateway.catalogue.entries import DataPolicy, Provider
from gateway.catalogue.entries import Mapping as ModelMapping
from gateway.errors import InvalidRequest

NO_RETENTION = frozenset({"0", "0 days", "none", "zero"})


@dataclass(frozen=True, slots=True)
class CompliancePolicy:
    """Flags and sets; an empty allowed set restricts nothing. Countries are upper-case codes."""

    require_soc2: bool = False
    require_soc2_type2: bool = False
    require_iso27001: bool = False
    require_soc2_or_iso27001: bool = False
    require_gdpr: bool = False
    block_api_training: bool = False
    block_prompt_logging: bool = False
    zero_data_retention: bool = False
    block_stealth_providers: bool = False
    allowed_countries: frozenset[str] = frozenset()
    allowed_providers: frozenset[str] = frozenset()
    blocked_providers: frozenset[str] = frozenset()
    allowed_models: frozenset[str] = frozenset()
    blocked_models: frozenset[str] = frozenset()


FIELDS = {
    "requireSoc2": "require_soc2",
    "requireSoc2Type2": "require_soc2_type2",
    "requireIso27001": "require_iso27001",
    "requireSoc2OrIso27001": "require_soc2_or_iso27001",
    "requireGdpr": "require_gdpr",
    "blockApiTraining": "block_api_training",
    "blockPromptLogging": "block_prompt_logging",
    "zeroDataRetention": "zero_data_retention",
    "blockStealthProviders": "block_stealth_providers",
    "allowedCountries": "allowed_countries",
    "allowedProviders": "allowed_providers",
    "blockedProviders": "blocked_providers",
    "allowedModels": "allowed_models",
    "blockedModels": "blocked_models",
}

SETS = frozenset(f.name for f in fields(CompliancePolicy) if f.type is not bool)


def read_policy(value: Mapping[str, object]) -> CompliancePolicy:
    """A policy from its JSON object. InvalidRequest names an unknown member or one of the wrong type."""
    ready: dict[str, object] = {}
    for name, given in value.items():
        field = FIELDS.get(name)
        if field is None:
            raise InvalidRequest(f"Unknown compliance flag {name}; known: {', '.join(FIELDS)}.", param=name)
        if field in SETS:
            ready[field] = _read_names(name, given)
        else:
            ready[field] = _read_flag(name, given)
    if countries := ready.get("allowed_countries"):
        ready["allowed_countries"] = frozenset(code.upper() for code in countries)  # type: ignore[attr-defined]
    return CompliancePolicy(**ready)  # type: ignore[arg-type]


def violation(policy: CompliancePolicy, mapping: ModelMapping, provider: Provider) -> str | None:
    """Return the reason why the provider or model violates the policy, or None."""
    return _named(policy, mapping, provider) or _uncertified(policy, provider) or _careless(policy, provider)


def _named(policy: CompliancePolicy, mapping: ModelMapping, provider: Provider) -> str | None:
    models = {mapping.model, f"{mapping.provider}/{mapping.model}"}
    if provider.id in policy.blocked_providers:
        return f"provider {provider.id} is blocked"
    if policy.allowed_providers and provider.id not in policy.allowed_providers:
        return f"provider {provider.id} is not among the allowed providers"
    if not policy.blocked_models.isdisjoint(models):
        return f"model {mapping.model} is blocked"
    if policy.allowed_models and policy.allowed_models.isdisjoint(models):
        return f"model {mapping.model} is not among the allowed models"
    return None


# Each flag, what it asks of a provider's stated data policy, and what to say when that is not met.
CERTIFICATES: tuple[tuple[str, Callable[[DataPolicy], bool], str], ...] = (
    ("require_soc2", lambda data: bool(data.soc2), "has no SOC 2 report"),
    ("require_soc2_type2", lambda data: data.soc2 == 2, "has no SOC 2 type 2 report"),
    ("require_iso27001", lambda data: data.iso27001 is True, "has no ISO 27001 certificate"),
    (
        "require_soc2_or_iso27001",
        lambda data: bool(data.soc2) or data.iso27001 is True,
        "has neither a SOC 2 report nor an ISO 27001 certificate",
    ),
    ("require_gdpr", lambda data: data.gdpr is True, "does not state GDPR compliance"),
    ("block_api_training", lambda data: data.api_training is False, "may train on API data"),
    ("block_prompt_logging", lambda data: data.prompt_logging is False, "may log prompts"),
    ("zero_data_retention", lambda data: data.retention.lower() in NO_RETENTION, "retains data"),
)


def _uncertified(policy: CompliancePolicy, provider: Provider) -> str | None:
    for flag, meets, complaint in CERTIFICATES:
        if getattr(policy, flag) and not meets(provider.data_policy):
            return f"provider {provider.id} {complaint}"
    return None


def _careless(policy: CompliancePolicy, provider: Provider) -> str | None:
    if policy.allowed_countries and provider.headquarters.upper() not in policy.allowed_countries:
        return f"provider {provider.id} is not based in an allowed country"
    # A stealth provider discloses neither its headquarters nor anything about its handling of data.
    if policy.block_stealth_providers and not provider.headquarters and provider.data_policy == DataPolicy():
        return f"provider {provider.id} does not disclose who runs it"
    return None


def _read_flag(name: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise InvalidRequest(f"{name} must be true or false.", param=name)
    return given


def _read_names(name: str, given: object) -> frozenset[str]:
    if not isinstance(given, list) or not all(isinstance(item, str) and item for item in given):
        raise InvalidRequest(f"{name} must be a list of names.", param=name)
    return frozenset(given)
