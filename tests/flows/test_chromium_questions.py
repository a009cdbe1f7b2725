"""Each question about spending, requests, sessions, budgets, alerts and outcomes is answered by clicks from the
overview."""

import pytest
import requests
from support.chromium import MARKS, Chromium
from support.console_questions import QUESTIONS, Reader, answer
from support.demo_sessions import add_session_of
from support.demo_usage import add_demo_usage
from support.gateways import LocalGateway
from support.usage import insert_rows, usage_row
from support.watched_pages import WATCH

from gateway.accounts.keys import list_keys
from gateway.clock import SECOND_US
from gateway.metering.models import SETTLEMENT
from gateway.metering.rollups.rollup_table import try_again
from gateway.metering.usage_table import raw_id
from gateway.runtime.state_changes import StateChange

pytestmark = MARKS
MOST_CLICKS = 3


@pytest.fixture
def page_script() -> str:
    return WATCH


@pytest.fixture
def token(sandbox_gateway: LocalGateway) -> str:
    """The owner's session in a company with risen spend, a limit, an outage and an unusual day."""
    token = add_demo_usage(sandbox_gateway)
    add_session_of(sandbox_gateway)
    services, organization = sandbox_gateway.services, sandbox_gateway.organization_id
    now = services.clock.now_us()
    key = list_keys(services.store.database, organization_id=organization)[-1]
    owners = {"organization": organization, "project": key.project_id, "api_key": key.id, "member": key.member_id}
    raw = {name: raw_id(ident) for name, ident in owners.items()}
    values = {"kind": SETTLEMENT, "operation": "chat", "provider": "openai", "asked": "gpt-5", "served": "gpt-5"}
    rows = [
        usage_row(now - (number + 2) * SECOND_US, **raw, **values, posted_at=now, cost_nusd=90 * 10**9, status=200)
        for number in range(40)
    ]
    insert_rows(services.store.database, *reversed(rows))
    try_again(services.billing.rollups.catch_up)
    services.routing.health.cooldowns.trip("openai/gpt-5", "failing", 600.0, "")
    facts = {"organization": organization, "project": key.project_id, "key": key.id}
    unusual = StateChange("usage.unusual", f"unusual key {key.id}", f"key {key.id} has spent $3,600 today", facts=facts)
    services.telemetry.alert_history.begin(unusual, now)
    limit = {"subjects": ["tag:team=search"], "amount": "9000"}
    answer = requests.put(
        f"{sandbox_gateway.address}/orgs/{organization}/limits/all",
        json=limit,
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
    )
    assert answer.status_code < 300, answer.text
    return token


def test_each_question_is_answered_by_clicks_from_the_overview(
    sandbox_gateway: LocalGateway, browser: Chromium, token: str
) -> None:
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=sandbox_gateway.address)
    browser.ask("Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1, mobile=False)
    reader = Reader(browser, sandbox_gateway.address)
    answered = [answer(reader, question) for question in QUESTIONS]
    assert all(1 <= one.clicks <= MOST_CLICKS for one in answered)
    assert browser.run("window.violations") == []
