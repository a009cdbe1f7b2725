"""`/sso` and `/console/sso/…`: choose an identity provider, and sign in with it."""

import re
import secrets
from urllib.parse import urlencode

from gateway.accounts.identity_providers import IdentityProvider
from gateway.accounts.throttle import ThrottleGate
from gateway.admin.sso_sign_in import SignInNeeded, SsoStart
from gateway.errors import GatewayError, InvalidRequest, NotFound
from gateway.surfaces.console.pages import AFTER_SIGN_IN, own_path, page, redirect
from gateway.surfaces.console.visits import (
    PROVIDER_COOKIE,
    SIGN_IN_AGAIN,
    SSO,
    as_page,
    find_visitor,
    login_path,
    submitted_by_visitor,
)
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.visitor import place_of, read_cookie, write_cookie
from gateway.worker.services import Services

TITLE = "Single sign-on"
CHOOSE = "/sso"
BROWSER_COOKIE = "llmgateway.sso"
FLOW_COOKIE_S = 600
REMEMBERED_CHOICE_S = 180 * 86_400
BROWSER = re.compile(r"[A-Za-z0-9_-]{32,64}")
PROVIDER = re.compile(r"[a-z0-9_-]{1,40}")
MAX_RESPONSE_LENGTH = 8_000
LOOKUPS = 60  # a minute, from one place
MINUTE_S = 60
CONNECT = "connect identity"
ACCOUNT = "/console/account"


def choose(services: Services, inbound: Inbound) -> Outbound:
    """Find the identity provider of an e-mail address, and go there; ask for the address without one."""
    arguments = inbound.arguments()
    target = own_path(arguments.get("redirect", ""))
    email = arguments.get("email", "")[:320].strip()
    providers = services.sso.service.providers
    if not providers.any_exists():
        return redirect(inbound, login_path(target, **({"email": email} if email else {})))
    found: list[IdentityProvider] = []
    problem = None
    if email:
        services.management.throttle.take(ThrottleGate("single sign-on, looked up", inbound.peer, LOOKUPS, MINUTE_S))
        found = providers.for_domain(email.rpartition("@")[2])
        if len(found) == 1:
            return redirect(inbound, _begin_path(found[0].id, target, email))
        if not found:
            problem = NotFound("There is no single sign-on for this e-mail address. Sign in with your password.")
    return page(
        inbound,
        "single_sign_on/choose.html",
        TITLE,
        error=problem,
        form_redirects=True,  # the form's answer leads to the provider
        email=email,
        target=target,
        choices=[(provider.name, _begin_path(provider.id, target, email)) for provider in found],
        login=login_path(target),
    )


def begin(services: Services, inbound: Inbound) -> Outbound:
    """Go to an identity provider. The query may give the path to return to (`redirect`) and the e-mail address."""
    arguments = inbound.arguments()
    target = own_path(arguments.get("redirect", ""))
    silent = arguments.get("silent") == "1"
    try:
        return _begin(services, inbound, target, silent=silent, email=arguments.get("email", "")[:320])
    except GatewayError:
        if not silent:
            raise
        return redirect(inbound, login_path(target, sso=SIGN_IN_AGAIN), [write_cookie(inbound, "", 0, PROVIDER_COOKIE)])


def connect(services: Services, inbound: Inbound) -> Outbound:
    """Go to an identity provider to connect it with the account of the signed-in person."""
    visitor, _ = submitted_by_visitor(services, inbound, ACCOUNT, CONNECT)
    visitor.check_account_access()
    return _begin(services, inbound, ACCOUNT, user_id=visitor.user_id)


def finish(services: Services, inbound: Inbound) -> Outbound:
    """Receive the provider's response, open the session and return to the page that started the sign-in."""
    if len(inbound.query) > MAX_RESPONSE_LENGTH:
        raise InvalidRequest("The response of the identity provider is too long.")
    visitor = find_visitor(services, inbound)
    provider_id = _provider_of(inbound)
    forget = write_cookie(inbound, "", 0, BROWSER_COOKIE)
    try:
        result = services.sso.service.finish(
            provider_id,
            inbound.arguments(),
            _browser_of(inbound),
            visitor.user_id if visitor is not None else "",
            place_of(inbound),
        )
    except SignInNeeded as needed:
        return redirect(inbound, login_path(own_path(needed.target), sso=SIGN_IN_AGAIN), [forget])
    cookies = [forget, write_cookie(inbound, provider_id, REMEMBERED_CHOICE_S, PROVIDER_COOKIE)]
    if result.session is not None:
        cookies.append(write_cookie(inbound, result.session.token))
    return redirect(inbound, own_path(result.target), cookies)


def _begin(services: Services, inbound: Inbound, target: str, user_id: str = "", **more: str | bool) -> Outbound:
    provider_id = _provider_of(inbound)
    browser = _browser_of(inbound) or secrets.token_urlsafe(32)
    start = SsoStart(
        redirect_uri=f"{inbound.base_url}{SSO}/{provider_id}/callback",
        target=target,
        browser=browser,
        user_id=user_id,
        silent=bool(more.get("silent")),
        email=str(more.get("email", "")),
    )
    address = services.sso.service.begin(provider_id, start, inbound.peer)
    response = redirect(inbound, "", [write_cookie(inbound, browser, FLOW_COOKIE_S, BROWSER_COOKIE)])
    headers = [(name, address if name == "Location" else value) for name, value in response.headers]
    return Outbound(response.status, headers)


def _begin_path(provider_id: str, target: str, email: str) -> str:
    fields = {"redirect": target} if target != AFTER_SIGN_IN else {}
    if email:
        fields["email"] = email
    return f"{SSO}/{provider_id}" + (f"?{urlencode(fields)}" if fields else "")


def _provider_of(inbound: Inbound) -> str:
    provider_id = inbound.params["provider_id"]
    if not PROVIDER.fullmatch(provider_id):
        raise NotFound("There is no such identity provider.")
    return provider_id


def _browser_of(inbound: Inbound) -> str:
    """Return the secret of this browser's flows; "" without a usable one."""
    value = read_cookie(inbound, BROWSER_COOKIE)
    return value if BROWSER.fullmatch(value) else ""


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", CHOOSE, as_page(choose)),
    Operation("GET", f"{SSO}/<provider_id>", as_page(begin)),
    Operation("POST", f"{SSO}/<provider_id>/connect", as_page(connect), body="form"),
    Operation("GET", f"{SSO}/<provider_id>/callback", as_page(finish)),
)
