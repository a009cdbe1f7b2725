"""Responses of the console: rendered templates with a strict content security policy, redirects and form bodies."""

import functools
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from gateway.errors import GatewayError, InvalidRequest
from gateway.limits.periods import UNITS
from gateway.surfaces.console.assets import asset_path
from gateway.surfaces.console.navigation import find_current, list_links
from gateway.surfaces.console.shown_figures import (
    share_of,
    show_change,
    show_cost,
    show_count,
    show_duration,
    show_exact,
    show_fine_cost,
    show_period,
    show_step,
    show_time,
)
from gateway.surfaces.http import Inbound, Outbound
from gateway.surfaces.visitor import Visitor

HTML = ("Content-Type", "text/html; charset=utf-8")
FORM_TYPE = "application/x-www-form-urlencoded"
MAX_FORM_BYTES = 65_536
MAX_FIELDS = 60
AFTER_SIGN_IN = "/console"
# Referrer-Policy same-origin: with no-referrer, browsers would send "Origin: null" with our own forms.
SAFE = [
    ("Cache-Control", "no-store"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
]


@functools.cache
def templates() -> Environment:
    """Return the template environment, which escapes every value. Templates are in `templates/` and in the folders of
    pages."""
    loader = ChoiceLoader([PackageLoader("gateway.surfaces.console"), PackageLoader("gateway.surfaces.console", "")])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.filters |= {
        "cost": show_cost,
        "fine_cost": show_fine_cost,
        "count": show_count,
        "duration": show_duration,
        "time": show_time,
        "step": show_step,
        "share": share_of,
        "period": show_period,
        "change": show_change,
        "exact": show_exact,
    }
    environment.globals["period_units"] = tuple(UNITS)
    return environment


def page(
    inbound: Inbound,
    template: str,
    title: str,
    status: int = 0,
    error: GatewayError | None = None,
    form_redirects: bool = False,
    scripts: bool = False,
    visitor: Visitor | None = None,
    sources: str = "img-src 'self'",
    **values: Any,
) -> Outbound:
    """Render `template` as a response.

    With a `visitor`, the page has the navigation of this person and the console's scripts; `scripts` allows a page
    without a visitor to load its own. `sources` are the directives
    of the content security policy for images and sound.

    The page shows an `error` above its content and has the error's status unless `status` is given. Set
    `form_redirects` if the response to the page's form redirects to another site: browsers check redirects against
    `form-action` and block them without a message.
    """
    problem = ""
    if error is not None:
        problem = error.message
        status = status or error.status
    values = {"wide": False, "message": "", "title": title, "problem": problem, "base": inbound.base_url, **values}
    values["asset"] = functools.partial(asset_path, base_url=inbound.base_url)
    script_sources = ""
    if visitor is not None or scripts:
        script_sources = "script-src 'self'; connect-src 'self'; "
    if visitor is not None:
        values |= {"link_groups": list_links(visitor), "current": find_current(inbound.path), "may": visitor.may}
    text = templates().get_template(template).render(values)
    forms = "form-action 'self'; "
    if form_redirects:
        forms = ""
    ends = "frame-ancestors 'none'; base-uri 'none'"
    policy = f"default-src 'none'; style-src 'self'; {sources}; {script_sources}{forms}{ends}"
    return Outbound(status or 200, [HTML, *SAFE, ("Content-Security-Policy", policy)], text.encode())


def redirect(inbound: Inbound, path: str, headers: list[tuple[str, str]] | None = None) -> Outbound:
    """Redirect to a path of this site with status 303. `headers` replace default headers of the same name."""
    replaced = {name for name, _ in headers or ()}
    defaults = [(name, value) for name, value in SAFE if name not in replaced]
    return Outbound(303, [("Location", inbound.base_url + path), *defaults, *(headers or ())])


def read_form(inbound: Inbound) -> dict[str, str]:
    """Return the fields of a submitted form. Raises InvalidRequest for any other body."""
    if FORM_TYPE not in inbound.header("content-type").lower() or len(inbound.body) > MAX_FORM_BYTES:
        raise InvalidRequest("The request is not a form of this page. Open the page again.")
    text = inbound.body.decode("utf-8", "replace").replace("\0", "")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise InvalidRequest("The request is not a form of this page. Open the page again.") from None


def own_path(text: str) -> str:
    """Return `text` if it is a path of this site, otherwise the page after sign-in. Prevents open redirects."""
    inside = text.startswith("/") and not text.startswith("//") and "\\" not in text
    if inside and text.isprintable() and text.isascii():
        return text
    return AFTER_SIGN_IN
