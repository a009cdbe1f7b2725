"""Marks on the plots of Explore: what happened, for those who may see it."""

from html import unescape

import pytest
from support.console import open_page
from support.management import Tenants

from gateway.accounts import audit
from gateway.runtime.state_changes import StateChange

BODY = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
def used(tenants: Tenants) -> Tenants:
    """Tenants with requests to the sandbox, a limit that was set, an outage of two providers, and three alerts."""
    services, owner, developer = tenants.services, tenants["acme owner"], tenants["acme developer"]
    services.billing.ledger.grant(owner.organization_id, 10**9, "marks")
    for person in (owner, developer):
        tenants.ok("POST", "/v1/chat/completions", person.key.token, BODY)
    services.store.journal.flush(60)
    services.billing.rollups.catch_up()
    now_us = services.clock.now_us()
    for organization_id in (owner.organization_id, tenants["rival owner"].organization_id):
        detail = {"name": f"limit <b> of {organization_id}"}
        services.store.database.write(
            lambda detail=detail, ident=organization_id: audit.append(
                "limit.set", "limits", actor=owner.user_id, at_us=now_us, organization_id=ident, detail=detail
            )
        )
    history = services.telemetry.alert_history
    for provider in ("sandbox", "openai"):
        facts: dict[str, object] = {"provider": provider}
        history.begin(StateChange("provider.resting", provider, f"{provider} is cooling down", facts=facts), now_us)
    history.end("sandbox", ["provider.resting"], now_us, now_us + 1)
    for person in (owner, developer, tenants["rival owner"]):
        key = person.key.info.id
        facts = {"organization": person.organization_id, "id": key}
        history.begin(StateChange("budget.spent", key, f"{key} spent its limit", facts=facts), now_us)
    return tenants


def test_each_person_sees_the_marks_of_what_they_may_see(used: Tenants) -> None:
    owner, developer = used["acme owner"], used["acme developer"]
    everything = {
        f"limit <b> of {owner.organization_id}": ("acme owner",),
        "sandbox is cooling down": ("acme owner", "acme developer"),
        f"{owner.key.info.id} spent its limit": ("acme owner",),
        f"{developer.key.info.id} spent its limit": ("acme owner", "acme developer"),
        "openai is cooling down": (),
        f"limit <b> of {used['rival owner'].organization_id}": ("rival owner",),
        f"{used['rival owner'].key.info.id} spent its limit": ("rival owner",),
    }
    for who in ("acme owner", "acme developer", "rival owner"):
        headers = {"Cookie": f"llmgateway.session_token={used[who].token}"}
        raw = used.client.get("/console/explore?timeRange=24h&measure=errors", headers=headers).text
        page = unescape(raw)
        assert "<b> of" not in raw
        for text, people in everything.items():
            assert (page.count(f"◆ {text}") + page.count(f": {text}") > 0) == (who in people), (who, text)
        assert ('class="pin outage"' in page) == (who != "rival owner")
    assert "until <time" in unescape(open_page(used, owner, "/console/explore?timeRange=24h"))
    assert "What happened" not in open_page(
        used, owner, "/console/explore?timeRange=custom&from=2020-01-01&to=2020-01-09"
    )
