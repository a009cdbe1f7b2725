"""/v1/route/explain: where a request would be routed and why, and where a past one was."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from gateway.billing.context import RequestContext
from gateway.callers.authentication import Caller
from gateway.callers.permissions import reach_of
from gateway.configuration.settings import LimitSettings
from gateway.engine.routing_decisions import AttemptRecord
from gateway.errors import NotSupported
from gateway.neutral.chat import ChatRequest
from gateway.neutral.request import Request
from gateway.routing.record import RoutingDecision
from gateway.routing.score import Weights
from gateway.surfaces.bodies.validation_errors import invalid
from gateway.surfaces.openai import chat, chat_images, chat_schema, embeddings
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.worker.services import Services

READERS: dict[str, Callable[[LimitSettings, bytes], tuple[Any, Request]]] = {
    "chat": chat.read_body,
    "embeddings": lambda limits, raw: caps_module.read(limits, raw, embeddings.read_embeddings, raw, limits),
}


class PlanExplanation(RoutingDecision):
    object: Literal["route.explanation"]


class RouteExplanation(PlanExplanation):
    """A past decision, with the attempts that followed."""

    log_id: str
    attempts: list[AttemptRecord]


def explain(services: Services, inbound: Inbound) -> Outbound:
    """Show the routing plan for a chat completions body (with `?operation=embeddings` an embeddings body): scores,
    order, and which candidates were excluded and why. No provider is called and nothing is charged; a request that
    could not be served gets its error."""
    operation = inbound.arguments().get("operation", "chat")
    read = READERS.get(operation)
    if read is None:
        raise invalid("operation", f"expected one of {', '.join(READERS)}")
    context = auth_module.admit(services, inbound, operation)
    body, request = read(services.settings.limits, inbound.body)
    if isinstance(request, ChatRequest):
        decision = _explain_chat(services, inbound, context, body, request)
    else:
        decision = services.routing.planner.explain(context, request)
    explanation: PlanExplanation = {"object": "route.explanation", **decision}
    return http_responses_module.json_reply(explanation, context.shown_id)


def explain_for(
    services: Services, inbound: Inbound, caller: Caller, weights: Weights | None = None
) -> RoutingDecision:
    """Return the routing plan of a chat completions body for `caller`, without retained payloads. `weights`
    replace those of the strategy. Raises the errors of `explain`."""
    context = auth_module.context_of(services, inbound, replace(caller, retention="none"), "chat")
    body, request = chat.read_body(services.settings.limits, inbound.body)
    return _explain_chat(services, inbound, context, body, request, weights)


def _explain_chat(
    services: Services,
    inbound: Inbound,
    context: RequestContext,
    body: chat_schema.ChatBody,
    request: ChatRequest,
    weights: Weights | None = None,
) -> RoutingDecision:
    """Return the plan of a chat completion, which an image model answers with images."""
    engine = services.engine.chat
    try:
        return engine.explain(context, request, weights)
    except NotSupported as refusal:
        if not chat_images.makes_images(refusal):
            raise
    return services.routing.planner.explain(
        context, chat_images.read(services, inbound, context, body, request), weights
    )


def look_up(services: Services, inbound: Inbound) -> Outbound:
    """Show the routing decision and the attempts of a past request of this project, by its log id. Developers see
    requests of their own keys, a customer key only its own."""
    caller = auth_module.caller_of(services, inbound)
    log_id = inbound.params["log_id"]
    mine = {"key_id": caller.key_id} if caller.key_kind != "user" else {}
    if reach_of(caller.role, "logs:read") != "all":
        mine["member_id"] = caller.member_id
    found = services.routing.decisions.find(caller.project_id, log_id, **mine)
    body: RouteExplanation = {"object": "route.explanation", "log_id": log_id, **found}
    return http_responses_module.json_reply(body, inbound.shown_id)


PLAN = About("Explain where a request would be routed", request=chat_schema.ChatBody, answer=PlanExplanation)
PAST = About("Explain where a past request was routed", answer=RouteExplanation)

OPERATIONS = (
    Operation("POST", "/v1/route/explain", explain, body="json", about=PLAN),
    Operation("GET", "/v1/route/explain/<log_id>", look_up, about=PAST),
)
