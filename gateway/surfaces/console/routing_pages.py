"""`/console/routing`: explains the routing of a request, under each strategy and under other weights."""

from collections.abc import Mapping
from typing import Any

import orjson
from msgspec.structs import replace

from gateway.callers.authentication import Caller
from gateway.errors import GatewayError, InvalidRequest
from gateway.money import read_decimal
from gateway.routing.plan import EXPLORED, FIRST, LOW_UPTIME, PINNED, PREFERRED, SESSION, SINGLE, WEIGHTED
from gateway.routing.record import RoutingDecision, key_of_score
from gateway.routing.score import Weights
from gateway.surfaces.console.organization_choice import FIELD, find_caller, read_choices
from gateway.surfaces.console.page_calls import PageAction, PageCall, page_operations
from gateway.surfaces.openai.explain import explain_for
from gateway.surfaces.web.http import Inbound, Operation, Outbound

# A routing decision in sentences.

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


TITLE = "Routing"
PATH = "/console/routing"
MAX_NUMBER_LENGTH = 12
STRATEGIES = {"auto": "Automatic", "price": "Price", "throughput": "Throughput", "latency": "Latency"}
STAGES = {
    "catalogue": "Catalogue",
    "operation": "Operation",
    "choice": "Your choice",
    "access": "Access rules",
    "ability": "Capabilities",
    "credential": "Keys",
    "rest": "Cooldown",
    "budget": "Budget",
    "payment": "Payment",
}
WEIGHTS = {"price": "Price", "uptime": "Uptime", "throughput": "Throughput", "latency": "Latency"}
TOOL = {"type": "function", "function": {"name": "example"}}
EMPTY = {"model": "", "prompt": "Hello!", "routing": "auto", "models": "", "max_tokens": "", "stream": "yes"}


def show(call: PageCall) -> Outbound:
    """Show the form; with a model in the query, also its explanation."""
    model = call.arguments.get("model", "")
    if model and not call.error:
        return _show(call, {**EMPTY, "model": model, FIELD: call.arguments.get(FIELD, "")})
    return _show(call, {**EMPTY, **call.form})


def _explain(call: PageCall) -> Outbound:
    return _show(call, {**EMPTY, "stream": "", **call.form})


def _show(call: PageCall, form: dict[str, str]) -> Outbound:
    choices = read_choices(call.visitor, form.get(FIELD, ""))
    caller = find_caller(call.visitor, choices)
    explanation = None
    if form["model"] and caller is not None and call.error is None:
        explanation = _explain_all(call, form, caller)
    return call.page(
        "routing/routing.html",
        TITLE,
        path=PATH,
        field=FIELD,
        choices=choices,
        form=_Form(form),
        strategies=STRATEGIES.items(),
        weights=WEIGHTS,
        names=sorted(call.services.routing.catalogue.current().models),
        explanation=explanation,
    )


class _Form:
    """The fields of the form, "" for a missing one."""

    def __init__(self, form: dict[str, str]) -> None:
        self._form = form

    def __getitem__(self, name: str) -> str:
        return self._form.get(name, "")


def _explain_all(call: PageCall, form: dict[str, str], caller: Caller) -> dict[str, Any]:
    """Return the decision for the form's strategy, and the orders of the others. A request that would be refused gets
    its error."""
    body = _write_body(form)
    names = {provider.id: provider.name for provider in call.services.routing.catalogue.current().providers.values()}
    inbound = call.inbound
    try:
        decision = _decide(call, inbound, caller, body)
        weights = _read_weights(form)
        orders = [
            (label, _decide(call, inbound, caller, {**body, "routing": strategy}))
            for strategy, label in STRATEGIES.items()
        ]
        if weights is not None:
            orders.append(("Your weights", _decide(call, inbound, caller, body, weights)))
    except GatewayError as error:
        if error.blame != "caller" and error.status < 500:
            raise
        return {"refusal": error.message, "code": error.code, "status": error.status}
    resting = {mapping["key"]: mapping["reason"] for mapping in decision.get("resting", ())}
    scores = {key_of_score(score): score for score in decision["providerScores"]}
    rows = [{**scores[key], "key": key, "resting": resting.get(key, "")} for key in decision["order"]]
    return {
        "refusal": "",
        "names": names,
        "reason": REASONS.get(decision["selectionReason"], decision["selectionReason"]),
        "rows": rows,
        "excluded": [(STAGES[mapping["stage"]], mapping) for mapping in decision["excluded"]],
        "orders": [
            {
                "label": label,
                "weights": [(WEIGHTS[name], f"{share:.0%}") for name, share in entry["weights"].items() if share],
                "order": entry["order"],
                "scores": {key_of_score(score): score["score"] for score in entry["providerScores"]},
            }
            for label, entry in orders
        ],
        "body": orjson.dumps(body, option=orjson.OPT_INDENT_2).decode(),
    }


def _decide(
    call: PageCall, inbound: Inbound, caller: Caller, body: dict[str, Any], weights: Weights | None = None
) -> RoutingDecision:
    # The explained request is separate, so that this page is not counted as a call of a model.
    asked = replace(inbound, body=orjson.dumps(body), context=None, payload=None)
    return explain_for(call.services, asked, caller, weights)


def _write_body(form: dict[str, str]) -> dict[str, Any]:
    """Return the chat completions body that the form describes. Raises InvalidRequest."""
    body: dict[str, Any] = {
        "model": form["model"].strip(),
        "messages": [{"role": "user", "content": form["prompt"] or "Hello!"}],
        "routing": form["routing"],
    }
    if form["stream"]:
        body["stream"] = True
    if form.get("tools"):
        body["tools"] = [TOOL]
    if form["max_tokens"].strip():
        text = form["max_tokens"].strip()
        if not (text.isascii() and text.isdigit()):
            raise InvalidRequest("Give the max output as a number of tokens.", param="max_tokens")
        body["max_tokens"] = int(text[:MAX_NUMBER_LENGTH])
    models = [name for name in form["models"].replace(",", " ").split() if name]
    if models:
        body["models"] = models
    return body


def _read_weights(form: dict[str, str]) -> Weights | None:
    """Return the weights of the form; None without any. Raises InvalidRequest."""
    texts = {name: form.get(f"weight-{name}", "").strip() for name in WEIGHTS}
    if not any(texts.values()):
        return None
    try:
        values = Weights(*(float(read_decimal(texts[name][:MAX_NUMBER_LENGTH] or "0")) for name in WEIGHTS))
    except ValueError:
        raise InvalidRequest("Give weights as numbers, such as 60.") from None
    if min(values) < 0 or not sum(values):
        raise InvalidRequest("Give weights that are not negative, and at least one above zero.")
    return values.normalised()


ACTIONS: dict[str, PageAction] = {"explain": _explain}
OPERATIONS: tuple[Operation, ...] = page_operations(PATH, show, ACTIONS)
