"""A person authorizes an application in a real Chromium, and the redirect after the form reaches the application.

Browsers apply `form-action` to every redirect that follows a form. A page without the right `form-action` stops here
without an error message. The tests are skipped if Chromium is not installed (Debian: `apt-get install chromium`).
"""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl

import gevent
from fakes.server import FakeServer
from support.chromium import MARKS, PATIENCE_S, Chromium
from support.gateways import GatewayProcess
from support.oauth import PASSWORD, App
from support.oauth_client import CALLS, Storage, visit
from support.signed_in_owner import EMAIL

pytestmark = MARKS


class Listener(FakeServer):
    """The application's local server, which redirects to the application's custom URL scheme."""

    told: dict[str, str] | None = None
    came_to = ""

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        if environ["PATH_INFO"] == "/callback":
            self.came_to = f"{self.url}/callback?{environ['QUERY_STRING']}"
            self.told = dict(parse_qsl(environ["QUERY_STRING"]))
            start("302 Found", [("Location", "cursor://anysphere.cursor-mcp/done"), ("Content-Length", "0")])
            return iter([b""])
        start("404 Not Found", [("Content-Length", "0")])
        return iter([b""])


def decide(browser: Chromium, listener: Listener, decision: str) -> dict[str, str]:
    """Press a button of the page and return the parameters that the application receives."""
    listener.told = None
    browser.wait_for("!!document.querySelector('button[name=decision]')")
    assert "requests access to" in browser.run("document.body.innerText")
    assert browser.run("document.querySelectorAll('select option').length") == 1
    browser.run(f"document.querySelector('button[value={decision}]').click()")
    with gevent.Timeout(PATIENCE_S, AssertionError("the browser did not go back to the application")):
        while listener.told is None:
            gevent.sleep(0.05)
    return listener.told


def sign_in(browser: Chromium) -> None:
    browser.wait_for("!!document.querySelector('#password')")
    browser.run(f"document.querySelector('#email').value = '{EMAIL}'")
    browser.run(f"document.querySelector('#password').value = '{PASSWORD}'")
    browser.run("document.querySelector('form button').click()")


def test_the_official_client_calls_every_tool_once_its_person_allowed_it_in_the_browser(
    process: Callable[..., GatewayProcess], browser: Chromium
) -> None:
    gateway = process(GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD)
    with Listener() as listener:

        def allow(address: str) -> str:
            browser.open(address)
            sign_in(browser)
            decide(browser, listener, "allow")
            return listener.came_to

        calls = [(name, given | ({"model": "sandbox-echo"} if name == "chat" else {})) for name, given in CALLS]
        names, results, _ = visit(gateway.address, allow, Storage(), calls, f"{listener.url}/callback")
    assert sorted(names) == sorted(name for name, _ in CALLS)
    assert not any(result.is_error for result in results), results


def test_a_person_decides_in_a_real_browser_and_the_application_gets_the_result(
    process: Callable[..., GatewayProcess], browser: Chromium
) -> None:
    gateway = process(GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD)
    base = gateway.address.replace("127.0.0.1", "localhost")
    with Listener() as listener:
        back = f"{listener.url}/callback"
        app = App(base, redirect_uris=[back])
        browser.open(app.address(redirect_uri=back))
        sign_in(browser)
        denied = decide(browser, listener, "deny")
        assert denied["error"] == "access_denied" and denied["iss"] == base and "code" not in denied
        browser.open(app.address(redirect_uri=back))
        told = decide(browser, listener, "allow")
    assert told["state"] == "the state" and told["iss"] == base
    tokens = app.exchange(told["code"], redirect_uri=back).json()
    headers = {"Authorization": f"Bearer {tokens['access_token']}"}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert app.web.post(f"{base}/mcp", json=ping, headers=headers).json()["result"] == {}
    assert not [secret for secret in (told["code"], tokens["access_token"]) if secret in gateway.log()]
