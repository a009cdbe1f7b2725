"""Checks that every page runs first: the visitor's session, and whether a form came from a page of this site."""

import hmac
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import urlencode

from gateway.callers.tokens import hash_token
from gateway.errors import Forbidden, GatewayError, InvalidRequest, Unauthenticated
from gateway.surfaces.console.pages import AFTER_SIGN_IN, SAFE, page, read_form, redirect
from gateway.surfaces.visitors.visitor import Visitor, check_origin, token_of, visit, write_cookie
from gateway.surfaces.web.http import Handler, Inbound, Outbound
from gateway.surfaces.web.http_responses import json_reply, retry_headers
from gateway.worker.services import Services

LOGIN = "/console/login"
SSO = "/console/sso"
# The identity provider with which this browser signed in last.
PROVIDER_COOKIE = "llmgateway.identity_provider"
# The value of the parameter `sso` of the sign-in page after a provider could not sign the person in silently.
SIGN_IN_AGAIN = "again"
# Status of an error → the title of its page.
TITLES = {
    401: "You are not signed in",
    403: "No access",
    404: "Not found",
    410: "No longer valid",
    429: "Too many requests",
    503: "Try again soon",
}
# Errors of a page that say nothing against the visitor's session or the database, and the paths of the console.
KEEPS_NAVIGATION = (400, 403, 404, 409, 410)
WITH_NAVIGATION = ("/console", "/dashboard")
FormFields = dict[str, str]
T = TypeVar("T")


class SignInRequired(Exception):
    """The page requires sign-in; `target` is the path to return to afterwards."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target


def as_page(view: Handler) -> Handler:
    """Wrap `view`: errors become pages, and SignInFirst a redirect to the sign-in page."""

    def handle(services: Services, inbound: Inbound) -> Outbound:
        try:
            response = view(services, inbound)
        except SignInRequired as missing:
            response = redirect(inbound, login_path(missing.target))
            if inbound.header("hx-request"):  # a part of a page cannot be replaced by the sign-in form
                response = Outbound(200, [*SAFE, ("HX-Redirect", dict(response.headers)["Location"])])
        except GatewayError as error:
            title = TITLES.get(error.status, "Something went wrong")
            response = _show_error(services, inbound, title, error)
            response.headers += retry_headers(error)
        return _complete(inbound, response)

    handle.__doc__ = view.__doc__
    return handle


def _complete(inbound: Inbound, response: Outbound) -> Outbound:
    """Return the response with the headers that every answer to the request has; those of the response itself follow,
    so that a sign-out removes a cookie that was renewed before."""
    if inbound.answer_headers:
        response.headers = [*inbound.answer_headers, *response.headers]
    return response


def _show_error(services: Services, inbound: Inbound, title: str, error: GatewayError) -> Outbound:
    """Return the page of an error. A signed-in person keeps the navigation of the console."""
    visitor = None
    if error.status in KEEPS_NAVIGATION and inbound.path.startswith(WITH_NAVIGATION):
        visitor = find_visitor(services, inbound)
    return page(
        inbound,
        "message.html",
        title,
        error.status,
        visitor=visitor,
        wide=visitor is not None,
        frame="page.html" if visitor is None else "signed_in.html",
        text=error.message,
        signs_in=error.status == 401,
    )


def as_json(view: Handler) -> Handler:
    """Wrap `view`, which a script calls: errors become JSON with a message that the script shows."""

    def handle(services: Services, inbound: Inbound) -> Outbound:
        problem: GatewayError
        try:
            return _complete(inbound, view(services, inbound))
        except SignInRequired:
            problem = Unauthenticated("Your session has ended. Sign in again.")
        except GatewayError as error:
            problem = error
        refusal = json_reply({"message": problem.message, "code": problem.code}, inbound.shown_id, problem.status)
        return _complete(inbound, refusal)

    handle.__doc__ = view.__doc__
    return handle


def login_path(target: str = AFTER_SIGN_IN, **fields: str) -> str:
    """Return the path of the sign-in page that returns to `target`; `fields` prefill its form."""
    query = fields
    if target != AFTER_SIGN_IN:
        query = {"redirect": target, **fields}
    if query:
        return f"{LOGIN}?{urlencode(query)}"
    return LOGIN


def find_visitor(services: Services, inbound: Inbound) -> Visitor | None:
    """Return the visitor that the session cookie identifies, or None without a session. The answer renews the cookie of
    a session that was extended, so that the browser keeps it as long."""
    token, by_cookie = token_of(inbound)
    if not by_cookie:
        return None
    try:
        visitor = visit(services, token, inbound.method)
    except (Unauthenticated, Forbidden):
        return None
    if visitor.session.refreshed:
        inbound.answer_headers = (write_cookie(inbound, token),)
    return visitor


def require_visitor(services: Services, inbound: Inbound, target: str) -> Visitor:
    """Return the visitor. Raises SignInFirst without a session."""
    visitor = find_visitor(services, inbound)
    if visitor is None:
        raise SignInRequired(target)
    return visitor


def submitted(services: Services, inbound: Inbound) -> FormFields:
    """Return the fields of a form that was sent from this site. Raises Forbidden or InvalidRequest."""
    check_origin(services, inbound, required=True)
    return read_form(inbound)


def submitted_by_visitor(
    services: Services, inbound: Inbound, target: str, subject: str | Callable[[FormFields], str]
) -> tuple[Visitor, FormFields]:
    """Return the visitor and the fields of a form after checking its CSRF token.

    `subject` is the subject of the token, or a function that derives it from the fields. Raises SignInFirst (to return
    to `target`), Forbidden or InvalidRequest.
    """
    check_origin(services, inbound, required=True)
    visitor = require_visitor(services, inbound, target)
    form = read_form(inbound)
    if not isinstance(subject, str):
        subject = subject(form)
    check_csrf(services, visitor, subject, form)
    return visitor, form


def pressed(buttons: Mapping[str, T], form: FormFields, name: str = "action") -> T:
    """Return the entry of `buttons` for the button that was pressed. `name` is the field that all buttons share."""
    try:
        return buttons[form.get(name, "")]
    except KeyError:
        raise InvalidRequest("Unknown action. Open the page again and use one of its buttons.") from None


def make_csrf(services: Services, visitor: Visitor | None, subject: str) -> str:
    """Return the CSRF token of a form, which is bound to the visitor's session (if any) and to `subject`."""
    session = "nobody" if visitor is None else visitor.session.id
    return hash_token(f"csrf\n{session}\n{subject}", services.store.secrets.hash_keys[0])


def check_csrf(services: Services, visitor: Visitor | None, subject: str, form: FormFields) -> None:
    """Raise Forbidden unless the form has the CSRF token of this session and subject."""
    if not hmac.compare_digest(make_csrf(services, visitor, subject).encode(), form.get("csrf", "").encode()):
        raise Forbidden("This form has expired. Open the page again.", code="untrusted_origin")
