"""Responses of the console: rendered templates with a strict content security policy, redirects and form bodies."""

import functools
import secrets
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment, PackageLoader, StrictUndefined

from gateway.errors import GatewayError, InvalidRequest
from gateway.surfaces.http import Inbound, Outbound

HTML = ("Content-Type", "text/html; charset=utf-8")
FORM = "application/x-www-form-urlencoded"
LARGEST_FORM = 16_384
AFTER_SIGN_IN = "/connect"
# Referrer-Policy same-origin: with no-referrer, browsers would send "Origin: null" with our own forms.
SAFE = [
    ("Cache-Control", "no-store"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
]


@functools.cache
def templates() -> Environment:
    """Return the template environment, which escapes every value."""
    return Environment(loader=PackageLoader("gateway.surfaces.console"), autoescape=True, undefined=StrictUndefined)


def page(
    inbound: Inbound,
    template: str,
    title: str,
    status: int = 0,
    error: GatewayError | None = None,
    form_redirects: bool = False,
    **values: Any,
) -> Outbound:
    """Render `template` as a response.

    The page shows an `error` above its content and has the error's status unless `status` is given. Set
    `form_redirects` if the response to the page's form redirects to another site: browsers check redirects against
    `form-action` and block them without a message.
    """
    nonce = secrets.token_urlsafe(16)
    problem = ""
    if error is not None:
        problem = error.message
        status = status or error.status
    values = {"wide": False, "title": title, "problem": problem, "nonce": nonce, "base": inbound.base_url, **values}
    text = templates().get_template(template).render(values)
    forms = "form-action 'self'; "
    if form_redirects:
        forms = ""
    policy = f"default-src 'none'; style-src 'nonce-{nonce}'; {forms}frame-ancestors 'none'; base-uri 'none'"
    return Outbound(status or 200, [HTML, *SAFE, ("Content-Security-Policy", policy)], text.encode())


def redirect(inbound: Inbound, path: str, headers: list[tuple[str, str]] | None = None) -> Outbound:
    """Redirect to a path of this site with status 303. `headers` replace default headers of the same name."""
    replaced = {name for name, _ in headers or ()}
    defaults = [(name, value) for name, value in SAFE if name not in replaced]
    return Outbound(303, [("Location", inbound.base_url + path), *defaults, *(headers or ())])


def read_form(inbound: Inbound) -> dict[str, str]:
    """Return the fields of a submitted form. Raises InvalidRequest for any other body."""
    if FORM not in inbound.header("content-type").lower() or len(inbound.body) > LARGEST_FORM:
        raise InvalidRequest("The request is not a form of this page. Open the page again.")
    text = inbound.body.decode("utf-8", "replace").replace("\0", "")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise InvalidRequest("The request is not a form of this page. Open the page again.") from None


def own_path(text: str) -> str:
    """Return `text` if it is a path of this site, otherwise the page after sign-in. Prevents open redirects."""
    inside = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() and text.isascii()
    if inside and "\\" not in text:
        return text
    return AFTER_SIGN_IN
