"""The API reference in a real Chromium: it loads nothing from another host, a telephone shows it well, and a reader
sends a request with their own key.

The tests are skipped if Chromium is not installed (Debian: `apt-get install chromium`).
"""

import json
from collections.abc import Iterator

import pytest
import requests
from support.axe import THEMES, WIDTHS, find_barriers, load_axe, set_theme, set_width
from support.chromium import MARKS, Chromium
from support.demo_usage import add_demo_usage
from support.gateways import LocalGateway
from support.shared import ModuleShare
from support.watched_pages import FOLDER, HOSTS, WATCH, save

from gateway.surfaces.visitors.visitor import COOKIE

pytestmark = MARKS

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
FORM = "post-/v1/audio/transcriptions"
# The right end of the widest field of the form.
FIELDS_END = """Math.max(...[...find("[data-pname=url]").closest("table").querySelectorAll("input, .m-markdown-small")]
    .map(one => one.getBoundingClientRect().right))"""
# Operations that a signed-in person tries: one of the model API, one that reads the account by key, one by the session.
TRIED = (CHAT, "get-/v1/key", "get-/orgs")
OVERLAP = """(() => {
    const badge = find(".tooltip").getBoundingClientRect();
    const headings = [...find(".tooltip").getRootNode().querySelectorAll("h1, h2, h3, .mono-font")];
    const lines = headings.filter(one => !one.closest(".tooltip")).flatMap(heading => {
        const text = document.createRange();
        text.selectNodeContents(heading);
        return [...text.getClientRects()];
    });
    return [lines.length > 2, lines.some(line => line.right > badge.left && badge.right > line.left
        && line.bottom > badge.top && badge.bottom > line.top)];
})()"""


@pytest.fixture(scope="module")
def gateway(module_share: ModuleShare) -> LocalGateway:
    """A gateway without provider keys, as its first start leaves it."""
    return module_share.gateway("reference", {}).gateway


@pytest.fixture(scope="module")
def reference(gateway: LocalGateway) -> Iterator[Chromium]:
    """The page of a wide window, which tests share."""
    page = Chromium()
    page.ask("Page.enable")
    page.ask("Page.addScriptToEvaluateOnNewDocument", source=WATCH + FIND)
    page.open(f"{gateway.address}/docs#{CHAT}")
    page.wait_for(f"!!find({TRY!r})")
    yield page
    page.close()


@pytest.fixture
def page_script() -> str:
    return FIND


def press(browser: Chromium, selector: str) -> None:
    browser.wait_for(f"!!find({selector!r})")
    browser.run(f"find({selector!r}).click()")


def test_the_reference_renders_from_this_site_alone(gateway: LocalGateway, reference: Chromium) -> None:
    shown = reference.run("document.querySelector('rapi-doc').shadowRoot.textContent")
    assert "Create a chat completion" in shown
    assert reference.run("window.violations") == []
    assert set(reference.run(HOSTS)) == {gateway.address.removeprefix("http://")}


def test_a_request_is_sent_with_the_key_of_the_reader(gateway: LocalGateway, reference: Chromium) -> None:
    reference.run("location.hash = 'auth'")
    reference.wait_for("!!find('#security-scheme-bearerKey .api-key-input')")
    reference.run(f"find('#security-scheme-bearerKey .api-key-input').value = {gateway.key!r}")
    press(reference, "#security-scheme-bearerKey button")
    reference.run(f"location.hash = {CHAT!r}")
    reference.wait_for(f"!!find({TRY!r}) && !!find('.request-body-param-user-input')")
    reference.run(f"find('.request-body-param-user-input').value = {json.dumps(json.dumps(BODY))}")
    press(reference, TRY)
    reference.wait_for("!!find('.response-message')")
    assert reference.run("find('.response-message').textContent").startswith("Response Status: OK:200")
    reference.wait_for(f"{ANSWER}.startsWith('{{')")  # the component shows an hourglass before
    answer = json.loads(reference.run(ANSWER))
    assert "Hello from the reference" in answer["choices"][0]["message"]["content"]
    assert reference.run("find('.response-message').classList.contains('success')")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_an_operation_with_a_form_fits_and_is_accessible(
    gateway: LocalGateway, browser: Chromium, width: int, theme: str
) -> None:
    set_width(browser, width)
    set_theme(browser, theme)
    browser.open(f"{gateway.address}/docs#{FORM}")
    browser.wait_for(f"!!find({TRY!r}) && !!find('[data-pname=url][aria-label]')")
    assert browser.run(FIELDS_END) <= width
    if FOLDER:
        save(browser, f"reference-{width}-{theme}")
    elif axe := load_axe():
        assert find_barriers(browser, axe) == []


def test_badges_leave_path_and_title_of_an_operation_readable_on_a_telephone(
    gateway: LocalGateway, browser: Chromium
) -> None:
    browser.ask("Emulation.setDeviceMetricsOverride", width=400, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(f"{gateway.address}/docs#{CHAT}")
    browser.wait_for("!!find('.tooltip')")
    assert browser.run(OVERLAP) == [True, False]


def sign_in(gateway: LocalGateway, browser: Chromium) -> None:
    token = add_demo_usage(gateway)
    browser.ask("Network.setCookie", name=COOKIE, value=token, url=gateway.address)


def test_a_signed_in_person_tries_requests_after_one_press(gateway: LocalGateway, browser: Chromium) -> None:
    sign_in(gateway, browser)
    browser.open(f"{gateway.address}/docs")
    browser.wait_for("!!find('#overview')")
    browser.run("document.querySelector('#key button').click()")
    browser.wait_for("document.querySelector('#key [role=status]').textContent.startsWith('Requests use a key')")
    for place in TRIED:
        browser.run(f"location.hash = {place!r}")
        browser.wait_for(f"!!find(`[id='{place}']`) && !!find({TRY!r})")
        if place == CHAT:
            browser.run(f"find('.request-body-param-user-input').value = {json.dumps(json.dumps(BODY))}")
        press(browser, TRY)
        browser.wait_for("!!find('.response-message')?.textContent.includes(':')")
        assert browser.run("find('.response-message').textContent").startswith("Response Status: OK:200"), place


def test_a_stranger_is_led_to_the_sign_in_page_and_back(gateway: LocalGateway, browser: Chromium) -> None:
    browser.open(f"{gateway.address}/docs")
    browser.wait_for("document.readyState === 'complete'")
    assert browser.run("document.querySelector('#key')") is None
    target = browser.run("document.querySelector('.reference-bar > .button').href")
    assert target == f"{gateway.address}/console/login?redirect=%2Fdocs"


def test_the_reference_begins_with_the_address_of_its_page(gateway: LocalGateway, browser: Chromium) -> None:
    browser.open(f"{gateway.address}/docs")
    browser.wait_for("!!find('#overview--start-here')")
    text = browser.run("find('#overview').textContent")
    assert text.index("Start here") < text.index("First request") < text.index("Versions")
    assert f"export LLMGATEWAY_GATEWAY_URL={gateway.address}\n" in text and "127.0.0.1:4001" not in text


def test_a_telephone_has_a_list_of_all_operations(gateway: LocalGateway, browser: Chromium) -> None:
    set_width(browser, 400)
    browser.open(f"{gateway.address}/docs")
    browser.wait_for("document.querySelectorAll('#operation optgroup').length > 1")
    assert browser.run("document.getElementById('operation').getBoundingClientRect().width") > 300
    listed = set(browser.run("[...document.getElementById('operation').options].map(one => one.value)"))
    described = requests.get(f"{gateway.address}/openapi.json", timeout=60).json()["paths"]
    assert len(listed) == 1 + sum(len(methods) for methods in described.values())
    browser.run(
        f"{{const list = document.getElementById('operation'); list.value = {FORM!r};"
        "list.dispatchEvent(new Event('change'));}"
    )
    browser.wait_for(f"location.hash === '#{FORM}' && !!find('[data-pname=url]')")
    assert browser.run("document.documentElement.scrollWidth") <= 400
