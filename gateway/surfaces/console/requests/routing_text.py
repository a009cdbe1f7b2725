"""A routing decision in sentences."""

from collections.abc import Mapping
from typing import Any

from gateway.routing.plan import EXPLORED, FIRST, LOW_UPTIME, PINNED, PREFERRED, SESSION, SINGLE, WEIGHTED
from gateway.routing.record import key_of_score

# Selection reason → the words after "because".
REASONS = {
    PINNED: "the request names this provider",
    SINGLE: "no other provider of the model is ready to serve the request",
    FIRST: "it is the first provider that can serve the request",
    PREFERRED: "it served this project well before",
    SESSION: "it served earlier requests of the session",
    WEIGHTED: "it has the best score",
    EXPLORED: "a small share of requests tries other providers to measure them",
    LOW_UPTIME: "the named provider fails too often at present",
}


def describe_decision(decision: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return why the provider was chosen, and what else would have been tried; `names` are those of providers."""
    reason = REASONS.get(decision["selectionReason"], decision["selectionReason"])
    provider = decision["selectedProvider"]
    chosen = f"{names.get(provider, provider)} was chosen for {decision['selectedModel']}"
    others = "Fallback was switched off" if decision.get("noFallback") else _describe_others(decision)
    text = f"{chosen} because {reason}. {others}"
    if decision["excluded"]:
        text += ", and " + _count(len(decision["excluded"]), "was", "were") + " excluded"
    if decision.get("resting"):
        text += f". In cooldown: {', '.join(_provider_of(mapping['key'], names) for mapping in decision['resting'])}"
    return text + "."


def _describe_others(decision: Mapping[str, Any]) -> str:
    """Return how many other providers of the chosen model, and how many other models, would have been tried."""
    tried = {key_of_score(score): score for score in decision["providerScores"]}
    scores = [tried[key] for key in decision["order"] if key in tried]
    model, provider = decision["selectedModel"], decision["selectedProvider"]
    providers = {score["providerId"] for score in scores if score["modelId"] == model} - {provider}
    models = {score["modelId"] for score in scores} - {model}
    waiting = {_provider_key(resting["key"]) for resting in decision.get("resting", ())}
    ready = providers - waiting
    if decision["selectionReason"] == SINGLE and not ready:
        text = "Nothing else would have been tried" if not (providers or models) else ""
    else:
        text = _count(len(ready), "further provider", "further providers") + " could serve it"
    if providers & waiting:
        late = _count(len(providers & waiting), "provider in cooldown", "providers in cooldown")
        text = f"{text}, then {late}" if text else f"{late} would have been tried next"
    if models:
        more = _count(len(models), "further model", "further models")
        text = f"{text}, then {more}" if text else f"{more} would have been tried next"
    return text


def _provider_key(key: str) -> str:
    return key.partition("/")[0]


def _provider_of(key: str, names: Mapping[str, str]) -> str:
    provider = key.partition("/")[0]
    return names.get(provider, provider)


def _count(number: int, singular: str, plural: str) -> str:
    if number == 1:
        return f"1 {singular}"
    return f"{number or 'No'} {plural}"
