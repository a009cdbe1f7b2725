"""Plans of requests with several models: the plans of the models one after the other."""

from collections.abc import Callable, Iterable

from gateway.errors import (
    Forbidden,
    GatewayError,
    InvalidRequest,
    NoProviderLeft,
    NotFound,
)
from gateway.routing.decision import Plan
from gateway.routing.score import Scored

# Errors of a model that another model of the list need not have.
NEXT_MODEL_ERRORS = (InvalidRequest, NotFound, Forbidden, NoProviderLeft)


def list_models(first: str, others: Iterable[str]) -> tuple[str, ...]:
    """Return the models of a request in the order in which they are tried, each once."""
    return tuple(dict.fromkeys((first, *others)))


def other_models(plan: Plan) -> tuple[str, ...]:
    """Return the names and ids of the models that a plan tries, besides those of the first one."""
    names = {name for part in plan.parts[1:] for name in (part.request.requested_model, part.first.candidate.model.id)}
    known = {plan.request.requested_model, plan.first.candidate.model.id}
    return tuple(sorted(names - known))


def plan_list(models: tuple[str, ...], plan: Callable[[str], Plan]) -> Plan:
    """Return the plan that tries the models in order. A model without a plan is skipped with a warning.

    Raise the error of the first model when none has a plan.
    """
    parts: list[Plan] = []
    skipped: list[tuple[str, str]] = []
    refusal: GatewayError | None = None
    for model in models:
        try:
            parts.append(plan(model))
        except NEXT_MODEL_ERRORS as error:
            refusal = refusal or error
            skipped.append((model, error.message))
    if parts:
        return _join(models[0], parts, skipped)
    if refusal is None:
        raise InvalidRequest("The list of models is empty.", param="models")
    raise refusal


def _join(requested_model: str, parts: list[Plan], skipped: list[tuple[str, str]]) -> Plan:
    """Return one plan of several. As with the providers of one model, candidates in cooldown come last."""
    first = parts[0]
    cooling = {key: state for part in parts for key, state in part.cooling.items()}
    known: dict[str, Scored] = {}
    for part in parts:
        for scored in part.order:
            known.setdefault(scored.key, scored)
    late = {key for key in known if key in cooling and cooling[key].whole}
    order = tuple(sorted(known.values(), key=lambda scored: scored.key in late))
    if first.request.no_fallback:
        order = first.order[:1]
    warnings = [f"The model {model} was skipped: {reason}" for model, reason in skipped]
    warnings += [warning for part in parts for warning in part.request.ignored]
    joined = first._replace(
        request=first.request._replace(requested_model=requested_model, ignored=tuple(dict.fromkeys(warnings))),
        order=order,
        ranked=[scored for part in parts for scored in part.ranked],
        excluded=[excluded for part in parts for excluded in part.excluded],
        waived=order[0].entry.lacking,
        cooling=cooling,
        parts=tuple(parts),
        skipped=tuple(skipped),
    )
    return joined._replace(reason=joined.part_of(order[0].key).reason)
