"""Each page of the console in a real Chromium, at three widths, and in dark colours: it fits, it loads nothing from
another host, it does not violate its content security policy, and axe finds nothing that keeps people out.

With EVERY_VIEW=1 (`make browser`) axe examines each page at each width, light and dark; otherwise three of these six
views. With SCREENSHOTS=FOLDER the test writes a screenshot of each view into the folder (`make screenshots`).
"""

import os
import re
from collections.abc import Iterator

import pytest
import requests
from support.axe import each_view, find_barriers, load_axe
from support.chromium import MARKS, Chromium
from support.console_walk import follow_links
from support.demo_jobs import add_demo_jobs
from support.demo_sessions import SESSION, add_session_of
from support.demo_usage import add_demo_usage
from support.factor_pages import walk_second_factor
from support.gateways import LocalGateway
from support.one_time_pages import make_one_time_pages
from support.watched_pages import FOLDER, HOSTS, WATCH, save

pytestmark = MARKS

EVERY_VIEW = bool(os.environ.get("EVERY_VIEW"))
SIGNED_IN = {
    "overview": "/console",
    "explore": "/console/explore?timeRange=30d",
    "outcomes": "/console/outcomes?timeRange=30d",
    "explore-lines": "/console/explore?groupBy=user&splitBy=model&measure=requestCost&timeRange=30d",
    "explore-tag": "/console/explore?groupBy=tag&timeRange=30d",
    "explore-session": "/console/explore?groupBy=session&measure=tokens",
    "requests": "/console/logs",
    "jobs": "/console/jobs",
    "files": "/console/files",
    "playground": "/console/playground",
    "models": "/console/models",
    "model": "/console/models/gpt-4o-mini",
    "compare": "/console/models/compare?model=gpt-4o-mini&model=claude-sonnet-4-5",
    "custom-models": "/console/models/custom",
    "providers": "/console/providers",
    "provider": "/console/providers/openai",
    "provider-days": "/console/providers/openai?timeRange=30d",
    "provider-keys": "/console/providers/keys",
    "routing": "/console/routing?model=gpt-4o-mini",
    "live": "/console/logs?live=1",
    "start": "/console/start",
    "setup": "/console/setup",
    "keys": "/console/keys",
    "key-new": "/console/keys/new",
    "people": "/console/people",
    "teams": "/console/teams",
    "budgets": "/console/budgets",
    "projects": "/console/projects",
    "audit": "/console/audit",
    "settings": "/console/settings",
    "alerts": "/console/alerts",
    "guardrails": "/console/guardrails",
    "routes": "/console/routes",
    "automation": "/console/automation",
    "account": "/console/account",
    "device": "/console/device",
    "not-found": "/console/nothing",
}
TURNS = "/console/sessions/turns"
SIGNED_OUT = {
    "sign-in": "/console/login",
    "forgot": "/console/forgot",
    "guide": "/docs/quickstart",
    "guides": "/docs/guides",
    "guide-page": "/docs/guides/limits",
}
# Bytes of the page and its files over the wire, without what its scripts fetch later.
WEIGHT = """performance.getEntries().filter(one => !["fetch", "xmlhttprequest"].includes(one.initiatorType))
    .reduce((sum, one) => sum + (one.encodedBodySize || 0), 0)"""
MAX_BYTES = 150_000
# The views that axe examines without EVERY_VIEW: the narrow and the wide layout, and the colours of the dark theme.
EXAMINED = ("-400-light", "-1400-light", "-1400-dark")


@pytest.fixture
def page_script() -> str:
    return WATCH


@pytest.fixture
def axe() -> str:
    return load_axe()


def test_each_page_fits_loads_nothing_from_elsewhere_and_is_accessible(
    sandbox_gateway: LocalGateway, browser: Chromium, axe: str
) -> None:
    problems: dict[str, str] = {}
    for place in visit(browser, sandbox_gateway):
        assert browser.run("document.documentElement.scrollWidth") <= browser.run("innerWidth"), place
        assert browser.run("window.violations") == [], place
        assert set(browser.run(HOSTS)) == {sandbox_gateway.address.removeprefix("http://")}, place
        assert browser.run("document.fonts.size") == 0, place
        assert 0 < browser.run(WEIGHT) < MAX_BYTES, place
        if FOLDER:
            save(browser, place)
        elif axe and (EVERY_VIEW or place.endswith(EXAMINED)):
            problems |= {
                problem: place
                for problem in find_barriers(browser, axe, place.endswith("dark"))
                if problem not in problems
            }
    assert not problems


def visit(browser: Chromium, gateway: LocalGateway) -> Iterator[str]:
    """Open each page at each width, and in dark colours; return the name of each view."""
    token = add_demo_usage(gateway)
    turns = add_session_of(gateway)
    job = f"/console/jobs/{gateway.project_id}/{add_demo_jobs(gateway)}"
    request = f"/console/logs/{turns[-1].request.hex()}"
    pair = "&".join(f"request={turn.request.hex()}" for turn in turns[-2:])
    conversations = {"conversation": request, "changes": f"{request}/changes", "session": f"{TURNS}?session={SESSION}"}
    conversations["job"] = job
    conversations["replay"] = f"{request}/replay?model=gpt-5"
    conversations["compared"] = f"/console/logs/compare?{pair}"
    owner = gateway.services.management.sessions.find(token).user_id
    once = make_one_time_pages(gateway, owner)
    yield from show(browser, gateway, {**SIGNED_OUT, **{page.name: page.path for page in once if not page.signed_in}})
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=gateway.address)
    yield from show(browser, gateway, {page.name: page.path for page in once if page.signed_in})
    yield from show(browser, gateway, {**SIGNED_IN, **conversations, **find_other_pages(gateway, token)})
    for name in walk_second_factor(browser, gateway.address):
        yield from show_views(browser, name)


def find_other_pages(gateway: LocalGateway, token: str) -> dict[str, str]:
    """Return a page of each row of the console's table that SIGNED_IN does not name, by a name made of its path."""

    def fetch(path: str) -> tuple[int, str]:
        answer = requests.get(gateway.address + path, cookies={"llmgateway.session_token": token}, timeout=60)
        return answer.status_code, answer.text

    named = {path.partition("?")[0] for path in SIGNED_IN.values()}
    linked = follow_links(fetch).places
    known = {place for path, place in linked.items() if path in named}
    # The first page of each row: of requests, the newest one.
    others = {place: path for path, place in reversed(linked.items()) if place not in known and path not in named}
    return {re.sub(r"[^a-z]+", "-", place.removeprefix("/console/")).strip("-"): path for place, path in others.items()}


def show(browser: Chromium, gateway: LocalGateway, pages: dict[str, str]) -> Iterator[str]:
    for name, path in pages.items():
        browser.open("about:blank")
        browser.open(gateway.address + path)
        browser.wait_for("document.readyState === 'complete' && !!document.querySelector('h1')")
        yield from show_views(browser, name)


def show_views(browser: Chromium, name: str) -> Iterator[str]:
    """Show the open page at each width and in each theme."""
    yield from each_view(browser, name, bool(FOLDER) or EVERY_VIEW)
