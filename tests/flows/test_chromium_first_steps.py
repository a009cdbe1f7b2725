"""The first steps in a real Chromium: the step of the tool turns green when the first request arrives."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from support.chromium import MARKS, Chromium
from support.first_steps import FirstSteps, first_steps
from support.watched_pages import FOLDER, save

from gateway.configuration.settings import Settings

pytestmark = MARKS
READY = "document.readyState === 'complete' && !!document.querySelector('.steps')"
MARK = "getComputedStyle(document.querySelector('#{} h2'), '::before').content"


@pytest.fixture
def steps(settings: Callable[..., Settings], tmp_path: Path) -> Iterator[FirstSteps]:
    with first_steps(settings, tmp_path / "catalogue") as found:
        yield found


def resize(browser: Chromium, width: int) -> None:
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)


def press(browser: Chromium, step: str, **typed: str) -> None:
    for name, value in typed.items():
        browser.run(f"document.querySelector('#{step} [name={name}]').value = '{value}'")
    browser.run(f"document.querySelector('#{step} button[name=action]').click()")


@pytest.mark.parametrize("width", [400, 1280])
def test_three_steps_lead_to_a_team(steps: FirstSteps, browser: Chromium, width: int) -> None:
    address = steps.gateway.address
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=steps.session, url=address)
    resize(browser, width)
    browser.open(f"{address}/console/start")
    browser.wait_for(READY)
    look(browser, width, "begin")
    press(browser, "connect", token="sk-proj-0123456789abcdefghijklmnopqrstuvwxyz")
    browser.wait_for("!!document.querySelector('#connect.done')")
    assert browser.run("document.querySelector('main .message').textContent").startswith("OpenAI is connected")
    press(browser, "tool", tool="claude")
    browser.wait_for("!!document.querySelector('#token')")
    key = browser.run("document.querySelector('#token').textContent")
    assert key in browser.run("document.querySelector('#client-claude pre').textContent")
    assert "✓" not in browser.run(MARK.format("tool"))
    look(browser, width, "settings")
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Hello"}]}
    answer = requests.post(
        f"{address}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"}, timeout=60
    )
    assert answer.status_code == 200
    browser.wait_for("/answered with status 200/.test(document.querySelector('#answered').textContent)")
    assert "✓" in browser.run(MARK.format("tool")) and "✓" not in browser.run(MARK.format("team"))
    assert browser.run("document.querySelector('#token').textContent") == key, "the key stays on the page"
    press(browser, "team", email="dev@acme.example", team="Research", periodUsageLimit="25")
    browser.wait_for("!!document.querySelector('#link') && !!document.querySelector('#team.done')")
    assert "✓" in browser.run(MARK.format("team"))
    look(browser, width, "invited")


# The amounts of the overview that stand on more than one line, when all are as small as those of a first request.
BROKEN_AMOUNTS = """[...document.querySelectorAll('.stat dd:not(.more)')].filter(shown => {
    shown.textContent = '$0.000008';
    return shown.getBoundingClientRect().height > 2 * parseFloat(getComputedStyle(shown).fontSize);
}).length"""
# The parts of names in tables, between two marks, that a line break divides.
BROKEN_NAMES = """[...document.querySelectorAll('.guide td code')].flatMap(name => [...name.childNodes])
    .filter(part => part.nodeType === Node.TEXT_NODE && !/[ -]/.test(part.data)).filter(part => {
        const range = document.createRange();
        range.selectNodeContents(part);
        return new Set([...range.getClientRects()].map(line => Math.round(line.top))).size > 1;
    }).map(part => part.data)"""


@pytest.mark.parametrize("width", [400, 700, 1280, 1500])
def test_no_amount_and_no_name_is_divided_by_a_line_break(steps: FirstSteps, browser: Chromium, width: int) -> None:
    address = steps.gateway.address
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=steps.session, url=address)
    resize(browser, width)
    browser.open(f"{address}/console")
    browser.wait_for("document.readyState === 'complete' && document.querySelectorAll('.stat').length === 6")
    assert browser.run(BROKEN_AMOUNTS) == 0
    browser.open(f"{address}/docs/guides/configuration")
    browser.wait_for("document.readyState === 'complete' && document.querySelectorAll('.guide td code').length > 100")
    assert browser.run(BROKEN_NAMES) == []
    assert browser.run("document.documentElement.scrollWidth") <= width


def look(browser: Chromium, width: int, name: str) -> None:
    assert browser.run("document.documentElement.scrollWidth") <= width
    if FOLDER:
        save(browser, f"first-steps-{name}-{width}")
