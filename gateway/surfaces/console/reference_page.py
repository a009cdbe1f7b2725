"""`/docs`: the reference of the API, which RapiDoc renders in the browser from the API description."""

import functools
from urllib.parse import urlsplit

from gateway.surfaces.console.assets import asset_path
from gateway.surfaces.console.pages import HTML, SAFE, templates
from gateway.surfaces.console.visits import as_page
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

# RapiDoc puts style elements and attributes into its shadow tree. Scripts come from this site only.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)


def show_reference(services: Services, inbound: Inbound) -> Outbound:
    """Show the reference of the API."""
    template = templates().get_template("reference.html")
    asset = functools.partial(asset_path, base_url=inbound.base_url)
    text = template.render(base=inbound.base_url, path=urlsplit(inbound.base_url).path, asset=asset)
    return Outbound(200, [HTML, *SAFE, ("Content-Security-Policy", PAGE_POLICY)], text.encode())


OPERATIONS: tuple[Operation, ...] = (Operation("GET", "/docs", as_page(show_reference)),)
