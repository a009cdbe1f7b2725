"""The bell of each page: `/console/notices` lists the alerts of the last week, and its count is those that the person
has not seen."""

from collections.abc import Iterable
from typing import Any

from msgspec import to_builtins

from gateway.clock import DAY_US
from gateway.errors import GatewayError
from gateway.surfaces.console.kept_choices import COOKIE_S
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.console.pages import HTML, SAFE, templates
from gateway.surfaces.console.visits import as_page, require_visitor
from gateway.surfaces.visitors.visitor import Visitor, read_cookie, write_cookie
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.telemetry.alert_history import PastAlert
from gateway.worker.services import Services

TITLE = "Recent alerts"
PATH = "/console/notices"
COUNT = f"{PATH}/count"
SEEN_COOKIE = "llmgateway.seen_alerts"  # when the person last opened the list, in microseconds
DAYS = 7
MAX_SHOWN = 200


def show(call: PageCall) -> Outbound:
    """Show the alerts of the last week, newest first; they count as seen."""
    now = call.services.clock.now_us()
    seen = _read_seen(call.inbound)
    names = {organization.id: organization.name for organization in call.visitor.organizations()}
    alerts = [_show_alert(alert, names, seen) for alert in find_alerts(call.visitor, now)]
    response = call.page("notices.html", TITLE, alerts=alerts, days=DAYS, several=len(names) > 1)
    response.headers.append(write_cookie(call.inbound, str(now), COOKIE_S, SEEN_COOKIE))
    response.headers.append(("HX-Trigger", "seen"))  # the bell counts again
    return response


def show_count(services: Services, inbound: Inbound) -> Outbound:
    """Return the number of alerts that the person has not seen, as a part of a page."""
    visitor = require_visitor(services, inbound, PATH)
    fresh = count_fresh(inbound, find_alerts(visitor, services.clock.now_us()))
    text = templates().get_template("bell_count.html").render(count=fresh)
    return Outbound(200, [HTML, *SAFE], text.encode())


def find_alerts(visitor: Visitor, now_us: int) -> list[PastAlert]:
    """Return the alerts of the last week of organizations whose alerts the visitor may see, and for operators those of
    the installation."""
    owners = [ident for ident in visitor.memberships if visitor.manages("alerts:read", ident)]
    if owners and visitor.is_operator():
        owners.append("")
    history = visitor.services.telemetry.alert_history
    return history.read(owners, now_us - DAYS * DAY_US, now_us + 1, MAX_SHOWN)


def count_fresh(inbound: Inbound, alerts: Iterable[PastAlert]) -> int:
    """Return how many of these alerts the person has not seen."""
    seen = _read_seen(inbound)
    return sum(alert.began_us > seen for alert in alerts)


def _show_alert(alert: PastAlert, names: dict[str, str], seen_us: int) -> dict[str, Any]:
    return {
        **to_builtins(alert),
        "owner": names.get(alert.organization_id, "Installation"),
        "fresh": alert.began_us > seen_us,
    }


def _read_seen(inbound: Inbound) -> int:
    text = read_cookie(inbound, SEEN_COOKIE)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _count_or_nothing(services: Services, inbound: Inbound) -> Outbound:
    """Return the number of unseen alerts; nothing without a session, since the bell asks in the background."""
    try:
        return show_count(services, inbound)
    except GatewayError:
        return Outbound(204, [*SAFE], b"")


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show),
    Operation("GET", COUNT, as_page(_count_or_nothing)),
)
