"""/v1/route/explain: where a request would go and why, and where a past one went."""

from gateway.services import Services
from gateway.surfaces import auth, replies
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.openai import chat

MANAGERS = ("owner", "admin")
KIND = "route.explanation"


def explain(services: Services, inbound: Inbound) -> Outbound:
    """The plan for a chat completions body: scores, order, and who was left out and why. Nobody is called and nothing
    is charged; a request that could not be served gets the error that it would get."""
    context = auth.admit(services, inbound, "chat")
    _, request = chat.read(services.settings.limits, inbound.body)
    body = {"object": KIND, **services.routing.planner.explain(context, request)}
    return replies.json_reply(body, context.shown_id)


def look_up(services: Services, inbound: Inbound) -> Outbound:
    """The decision and the attempts of a past request of this project, by its log id: for a developer of their own
    keys', for a customer key of its own. NotFound."""
    caller = auth.caller_of(services, inbound)
    log_id = inbound.params["log_id"]
    mine = {"key_id": caller.key_id} if caller.key_kind != "user" else {}
    if caller.role not in MANAGERS:
        mine["member_id"] = caller.member_id
    body = {"object": KIND, "log_id": log_id, **services.routing.decisions.find(caller.project_id, log_id, **mine)}
    return replies.json_reply(body, inbound.shown_id)


OPERATIONS = (
    Operation("POST", "/v1/route/explain", explain, body="json"),
    Operation("GET", "/v1/route/explain/<log_id>", look_up),
)
