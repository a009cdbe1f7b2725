"""`/connect/alerts`: the webhook addresses that receive alerts, with a button to test each."""

from gateway.accounts import organizations
from gateway.accounts.alert_hooks import FORMS, WEBHOOK
from gateway.errors import GatewayError
from gateway.surfaces.console.pages import page
from gateway.surfaces.console.visits import as_page, make_csrf, pressed, require_visitor, submitted_by_visitor
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.visitor import MANAGERS, Visitor
from gateway.worker.services import Services

TITLE = "Alerts"
PATH = "/connect/alerts"
FORM = "alerts"


def show(services: Services, inbound: Inbound) -> Outbound:
    """The addresses of every organization that the visitor manages."""
    return _page(services, inbound, require_visitor(services, inbound, PATH))


def act(services: Services, inbound: Inbound) -> Outbound:
    """What the buttons of the page do."""
    visitor, given = submitted_by_visitor(services, inbound, PATH, lambda _: FORM)
    step = pressed({"add": _add, "test": _test, "remove": _remove}, given)
    try:
        visitor.manager(given.get("organization", "")[:80])
        message = step(services, visitor, given)
    except GatewayError as error:
        if error.blame != "caller":
            raise
        return _page(services, inbound, visitor, error=error)
    return _page(services, inbound, visitor, message)


def _add(services: Services, visitor: Visitor, given: dict[str, str]) -> str:
    made = services.telemetry.hooks.add(
        given["organization"],
        given.get("url", ""),
        form=given.get("form", ""),
        routing_key=given.get("routing_key", "").strip(),
        actor=visitor.user_id,
    )
    if made.form != WEBHOOK:
        return f"Alerts are sent to the address from now on, written for: {made.form}."
    return f"The address is told from now on. Save its secret, it is not shown again: {made.secret}"


def _test(services: Services, visitor: Visitor, given: dict[str, str]) -> str:
    delivered, result = services.telemetry.alerts.test(given["organization"], given.get("hook", "")[:80])
    if delivered:
        return "The test was taken."
    return f"The test was not taken: {result}"


def _remove(services: Services, visitor: Visitor, given: dict[str, str]) -> str:
    services.telemetry.hooks.remove(given["organization"], given.get("hook", "")[:80], actor=visitor.user_id)
    return "The address is removed."


def _page(
    services: Services, inbound: Inbound, visitor: Visitor, message: str = "", error: GatewayError | None = None
) -> Outbound:
    managed = []
    for one in organizations.list_organizations(services.store.database, visitor.user_id):
        if visitor.member(one.id).role in MANAGERS:
            hooks = services.telemetry.hooks.list_hooks(one.id)
            shown = [
                {"id": hook.id, "url": hook.url, "form": hook.form, "events": ", ".join(hook.events) or "all"}
                for hook in hooks
            ]
            managed.append({"id": one.id, "name": one.name, "hooks": shown})
    return page(
        inbound,
        "alerts.html",
        TITLE,
        error=error,
        said=message,
        csrf=make_csrf(services, visitor, FORM),
        organizations=managed,
        forms=FORMS,
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", PATH, as_page(show)),
    Operation("POST", PATH, as_page(act), body="form"),
)
