"""`/console/stop/<token>`: the link in a view that is sent each week, which ends it without a sign-in.

Opening the link changes nothing, because mail scanners open links. The button, and the one POST of a mail program
(RFC 8058), end the subscription. The token allows nothing else, so neither needs a session or an origin.
"""

from gateway.accounts import view_subscriptions
from gateway.errors import NotFound
from gateway.surfaces.console.pages import page
from gateway.surfaces.console.visits import as_page
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.telemetry.weekly_views import STOP_PATH
from gateway.worker.services import Services

TITLE = "Stop a weekly view"
STOPPED = "The view is not sent to you any more. You can subscribe again on its page."


def show(services: Services, inbound: Inbound) -> Outbound:
    """Show the button that ends the subscription."""
    services.telemetry.weekly_views.find_stopped(inbound.params["token"])
    return page(inbound, "stop_view.html", TITLE, path=f"{STOP_PATH}/{inbound.params['token']}")


def stop(services: Services, inbound: Inbound) -> Outbound:
    """End the subscription. A repeated POST has the same answer."""
    try:
        subscription = services.telemetry.weekly_views.find_stopped(inbound.params["token"])
    except NotFound:
        if not services.telemetry.weekly_views.is_signed(inbound.params["token"]):
            raise
    else:
        view_subscriptions.remove(services.store.database, subscription, subscription.user_id)
    return page(inbound, "message.html", TITLE, text=STOPPED)


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", f"{STOP_PATH}/<token>", as_page(show)),
    Operation("POST", f"{STOP_PATH}/<token>", as_page(stop), body="form"),
)
