"""Pages as responses: rendered templates with a strict content security policy, redirects and form bodies."""

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
    """The templates, read on first use; every value in them is escaped."""
    return Environment(loader=PackageLoader("gateway.surfaces.console"), autoescape=True, undefined=StrictUndefined)


def page(
    inbound: Inbound,
    template: str,
    title: str,
    status: int = 0,
    error: GatewayError | None = None,
    leads_away: bool = False,
    **values: Any,
) -> Outbound:
    """A page made from `template`. An `error` stands above its content, and its status is the page's unless that has
    one of its own. `leads_away`: the answer to its form may go on
    at another site, which browsers hold against `form-action` without a word (each redirect of it is looked at)."""
    nonce = secrets.token_urlsafe(16)
    problem, status_of_error = (error.message, error.status) if error else ("", 200)
    values = {"wide": False, "title": title, "problem": problem, "nonce": nonce, "base": inbound.base_url, **values}
    text = templates().get_template(template).render(values)
    forms = "" if leads_away else "form-action 'self'; "
    policy = f"default-src 'none'; style-src 'nonce-{nonce}'; {forms}frame-ancestors 'none'; base-uri 'none'"
    return Outbound(
        status or (error.status if error else 200), [HTML, *SAFE, ("Content-Security-Policy", policy)], text.encode()
    )


def redirect(inbound: Inbound, path: str, headers: list[tuple[str, str]] | None = None) -> Outbound:
    """Go on at a path of ours, by GET; `headers` come in place of those of the same name."""
    named = {name for name, _ in headers or ()}
    kept = [(name, value) for name, value in SAFE if name not in named]
    return Outbound(303, [("Location", inbound.base_url + path), *kept, *(headers or ())])


def read_form(inbound: Inbound) -> dict[str, str]:
    """The fields of a submitted form. InvalidRequest when it is none."""
    if FORM not in inbound.header("content-type").lower() or len(inbound.body) > LARGEST_FORM:
        raise InvalidRequest("Send the form of this page.")
    text = inbound.body.decode("utf-8", "replace").replace("\0", "")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise InvalidRequest("Send the form of this page.") from None


def own_path(text: str) -> str:
    """`text` when it is a path of this site, else the page after sign-in: nobody is led elsewhere."""
    inside = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() and text.isascii()
    if inside and "\\" not in text:
        return text
    return AFTER_SIGN_IN
