"""`/connect/forgot` and `/connect/reset`: a new password by a link that is sent by e-mail."""

import re

from gateway.accounts.passwords import SHORTEST
from gateway.errors import GatewayError, NotFound
from gateway.surfaces.console.pages import page, redirect
from gateway.surfaces.console.visits import LOGIN, as_page, submitted
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.visitor import read_cookie, write_cookie
from gateway.worker.services import Services

FORGOT = "/connect/forgot"
RESET = "/connect/reset"
COOKIE = "llmgateway.reset"
LIFE_S = 3600
TOKEN = re.compile(r"user_[0-9a-f]{32}\.\d{1,12}\.[A-Za-z0-9_=-]{16,128}")
HIDDEN = ("Referrer-Policy", "no-referrer")
ASKED = "If this address belongs to an account, a link is on its way to it. It works once, within an hour."
UNOPENED = "Open this page by the link of the e-mail; it stays open for an hour."
DONE = "The new password is set, and all sessions ended. Sign in with it."


def show_forgot(services: Services, inbound: Inbound) -> Outbound:
    """The form for an address."""
    return page(inbound, "forgot.html", "Lost password", enabled=services.management.letters.enabled)


def ask(services: Services, inbound: Inbound) -> Outbound:
    """Send a link; the answer is the same for every address."""
    given = submitted(services, inbound)
    services.management.letters.ask_reset(given.get("email", ""), inbound.peer, f"{RESET}?token=")
    return page(inbound, "done.html", "Lost password", text=ASKED)


def show_reset(services: Services, inbound: Inbound) -> Outbound:
    """The form for a password. The token moves from the link into a cookie, which no history and no Referer has."""
    token = inbound.arguments().get("token", "")
    if token:
        if not TOKEN.fullmatch(token):
            raise NotFound(UNOPENED)
        return redirect(inbound, RESET, [HIDDEN, write_cookie(inbound, token, LIFE_S, COOKIE)])
    return _form(inbound, services.management.letters.find_reset(_token_of(inbound), inbound.peer).email)


def reset(services: Services, inbound: Inbound) -> Outbound:
    """Set the password and end the link."""
    given = submitted(services, inbound)
    token = _token_of(inbound)
    letters = services.management.letters
    try:
        letters.reset(token, given.get("password", ""), inbound.peer)
    except GatewayError as error:
        if error.kind != "invalid_request":
            raise
        return _form(inbound, letters.find_reset(token, inbound.peer).email, error)
    answer = page(inbound, "done.html", "Lost password", text=DONE)
    answer.headers.append(write_cookie(inbound, "", 0, COOKIE))
    return answer


def _token_of(inbound: Inbound) -> str:
    token = read_cookie(inbound, COOKIE)
    if not token:
        raise NotFound(UNOPENED)
    return token


def _form(inbound: Inbound, email: str, error: GatewayError | None = None) -> Outbound:
    return page(inbound, "reset.html", "New password", error=error, email=email, shortest=str(SHORTEST), login=LOGIN)


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", FORGOT, as_page(show_forgot)),
    Operation("POST", FORGOT, as_page(ask), body="form"),
    Operation("GET", RESET, as_page(show_reset)),
    Operation("POST", RESET, as_page(reset), body="form"),
)
