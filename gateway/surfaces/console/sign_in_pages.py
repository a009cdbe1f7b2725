"""`/connect/login`, `/connect/logout` and `/sso`: sign in and sign out (facts A.4)."""

from gateway.admin.sign_in import PendingSignIn, SignedIn
from gateway.errors import GatewayError
from gateway.surfaces.console.pages import own_path, page, redirect
from gateway.surfaces.console.visits import (
    LOGIN,
    as_page,
    check_csrf,
    find_visitor,
    login_path,
    submitted,
)
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.visitor import device_cookie, place_of, write_cookie
from gateway.worker.services import Services

SIGN_OUT = "logout"


def show_login(services: Services, inbound: Inbound) -> Outbound:
    """The sign-in form; `redirect` is where to go on, `email` fills the first field."""
    given = inbound.arguments()
    target = own_path(given.get("redirect", ""))
    if find_visitor(services, inbound) is not None:
        return redirect(inbound, target)
    return page(inbound, "login.html", "Sign in", redirect=target, email=given.get("email", ""))


def sign_in(services: Services, inbound: Inbound) -> Outbound:
    """Open a session, ask for the code of a second factor, or show the form again with what is wrong."""
    given = submitted(services, inbound)
    target = own_path(given.get("redirect", ""))
    email = given.get("email", "")
    ticket = given.get("ticket", "")
    service = services.management.sign_in
    place = place_of(inbound)
    found: SignedIn | PendingSignIn
    try:
        if ticket:
            found = service.finish(ticket, given.get("code", ""), place)
        else:
            found = service.begin(email, given.get("password", ""), place)
    except GatewayError as error:
        if error.blame != "caller":
            raise
        if error.code == "second_factor_wrong":
            return page(inbound, "factor.html", "Second factor", error=error, ticket=ticket, redirect=target)
        return page(inbound, "login.html", "Sign in", error=error, email=email, redirect=target)
    if isinstance(found, PendingSignIn):
        return page(inbound, "factor.html", "Second factor", ticket=found.ticket, redirect=target)
    cookies = [write_cookie(inbound, found.session.token), device_cookie(inbound, found.device)]
    return redirect(inbound, target, cookies)


def sign_out(services: Services, inbound: Inbound) -> Outbound:
    """End the session, then go on where the form says."""
    given = submitted(services, inbound)
    visitor = find_visitor(services, inbound)
    if visitor is not None:
        check_csrf(services, visitor, SIGN_OUT, given)
        services.management.sessions.close(visitor.session.id, actor=visitor.user_id)
    return redirect(inbound, own_path(given.get("redirect", LOGIN)), [write_cookie(inbound, "", 0)])


def single_sign_on(services: Services, inbound: Inbound) -> Outbound:
    """The address that clients open for single sign-on; here everybody signs in with the same form."""
    given = inbound.arguments()
    return redirect(inbound, login_path(own_path(given.get("redirect", "")), email=given.get("email", "")))


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", LOGIN, as_page(show_login)),
    Operation("POST", LOGIN, as_page(sign_in), body="form"),
    Operation("POST", "/connect/logout", as_page(sign_out), body="form"),
    Operation("GET", "/sso", as_page(single_sign_on)),
)
