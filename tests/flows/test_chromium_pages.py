"""The pages for people in a real Chromium: in a dark room, and on a telephone."""

from collections.abc import Callable

import gevent
import requests
from support.chromium import MARKS, PATIENCE_S, Chromium
from support.gateways import GatewayProcess, LocalGateway
from support.oauth import PASSWORD
from support.signed_in_owner import EMAIL

from gateway.accounts.members import list_members

pytestmark = MARKS

# The brightness, 0 to 1, of what the page and its text are painted with.
LOADED = "document.readyState === 'complete'"  # with the style sheet
BRIGHTNESS = """["backgroundColor", "color"].map(kind => {
    const [red, green, blue] = getComputedStyle(document.body)[kind].match(/[\\d.]+/g).map(Number);
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255;
})"""
LINES = """Math.round(document.querySelector("tbody a").getBoundingClientRect().height
    / parseFloat(getComputedStyle(document.querySelector("tbody td")).fontSize))"""


def test_pages_are_dark_for_who_wants_that_and_a_telephone_shows_them_whole(
    process: Callable[..., GatewayProcess], browser: Chromium
) -> None:
    gateway = process(GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD)
    body = {"model": "none/" + "long" * 50, "messages": [{"role": "user", "content": "Hello"}]}
    headers = {"Authorization": f"Bearer {gateway.key}"}
    assert requests.post(f"{gateway.address}/v1/chat/completions", json=body, headers=headers).status_code == 400
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.ask("Emulation.setDeviceMetricsOverride", width=360, height=800, deviceScaleFactor=1, mobile=False)
    browser.open(f"{gateway.address}/console/login?redirect=/console/logs")
    browser.wait_for(f"{LOADED} && !!document.querySelector('#password')")
    page, text = browser.run(BRIGHTNESS)
    assert page < 0.2 and text > 0.7
    browser.run(f"document.querySelector('#email').value = '{EMAIL}'")
    browser.run(f"document.querySelector('#password').value = '{PASSWORD}'")
    browser.run("document.querySelector('form button').click()")
    browser.wait_for("!!document.querySelector('tbody td')")
    with gevent.Timeout(PATIENCE_S, AssertionError("the request did not come into the log")):
        while not browser.run("!!document.querySelector('tbody a')"):
            browser.open(f"{gateway.address}/console/logs")
            browser.wait_for("!!document.querySelector('tbody td')")
    assert browser.run("document.documentElement.scrollWidth") <= 360
    assert browser.run(LINES) == 1
    browser.open(f"{gateway.address}/console")
    browser.wait_for(f"{LOADED} && document.title.startsWith('Overview') && !!document.querySelector('.stat')")
    assert browser.run("document.documentElement.scrollWidth") <= 360
    browser.open(f"{gateway.address}/console/explore?timeRange=30d")
    browser.wait_for(f"{LOADED} && document.title.startsWith('Explore') && !!document.querySelector('.plot svg')")
    browser.run("document.querySelector('summary').click()")
    assert browser.run("document.querySelectorAll('details tbody tr').length") == 30
    assert browser.run("document.documentElement.scrollWidth") <= 360
    assert browser.run("document.querySelector('tbody td').getBoundingClientRect().width") > 120
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    page, text = browser.run(BRIGHTNESS)
    assert page > 0.9 and text < 0.2


def test_a_part_that_the_overview_loads_leaves_its_place_in_the_menu(
    sandbox_gateway: LocalGateway, browser: Chromium
) -> None:
    member = list_members(sandbox_gateway.services.store.database, sandbox_gateway.organization_id)[0]
    token = sandbox_gateway.services.management.sessions.open(member.user_id).token
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=sandbox_gateway.address)
    browser.open(f"{sandbox_gateway.address}/console")
    browser.wait_for("document.body.innerText.includes('Your coding agents have no sessions yet.')")
    assert browser.run("document.querySelector('#pages [aria-current]').textContent.trim()") == "Overview"
