"""`/console/login` and `/console/logout`: sign in and sign out. `/console/forgot` and `/console/reset`: reset a
password with a link sent by e-mail."""

import re
import secrets
from urllib.parse import quote, urlencode

from gateway.accounts.passkeys import CHALLENGE_LIFETIME_S, Browser, site_of
from gateway.accounts.passwords import MIN_LENGTH
from gateway.admin.sign_in import PendingSignIn, SignedIn
from gateway.errors import GatewayError, NotFound
from gateway.surfaces.console.pages import AFTER_SIGN_IN, own_path, page, redirect
from gateway.surfaces.console.sso_pages import MARK, begin_on_page
from gateway.surfaces.console.visits import (
    LOGIN,
    PROVIDER_COOKIE,
    SIGN_IN_AGAIN,
    SSO,
    as_json,
    as_page,
    check_csrf,
    find_visitor,
    require_visitor,
    submitted,
)
from gateway.surfaces.visitors.visitor import device_cookie, place_of, read_cookie, write_cookie
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.surfaces.web.http_responses import json_reply
from gateway.worker.services import Services

# `/console/passkeys/`: the options that the browser needs for a passkey; the answers come with the forms of
# `/console/login` and `/console/account` (assets/passkeys.js).

PATH = "/console/passkeys"
ACCOUNT_FORM = "account"
COOKIE = "llmgateway.passkey"
ACCOUNT = "/console/account"


def browser_of(inbound: Inbound, secret: str) -> Browser:
    """Return the browser of a request. `secret` is known to this browser only: a cookie or the session's id."""
    return Browser(site_of(inbound.base_url), secret, inbound.peer)


def signing_in(inbound: Inbound) -> Browser:
    """Return the browser of a sign-in, which has the cookie of `begin_sign_in`."""
    return browser_of(inbound, read_cookie(inbound, COOKIE)[:64])


def are_offered(inbound: Inbound) -> bool:
    """Return whether passkeys can be used at the address of this request."""
    return bool(site_of(inbound.base_url).rp_id)


def begin_sign_in(services: Services, inbound: Inbound) -> Outbound:
    """Return the options of a sign-in with a passkey, or of a second factor, and a cookie that binds them."""
    form = submitted(services, inbound)
    secret = secrets.token_urlsafe(24)
    service = services.management.sign_in
    options = service.begin_with_passkey(browser_of(inbound, secret), place_of(inbound), form.get("ticket", ""))
    return _reply(inbound, options, [write_cookie(inbound, secret, CHALLENGE_LIFETIME_S, COOKIE)])


def begin_registration(services: Services, inbound: Inbound) -> Outbound:
    """Return the options of a new passkey, after a check of the password."""
    form = submitted(services, inbound)
    visitor = require_visitor(services, inbound, ACCOUNT)
    check_csrf(services, visitor, ACCOUNT_FORM, form)
    visitor.check_account_access()
    session = visitor.session
    management = services.management
    management.check_password(session.user_id, session.email, form.get("password", ""))
    browser = browser_of(inbound, session.id)
    return _reply(inbound, management.passkeys.begin_registration(browser, session.user_id, session.email))


def _reply(inbound: Inbound, options: str, headers: list[tuple[str, str]] | None = None) -> Outbound:
    return json_reply(options.encode(), inbound.shown_id, headers=headers)


PASSKEY_OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", f"{PATH}/sign-in", as_json(begin_sign_in), body="form"),
    Operation("POST", f"{PATH}/registration", as_json(begin_registration), body="form"),
)


SIGN_OUT = "logout"
SECOND_FACTOR_REFUSALS = ("second_factor_wrong", "passkey_refused")


def show_login(services: Services, inbound: Inbound) -> Outbound:
    """Show the sign-in form. The query may give the path to return to (`redirect`) and the e-mail address (`email`)."""
    arguments = inbound.arguments()
    target = own_path(arguments.get("redirect", ""))
    if find_visitor(services, inbound) is not None:
        return redirect(inbound, target)
    last = read_cookie(inbound, PROVIDER_COOKIE)
    if last and arguments.get("sso") != SIGN_IN_AGAIN:
        # The provider may still know the person: then a session that has ended is renewed without a page.
        begun = begin_on_page(services, inbound)
        query = urlencode({"silent": "1", "redirect": target, MARK: begun.mark})
        return redirect(inbound, f"{SSO}/{quote(last)}?{query}", [begun.cookie])
    return _login_page(services, inbound, target, arguments.get("email", ""))


def sign_in(services: Services, inbound: Inbound) -> Outbound:
    """Open a session, request the second factor, or show the form again with an error."""
    form = submitted(services, inbound)
    target = own_path(form.get("redirect", ""))
    email = form.get("email", "")
    ticket = form.get("ticket", "")
    credential = form.get("credential", "")
    service = services.management.sign_in
    place = place_of(inbound)
    result: SignedIn | PendingSignIn
    try:
        if credential:
            result = service.finish_with_passkey(signing_in(inbound), credential, place, ticket)
        elif ticket:
            result = service.finish(ticket, form.get("code", ""), place)
        else:
            result = service.begin(email, form.get("password", ""), place)
    except GatewayError as error:
        if error.blame != "caller":
            raise
        if ticket and error.code in SECOND_FACTOR_REFUSALS:
            return _second_factor_page(inbound, ticket, target, error)
        return _login_page(services, inbound, target, email, error)
    if isinstance(result, PendingSignIn):
        return _second_factor_page(inbound, result.ticket, target)
    cookies = [write_cookie(inbound, result.session.token), device_cookie(inbound, result.device)]
    return redirect(inbound, target, cookies)


def sign_out(services: Services, inbound: Inbound) -> Outbound:
    """Close the session, at the identity provider too, and redirect to the path in the form."""
    form = submitted(services, inbound)
    visitor = find_visitor(services, inbound)
    provider_url = ""
    if visitor is not None:
        check_csrf(services, visitor, SIGN_OUT, form)
        provider_url = services.sso.service.sign_out(visitor.session, inbound.base_url + LOGIN)
    cookies = [write_cookie(inbound, "", 0), write_cookie(inbound, "", 0, PROVIDER_COOKIE)]
    target = form.get("redirect", LOGIN)
    if target == LOGIN and provider_url:
        # No redirect: browsers block the redirect of a form to another site.
        response = page(inbound, "signed_out.html", "Signed out", provider_url=provider_url)
        response.headers += [*cookies, ("Refresh", f"0; url={provider_url}")]
        return response
    return redirect(inbound, own_path(target), cookies)


def _second_factor_page(inbound: Inbound, ticket: str, target: str, error: GatewayError | None = None) -> Outbound:
    return page(
        inbound,
        "second_factor.html",
        "Second factor",
        error=error,
        scripts=True,
        ticket=ticket,
        redirect=target,
        passkeys=are_offered(inbound),
    )


def _login_page(
    services: Services, inbound: Inbound, target: str, email: str, error: GatewayError | None = None
) -> Outbound:
    providers = services.sso.service.providers
    begun = begin_on_page(services, inbound)
    after = {"redirect": target} if target != AFTER_SIGN_IN else {}
    named = {**after, "email": email} if email else after
    mark = {MARK: begun.mark}
    query = f"?{urlencode(after | mark)}"
    any_provider = providers.any_exists()
    response = page(
        inbound,
        "login.html",
        "Sign in",
        error=error,
        scripts=True,
        email=email,
        redirect=target,
        passkeys=are_offered(inbound),
        providers=[(provider.name, f"{SSO}/{provider.id}{query}") for provider in providers.of_installation],
        single_sign_on=f"/sso?{urlencode(named | mark)}" if any_provider else "",
    )
    if any_provider:
        response.headers.append(begun.cookie)
    return response


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", LOGIN, as_page(show_login)),
    Operation("POST", LOGIN, as_page(sign_in), body="form"),
    Operation("POST", "/console/logout", as_page(sign_out), body="form"),
)


# `/console/forgot` and `/console/reset`: reset a password with a link sent by e-mail.

TITLE = "Forgot password"
FORGOT_PATH = "/console/forgot"
RESET = "/console/reset"
RESET_COOKIE = "llmgateway.reset"
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
        return redirect(inbound, RESET, [NO_REFERRER, write_cookie(inbound, token, LINK_LIFETIME_S, RESET_COOKIE)])
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
    response.headers.append(write_cookie(inbound, "", 0, RESET_COOKIE))
    return response


def _token_of(inbound: Inbound) -> str:
    token = read_cookie(inbound, RESET_COOKIE)
    if not token:
        raise NotFound(UNOPENED)
    return token


def _form(inbound: Inbound, email: str, error: GatewayError | None = None) -> Outbound:
    return page(inbound, "reset.html", "New password", error=error, email=email, shortest=str(MIN_LENGTH), login=LOGIN)


PASSWORD_OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", FORGOT_PATH, as_page(show_forgot)),
    Operation("POST", FORGOT_PATH, as_page(send_link), body="form"),
    Operation("GET", RESET, as_page(show_reset)),
    Operation("POST", RESET, as_page(reset), body="form"),
)
