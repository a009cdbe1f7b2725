"""A person uses passkeys in a real Chromium with a virtual authenticator. Skipped without Chromium (Debian: `apt-get
install chromium`)."""

from collections.abc import Callable

from support.chromium import MARKS, Chromium
from support.gateways import GatewayProcess
from support.oauth import PASSWORD
from support.signed_in_owner import EMAIL, SignedInOwner

pytestmark = MARKS
AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


def fill(browser: Chromium, **fields: str) -> None:
    for name, value in fields.items():
        browser.run(f"document.getElementById('{name}').value = '{value}'")


def sign_in(browser: Chromium, base: str) -> None:
    browser.open(f"{base}/console/login?redirect=/console/account")
    browser.wait_for("!!document.querySelector('#password')")
    fill(browser, email=EMAIL, password=PASSWORD)
    browser.run("document.querySelector('form button').click()")


def press_passkey(browser: Chromium) -> None:
    """Press the button of the passkey form, once its script is there."""
    browser.wait_for("document.readyState === 'complete' && !!document.querySelector('form[data-passkey=get] button')")
    browser.run("document.querySelector('form[data-passkey=get] button').click()")


def sign_out(browser: Chromium, base: str) -> None:
    browser.run(f"document.querySelector('form[action=\"{base}/console/logout\"] button').click()")
    browser.wait_for("location.pathname === '/console/login'")


def test_a_passkey_signs_in_and_is_a_second_factor(process: Callable[..., GatewayProcess], browser: Chromium) -> None:
    gateway = process(GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD)
    base = gateway.address.replace("127.0.0.1", "localhost")
    browser.ask("WebAuthn.enable")
    authenticator = browser.ask("WebAuthn.addVirtualAuthenticator", options=AUTHENTICATOR)["authenticatorId"]
    sign_in(browser, base)
    browser.wait_for("document.readyState === 'complete' && !!document.querySelector('#passkey-password')")

    # With a wrong password the browser gets no options, so the authenticator creates nothing.
    fill(browser, **{"passkey-name": "Laptop", "passkey-password": "wrong password"})
    browser.run("document.querySelector('form[data-passkey=create] button').click()")
    browser.wait_for("!document.querySelector('form[data-passkey=create] [data-problem]').hidden")
    assert not browser.ask("WebAuthn.getCredentials", authenticatorId=authenticator)["credentials"]

    fill(browser, **{"passkey-password": PASSWORD})
    browser.run("document.querySelector('form[data-passkey=create] button').click()")
    browser.wait_for("!!document.querySelector('input[value=Laptop]')")
    (credential,) = browser.ask("WebAuthn.getCredentials", authenticatorId=authenticator)["credentials"]
    assert credential["rpId"] == "localhost" and credential["isResidentCredential"]

    # Without a password.
    sign_out(browser, base)
    press_passkey(browser)
    browser.wait_for("location.pathname === '/console' && !!document.querySelector('nav')")

    # As the second factor, with recovery codes.
    browser.open(f"{base}/console/account")
    browser.wait_for("!!document.querySelector('button[value=passkey_factor]')")
    fill(browser, password=PASSWORD)
    browser.run("document.querySelector('button[value=passkey_factor]').click()")
    browser.wait_for("/[0-9a-f]{5}-[0-9a-f]{5}/.test(document.body.innerText)")
    browser.open(f"{base}/console/account")
    browser.wait_for("document.body.innerText.includes('Enabled with your passkeys')")
    sign_out(browser, base)
    sign_in(browser, base)
    browser.wait_for("!!document.querySelector('#code')")
    fill(browser, code="000000")
    browser.run("document.querySelector('form button').click()")
    browser.wait_for("!!document.querySelector('.problem:not([hidden])')")
    press_passkey(browser)
    browser.wait_for("!!document.querySelector('input[value=Laptop]')")

    # The operator helps a person who lost the device.
    assert "Removed passkeys: 1" in gateway.manage("members", "reset-second-factor", EMAIL)
    SignedInOwner(gateway.address)  # the password suffices
    sign_out(browser, base)
    press_passkey(browser)
    browser.wait_for("!!document.querySelector('.problem:not([hidden])')")
    assert "not accepted" in browser.run("document.querySelector('.problem').textContent")
    log = gateway.log()
    assert PASSWORD not in log and credential["credentialId"] not in log
