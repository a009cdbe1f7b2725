"""`/orgs/…/alerts`: the webhook addresses that receive alerts, and a test of each."""

from marshmallow import fields, validate

from gateway.accounts.alert_hooks import EVENTS, FORMS, WEBHOOK
from gateway.callers.throttle import ThrottleGate
from gateway.surfaces.management.access_groups import in_organization
from gateway.surfaces.management.answers import AlertAddressAnswer, AlertTestAnswer, NewAlertAddressAnswer
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import OneOf, StrictBody, TextField, describe_field
from gateway.surfaces.web.http import Operation

TAG = "Alerts"
TESTS = 10  # a minute, because a test calls an address that its organization chose
MINUTE_S = 60


class NewHook(StrictBody):
    """`events`: an empty list means all. `form` is recognised by the address when it is absent; `url` of an e-mail
    address is mailto:name@example.com. PagerDuty needs `routingKey`, the integration key of an Events API v2
    integration."""

    url = TextField(1, 2000, required=True)
    events = fields.List(
        fields.String(),
        validate=validate.ContainsOnly(EVENTS),
        load_default=list,
        metadata=describe_field("Events that are sent; default: all."),
    )
    form = OneOf(FORMS, load_default="", about="Message format; default: recognised by the address.")
    routingKey = TextField(0, 64, load_default="", about="PagerDuty's integration key; - reads it from standard input.")
    team = TextField(
        0, 40, load_default="", about="Only alerts about this team, its members and their keys; default: all alerts."
    )


def list_hooks(call: ManagedCall[str]) -> list[AlertAddressAnswer]:
    """The organization's webhook addresses. Those of the first organization receive alerts about the whole
    installation."""
    return [AlertAddressAnswer.of(hook) for hook in call.services.telemetry.hooks.list_hooks(call.subject)]


def add(call: ManagedCall[str]) -> NewAlertAddressAnswer:
    """Add an address. The secret that signs webhooks is shown once; it is null for other forms."""
    fields = call.fields
    hook = call.services.telemetry.hooks.add(
        call.subject,
        fields["url"],
        fields["events"],
        form=fields["form"],
        routing_key=fields["routingKey"],
        team=fields["team"],
        actor=call.actor,
    )
    return NewAlertAddressAnswer.of(hook, secret=hook.secret if hook.form == WEBHOOK else None)


def remove(call: ManagedCall[str]) -> None:
    """The webhook receives no more alerts, and its secret is deleted."""
    call.services.telemetry.hooks.remove(call.subject, call.params["hook_id"], actor=call.actor)


def test(call: ManagedCall[str]) -> AlertTestAnswer:
    """Send a test to the address now, and return its response."""
    call.management.throttle.take(ThrottleGate("tests of alerts", call.subject, TESTS, MINUTE_S))
    delivered, result = call.services.telemetry.alerts.test(call.subject, call.params["hook_id"])
    return AlertTestAnswer(delivered, result)


PATH = "/orgs/<organization_id>/alerts"
HOOK = f"{PATH}/<hook_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", PATH, list_hooks, "List webhooks for alerts", tag=TAG,
            who=in_organization("alerts:read"), scope="settings:read",
            inside="alerts", commands=("alerts list",)),
    managed("POST", PATH, add, "Add a webhook for alerts", tag=TAG,
            who=in_organization("alerts:write"), scope="settings:write", request=NewHook,
            inside="alert", success=201, audit="alert_hook.create",
            commands=("alerts add <url> --event=events --form=form --routing-key=routingKey --team=team "
                      "-> id form secret",)),
    managed("DELETE", HOOK, remove, "Remove a webhook for alerts", tag=TAG,
            who=in_organization("alerts:write"), scope="settings:write", message="Address removed.",
            audit="alert_hook.delete", commands=("alerts remove <hook_id>",)),
    managed("POST", f"{HOOK}/test", test, "Send a test alert", tag=TAG,
            who=in_organization("alerts:write"), scope="settings:write",
            commands=("alerts test <hook_id> -> result ?delivered",)),
)  # fmt: skip
