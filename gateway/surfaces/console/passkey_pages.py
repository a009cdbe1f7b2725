"""`/console/passkeys/`: the options that the browser needs for a passkey; the answers come with the forms of
`/console/login` and `/console/account` (assets/passkeys.js)."""

import secrets

from gateway.accounts.passkey_ceremonies import site_of
from gateway.accounts.passkeys import CHALLENGE_LIFETIME_S, Browser
from gateway.surfaces.console.visits import as_json, check_csrf, require_visitor, submitted
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.surfaces.visitor import place_of, read_cookie, write_cookie
from gateway.worker.services import Services

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


OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", f"{PATH}/sign-in", as_json(begin_sign_in), body="form"),
    Operation("POST", f"{PATH}/registration", as_json(begin_registration), body="form"),
)
