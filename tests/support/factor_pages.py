"""Pages of a second factor, which only forms lead to: its set-up, the recovery codes, and the question for a code."""

import base64
import time
from collections.abc import Iterator

from support.chromium import Chromium
from support.one_time_pages import KNOWN, PASSWORD

from gateway.accounts.second_factor import STEP_S, code_at

SIGN_IN = """document.querySelector("#email").value = {email!r};
document.querySelector("#password").value = {password!r};
document.querySelector("#password").form.requestSubmit();"""
BEGIN = """document.querySelector("#password").value = {password!r};
document.querySelector("button[value=begin]").click();"""
CONFIRM = """document.querySelector("#code").value = {code!r};
document.querySelector("button[value=confirm]").click();"""


def walk_second_factor(browser: Chromium, address: str) -> Iterator[str]:
    """Set up the second factor of a person who has none, and sign in with it; yield the name of each page when it is
    open."""
    _sign_in(browser, address, "location.pathname == '/console'")
    browser.open(f"{address}/console/account")
    browser.wait_for("!!document.querySelector('button[value=begin]') && !!window.htmx")
    browser.run(BEGIN.format(password=PASSWORD))
    browser.wait_for("!!document.querySelector('p.code')")
    yield "factor-setup"
    secret = base64.b32decode(browser.run("document.querySelector('p.code').textContent").replace(" ", ""))
    browser.run(CONFIRM.format(code=code_at(secret, int(time.time()) // STEP_S)))
    browser.wait_for("!!document.querySelector('#codes')")
    yield "recovery-codes"
    _sign_in(browser, address, "!!document.querySelector('[name=ticket]') && !!document.querySelector('#code')")
    yield "second-factor"


def _sign_in(browser: Chromium, address: str, then: str) -> None:
    browser.ask("Network.clearBrowserCookies")
    browser.open(f"{address}/console/login")
    browser.wait_for("!!document.querySelector('#password')")
    browser.run(SIGN_IN.format(email=KNOWN, password=PASSWORD))
    browser.wait_for(then)
