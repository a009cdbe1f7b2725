"""`/console/routing`: explains the routing of a request, under each strategy and under other weights."""

from typing import Any

import orjson
from msgspec.structs import replace

from gateway.callers.authentication import Caller
from gateway.errors import GatewayError, InvalidRequest
from gateway.money import read_decimal
from gateway.routing.record import RoutingDecision, key_of_score
from gateway.routing.score import Weights
from gateway.surfaces.console.organization_choice import FIELD, find_caller, read_choices
from gateway.surfaces.console.page_calls import PageAction, PageCall, page_operations
from gateway.surfaces.console.requests.routing_text import REASONS
from gateway.surfaces.openai.explain import explain_for
from gateway.surfaces.web.http import Inbound, Operation, Outbound

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
