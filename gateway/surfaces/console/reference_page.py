"""`/docs`: the reference of the API, which RapiDoc renders in the browser from the API description.

Everybody may read it. A signed-in person can send its requests: those of the management API by the session's cookie, as
from any page of this site, and those of the model API with a key for an hour, which is made when they ask for it.
"""

import functools
from urllib.parse import urlsplit

from gateway.accounts.projects import ProjectInfo, list_projects
from gateway.surfaces.console.assets import asset_path
from gateway.surfaces.console.page_calls import CSRF_SUBJECT, make_short_lived_key
from gateway.surfaces.console.pages import HTML, SAFE, templates
from gateway.surfaces.console.visits import as_json, as_page, find_visitor, login_path, make_csrf
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

# RapiDoc puts style elements and attributes into its shadow tree. Scripts come from this site only.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)


PATH = "/docs"
KEYS = f"{PATH}/key"
KEY_NAME = "API reference"


def show_reference(services: Services, inbound: Inbound) -> Outbound:
    """Show the reference of the API."""
    visitor = find_visitor(services, inbound)
    listed: list[ProjectInfo] = []
    csrf = ""
    if visitor is not None:
        listed = list_projects(services.store.database, list(visitor.memberships))
        csrf = make_csrf(services, visitor, CSRF_SUBJECT)
    text = (
        templates()
        .get_template("reference.html")
        .render(
            base=inbound.base_url,
            path=urlsplit(inbound.base_url).path,
            asset=functools.partial(asset_path, base_url=inbound.base_url),
            signed_in=visitor is not None,
            sign_in=login_path(PATH),
            projects=[(one.id, one.name) for one in listed if one.status == "active"],
            keys=KEYS,
            csrf=csrf,
        )
    )
    return Outbound(200, [HTML, *SAFE, ("Content-Security-Policy", PAGE_POLICY)], text.encode())


def make_key(services: Services, inbound: Inbound) -> Outbound:
    """Create a key for the requests of the page, with which they can also read the account. The answer is JSON."""
    return make_short_lived_key(services, inbound, PATH, KEY_NAME, "user")


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", PATH, as_page(show_reference)),
    Operation("POST", KEYS, as_json(make_key), body="form"),
)
