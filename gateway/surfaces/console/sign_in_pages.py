"""`/console/login`, `/console/logout` and `/sso`: sign in and sign out."""

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
    """Show the sign-in form. The query may give the path to return to (`redirect`) and the e-mail address (`email`)."""
    arguments = inbound.arguments()
    target = own_path(arguments.get("redirect", ""))
    if find_visitor(services, inbound) is not None:
        return redirect(inbound, target)
    return page(inbound, "login.html", "Sign in", redirect=target, email=arguments.get("email", ""))


def sign_in(services: Services, inbound: Inbound) -> Outbound:
    """Open a session, request the second factor, or show the form again with an error."""
    form = submitted(services, inbound)
    target = own_path(form.get("redirect", ""))
    email = form.get("email", "")
    ticket = form.get("ticket", "")
    service = services.management.sign_in
    place = place_of(inbound)
    result: SignedIn | PendingSignIn
    try:
        if ticket:
            result = service.finish(ticket, form.get("code", ""), place)
        else:
            result = service.begin(email, form.get("password", ""), place)
    except GatewayError as error:
        if error.blame != "caller":
            raise
        if error.code == "second_factor_wrong":
            return page(inbound, "second_factor.html", "Second factor", error=error, ticket=ticket, redirect=target)
        return page(inbound, "login.html", "Sign in", error=error, email=email, redirect=target)
    if isinstance(result, PendingSignIn):
        return page(inbound, "second_factor.html", "Second factor", ticket=result.ticket, redirect=target)
    cookies = [write_cookie(inbound, result.session.token), device_cookie(inbound, result.device)]
    return redirect(inbound, target, cookies)


def sign_out(services: Services, inbound: Inbound) -> Outbound:
    """Close the session and redirect to the path in the form."""
    form = submitted(services, inbound)
    visitor = find_visitor(services, inbound)
    if visitor is not None:
        check_csrf(services, visitor, SIGN_OUT, form)
        services.management.sessions.close(visitor.session.id, actor=visitor.user_id)
    return redirect(inbound, own_path(form.get("redirect", LOGIN)), [write_cookie(inbound, "", 0)])


def single_sign_on(services: Services, inbound: Inbound) -> Outbound:
    """Redirect the single sign-on path of clients to the sign-in form, because single sign-on is not supported."""
    arguments = inbound.arguments()
    return redirect(inbound, login_path(own_path(arguments.get("redirect", "")), email=arguments.get("email", "")))


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", LOGIN, as_page(show_login)),
    Operation("POST", LOGIN, as_page(sign_in), body="form"),
    Operation("POST", "/console/logout", as_page(sign_out), body="form"),
    Operation("GET", "/sso", as_page(single_sign_on)),
)
