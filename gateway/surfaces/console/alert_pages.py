"""`/console/alerts`: the webhooks that receive alerts, with a button to test each."""

from collections.abc import Mapping

from gateway.accounts.alert_hooks import DISCORD, EMAIL, FORMS, MAILTO, PAGERDUTY, SLACK, TEAMS, WEBHOOK, AlertHook
from gateway.accounts.teams import list_teams
from gateway.errors import GatewayError, InvalidRequest
from gateway.surfaces.console.page_calls import ManagementCall
from gateway.surfaces.console.pages import page
from gateway.surfaces.console.visits import as_page, make_csrf, pressed, require_visitor, submitted_by_visitor
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

TITLE = "Alerts"
PATH = "/console/alerts"
FORM_NAME = "alerts"
TEST = ManagementCall("POST /orgs/<organization_id>/alerts/<hook_id>/test")
FORM_NAMES = {
    WEBHOOK: "Signed JSON",
    SLACK: "Slack",
    TEAMS: "Microsoft Teams",
    DISCORD: "Discord",
    PAGERDUTY: "PagerDuty",
    EMAIL: "E-mail",
}


def show(services: Services, inbound: Inbound) -> Outbound:
    """Show the webhooks of every organization that the visitor manages."""
    return _page(services, inbound, require_visitor(services, inbound, PATH))


def act(services: Services, inbound: Inbound) -> Outbound:
    """Run the action of the button that was pressed."""
    visitor, form = submitted_by_visitor(services, inbound, PATH, FORM_NAME)
    action = pressed({"add": _add, "test": _test, "remove": _remove}, form)
    try:
        visitor.permitted(form.get("organization", "")[:80], "alerts:write")
        message = action(visitor, inbound, form)
    except GatewayError as error:
        if error.blame != "caller":
            raise
        return _page(services, inbound, visitor, error=error)
    return _page(services, inbound, visitor, message)


def _add(visitor: Visitor, inbound: Inbound, form: dict[str, str]) -> str:
    hook = visitor.services.telemetry.hooks.add(
        form["organization"],
        _read_address(form.get("url", "")),
        form=form.get("form", ""),
        routing_key=form.get("routing_key", "").strip(),
        team=form.get("team", "")[:80],
        actor=visitor.user_id,
    )
    if hook.form == EMAIL:
        return "The address was added. Alerts are sent to it by e-mail."
    if hook.form != WEBHOOK:
        return f"The webhook was added. Alerts are sent in the format of {FORM_NAMES[hook.form]}."
    return f"The webhook was added. Save its secret; it is not shown again: {hook.secret}"


def _read_address(text: str) -> str:
    """Return a plain e-mail address as a mailto: URL, and other addresses as they are."""
    text = text.strip()
    if "@" in text and ":" not in text:
        return MAILTO + text
    return text


def _test(visitor: Visitor, inbound: Inbound, form: dict[str, str]) -> str:
    answer = TEST.run(visitor, inbound, organization_id=form["organization"], hook_id=form.get("hook", "")[:80])
    if answer["delivered"]:
        return "The test alert was delivered."
    raise InvalidRequest(f"The test alert could not be delivered: {answer['result']}")


def _remove(visitor: Visitor, inbound: Inbound, form: dict[str, str]) -> str:
    visitor.services.telemetry.hooks.remove(form["organization"], form.get("hook", "")[:80], actor=visitor.user_id)
    return "The webhook was removed."


def _page(
    services: Services, inbound: Inbound, visitor: Visitor, message: str = "", error: GatewayError | None = None
) -> Outbound:
    managed = []
    for organization in visitor.organizations():
        if visitor.manages("alerts:read", organization.id):
            hooks = services.telemetry.hooks.list_hooks(organization.id)
            teams = {team.id: team.name for team in list_teams(services.store.database, organization.id)}
            shown = [_show_hook(hook, teams) for hook in hooks]
            managed.append({"id": organization.id, "name": organization.name, "hooks": shown, "teams": teams})
    return page(
        inbound,
        "alerts.html",
        TITLE,
        error=error,
        visitor=visitor,
        message=message,
        csrf=make_csrf(services, visitor, FORM_NAME),
        organizations=managed,
        forms=[(form, FORM_NAMES[form]) for form in FORMS],
    )


def _show_hook(hook: AlertHook, teams: Mapping[str, str]) -> dict[str, str]:
    events = ", ".join(hook.events) or "all events"
    if hook.team:
        events = f"{events} of the team {teams.get(hook.team, hook.team)}"
    return {"id": hook.id, "url": hook.url, "form": FORM_NAMES[hook.form], "events": events}


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", PATH, as_page(show)),
    Operation("POST", PATH, as_page(act), body="form"),
)
