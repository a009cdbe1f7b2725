"""Sign-ins that a person began on a page of this gateway, as opposed to those that a link from elsewhere leads to.

The sign-in page gives the browser a secret in a cookie, and its links to identity providers have a mark that only this
browser can have. A link without it asks the person first: it could sign the browser in to another's account.
"""

import hmac
import re
import secrets
from typing import NamedTuple

from gateway.accounts.tokens import hash_token
from gateway.surfaces.http import Inbound
from gateway.surfaces.visitor import read_cookie, write_cookie
from gateway.worker.services import Services

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
