"""Ctrl+K in a real Chromium: it opens on each page, finds while a person types, and the keyboard alone opens a page."""

import pytest
from support.chromium import MARKS, Chromium
from support.demo_usage import add_demo_usage
from support.gateways import LocalGateway
from support.watched_pages import WATCH

pytestmark = MARKS

NAMES = "[...document.querySelectorAll('#finder a')].map(link => link.textContent)"

CODES = {"k": 75, "Escape": 27, "Enter": 13}


@pytest.fixture
def page_script() -> str:
    return WATCH


def press(browser: Chromium, key: str, text: str = "", modifiers: int = 0) -> None:
    for kind in ("keyDown", "keyUp"):
        typed = {"text": text} if text and kind == "keyDown" else {}
        code = {"windowsVirtualKeyCode": CODES[key]}
        browser.ask("Input.dispatchKeyEvent", type=kind, key=key, modifiers=modifiers, **code, **typed)


def test_the_keyboard_finds_and_opens_pages(sandbox_gateway: LocalGateway, browser: Chromium) -> None:
    token = add_demo_usage(sandbox_gateway)
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=sandbox_gateway.address)
    browser.open(f"{sandbox_gateway.address}/console/keys")
    browser.wait_for("document.readyState === 'complete' && !!window.htmx && !!document.querySelector('h1')")
    press(browser, "k", modifiers=2)
    browser.wait_for("document.querySelector('#finder').open")
    browser.wait_for(f"{NAMES}.includes('Explore')")
    browser.ask("Input.insertText", text="support")
    browser.wait_for(f"{NAMES}.includes('Support bot') && !{NAMES}.includes('Explore')")
    press(browser, "Escape")
    browser.wait_for("!document.querySelector('#finder').open")
    press(browser, "k", modifiers=2)
    browser.ask("Input.insertText", text="audit")
    browser.wait_for(f"{NAMES}[0] === 'Audit log'")
    press(browser, "Enter", "\r")
    browser.wait_for("location.pathname.endsWith('/console/audit') && document.title.startsWith('Audit')")
    assert browser.run("window.violations") == []


def test_the_entry_of_the_navigation_opens_the_same(sandbox_gateway: LocalGateway, browser: Chromium) -> None:
    token = add_demo_usage(sandbox_gateway)
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=sandbox_gateway.address)
    browser.open(f"{sandbox_gateway.address}/console/keys")
    browser.wait_for("document.readyState === 'complete' && !!window.htmx && !!document.querySelector('h1')")
    browser.run("document.querySelector('[data-find]').click()")
    browser.wait_for(f"document.querySelector('#finder').open && {NAMES}.includes('Explore')")
    assert browser.run("location.pathname").endswith("/console/keys")
