"""Each page of the console shows hostile names and answers as text."""

import orjson
import pytest
import requests
from support import demo_sessions
from support.chromium import MARKS, Chromium
from support.console_walk import follow_links
from support.demo_sessions import SESSION, add_session_of
from support.demo_usage import add_demo_usage
from support.gateways import LocalGateway
from support.usage import insert_rows, usage_row
from support.watched_pages import HOSTS, WATCH

from gateway.accounts.keys import list_keys
from gateway.clock import SECOND_US
from gateway.metering.models import SETTLEMENT
from gateway.metering.rollups.rollup_table import try_again
from gateway.metering.usage_table import raw_id

pytestmark = MARKS

HOSTILE = (
    "'\"></textarea></title><img src=//evil.example/x.png onerror=window.attacked=1><script>window.attacked=2</script>"
    "[a](javascript:window.attacked=3) ![b](https://evil.example/b.png) {{ 7 * 7 }} " + "x" * 60
)
# Table → its columns that people, callers or identity providers fill.
NAMED = {
    "organization": ("name",),
    "project": ("name",),
    "user": ("name",),
    "team": ("name",),
    "api_key": ("description",),
    "provider_key": ("label",),
    "service_account": ("name",),
    "workload_identity": ("name",),
    "session": ("agent",),
    "saved_view": ("name",),
}
EXPLORED = ("model", "provider", "apiKey", "user", "team", "project", "app", "session", "errorCode", "tag&tag=team")
WIDTHS = (400, 1400)
# The elements that reach over the edge of the page, for the message of a failure.
WIDER = """[...document.querySelectorAll("main *")].filter(one => one.getBoundingClientRect().right > innerWidth
    && !one.closest(".scroll")).slice(0, 4)
    .map(one => `${one.tagName}.${one.className}: ${one.textContent.slice(0, 60)}`)"""


@pytest.fixture
def page_script() -> str:
    return WATCH


def rename_everything(gateway: LocalGateway) -> None:
    database = gateway.services.store.database

    def work() -> None:
        for table, columns in NAMED.items():
            for column in columns:
                database.execute(f'UPDATE "{table}" SET "{column}" = "{column}" || ?', (HOSTILE,))

    database.write(work)


def add_hostile_requests(gateway: LocalGateway) -> str:
    """Add requests with hostile models, apps, sessions, tags and errors, and return the id of one."""
    store, now = gateway.services.store, gateway.services.clock.now_us()
    key = list_keys(store.database, project_ids=[gateway.project_id])[0]
    owners = {"organization": raw_id(gateway.organization_id), "project": raw_id(key.project_id)}
    owners |= {"api_key": raw_id(key.id), "member": raw_id(key.member_id)}
    values = {"kind": SETTLEMENT, "operation": "chat", "provider": "openai", "asked": HOSTILE, "served": HOSTILE}
    values |= {"source": HOSTILE[:120], "session": HOSTILE[:60], "tags": orjson.dumps({"team": HOSTILE}).decode()}
    rows = [
        usage_row(
            now - (number + 2) * SECOND_US,
            **owners,
            **values,
            posted_at=now,
            cost_nusd=5 * 10**9,
            status=status,
            error=error,
            finish=HOSTILE[:40],
            duration_ms=20_000,
        )
        for number, (status, error) in enumerate(((200, None), (503, HOSTILE), (200, None)))
    ]
    insert_rows(store.database, *rows)
    try_again(gateway.services.billing.rollups.catch_up)
    return rows[0].request.hex()


def list_paths(gateway: LocalGateway, token: str, more: list[str]) -> list[str]:
    """Return the pages that links lead to from the overview, and more."""

    def fetch(path: str) -> tuple[int, str]:
        answer = requests.get(gateway.address + path, cookies={"llmgateway.session_token": token}, timeout=60)
        return answer.status_code, answer.text

    walked = follow_links(fetch)
    failed = {path: status for path, status in walked.statuses.items() if status >= 400}
    assert not failed
    return list(dict.fromkeys([*walked.statuses, *more]))


def test_hostile_names_and_answers_are_text_on_each_page(
    sandbox_gateway: LocalGateway, browser: Chromium, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = add_demo_usage(sandbox_gateway)
    write = demo_sessions.text
    monkeypatch.setattr(demo_sessions, "text", lambda value, **more: write(HOSTILE + value, **more))
    monkeypatch.setattr(demo_sessions, "FOUND", HOSTILE)
    turn = add_session_of(sandbox_gateway)[-1].request.hex()
    hostile = add_hostile_requests(sandbox_gateway)
    rename_everything(sandbox_gateway)
    more = [f"/console/logs/{turn}", f"/console/logs/{hostile}", f"/console/sessions/turns?session={SESSION}"]
    more += [f"/console/logs/{turn}/changes", f"/console/logs/compare?request={turn}&request={hostile}"]
    more += [f"/console/explore?timeRange=24h&groupBy={group}" for group in EXPLORED]
    more += ["/console/explore?timeRange=24h&groupBy=model&splitBy=user", "/console/find?q=img"]
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=sandbox_gateway.address)
    host = sandbox_gateway.address.removeprefix("http://")
    paths = list_paths(sandbox_gateway, token, more)
    assert len(paths) > 60
    shown = 0
    for path in paths:
        browser.open("about:blank")
        browser.open(sandbox_gateway.address + path)
        browser.wait_for("document.readyState === 'complete' && !!document.querySelector('h1')")
        shown += browser.run("document.body.innerText.includes('onerror=window.attacked')")
        for width in WIDTHS:
            browser.ask(
                "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
            )
            wide = browser.run(WIDER)
            assert browser.run("document.documentElement.scrollWidth <= innerWidth"), (path, width, wide)
        assert browser.run("window.attacked") is None, path
        assert browser.run("window.violations") == [], path
        assert set(browser.run(HOSTS)) <= {host}, path
        assert "49" not in browser.run("document.title"), path
    assert shown > 20
