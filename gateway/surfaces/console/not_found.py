"""Error page for unknown paths below `/console` and `/dashboard`, which people type into a browser."""

from gateway.errors import NotFound
from gateway.surfaces.console.visits import as_page
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services


def show_not_found(services: Services, inbound: Inbound) -> Outbound:
    """Answer 404 with a page instead of JSON."""
    raise NotFound("There is no page at this address.")


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/console/<path:place>", as_page(show_not_found)),
    Operation("GET", "/dashboard", as_page(show_not_found)),
    Operation("GET", "/dashboard/<path:place>", as_page(show_not_found)),
)
