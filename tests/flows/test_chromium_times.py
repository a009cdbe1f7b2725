"""Times of the console in a real Chromium: plots and forms are in the time zone of the reader, requests are in UTC."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import httpx
import pytest
from support.chromium import MARKS, Chromium
from support.gateways import LocalGateway

from gateway.accounts.keys import list_keys
from gateway.accounts.members import list_members

pytestmark = MARKS

ZONE = "Asia/Kolkata"  # five hours and a half ahead of UTC
TICKS = "[...document.querySelectorAll('.ticks time')].map(one => [one.dateTime, one.textContent, one.title])"
# A script shows the text of a bar itself, in place of its title.
TITLE = """(bar => bar.dataset.text || bar.querySelector("title").textContent)(
    document.querySelector(".plot g:last-of-type"))"""
EXPIRY = "document.querySelector('#expiresAt').value.slice(0, 16)"
SAVE = """document.querySelector("#expiresAt").value = "2031-02-01T03:00";
document.querySelector("#expiresAt").form.querySelector("button[value=save]").click();"""


@pytest.fixture
def reader(sandbox_gateway: LocalGateway, browser: Chromium) -> Chromium:
    """The browser of the owner, who is in India."""
    services = sandbox_gateway.services
    [owner] = list_members(services.store.database, sandbox_gateway.organization_id)
    token = services.management.sessions.open(owner.user_id).token
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=sandbox_gateway.address)
    browser.ask("Emulation.setTimezoneOverride", timezoneId=ZONE)
    return browser


@pytest.mark.parametrize("page", ["providers/sandbox", "explore?timeRange=24h"])
def test_plots_by_minute_and_hour_are_in_the_zone_of_the_reader(
    sandbox_gateway: LocalGateway, reader: Chromium, page: str
) -> None:
    body = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    headers = {"Authorization": f"Bearer {sandbox_gateway.key}"}
    answer = httpx.post(f"{sandbox_gateway.url}/chat/completions", json=body, headers=headers, timeout=60)
    assert answer.status_code == 200
    reader.open(f"{sandbox_gateway.address}/console/{page}")
    reader.wait_for("document.readyState === 'complete' && !!document.querySelector('.ticks time[title]')")
    ticks = reader.run(TICKS)
    assert len(ticks) >= 4
    for written, shown, title in ticks:
        at = datetime.fromisoformat(written).astimezone(UTC)
        assert (shown, title) == (f"{at.astimezone(ZoneInfo(ZONE)):%I:%M %p}", f"{at:%H:%M} UTC")
    assert f"({datetime.fromisoformat(ticks[-1][0]):%Y-%m-%d %H:%M} UTC)" in reader.run(TITLE)


def test_an_expiry_is_typed_in_the_zone_of_the_reader_and_stored_in_utc(
    sandbox_gateway: LocalGateway, reader: Chromium
) -> None:
    [key] = list_keys(sandbox_gateway.services.store.database, project_ids=[sandbox_gateway.project_id])
    reader.open(f"{sandbox_gateway.address}/console/keys/{key.id}?tab=settings")
    reader.wait_for("!!document.querySelector('#expiresAt[data-local]')")
    reader.run(SAVE)
    reader.wait_for("!!document.querySelector('.message')")
    reader.wait_for("!!document.querySelector('#expiresAt[data-local]')")
    assert reader.run(EXPIRY) == "2031-02-01T03:00"
    assert reader.run("document.querySelector('[for=expiresAt]').textContent") == "Expires (your time zone)"
    [key] = list_keys(sandbox_gateway.services.store.database, project_ids=[sandbox_gateway.project_id])
    assert datetime.fromtimestamp(key.expires_at_us / 10**6, UTC) == datetime(2031, 1, 31, 21, 30, tzinfo=UTC)
