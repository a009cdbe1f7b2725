"""`/sso` and `/console/sso/…`: choose an identity provider, and sign in with it."""

import hmac
import re
import secrets
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from gateway.accounts import organizations
from gateway.accounts.identity_providers import IdentityProvider
from gateway.admin.sso_sign_in import SignInNeeded, SsoStart
from gateway.callers.throttle import ThrottleGate
from gateway.callers.tokens import hash_token
from gateway.errors import GatewayError, InvalidRequest, NotFound
from gateway.surfaces.console.pages import AFTER_SIGN_IN, own_path, page, redirect
from gateway.surfaces.console.visits import (
    PROVIDER_COOKIE,
    SIGN_IN_AGAIN,
    SSO,
    as_page,
    check_csrf,
    find_visitor,
    login_path,
    make_csrf,
    submitted,
    submitted_by_visitor,
)
from gateway.surfaces.visitors.visitor import Visitor, place_of, read_cookie, write_cookie
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

# Sign-ins that a person began on a page of this gateway, as opposed to those that a link from elsewhere leads to.
#
# The sign-in page gives the browser a secret in a cookie, and its links to identity providers have a mark that only
# this browser can have. A link without it asks the person first: it could sign the browser in to another's account.

BROWSER_COOKIE = "llmgateway.sso"
MARK = "begun"  # the parameter with the mark
PAGE_COOKIE_S = 3600
BROWSER = re.compile(r"[A-Za-z0-9_-]{32,64}")


class BegunSignIn(NamedTuple):
    """The mark for links of a page, and the Set-Cookie that makes it valid."""

    mark: str
    cookie: tuple[str, str]


def begin_on_page(services: Services, inbound: Inbound) -> BegunSignIn:
    """Return the mark of this browser for a page that offers to sign in."""
    browser = browser_of(inbound) or secrets.token_urlsafe(32)
    return BegunSignIn(_make_mark(services, browser), write_cookie(inbound, browser, PAGE_COOKIE_S, BROWSER_COOKIE))


def was_begun_on_page(services: Services, inbound: Inbound) -> bool:
    """Return whether the request follows a link of a page that this browser was shown."""
    browser = browser_of(inbound)
    mark = inbound.arguments().get(MARK, "")
    return bool(browser) and hmac.compare_digest(_make_mark(services, browser).encode(), mark.encode())


def browser_of(inbound: Inbound) -> str:
    """Return the secret of this browser's sign-ins; "" without a usable one."""
    value = read_cookie(inbound, BROWSER_COOKIE)
    return value if BROWSER.fullmatch(value) else ""


def _make_mark(services: Services, browser: str) -> str:
    return hash_token(f"sign-in begun\n{browser}", services.store.secrets.hash_keys[0])


TITLE = "Single sign-on"
CHOOSE = "/sso"
FLOW_COOKIE_S = 600
REMEMBERED_CHOICE_S = 180 * 86_400
PROVIDER = re.compile(r"[a-z0-9_-]{1,40}")
MAX_RESPONSE_LENGTH = 8_000
LOOKUPS = 60  # a minute, from one place
MINUTE_S = 60
CONNECT = "connect identity"
CONTINUE = "continue sign-in"
ACCOUNT = "/console/account"


def choose(services: Services, inbound: Inbound) -> Outbound:
    """Find the identity provider of an e-mail address, and go there; ask for the address without one."""
    arguments = inbound.arguments()
    target = own_path(arguments.get("redirect", ""))
    email = arguments.get("email", "")[:320].strip()
    begun = begin_on_page(services, inbound)
    # The address may come from a link: only the form of this page shows that the person typed it.
    mark = begun.mark if was_begun_on_page(services, inbound) or not email else ""
    providers = services.sso.service.providers
    if not providers.any_exists():
        return redirect(inbound, login_path(target, **({"email": email} if email else {})))
    found: list[IdentityProvider] = []
    problem = None
    if email:
        services.management.throttle.take(ThrottleGate("single sign-on, looked up", inbound.peer, LOOKUPS, MINUTE_S))
        found = providers.for_domain(email.rpartition("@")[2])
        if len(found) == 1:
            return redirect(inbound, _begin_path(found[0].id, target, email, mark), [begun.cookie])
        if not found:
            problem = NotFound("There is no single sign-on for this e-mail address. Sign in with your password.")
    response = page(
        inbound,
        "single_sign_on/choose.html",
        TITLE,
        error=problem,
        form_redirects=True,  # the form's answer leads to the provider
        email=email,
        target=target,
        begun=begun.mark,
        choices=[(provider.name, _begin_path(provider.id, target, email, mark)) for provider in found],
        login=login_path(target),
    )
    response.headers.append(begun.cookie)
    return response


def begin(services: Services, inbound: Inbound) -> Outbound:
    """Go to an identity provider. The query may give the path to return to (`redirect`) and the e-mail address. A link
    that does not come from the sign-in page, or is followed over a live session, asks first."""
    arguments = inbound.arguments()
    target = own_path(arguments.get("redirect", ""))
    visitor = find_visitor(services, inbound)
    if visitor is not None or not was_begun_on_page(services, inbound):
        return _ask(services, inbound, visitor, target, arguments.get("email", "")[:320])
    silent = arguments.get("silent") == "1"
    try:
        return _begin(services, inbound, target, silent=silent, email=arguments.get("email", "")[:320])
    except GatewayError:
        if not silent:
            raise
        return redirect(inbound, login_path(target, sso=SIGN_IN_AGAIN), [write_cookie(inbound, "", 0, PROVIDER_COOKIE)])


def begin_after_asking(services: Services, inbound: Inbound) -> Outbound:
    """Go to an identity provider after the person agreed to."""
    form = submitted(services, inbound)
    visitor = find_visitor(services, inbound)
    check_csrf(services, visitor, CONTINUE, form)
    replaced = visitor.session.id if visitor is not None else ""
    target = own_path(form.get("redirect", ""))
    return _begin(services, inbound, target, replaced=replaced, email=form.get("email", "")[:320])


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
            browser_of(inbound),
            visitor.session if visitor is not None else None,
            place_of(inbound),
        )
    except SignInNeeded as needed:
        return redirect(inbound, login_path(own_path(needed.target), sso=SIGN_IN_AGAIN), [forget])
    cookies = [forget, write_cookie(inbound, provider_id, REMEMBERED_CHOICE_S, PROVIDER_COOKIE)]
    if result.session is not None:
        cookies.append(write_cookie(inbound, result.session.token))
    return redirect(inbound, own_path(result.target), cookies)


def _ask(services: Services, inbound: Inbound, visitor: Visitor | None, target: str, hint: str) -> Outbound:
    """Show the organization that requests the sign-in, and the session that it would replace."""
    provider = services.sso.service.providers.find(_provider_of(inbound))
    organization = ""
    if provider.organization_id:
        organization = organizations.find_organization(services.store.database, provider.organization_id).name
    return page(
        inbound,
        "single_sign_on/ask.html",
        TITLE,
        form_redirects=True,  # the form's answer leads to the provider
        organization=organization,
        provider=provider.name,
        host=urlsplit(provider.issuer).netloc,
        email=visitor.session.email if visitor is not None else "",
        csrf=make_csrf(services, visitor, CONTINUE),
        path=f"{SSO}/{provider.id}",
        target=target,
        hint=hint,
        login=login_path(target, sso=SIGN_IN_AGAIN),
    )


def _begin(services: Services, inbound: Inbound, target: str, user_id: str = "", **more: str | bool) -> Outbound:
    provider_id = _provider_of(inbound)
    browser = browser_of(inbound) or secrets.token_urlsafe(32)
    start = SsoStart(
        redirect_uri=f"{inbound.base_url}{SSO}/{provider_id}/callback",
        target=target,
        browser=browser,
        user_id=user_id,
        silent=bool(more.get("silent")),
        email=str(more.get("email", "")),
        replaced=str(more.get("replaced", "")),
    )
    address = services.sso.service.begin(provider_id, start, inbound.peer)
    response = redirect(inbound, "", [write_cookie(inbound, browser, FLOW_COOKIE_S, BROWSER_COOKIE)])
    headers = [(name, address if name == "Location" else value) for name, value in response.headers]
    return Outbound(response.status, headers)


def _begin_path(provider_id: str, target: str, email: str, mark: str) -> str:
    fields = {"redirect": target} if target != AFTER_SIGN_IN else {}
    if email:
        fields["email"] = email
    if mark:
        fields[MARK] = mark
    return f"{SSO}/{provider_id}" + (f"?{urlencode(fields)}" if fields else "")


def _provider_of(inbound: Inbound) -> str:
    provider_id = inbound.params["provider_id"]
    if not PROVIDER.fullmatch(provider_id):
        raise NotFound("There is no such identity provider.")
    return provider_id


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", CHOOSE, as_page(choose)),
    Operation("GET", f"{SSO}/<provider_id>", as_page(begin)),
    Operation("POST", f"{SSO}/<provider_id>", as_page(begin_after_asking), body="form"),
    Operation("POST", f"{SSO}/<provider_id>/connect", as_page(connect), body="form"),
    Operation("GET", f"{SSO}/<provider_id>/callback", as_page(finish)),
)
