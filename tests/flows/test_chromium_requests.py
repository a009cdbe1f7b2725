"""The requests of the console in a real Chromium: a reader goes from one request of a filtered list to the next."""

from support.chromium import MARKS, Chromium
from support.demo_usage import add_demo_usage
from support.gateways import LocalGateway

pytestmark = MARKS

ROWS = "[...document.querySelectorAll('tbody a.open')].map(one => one.href)"
NEIGHBOURS = "[...document.querySelectorAll('[data-step]')].map(one => !one.hidden)"
MODEL = "document.querySelector('.stat dd').textContent"
PRESS = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}))"


def test_a_request_leads_to_its_neighbours_in_the_list(sandbox_gateway: LocalGateway, browser: Chromium) -> None:
    token = add_demo_usage(sandbox_gateway)
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=sandbox_gateway.address)
    browser.open(f"{sandbox_gateway.address}/console/logs?model=gpt-5&timeRange=30d")
    browser.wait_for("document.readyState === 'complete' && document.querySelectorAll('tbody a.open').length > 2")
    first, second, *_ = browser.run(ROWS)
    browser.run("document.querySelector('tbody a.open').click()")
    browser.wait_for(f"location.href === '{first}' && {NEIGHBOURS}[1]")
    assert browser.run(NEIGHBOURS) == [False, True]
    browser.run("document.querySelector('[data-step=\"1\"]').click()")
    browser.wait_for(f"location.href === '{second}' && {NEIGHBOURS}[0]")
    assert browser.run(MODEL) == "gpt-5"
    browser.run(PRESS % "k")
    browser.wait_for(f"location.href === '{first}' && {NEIGHBOURS}[1]")
