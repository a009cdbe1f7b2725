"""`/console/forgot` and `/console/reset`: reset a password with a link sent by e-mail."""

import re

from gateway.accounts.passwords import MIN_LENGTH
from gateway.errors import GatewayError, NotFound
from gateway.surfaces.console.pages import page, redirect
from gateway.surfaces.console.visits import LOGIN, as_page, submitted
from gateway.surfaces.visitors.visitor import read_cookie, write_cookie
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

TITLE = "Forgot password"
FORGOT_PATH = "/console/forgot"
RESET = "/console/reset"
COOKIE = "llmgateway.reset"
LINK_LIFETIME_S = 3600
TOKEN = re.compile(r"user_[0-9a-f]{32}\.[0-9]{1,12}\.[A-Za-z0-9_=-]{16,128}")
NO_REFERRER = ("Referrer-Policy", "no-referrer")
SENT = "If this address belongs to an account, we have sent it a link. The link works once, within an hour."
UNOPENED = "Open the link in the e-mail. The page stays available for an hour."
PASSWORD_CHANGED = "Your password was changed, and all sessions were signed out. Sign in with the new password."


def show_forgot(services: Services, inbound: Inbound) -> Outbound:
    """Show the form for an e-mail address."""
    return page(inbound, "forgot.html", TITLE, enabled=services.management.letters.enabled)


def send_link(services: Services, inbound: Inbound) -> Outbound:
    """Send a link. The response is the same for every address, so that it does not reveal accounts."""
    form = submitted(services, inbound)
    services.management.letters.ask_reset(form.get("email", ""), inbound.peer, f"{RESET}?token=")
    return page(inbound, "message.html", TITLE, text=SENT)


def show_reset(services: Services, inbound: Inbound) -> Outbound:
    """Show the form for a password. The token moves from the URL into a cookie (see `invitation.show`)."""
    token = inbound.arguments().get("token", "")
    if token:
        if not TOKEN.fullmatch(token):
            raise NotFound(UNOPENED)
        return redirect(inbound, RESET, [NO_REFERRER, write_cookie(inbound, token, LINK_LIFETIME_S, COOKIE)])
    return _form(inbound, services.management.letters.find_reset(_token_of(inbound), inbound.peer).email)


def reset(services: Services, inbound: Inbound) -> Outbound:
    """Set the password and invalidate the link."""
    form = submitted(services, inbound)
    token = _token_of(inbound)
    letters = services.management.letters
    try:
        letters.reset(token, form.get("password", ""), inbound.peer)
    except GatewayError as error:
        if error.kind != "invalid_request":
            raise
        return _form(inbound, letters.find_reset(token, inbound.peer).email, error)
    response = page(inbound, "message.html", TITLE, text=PASSWORD_CHANGED)
    response.headers.append(write_cookie(inbound, "", 0, COOKIE))
    return response


def _token_of(inbound: Inbound) -> str:
    token = read_cookie(inbound, COOKIE)
    if not token:
        raise NotFound(UNOPENED)
    return token


def _form(inbound: Inbound, email: str, error: GatewayError | None = None) -> Outbound:
    return page(inbound, "reset.html", "New password", error=error, email=email, shortest=str(MIN_LENGTH), login=LOGIN)


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", FORGOT_PATH, as_page(show_forgot)),
    Operation("POST", FORGOT_PATH, as_page(send_link), body="form"),
    Operation("GET", RESET, as_page(show_reset)),
    Operation("POST", RESET, as_page(reset), body="form"),
)
