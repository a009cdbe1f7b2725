"""Single sign-on in a real Chromium: redirects after forms pass the content security policy, and cookies come back.

The tests are skipped if Chromium is not installed (Debian: `apt-get install chromium`).
"""

from collections.abc import Callable

from support.chromium import MARKS, Chromium
from support.gateways import GatewayProcess
from support.identity_provider import FakeIdentityProvider, write_settings
from support.signed_in_owner import EMAIL, PASSWORD

pytestmark = MARKS
AT = "location.pathname"


def press(browser: Chromium, selector: str) -> None:
    browser.wait_for(f"!!document.querySelector({selector!r})")
    browser.run(f"document.querySelector({selector!r}).click()")


def test_an_owner_connects_the_provider_and_signs_in_with_it(
    process: Callable[..., GatewayProcess], browser: Chromium
) -> None:
    with FakeIdentityProvider() as provider:
        domain = {**provider.settings, "domains": ["acme.example"]}
        providers = write_settings(acme=provider.settings, limited=domain)
        gateway = process(GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD, GATEWAY_IDENTITY_PROVIDERS=providers)
        browser.open(f"{gateway.address}/console/login")
        browser.wait_for("!!document.querySelector('#password')")
        browser.run(f"document.querySelector('#email').value = '{EMAIL}'")
        browser.run(f"document.querySelector('#password').value = '{PASSWORD}'")
        press(browser, "form button")
        browser.wait_for(f"{AT} == '/console'")
        browser.open(f"{gateway.address}/console/account")
        press(browser, "form[action$='/sso/acme/connect'] button")
        browser.wait_for("document.body.innerText.includes('connected')")
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
        browser.wait_for(f"{AT} == '/console'")
        assert provider.authorizations[-1]["login_hint"] == "someone@acme.example"
        assert not [text for text in (provider.authorizations[-1]["nonce"], "refresh_token") if text in gateway.log()]
