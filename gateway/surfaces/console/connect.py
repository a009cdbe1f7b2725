"""`/connect/…`: sign in, sign out, approve or deny a device (facts A.4)."""

import hmac
from typing import Any
from urllib.parse import quote, urlencode

from gateway.accounts.tokens import hash_token
from gateway.admin.sign_in import PendingSignIn, SignedIn
from gateway.errors import Forbidden, GatewayError, InvalidRequest, Unauthenticated
from gateway.services import Services
from gateway.surfaces.console.pages import own_path, page, read_form, redirect
from gateway.surfaces.http import Handler, Inbound, Operation, Outbound
from gateway.surfaces.visitor import Visitor, check_origin, device_cookie, place_of, token_of, visit, write_cookie

LONGEST_CODE = 64


def show_login(services: Services, inbound: Inbound) -> Outbound:
    """The sign-in form; `redirect` is where to go on, `email` fills the first field."""
    given = inbound.arguments()
    target = own_path(given.get("redirect", ""))
    if find_visitor(services, inbound) is not None:
        return redirect(inbound, target)
    return page(inbound, "login.html", "Sign in", redirect=target, email=given.get("email", ""))


def sign_in(services: Services, inbound: Inbound) -> Outbound:
    """Open a session, ask for the code of a second factor, or show the form again with what is wrong."""
    check_origin(services, inbound, required=True)
    given = read_form(inbound)
    target, email, ticket = own_path(given.get("redirect", "")), given.get("email", ""), given.get("ticket", "")
    door, place = services.management.sign_in, place_of(inbound)
    found: SignedIn | PendingSignIn
    try:
        if ticket:
            found = door.finish(ticket, given.get("code", ""), place)
        else:
            found = door.begin(email, given.get("password", ""), place)
    except GatewayError as error:
        if error.blame != "caller":
            raise
        shown: dict[str, Any] = {"problem": error.message, "redirect": target}
        if error.code == "second_factor_wrong":
            return page(inbound, "factor.html", "Second factor", error.status, ticket=ticket, **shown)
        return page(inbound, "login.html", "Sign in", error.status, email=email, **shown)
    if isinstance(found, PendingSignIn):
        return page(inbound, "factor.html", "Second factor", ticket=found.ticket, redirect=target)
    cookies = [write_cookie(inbound, found.session.token), device_cookie(inbound, found.device)]
    return redirect(inbound, target, cookies)


def sign_out(services: Services, inbound: Inbound) -> Outbound:
    """End the session, then go on where the form says."""
    check_origin(services, inbound, required=True)
    visitor = find_visitor(services, inbound)
    given = read_form(inbound)
    if visitor is not None:
        check_csrf(services, visitor, "logout", given)
        services.management.sessions.close(visitor.session.id, actor=visitor.user_id)
    return redirect(inbound, own_path(given.get("redirect", "/connect/login")), [write_cookie(inbound, "", 0)])


def show_device(services: Services, inbound: Inbound) -> Outbound:
    """Ask for a code, or show what its device asks for; who is not signed in does that first."""
    code = inbound.arguments().get("user_code", "")[:LONGEST_CODE]
    visitor = find_visitor(services, inbound)
    if visitor is None:
        target = f"/connect/device?user_code={quote(code)}" if code else "/connect/device"
        return redirect(inbound, "/connect/login?" + urlencode({"redirect": target}))
    if not code:
        return page(inbound, "code.html", "Connect a device", email=visitor.session.email)
    try:
        request = services.management.find_device(code, visitor.user_id)
    except GatewayError as error:
        return _ask_again(inbound, visitor, error)
    if request.status != "pending":
        return page(inbound, "done.html", "Connect a device", text="This code was already used.")
    return page(
        inbound,
        "device.html",
        "Connect a device",
        client=request.client,
        email=visitor.session.email,
        user_code=request.user_code,
        csrf=make_csrf(services, visitor, request.user_code),
    )


def decide_device(services: Services, inbound: Inbound) -> Outbound:
    """Approve or deny, as the buttons of the page say."""
    check_origin(services, inbound, required=True)
    visitor = find_visitor(services, inbound)
    if visitor is None:
        return redirect(inbound, "/connect/login?" + urlencode({"redirect": "/connect/device"}))
    given = read_form(inbound)
    code, decision = given.get("user_code", "")[:LONGEST_CODE], given.get("decision", "")
    check_csrf(services, visitor, code, given)
    if decision not in ("approve", "deny"):
        raise InvalidRequest("Choose one of the buttons of this page.")
    try:
        services.management.decide_device(code, visitor.user_id, decision == "approve")
    except GatewayError as error:
        return _ask_again(inbound, visitor, error)
    text = {
        "approve": "The device is signed in. You can close this page and go back to it.",
        "deny": "The request was denied. You can close this page.",
    }
    return page(inbound, "done.html", "Connect a device", text=text[decision])


def single_sign_on(services: Services, inbound: Inbound) -> Outbound:
    """The address that clients open for single sign-on; here everybody signs in with the same form."""
    given = inbound.arguments()
    query = {"redirect": own_path(given.get("redirect", "")), "email": given.get("email", "")}
    return redirect(inbound, "/connect/login?" + urlencode(query))


def find_visitor(services: Services, inbound: Inbound) -> Visitor | None:
    """Who the browser's cookie stands for; None when nobody is signed in."""
    token, by_cookie = token_of(inbound)
    if not by_cookie:
        return None
    try:
        return visit(services, token, inbound.method)
    except (Unauthenticated, Forbidden):
        return None


def make_csrf(services: Services, visitor: Visitor, subject: str) -> str:
    """What a form must bring back: bound to the session and to what is decided."""
    return hash_token(f"csrf\n{visitor.session.id}\n{subject}", services.store.secrets.hash_keys[0])


def check_csrf(services: Services, visitor: Visitor, subject: str, given: dict[str, str]) -> None:
    """Forbidden unless the form was made for this session and subject."""
    if not hmac.compare_digest(make_csrf(services, visitor, subject).encode(), given.get("csrf", "").encode()):
        raise Forbidden("This form is out of date; open the page again.", code="untrusted_origin")


def as_page(view: Handler) -> Handler:
    """The view with errors shown as pages."""

    def handle(services: Services, inbound: Inbound) -> Outbound:
        try:
            return view(services, inbound)
        except GatewayError as error:
            told = page(inbound, "done.html", "That did not work", error.status, text=error.message)
            if error.retry_after is not None:
                told.headers.append(("Retry-After", str(max(1, round(error.retry_after)))))
            return told

    handle.__doc__ = view.__doc__
    return handle


def _ask_again(inbound: Inbound, visitor: Visitor, error: GatewayError) -> Outbound:
    if error.blame != "caller":
        raise error
    return page(
        inbound, "code.html", "Connect a device", error.status, problem=error.message, email=visitor.session.email
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/connect/login", as_page(show_login)),
    Operation("POST", "/connect/login", as_page(sign_in), body="form"),
    Operation("POST", "/connect/logout", as_page(sign_out), body="form"),
    Operation("GET", "/connect/device", as_page(show_device)),
    Operation("POST", "/connect/device", as_page(decide_device), body="form"),
    Operation("GET", "/sso", as_page(single_sign_on)),
)
