"""A routing decision in sentences."""

from collections.abc import Mapping
from typing import Any

from gateway.routing.plan import EXPLORED, FIRST, LOW_UPTIME, PINNED, PREFERRED, SESSION, SINGLE, WEIGHTED

# Selection reason → the words after "because".
REASONS = {
    PINNED: "the request names this provider",
    SINGLE: "no other provider can serve the request",
    FIRST: "it is the first provider that can serve the request",
    PREFERRED: "it served this project well before",
    SESSION: "it served earlier requests of the session",
    WEIGHTED: "it has the best score",
    EXPLORED: "a small share of requests tries other providers to measure them",
    LOW_UPTIME: "the named provider fails too often at present",
}


def describe_decision(decision: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return why the provider was chosen, and how many others there were; `names` are those of providers."""
    reason = REASONS.get(decision["selectionReason"], decision["selectionReason"])
    provider = decision["selectedProvider"]
    chosen = f"{names.get(provider, provider)} was chosen for {decision['selectedModel']}"
    if decision.get("noFallback"):
        others = "Fallback was switched off"
    else:
        providers = {key.partition("/")[0] for key in decision["order"]}
        others = _count(len(providers) - 1, "further provider", "further providers") + " could serve it"
    text = f"{chosen} because {reason}. {others}"
    if decision["excluded"]:
        text += ", and " + _count(len(decision["excluded"]), "was", "were") + " excluded"
    if decision.get("resting"):
        text += f". In cooldown: {', '.join(_provider_of(mapping['key'], names) for mapping in decision['resting'])}"
    return text + "."


def _provider_of(key: str, names: Mapping[str, str]) -> str:
    provider = key.partition("/")[0]
    return names.get(provider, provider)


def _count(number: int, singular: str, plural: str) -> str:
    if number == 1:
        return f"1 {singular}"
    return f"{number or 'No'} {plural}"
