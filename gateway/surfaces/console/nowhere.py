"""Addresses below those of pages where there is none: people typed them, and get a page that leads on."""

from gateway.errors import NotFound
from gateway.surfaces.console.visits import as_page
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.worker.services import Services


def show_nothing(services: Services, inbound: Inbound) -> Outbound:
    """There is no page here."""
    raise NotFound("There is no page at this address.")


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/connect/<path:place>", as_page(show_nothing)),
    Operation("GET", "/dashboard", as_page(show_nothing)),
    Operation("GET", "/dashboard/<path:place>", as_page(show_nothing)),
)
