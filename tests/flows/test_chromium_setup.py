"""The page with settings of clients in a real Chromium: its test buttons, and the choice of project and model."""

import pytest
from support.chromium import MARKS, Chromium
from support.gateways import LocalGateway
from support.signed_in import sign_in

from gateway.accounts.projects import create_project
from gateway.surfaces.console.client_settings import load_clients

pytestmark = MARKS

LOADED = "document.readyState === 'complete' && !!document.querySelector('h1')"
TESTED = "document.querySelector('#client-{} [role=status]').textContent"


@pytest.fixture
def gateway(own_gateway: LocalGateway) -> LocalGateway:
    return own_gateway


@pytest.fixture
def browser(browser: Chromium, gateway: LocalGateway) -> Chromium:
    sign_in(browser, gateway)
    return browser


def test_each_test_button_calls_what_its_client_calls(gateway: LocalGateway, browser: Chromium) -> None:
    browser.open(f"{gateway.address}/console/setup?model=gpt-4o-mini")
    browser.wait_for(LOADED)
    for client in load_clients():
        browser.run(f"document.querySelector('#client-{client.id}').open = true")
        browser.run(f"document.querySelector('#client-{client.id} [data-test]').click()")
        browser.wait_for(f"/^(Works|[0-9]+:)/.test({TESTED.format(client.id)})")
        answered = "tools in" if client.test == "mcp" else "openai answered in"
        assert answered in browser.run(TESTED.format(client.id)), client.id
    assert browser.run("document.querySelector('#text-codex-1').textContent").startswith('model = "gpt-4o-mini"')


def test_a_failed_test_shows_the_error(gateway: LocalGateway, browser: Chromium) -> None:
    browser.open(f"{gateway.address}/console/setup?model=no-such-model")
    browser.wait_for(LOADED)
    browser.run("document.querySelector('#client-curl [data-test]').click()")
    browser.wait_for(f"{TESTED.format('curl')}.startsWith('4')")
    assert "no-such-model" in browser.run(TESTED.format("curl"))


@pytest.mark.parametrize("path", ("setup", "playground", "models/gpt-4o-mini"))
def test_another_project_is_shown_as_soon_as_it_is_chosen(gateway: LocalGateway, browser: Chromium, path: str) -> None:
    store = gateway.services.store
    other = create_project(store.database, store.control, gateway.organization_id, "Other", actor="test")
    browser.open(f"{gateway.address}/console/{path}")
    browser.wait_for(LOADED)
    browser.run(
        f"const field = document.querySelector('select[name=for]'); field.value = '{other.id}';"
        "field.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    browser.wait_for(f"location.search.includes('{other.id}') && {LOADED}")
    assert browser.run("document.querySelector('select[name=for]').value") == other.id


@pytest.mark.parametrize("path", ["console/setup", "docs/guides/start"])
def test_copy_buttons_work_on_pages_without_a_clipboard(gateway: LocalGateway, browser: Chromium, path: str) -> None:
    """As at http:// and another host than localhost."""
    browser.open(f"{gateway.address}/{path}")
    browser.wait_for(f"{LOADED} && [...document.querySelectorAll('.copied button')].length > 0")
    browser.run("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
    click = (
        "Object.defineProperty(navigator, 'clipboard', {value: undefined});"
        "document.addEventListener('copy', () => { window.copied = getSelection().toString(); });"
        "window.button = [...document.querySelectorAll('.copied button')].find((one) => one.checkVisibility());"
        "button.click()"
    )
    browser.ask("Runtime.evaluate", expression=click, userGesture=True)
    browser.wait_for("button.textContent === 'Copied'")
    assert (
        browser.run("copied").strip()
        == browser.run("button.closest('.copied').querySelector('pre').textContent").strip()
    )
