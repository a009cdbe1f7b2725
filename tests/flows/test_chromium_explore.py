"""Explore in a real Chromium: a legend that hides and isolates, a list of values at the pointer, a selected time, and
the requests behind a bar and a part of it; and names that look like HTML."""

from typing import Any

import pytest
from support.chromium import MARKS, Chromium
from support.demo_usage import add_demo_usage
from support.gateways import LocalGateway
from support.watched_pages import WATCH

from gateway.accounts import keys
from gateway.accounts.projects import list_projects

pytestmark = MARKS

HOSTILE = '"><img src=x onerror="window.attacked=1"><script>window.attacked=2</script>'
READY = "document.readyState === 'complete' && !!document.querySelector('.area[data-live]')"
# Sizes of the visible parts of a bar by their classes.
PARTS = """Object.fromEntries([...[...document.querySelectorAll(".area g")].at(-2).querySelectorAll("rect:not(.back)")]
    .map(part => [part.getAttribute("class"), Math.round(Number(part.getAttribute("height")))]))"""
TOP = "document.querySelector('.scale span').textContent"
BOX = "(({x, y, width, height}) => [x, y, width, height])(document.querySelector('.area svg').getBoundingClientRect())"


@pytest.fixture
def page_script() -> str:
    return WATCH


@pytest.fixture
def explore(sandbox_gateway: LocalGateway, browser: Chromium) -> Any:
    """A function that opens Explore with a query, in a month of usage of keys of which one has a hostile name."""
    token = add_demo_usage(sandbox_gateway)
    stores = sandbox_gateway.services.store.database, sandbox_gateway.services.store.control
    projects = [one.id for one in list_projects(stores[0], [sandbox_gateway.organization_id])]
    listed = keys.list_keys(stores[0], project_ids=projects)
    [named] = [key for key in listed if key.description == "Support bot"]
    keys.update(*stores, named.id, keys.Change(description=HOSTILE), actor="test")
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=sandbox_gateway.address)

    def open_with(query: str) -> None:
        browser.open("about:blank")
        browser.open(f"{sandbox_gateway.address}/console/explore?{query}")
        browser.wait_for(READY)

    return open_with


def point(browser: Chromium, kind: str, share: float, height: float = 0.95) -> None:
    """Move, press or release the mouse at a share of the plot's width and height."""
    browser.run("document.querySelector('.area svg').scrollIntoView({block: 'center'})")
    x, y, width, tall = browser.run(BOX)
    button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
    browser.ask("Input.dispatchMouseEvent", type=kind, x=x + share * width, y=y + height * tall, **button)


def test_the_plot_offers_further_filters(explore: Any, browser: Chromium) -> None:
    explore("timeRange=30d&groupBy=apiKey")
    whole, top = browser.run(PARTS), browser.run(TOP)
    assert len(whole) > 1
    point(browser, "mouseMoved", 0.97)
    browser.wait_for("!document.querySelector('.tip').hidden")
    tip = browser.run("document.querySelector('.tip').textContent")
    assert HOSTILE in tip and "Coding agents: $" in tip and "Before: $" in tip
    # Isolated and hidden names: the others are stacked from the bottom, on an axis of their own.
    browser.run("document.querySelectorAll('.legend .only')[2].click()")
    alone = {shape: height for shape, height in browser.run(PARTS).items() if height}
    assert len(alone) == 1 and browser.run(TOP) != top
    assert browser.run("document.querySelectorAll('.legend [aria-pressed=true]').length") == 1
    browser.run("document.querySelectorAll('.legend .only')[2].click()")
    assert browser.run(PARTS) == whole and browser.run(TOP) == top
    browser.run("document.querySelector('.legend [aria-pressed]').click()")
    hidden = browser.run("document.querySelector('.legend [aria-pressed]').dataset.shape")
    assert browser.run(PARTS).get(hidden, 0) == 0
    # A selected time is shown in more detail.
    point(browser, "mouseMoved", 0.51)
    point(browser, "mousePressed", 0.51)
    point(browser, "mouseMoved", 0.62)
    point(browser, "mouseReleased", 0.62)
    browser.wait_for(f"location.search.includes('timeRange=custom') && {READY}")
    assert browser.run("document.querySelector('#groupBy').value") == "apiKey"
    assert browser.run("document.querySelectorAll('.area g').length") == 4
    point(browser, "mouseMoved", 0.4)
    point(browser, "mousePressed", 0.4)
    point(browser, "mouseMoved", 0.45)
    point(browser, "mouseReleased", 0.45)
    browser.wait_for(f"document.querySelectorAll('.area g').length === 24 && {READY}")
    assert browser.run("window.violations") == [] and browser.run("window.attacked") is None


def test_a_bar_and_a_part_of_it_lead_to_their_requests(explore: Any, browser: Chromium) -> None:
    explore("timeRange=30d&groupBy=model")
    point(browser, "mousePressed", 0.95, 0.02)
    point(browser, "mouseReleased", 0.95, 0.02)
    browser.wait_for("location.pathname.endsWith('/console/logs') && !!document.querySelector('tbody a.open')")
    assert "model=" not in browser.run("location.search") and "from=20" in browser.run("location.search")
    explore("timeRange=30d&groupBy=model")
    point(browser, "mousePressed", 0.95, 0.985)
    point(browser, "mouseReleased", 0.95, 0.985)
    browser.wait_for("location.pathname.endsWith('/console/logs') && !!document.querySelector('tbody a.open')")
    assert "model=" in browser.run("location.search") and "from=20" in browser.run("location.search")


def test_a_hostile_name_is_text_everywhere(explore: Any, browser: Chromium) -> None:
    for query in ("groupBy=apiKey", "groupBy=apiKey&splitBy=model&measure=errorRate", "groupBy=model&splitBy=apiKey"):
        explore(f"timeRange=30d&{query}")
        point(browser, "mouseMoved", 0.97)
        assert HOSTILE in browser.run("document.querySelector('main').textContent")
        assert browser.run("document.querySelector('main').querySelectorAll('img, script').length") == 0
        assert browser.run("window.attacked") is None and browser.run("window.violations") == []
        assert browser.run("document.documentElement.scrollWidth") <= browser.run("innerWidth")
