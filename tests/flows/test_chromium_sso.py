"""Single sign-on in a real Chromium: redirects after forms pass the content security policy, and cookies come back.

The tests are skipped if Chromium is not installed (Debian: `apt-get install chromium`).
"""

from collections.abc import Callable

from support.axe import each_view, find_barriers, load_axe
from support.chromium import MARKS, Chromium
from support.gateways import GatewayProcess
from support.identity_provider import FakeIdentityProvider, write_settings
from support.signed_in_owner import EMAIL, PASSWORD
from support.watched_pages import FOLDER, save

pytestmark = MARKS
AT = "location.pathname"
# The answer to the form, without the header by which the browser would leave the page at once.
SIGN_OUT = """const form = document.querySelector("form[action$='/console/logout']");
fetch(form.action, {method: "POST", body: new URLSearchParams(new FormData(form))})
    .then(answer => answer.text()).then(text => { document.open(); document.write(text); document.close(); });"""


def press(browser: Chromium, selector: str) -> None:
    browser.wait_for(f"!!document.querySelector({selector!r})")
    browser.run(f"document.querySelector({selector!r}).click()")


def connect(browser: Chromium, address: str) -> None:
    """Sign in as the owner with the password, and connect the provider to the account."""
    browser.open(f"{address}/console/login")
    browser.wait_for("!!document.querySelector('#password')")
    browser.run(f"document.querySelector('#email').value = '{EMAIL}'")
    browser.run(f"document.querySelector('#password').value = '{PASSWORD}'")
    press(browser, "form button")
    browser.wait_for(f"{AT} == '/console'")
    browser.open(f"{address}/console/account")
    press(browser, "form[action$='/sso/acme/connect'] button")
    browser.wait_for("document.body.innerText.includes('connected')")


def test_an_owner_connects_the_provider_and_signs_in_with_it(
    process: Callable[..., GatewayProcess], browser: Chromium
) -> None:
    with FakeIdentityProvider() as provider:
        domain = {**provider.settings, "domains": ["acme.example"]}
        providers = write_settings(acme=provider.settings, limited=domain)
        gateway = process(GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD, GATEWAY_IDENTITY_PROVIDERS=providers)
        connect(browser, gateway.address)
        browser.wait_for(f"{AT} == '/console/account' && document.body.innerText.includes({provider.address!r})")

        press(browser, "form[action$='/console/logout'] button")
        browser.wait_for(f"{AT} == '/console/login'")
        browser.open(f"{gateway.address}/console/keys")
        press(browser, "a[href*='/console/sso/acme']")
        browser.wait_for(f"{AT} == '/console/keys'")

        # The form for an e-mail address leads to the provider too.
        browser.open(f"{gateway.address}/sso")
        browser.wait_for("!!document.querySelector('#email')")
        browser.run("document.querySelector('#email').value = 'someone@acme.example'")
        press(browser, "form button")
        # A session is open, so that the page asks first.
        browser.wait_for(f"{AT} == '/console/sso/limited'")
        press(browser, "form[action$='/console/sso/limited'] button")
        browser.wait_for(f"{AT} == '/console'")
        assert provider.authorizations[-1]["login_hint"] == "someone@acme.example"
        assert not [text for text in (provider.authorizations[-1]["nonce"], "refresh_token") if text in gateway.log()]


def test_pages_of_single_sign_on_fit_and_are_accessible(
    process: Callable[..., GatewayProcess], browser: Chromium
) -> None:
    axe = load_axe()
    problems: dict[str, str] = {}

    def examine(name: str) -> None:
        for view in each_view(browser, name, every=True):
            assert browser.run("document.documentElement.scrollWidth") <= browser.run("innerWidth"), view
            if FOLDER:
                save(browser, view)
            elif axe:
                problems.update(dict.fromkeys(find_barriers(browser, axe, view.endswith("dark")), view))

    with FakeIdentityProvider() as provider:
        settings = write_settings(acme=provider.settings)
        gateway = process(GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD, GATEWAY_IDENTITY_PROVIDERS=settings)
        browser.open(f"{gateway.address}/console/login")
        browser.wait_for("!!document.querySelector('a[href*=\"/console/sso/acme\"]')")
        examine("sign-in-providers")
        browser.open(f"{gateway.address}/sso")
        browser.wait_for("!!document.querySelector('#email')")
        examine("single-sign-on")
        connect(browser, gateway.address)
        browser.ask("Network.clearBrowserCookies")
        browser.open(f"{gateway.address}/console/sso/acme?redirect=/console/account")
        browser.wait_for("!!document.querySelector('form[action$=\"/console/sso/acme\"]')")
        examine("sign-in-asked")
        press(browser, "form[action$='/console/sso/acme'] button")
        browser.wait_for("!!document.querySelector('form[action$=\"/console/logout\"]')")
        browser.run(SIGN_OUT)
        browser.wait_for("document.title.startsWith('Signed out') && document.styleSheets.length === 1")
        examine("signed-out")
    assert not problems
