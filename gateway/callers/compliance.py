"""An organization's compliance policy: which providers meet it, judged by what the catalogue says of them.

The names of the flags are those of the HTTP API. A provider does not comply if the relevant fact is unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from gateway.catalogue.entries import DataPolicy, Provider
from gateway.catalogue.entries import Mapping as ModelMapping
from gateway.errors import InvalidRequest

NO_RETENTION = frozenset({"0", "0 days", "none", "zero"})


@dataclass(frozen=True, slots=True)
class CompliancePolicy:
    """Flags and sets; an empty allowed set restricts nothing. Countries are upper-case codes. `allowed_unlisted` and
    `blocked_unlisted` are the providers ("*": all) with models that may, or may not, be called unlisted."""

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
    allowed_unlisted: frozenset[str] = frozenset()
    blocked_unlisted: frozenset[str] = frozenset()


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
    "allowUnlistedModels": "allowed_unlisted",
    "blockUnlistedModels": "blocked_unlisted",
}

SETS = frozenset(f.name for f in fields(CompliancePolicy) if f.type is not bool)


def read_policy(value: Mapping[str, object]) -> CompliancePolicy:
    """A policy from its JSON object. InvalidRequest names an unknown member or one of the wrong type."""
    ready: dict[str, object] = {}
    for name, flag_value in value.items():
        field = FIELDS.get(name)
        if field is None:
            raise InvalidRequest(f"Unknown compliance flag {name}; known: {', '.join(FIELDS)}.", param=name)
        if field in SETS:
            ready[field] = _read_names(name, flag_value)
        else:
            ready[field] = _read_flag(name, flag_value)
    if countries := ready.get("allowed_countries"):
        ready["allowed_countries"] = frozenset(code.upper() for code in countries)  # type: ignore[attr-defined]
    return CompliancePolicy(**ready)  # type: ignore[arg-type]


def violation(policy: CompliancePolicy, mapping: ModelMapping, provider: Provider) -> str | None:
    """Return the reason why the provider or model violates the policy, or None."""
    return (
        _list_violation(policy, mapping, provider)
        or _statement_violation(policy, provider)
        or _origin_violation(policy, provider)
    )


def _list_violation(policy: CompliancePolicy, mapping: ModelMapping, provider: Provider) -> str | None:
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


# Flags about a provider's published data policy, and what to say when it does not meet one.
COMPLAINTS = {
    "require_soc2": "has no SOC 2 report",
    "require_soc2_type2": "has no SOC 2 type 2 report",
    "require_iso27001": "has no ISO 27001 certificate",
    "require_soc2_or_iso27001": "has neither a SOC 2 report nor an ISO 27001 certificate",
    "require_gdpr": "does not state GDPR compliance",
    "block_api_training": "may train on API data",
    "block_prompt_logging": "may log prompts",
    "zero_data_retention": "retains data",
}


def _met_flags(data: DataPolicy) -> dict[str, bool]:
    """Return, for each flag of COMPLAINTS, whether the data policy meets it. An unknown fact meets none."""
    return {
        "require_soc2": bool(data.soc2),
        "require_soc2_type2": data.soc2 == 2,
        "require_iso27001": data.iso27001 is True,
        "require_soc2_or_iso27001": bool(data.soc2) or data.iso27001 is True,
        "require_gdpr": data.gdpr is True,
        "block_api_training": data.api_training is False,
        "block_prompt_logging": data.prompt_logging is False,
        "zero_data_retention": data.retention.lower() in NO_RETENTION,
    }


def _statement_violation(policy: CompliancePolicy, provider: Provider) -> str | None:
    required = [flag for flag in COMPLAINTS if getattr(policy, flag)]
    if not required:
        return None
    met = _met_flags(provider.data_policy)
    return next((f"provider {provider.id} {COMPLAINTS[flag]}" for flag in required if not met[flag]), None)


def _origin_violation(policy: CompliancePolicy, provider: Provider) -> str | None:
    if policy.allowed_countries and provider.headquarters.upper() not in policy.allowed_countries:
        return f"provider {provider.id} is not based in an allowed country"
    # A stealth provider discloses neither its headquarters nor anything about its handling of data.
    if policy.block_stealth_providers and not provider.headquarters and provider.data_policy == DataPolicy():
        return f"provider {provider.id} does not disclose who runs it"
    return None


def _read_flag(name: str, flag_value: object) -> bool:
    if not isinstance(flag_value, bool):
        raise InvalidRequest(f"{name} must be true or false.", param=name)
    return flag_value


def _read_names(name: str, names: object) -> frozenset[str]:
    if not isinstance(names, list) or not all(isinstance(item, str) and item for item in names):
        raise InvalidRequest(f"{name} must be a list of names.", param=name)
    return frozenset(names)
