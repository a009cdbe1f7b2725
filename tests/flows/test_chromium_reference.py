"""The API reference in a real Chromium: a reader sends a request with their own key, also on a telephone.

The tests are skipped if Chromium is not installed (Debian: `apt-get install chromium`).
"""

import json

import pytest
from support.chromium import BROWSER, MISSING, Chromium
from support.gateways import LocalGateway

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason=MISSING)]

# The renderer computes for seconds, for a minute on a busy machine.
RENDERED_S = 240
# The first element of a selector, in the page or in the shadow tree of one of its components.
FIND = """window.find = (selector, root = document) => {
    const found = root.querySelector(selector);
    if (found) return found;
    const inner = [...root.querySelectorAll("*")].filter(one => one.shadowRoot);
    return inner.map(one => find(selector, one.shadowRoot)).find(one => one) ?? null;
}"""
BODY = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Hello from the reference"}]}
CHAT = "post-/v1/chat/completions"
TRY = "[part~=btn-try]"
ANSWER = "find('.response-message').getRootNode().querySelector('.tab-content code').textContent"
OVERLAP = """(() => {
    const badge = find(".tooltip").getBoundingClientRect();
    const lines = [".expanded .path", ".summary .title"].flatMap(selector => {
        const text = document.createRange();
        text.selectNodeContents(find(selector));
        return [...text.getClientRects()];
    });
    return lines.some(line => line.right > badge.left && badge.right > line.left
        && line.bottom > badge.top && badge.bottom > line.top);
})()"""


@pytest.fixture
def page_script() -> str:
    return FIND


def press(browser: Chromium, selector: str) -> None:
    browser.wait_for(f"!!find({selector!r})", RENDERED_S)
    browser.run(f"find({selector!r}).click()")


def test_a_request_is_sent_with_the_key_of_the_reader(sandbox_gateway: LocalGateway, browser: Chromium) -> None:
    browser.open(f"{sandbox_gateway.address}/docs#auth")
    browser.wait_for("!!find('#security-scheme-bearerKey .api-key-input')", RENDERED_S)
    browser.run(f"find('#security-scheme-bearerKey .api-key-input').value = {sandbox_gateway.key!r}")
    press(browser, "#security-scheme-bearerKey button")
    browser.run(f"location.hash = {CHAT!r}")
    browser.wait_for(f"!!find({TRY!r}) && !!find('.request-body-param-user-input')", RENDERED_S)
    browser.run(f"find('.request-body-param-user-input').value = {json.dumps(json.dumps(BODY))}")
    press(browser, TRY)
    browser.wait_for("!!find('.response-message')")
    assert browser.run("find('.response-message').textContent").startswith("Response Status: OK:200")
    browser.wait_for(f"{ANSWER}.startsWith('{{')")  # the component shows an hourglass before
    answer = json.loads(browser.run(ANSWER))
    assert "Hello from the reference" in answer["choices"][0]["message"]["content"]
    assert browser.run("find('.response-message').classList.contains('success')")


def test_badges_leave_path_and_title_of_an_operation_readable_on_a_telephone(
    sandbox_gateway: LocalGateway, browser: Chromium
) -> None:
    browser.ask("Emulation.setDeviceMetricsOverride", width=400, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(f"{sandbox_gateway.address}/docs#{CHAT}")
    browser.wait_for("!!find('.tooltip') && !!find('.summary .title')", RENDERED_S)
    assert not browser.run(OVERLAP)
