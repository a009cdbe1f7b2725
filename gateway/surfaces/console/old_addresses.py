"""Addresses of the console without a page: `/connect` and all paths below it are redirected to the console, which had
these addresses before, and `/console/usage` to Explore; other unknown ones are a page of their own.

Links in e-mails, bookmarks and programs contain the old addresses. Status 308 keeps the method and the form.
"""

from urllib.parse import quote

from gateway.errors import NotFound
from gateway.surfaces.console.pages import SAFE
from gateway.surfaces.console.visits import as_page
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


def redirect_usage(services: Services, inbound: Inbound) -> Outbound:
    """Redirect to Explore, which was the page of usage."""
    return _redirect(inbound, f"{NEW}/explore")


def _redirect(inbound: Inbound, path: str) -> Outbound:
    if inbound.query:
        path = f"{path}?{inbound.query}"
    return Outbound(308, [("Location", inbound.base_url + path), *SAFE])


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", OLD, redirect_start),
    Operation("GET", f"{NEW}/usage", redirect_usage),
    Operation("POST", OLD, redirect_account, body="form"),
    Operation("GET", f"{OLD}/<path:place>", redirect_page),
    Operation("POST", f"{OLD}/<path:place>", redirect_page, body="form"),
)


# Error page for unknown paths below `/console` and `/dashboard`, which people type into a browser.


def show_not_found(services: Services, inbound: Inbound) -> Outbound:
    """Answer 404 with a page instead of JSON."""
    raise NotFound("There is no page at this address.")


UNKNOWN_OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/console/<path:place>", as_page(show_not_found)),
    Operation("GET", "/dashboard", as_page(show_not_found)),
    Operation("GET", "/dashboard/<path:place>", as_page(show_not_found)),
)
