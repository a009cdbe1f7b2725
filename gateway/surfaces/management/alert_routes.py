"""`/orgs/…/alerts`: the webhook addresses that receive alerts, and a test of each."""

from typing import Any

from marshmallow import fields, validate

from gateway.accounts.alert_hooks import EVENTS, FORMS, WEBHOOK, AlertHook
from gateway.accounts.throttle import ThrottleGate
from gateway.clock import to_iso
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed
from gateway.surfaces.validation_schemas import OneOf, StrictBody, TextField, read_body
from gateway.surfaces.visitor import Visitor

TAG = "Alerts"
TESTS, MINUTE_S = 10, 60  # a test calls an address that its organization chose


class NewHook(StrictBody):
    """`events`: an empty list means all. `form` is recognised by the address when it is absent; `url` of an e-mail
    address is mailto:name@example.com. PagerDuty needs `routingKey`, the integration key of an Events API v2
    integration."""

    url = TextField(1, 2000, required=True)
    events = fields.List(fields.String(), validate=validate.ContainsOnly(EVENTS), load_default=list)
    form = OneOf(FORMS, load_default="")
    routingKey = TextField(0, 64, load_default="")


def list_hooks(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The organization's webhook addresses. Those of the first organization receive alerts about the whole
    installation."""
    organization_id = visitor.managed_organization(inbound)
    found = visitor.services.telemetry.hooks.list_hooks(organization_id)
    return {"alerts": [show_hook(one) for one in found]}


def add(visitor: Visitor, inbound: Inbound) -> Outbound:
    """Add an address. The secret that signs webhooks is shown once; it is null for other forms."""
    given = read_body(NewHook, inbound)
    organization_id = visitor.managed_organization(inbound)
    made = visitor.services.telemetry.hooks.add(
        organization_id,
        given["url"],
        given["events"],
        form=given["form"],
        routing_key=given["routingKey"],
        actor=visitor.user_id,
    )
    if made.form == WEBHOOK:
        secret = made.secret
    else:
        secret = None
    return json_reply({"alert": {**show_hook(made), "secret": secret}}, inbound.shown_id, 201)


def remove(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """It receives no more alerts, and its secret is deleted."""
    organization_id = visitor.managed_organization(inbound)
    visitor.services.telemetry.hooks.remove(organization_id, inbound.params["hook_id"], actor=visitor.user_id)
    return {"message": "Address removed."}


def test(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Send a test to the address now, and return its response."""
    organization_id = visitor.managed_organization(inbound)
    visitor.services.management.throttle.take(ThrottleGate("tests of alerts", organization_id, TESTS, MINUTE_S))
    delivered, result = visitor.services.telemetry.alerts.test(organization_id, inbound.params["hook_id"])
    return {"delivered": delivered, "result": result}


def show_hook(hook: AlertHook) -> dict[str, Any]:
    return {
        "id": hook.id,
        "url": hook.url,
        "form": hook.form,
        "events": list(hook.events),
        "createdAt": to_iso(hook.created_at_us),
    }


HOOK = shapes.named("AlertAddress", id="string", url="string", form="string", events=["string"], createdAt="string")
PATH = "/orgs/<organization_id>/alerts"
NEW = shapes.shape(alert={"allOf": [HOOK, shapes.shape(secret="string?")]})

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", PATH, list_hooks, "List webhooks for alerts", tag=TAG, answer=shapes.shape(alerts=[HOOK])),
    managed("POST", PATH, add, "Add a webhook for alerts", tag=TAG, request=NewHook, answer=NEW, success=201),
    managed("DELETE", f"{PATH}/<hook_id>", remove, "Remove a webhook for alerts", tag=TAG, answer=shapes.DONE),
    managed("POST", f"{PATH}/<hook_id>/test", test, "Send a test alert", tag=TAG,
            answer=shapes.shape(delivered="boolean", result="string")),
)  # fmt: skip
