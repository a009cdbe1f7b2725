"""Facts about a response besides its content, the same in all dialects: the model that served it, its cost and its
routing."""

from typing import Annotated, NotRequired, TypedDict
from typing import Protocol as Interface

from msgspec import Meta

from gateway.billing.context import Adapt, Attempt, Outcome, RequestContext, RoutingAttempt
from gateway.callers.credential_sources import OWN_SOURCE
from gateway.catalogue.prices import Charge
from gateway.clock import SECOND_US, Clock
from gateway.dialects.field_names import reword
from gateway.errors import ATTEMPTS
from gateway.limits import rate_limits
from gateway.limits.cost_bound import LIMIT_HEADER
from gateway.money import MILLION, NANO, format_usd, usd_number
from gateway.neutral.request import SMART
from gateway.neutral.units import UNITS
from gateway.neutral.usage import NO_USAGE, Usage
from gateway.routes.choices import RouteChoiceAnswer, describe

Header = tuple[str, str]
OWN_PROVIDER = "custom:"  # prefix of the name of an organization's own provider, which is called without the prefix
# Members of `cost_details` besides those of text → the components of a charge that they sum.
TEXT_COSTS = ("input_cost", "output_cost", "cached_input_cost")
RARE_COSTS = {
    detail: {unit.component for unit in UNITS if unit.detail == detail}
    for detail in {unit.detail: None for unit in UNITS if unit.detail not in ("", *TEXT_COSTS)}
}
ALWAYS_DETAILED = [unit.detail for unit in UNITS if unit.always_detailed and unit.detail in RARE_COSTS]
NO_RARE_COSTS = dict.fromkeys((*ALWAYS_DETAILED, "data_storage_cost"), 0.0)
HEADER_LENGTH = 2000  # servers and proxies reject response headers beyond some kilobytes
CostDetails = Annotated[dict[str, float], Meta(title="CostDetails")]

OF_SERVING = ("x-llmgateway-provider", "x-llmgateway-model", "x-llmgateway-smart-model", ATTEMPTS)


class AnswerCost(TypedDict):
    """The cost of a request in US dollars, in all and by its parts. With a provider key of the organization (`is_byok`)
    nothing is charged here: `cost` is 0, and `upstream_inference_cost` is what the provider charges. Clients that know
    the meaning of the three members add both then, and count `cost` alone otherwise."""

    cost: float
    is_byok: bool
    cost_details: CostDetails


class RoutingMetadata(TypedDict):
    """The requested model, the one that served, and the routing."""

    request_id: str
    requested_model: str
    requested_provider: str | None
    used_model: str
    used_provider: str
    underlying_used_model: str
    log_id: str
    organization_id: str
    project_id: str
    routing: list[RoutingAttempt]
    used_region: NotRequired[str]
    discount: NotRequired[float]
    cached: NotRequired[bool]
    requested_service_tier: NotRequired[str]
    used_service_tier: NotRequired[str | None]
    healing: NotRequired[list[str]]
    warnings: NotRequired[list[str]]
    route: NotRequired[RouteChoiceAnswer]


class AnswerFacts(Interface):
    """The facts that a writer needs besides the content. `answer_id` is the id in the writer's format, `created`
    seconds since the epoch. The rest is available once the upstream's response was read to its end and the request is
    settled. `service_tier` is the tier that served, or "". `adapt` changes an answer for clients that
    expect other members than most.
    """

    answer_id: str
    created: int
    adapt: Adapt | None

    @property
    def usage(self) -> Usage: ...

    @property
    def service_tier(self) -> str: ...

    def cost(self) -> AnswerCost:
        """Return `cost` and `cost_details` of the usage object."""
        ...

    def metadata(self) -> RoutingMetadata:
        """Return the `metadata` object."""
        ...


class Facts:
    """The facts about one request. `usage`, `charge` and the attempts are known once its last attempt is settled.
    `answer_id` is the response id in its dialect, e.g. "chatcmpl-…"."""

    def __init__(self, context: RequestContext, outcome: Outcome, answer_id: str) -> None:
        self.context = context
        self.outcome = outcome
        # A replayed response keeps its first id.
        if outcome.origin:
            self.answer_id = answer_id.replace(context.request_id, outcome.origin)
        else:
            self.answer_id = answer_id
        self.created = context.at_us // SECOND_US
        self.adapt = context.adapt

    # Called several times for each response, so these read `attempts[-1]` directly.
    @property
    def serving(self) -> Attempt:
        return self.outcome.attempts[-1]

    @property
    def served(self) -> str:
        """Return the model that served, as the response's `model`: provider/model, with :region when one was chosen.
        Callers can send it in a new request."""
        return self.outcome.attempts[-1].target.mapping.key.removeprefix(OWN_PROVIDER)

    @property
    def requested_model(self) -> str:
        """Return the model exactly as the caller wrote it: of several models the one that served. A route keeps its
        name, whichever model it chose: agents drop what they take for the thoughts of another model."""
        outcome = self.outcome
        if outcome.names and self.context.route is None:
            return outcome.names.get(outcome.serving.target.mapping.key, outcome.request.requested_model)
        return outcome.request.requested_model

    @property
    def hides_reasoning(self) -> bool:
        """Return whether the caller requested a response without reasoning."""
        return self.outcome.request.options.hides_reasoning

    @property
    def warnings(self) -> list[str]:
        """Return warnings about fields that had no effect, with the field names of the caller's dialect."""
        surface = self.context.surface
        return [reword(surface, text) for text in dict.fromkeys(self.outcome.warnings)]

    @property
    def usage(self) -> Usage:
        return self.outcome.attempts[-1].usage or NO_USAGE

    @property
    def charge(self) -> Charge:
        return self.outcome.attempts[-1].charge

    @property
    def service_tier(self) -> str:
        return self.outcome.attempts[-1].service_tier

    def cost(self) -> AnswerCost:
        """Return `cost`, `is_byok` and `cost_details` of the usage object, in US dollars."""
        attempt = self.outcome.attempts[-1]
        charge = attempt.charge
        # Six values in each response, so they are divided here in the same way as in `usd_number`.
        prompt_nusd = charge.input + charge.cached_input
        output_nusd = charge.output + charge.reasoning
        inference_nusd = prompt_nusd + output_nusd
        total_nusd = charge.total
        output = output_nusd / NANO
        total = total_nusd / NANO
        details = {
            "upstream_inference_cost": inference_nusd / NANO,
            "upstream_inference_prompt_cost": prompt_nusd / NANO,
            "upstream_inference_completions_cost": output,
            "total_cost": total,
            "input_cost": charge.input / NANO,
            "output_cost": output,
            "cached_input_cost": charge.cached_input / NANO,
            # Most requests have none of these.
            **NO_RARE_COSTS,
        }
        if total_nusd != inference_nusd:
            details.update(_rare_costs(charge))
        if self.context.payload is not None and self.context.payload.stored:
            details["data_storage_cost"] = self.context.payload.fee_nusd / NANO
        if attempt.target.credential.source == OWN_SOURCE:
            details["upstream_inference_cost"] = total
            return {"cost": 0.0, "is_byok": True, "cost_details": details}
        return {"cost": total, "is_byok": False, "cost_details": details}

    def metadata(self) -> RoutingMetadata:
        """Return the `metadata` object: the requested model, the one that served, and the routing."""
        context = self.context
        outcome = self.outcome
        request = outcome.request
        caller = context.caller
        attempt = outcome.attempts[-1]
        target = attempt.target
        mapping = target.mapping
        body: RoutingMetadata = {
            "request_id": context.label or context.request_id,
            "requested_model": request.requested_model,
            "requested_provider": outcome.requested_provider,
            "used_model": mapping.model,
            "used_provider": target.provider.id,
            "underlying_used_model": mapping.external_id,
            "log_id": context.request_id,
            "organization_id": caller.organization_id,
            "project_id": caller.project_id,
            "routing": outcome.trail(),
        }
        if mapping.region:
            body["used_region"] = mapping.region
        if attempt.charge.discount_ppm:
            body["discount"] = attempt.charge.discount_ppm / MILLION
        if outcome.cached:
            body["cached"] = True
        requested_tier = request.options.service_tier
        if requested_tier:
            body["requested_service_tier"] = requested_tier
            body["used_service_tier"] = self.service_tier or None
        if outcome.healing:
            body["healing"] = list(outcome.healing)
        if outcome.warnings:
            body["warnings"] = self.warnings
        if context.route is not None:
            body["route"] = describe(context.route)
        return body


def _rare_costs(charge: Charge) -> dict[str, float]:
    """Return the members of `cost_details` that most requests do not have and that are not 0."""
    amounts = {detail: sum(getattr(charge, name) for name in names) for detail, names in RARE_COSTS.items()}
    return {detail: usd_number(nusd) for detail, nusd in amounts.items() if nusd}


def _as_header(warnings: list[str]) -> str:
    """Return warnings as one line of printable ASCII, since they contain names from the caller."""
    text = "; ".join(warnings)[:HEADER_LENGTH].encode("ascii", "replace").decode()
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _notes(facts: Facts, model: str) -> list[Header]:
    """Return the headers that tell of the model that served, of limits and of a route; `model` is its id."""
    context = facts.context
    headers = [("x-llmgateway-model", facts.served)]
    route = context.route
    if route is not None:
        headers.append(("x-llmgateway-route", _as_header([route.label])))
        if route.name == SMART:
            headers.append(("x-llmgateway-smart-model", model))
    if context.limit_note:
        headers.append((LIMIT_HEADER, context.limit_note))
    return headers


def headers_of(facts: Facts, clock: Clock, *, streamed: bool) -> list[Header]:
    """Return the `x-llmgateway-*` headers. The cost of a stream is not known when its headers leave; its last chunk has
    it."""
    headers = headers_before_record(facts, clock, streamed=streamed)
    if not streamed:
        headers.append(overhead_header(facts, clock))
    return headers


def headers_before_record(facts: Facts, clock: Clock, *, streamed: bool = False) -> list[Header]:
    """Return the headers of `headers_of` except the overhead, which includes the wait for the request's record."""
    outcome = facts.outcome
    attempts = outcome.attempts
    target = attempts[-1].target
    headers = [("x-llmgateway-provider", target.provider.id), (ATTEMPTS, str(len(attempts)))]
    if outcome.cached:
        headers.append(("x-llmgateway-cache", "HIT"))
    if outcome.warnings:
        headers.append(("x-llmgateway-warnings", _as_header(facts.warnings)))
    if facts.context.noted or outcome.warnings:  # a warning may tell that another model served
        headers += _notes(facts, target.mapping.model)
    if outcome.rate_limits:
        headers += rate_limits.headers(outcome.rate_limits, clock.now_us())
    if streamed:
        if attempts[-1].first_at or attempts[-1].ended:
            return headers
        # Headers that go out with a heartbeat cannot name the provider: another one may still serve.
        return [header for header in headers if header[0] not in OF_SERVING]
    headers.append(("x-llmgateway-cost", format_usd(attempts[-1].charge.total)))
    if target.mapping.price_version:
        headers.append(("x-llmgateway-price-version", target.mapping.price_version))
    return headers


def overhead_header(facts: Facts, clock: Clock) -> Header:
    """Return the header with the time that the gateway itself took, and note it for the metrics."""
    own_s = clock.monotonic() - facts.context.started
    attempts = facts.outcome.attempts
    if len(attempts) > 1:
        own_s -= facts.outcome.provider_s
    else:
        own_s -= attempts[0].ended - attempts[0].started
    facts.context.own_s = own_s
    return "x-llmgateway-overhead-ms", f"{own_s * 1000 if own_s > 0 else 0.0:.1f}"
