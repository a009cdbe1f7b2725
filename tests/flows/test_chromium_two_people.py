"""Two people change the same key at once, each in a real Chromium, and the bytes of the first page of a new browser."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from support.chromium import MARKS, Chromium
from support.gateways import LocalGateway, local_gateway

from gateway.accounts.members import add_member, list_members
from gateway.callers.models import ApiKey
from gateway.configuration.settings import Settings

pytestmark = MARKS

LOADED = "document.readyState === 'complete' && !!document.querySelector('h1')"
MESSAGE = "document.querySelector('.message')?.textContent ?? ''"
PROBLEM = "document.querySelector('.problem')?.textContent ?? ''"
SHOWN = "[document.querySelector('#usageLimit').value, document.querySelector('#description').value]"
# Headers and compressed bodies of everything that the page loaded. A second use of a file counts 0.
TRANSFERRED = "performance.getEntries().reduce((sum, one) => sum + (one.transferSize || 0), 0)"
MIN_BYTES = 10_000  # of a browser without cached files
MAX_BYTES = 150_000


@pytest.fixture
def gateway(settings: Callable[..., Settings]) -> Iterator[LocalGateway]:
    with local_gateway(settings) as running:
        yield running


@pytest.fixture
def people(gateway: LocalGateway) -> Iterator[list[Chromium]]:
    """The browsers of the owner and of an admin, who has the organization's only key; both are signed in."""
    store = gateway.services.store
    add_member(store.database, store.control, gateway.organization_id, "admin@acme.example", "admin", actor="test")
    (admin,) = [one for one in list_members(store.database, gateway.organization_id) if one.role == "admin"]
    store.database.write(ApiKey.update(member=admin.id).execute)
    with ExitStack() as stack:
        browsers = []
        for member in list_members(store.database, gateway.organization_id):
            browser = stack.enter_context(closing(Chromium()))
            token = gateway.services.management.sessions.open(member.user_id).token
            browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=gateway.address)
            browsers.append(browser)
        yield browsers


def open_key(gateway: LocalGateway, browser: Chromium) -> None:
    """Open the page of the organization's only key as a person does, from the list."""
    browser.open("about:blank")
    browser.open(f"{gateway.address}/console/keys")
    browser.wait_for(f"{LOADED} && !!document.querySelector('tbody a')")
    browser.run("document.querySelector('tbody a').click()")
    browser.wait_for("!!document.querySelector('.tabs')")
    browser.run("document.querySelector('.tabs a[href*=settings]').click()")
    browser.wait_for("!!document.querySelector('#usageLimit')")


def submit(browser: Chromium, field: str, value: str) -> None:
    """Fill a field and send its form, without waiting for the answer."""
    browser.run(f"document.querySelector('#{field}').value = '{value}'")
    browser.run(f"document.querySelector('#{field}').form.querySelector('button[name=action]').click()")


def test_two_people_change_one_key_at_once_and_see_the_same(gateway: LocalGateway, people: list[Chromium]) -> None:
    for browser in people:
        open_key(gateway, browser)
    # An admin may lower a limit that an owner set, and an owner may change that of an admin: both orders are accepted.
    for browser, limit in zip(people, ("5", "3"), strict=True):
        submit(browser, "usageLimit", limit)
    for browser in people:
        browser.wait_for(f"({MESSAGE}) !== ''")
        assert browser.run(PROBLEM) == ""
        open_key(gateway, browser)
    first, second = (browser.run(SHOWN) for browser in people)
    assert first == second and first[0] in ("5", "3")

    # Each form changes its own fields: the pages of both people are older than the change of the other.
    owner, admin = people
    submit(owner, "description", "Renamed by the owner")
    submit(admin, "usageLimit", "2")
    for browser in people:
        browser.wait_for(f"({MESSAGE}) !== ''")
        open_key(gateway, browser)
        assert browser.run(SHOWN) == ["2", "Renamed by the owner"]

    # The key is deleted while the other person has its page open.
    owner.run("document.querySelector('button[value=delete]').click()")
    owner.wait_for("!!document.querySelector('dialog[open] button.main')")
    owner.run("document.querySelector('dialog[open] button.main').click()")
    owner.wait_for("location.pathname === '/console/keys'")
    submit(admin, "usageLimit", "1")
    admin.wait_for("document.querySelector('main').innerText.includes('There is no API key')")


def test_the_first_page_of_a_new_browser_is_small(gateway: LocalGateway, people: list[Chromium]) -> None:
    owner, admin = people
    owner.open(f"{gateway.address}/console")
    admin.ask("Network.clearBrowserCookies")
    admin.open(f"{gateway.address}/console")
    for browser in people:
        browser.wait_for(f"location.pathname.startsWith('/console') && {LOADED}")
        assert MIN_BYTES < browser.run(TRANSFERRED) <= MAX_BYTES
    assert owner.run("document.title").startswith("Overview") and admin.run("location.pathname") == "/console/login"
