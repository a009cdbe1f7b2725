"""Sign-in with the browser: the device flow (RFC 8628 with JSON bodies)."""

import re
import sys
import webbrowser
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from llmgateway_cli.context import ClientContext
from llmgateway_cli.errors import CliError
from llmgateway_cli.sessions import Session
from llmgateway_cli.settings import origin_of
from llmgateway_cli.shapes import object_of, text_of, unexpected_answer

CLIENT_ID = "llmgateway-cli"
GRANT_TYPE = "urn:ietf:params:oauth:grant-type:device_code"
USER_CODE = re.compile(r"[A-Za-z0-9-]{1,64}")
DEFAULT_INTERVAL_S = 5.0
SLOW_DOWN_S = 5.0
MAX_SECONDS = 86_400  # longer times of a service are mistakes
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
SIGN_IN_AGAIN = "Start again with `llmgateway auth login`."
ERROR_MESSAGES = {
    "access_denied": CliError("The sign-in was denied in the browser.", SIGN_IN_AGAIN),
    "expired_token": CliError("The code has expired before it was approved.", SIGN_IN_AGAIN),
}


@dataclass(frozen=True, slots=True)
class PageOptions:
    """How to open the page. `sso` is the address for the single sign-on page, "" without one, None to leave that page
    out."""

    no_browser: bool
    timeout_s: int
    sso: str | None


@dataclass(frozen=True, slots=True)
class Grant:
    """A device code, and the page where the user approves it."""

    device_code: str
    user_code: str
    page: str
    interval_s: float
    expires_in_s: float


def sign_in(context: ClientContext, way: PageOptions) -> Session:
    """Return the session that the user approves in the browser. Nothing is stored."""
    grant = _begin(context)
    context.output.hide(grant.device_code)
    page = f"{grant.page}?user_code={quote(grant.user_code)}"
    if way.sso is not None:
        path = page.removeprefix(origin_of(context.settings.dashboard_url))
        query = {"redirect": path}
        if way.sso:
            query["email"] = way.sso
        page = f"{context.settings.dashboard_url}/sso?{urlencode(query)}"
    context.output.info(f"Open this page to sign in: {page}")
    context.output.info(f"The page shows this code: {grant.user_code}")
    if not way.no_browser:
        open_page(context, page)
    token = _wait(context, grant, min(way.timeout_s, grant.expires_in_s))
    context.output.hide(token)
    session = Session(context.settings.api_url, "", token=token)
    answer = context.client.management("GET", "/auth/get-session", session=session)
    return Session(session.api_url, text_of(object_of(answer, "user"), "email"), token=token)


def open_page(context: ClientContext, page: str) -> None:
    """Open a page if there is a browser; the user can open it elsewhere."""
    environment = context.settings.environment
    has_display = sys.platform in ("darwin", "win32") or any(environment.get(name) for name in DISPLAYS)
    if not has_display or not webbrowser.open(page):
        context.output.info("No browser was found here. Open the page on any device.")


def _begin(context: ClientContext) -> Grant:
    """Request a device code, and check that its page belongs to the dashboard."""
    answer = context.client.device_request("/auth/device/code", {"client_id": CLIENT_ID})
    if answer.status == 404:
        raise CliError(
            f"{context.settings.api_url} has no sign-in with the browser.",
            "Use `llmgateway auth login --email` or `llmgateway auth login --key`.",
        )
    body = object_of(answer.checked())
    user_code = text_of(body, "user_code")
    if not USER_CODE.fullmatch(user_code):
        raise unexpected_answer("user_code")
    page = text_of(body, "verification_uri")
    _check_page(context, page, body.get("verification_uri_complete"), user_code)
    interval_s = _seconds(body.get("interval"), DEFAULT_INTERVAL_S)
    expires_in_s = _seconds(body.get("expires_in"), 0.0)
    if expires_in_s <= 0:
        raise unexpected_answer("expires_in")
    return Grant(text_of(body, "device_code"), user_code, page, interval_s, expires_in_s)


def _check_page(context: ClientContext, page: str, complete: Any, user_code: str) -> None:
    """Raise CliError if a page is not one of the dashboard: it could take the user's password."""
    dashboard = origin_of(context.settings.dashboard_url)
    pages = [page]
    if isinstance(complete, str):
        pages.append(complete)
    for named in pages:
        origin = origin_of(named)
        if origin != dashboard:
            raise CliError(
                f"The service names a page at {origin or 'an invalid address'}, but the web pages are at {dashboard}.",
                "If you trust that address, give it with --dashboard-url.",
            )
    if "?" in page or "#" in page:
        raise unexpected_answer("verification_uri")
    if isinstance(complete, str):
        parts = urlsplit(complete)
        codes = parse_qs(parts.query).get("user_code")
        if parts.path != urlsplit(page).path or codes != [user_code]:
            raise unexpected_answer("verification_uri_complete")


def _wait(context: ClientContext, grant: Grant, timeout_s: float) -> str:
    """Return the token once the user has approved the code."""
    until = monotonic() + timeout_s
    interval_s = grant.interval_s
    body = {"grant_type": GRANT_TYPE, "device_code": grant.device_code, "client_id": CLIENT_ID}
    with context.output.progress("Waiting for your approval in the browser"):
        while monotonic() + interval_s < until:
            sleep(interval_s)
            answer = context.client.device_request("/auth/device/token", body)
            if answer.ok:
                return _token_of(answer.checked())
            slug = answer.error_slug()
            if slug in ERROR_MESSAGES:
                raise ERROR_MESSAGES[slug]
            if slug == "slow_down" or answer.status == 429:
                interval_s += SLOW_DOWN_S
            elif slug != "authorization_pending":
                answer.checked()
    raise CliError(f"The sign-in was not approved within {timeout_s:g} s.", SIGN_IN_AGAIN)


def _token_of(answer: Any) -> str:
    token = text_of(object_of(answer), "access_token")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise unexpected_answer("access_token")
    return token


def _seconds(value: Any, default: float) -> float:
    if isinstance(value, int | float) and 0 <= value <= MAX_SECONDS:
        return float(value)
    return default
