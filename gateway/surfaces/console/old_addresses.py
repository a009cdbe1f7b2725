"""`/connect` and all paths below it: permanent redirects to the console, which had these addresses before.

Links in e-mails, bookmarks and programs contain the old addresses. Status 308 keeps the method and the form.
"""

from urllib.parse import quote

from gateway.surfaces.console.pages import SAFE
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

OLD = "/connect"
NEW = "/console"


def redirect_page(services: Services, inbound: Inbound) -> Outbound:
    """Redirect to the same page below `/console`, with the query."""
    return _redirect(inbound, f"{NEW}/{quote(inbound.params['place'])}")


def redirect_start(services: Services, inbound: Inbound) -> Outbound:
    """Redirect to the first page of the console."""
    return _redirect(inbound, NEW)


def redirect_account(services: Services, inbound: Inbound) -> Outbound:
    """Redirect a form of the account page, which was at `/connect`."""
    return _redirect(inbound, f"{NEW}/account")


def _redirect(inbound: Inbound, path: str) -> Outbound:
    if inbound.query:
        path = f"{path}?{inbound.query}"
    return Outbound(308, [("Location", inbound.base_url + path), *SAFE])


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", OLD, redirect_start),
    Operation("POST", OLD, redirect_account, body="form"),
    Operation("GET", f"{OLD}/<path:place>", redirect_page),
    Operation("POST", f"{OLD}/<path:place>", redirect_page, body="form"),
)
