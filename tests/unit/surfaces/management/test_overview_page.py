"""The overview: the figures by role, notices, the forecast, and hostile names."""

import re
from datetime import date
from html import unescape
from types import SimpleNamespace

import pytest
from support.management import Person, Tenants

from gateway.accounts import audit, keys
from gateway.accounts.keys import Change
from gateway.callers.permissions import reach_of
from gateway.clock import HOUR_US, to_iso
from gateway.limits.budgets import Limits, Status
from gateway.limits.ledger import Balance
from gateway.money import NANO
from gateway.runtime.state_changes import StateChange
from gateway.surfaces.console.overview import forecast_month
from gateway.surfaces.console.overview_attention import find_budgets, find_credits, find_retiring
from gateway.surfaces.console.overview_outages import find_outages

BODY = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
HOSTILE = '"><script>alert(1)</script><img src=https://evil.example/x>'


@pytest.fixture(scope="module")
def used(open_tenants) -> Tenants:
    with open_tenants() as tenants:
        tenants.services.billing.ledger.grant(tenants["acme owner"].organization_id, 10**9, "overview")
        for who, times in (("acme developer", 2), ("acme colleague", 1)):
            for _ in range(times):
                tenants.ok("POST", "/v1/chat/completions", tenants[who].key.token, BODY)
        tenants.services.store.journal.flush(60)
        tenants.services.billing.rollups.catch_up()
        yield tenants


def read(tenants: Tenants, who: Person) -> str:
    answer = tenants.client.get("/console", headers={"Cookie": f"llmgateway.session_token={who.token}"})
    assert answer.status_code == 200
    return answer.text


def requests_of(page: str) -> str:
    return re.findall(r'Requests, 30 days</dt><dd><span title="(\d+)"', page)[0]


def test_managers_see_everything_and_developers_their_own_keys(used: Tenants) -> None:
    owner = read(used, used["acme owner"])
    developer = read(used, used["acme developer"])
    assert (requests_of(owner), requests_of(developer)) == ("3", "2")
    assert "sandbox-echo" in owner and used["acme colleague"].key.info.description in unescape(owner)
    assert used["acme colleague"].key.info.description not in unescape(developer)
    rival = read(used, used["rival owner"])
    assert requests_of(rival) == "0" and "No requests in the last 30 days" in rival and "Spend by day" not in rival


def test_hostile_names_stay_text(used: Tenants) -> None:
    key = used["acme developer"].key.info
    keys.update(
        used.services.store.database, used.services.store.control, key.id, Change(description=HOSTILE), actor=""
    )
    page = read(used, used["acme owner"])
    assert "<script>" not in page and "evil.example" in page and "<img src=https" not in page
    assert HOSTILE in unescape(page)


def test_the_forecast_continues_the_average_of_the_last_week() -> None:
    spent = {f"2026-11-{day:02}": 10 for day in range(1, 20)} | {"2026-11-20": 4}
    assert forecast_month(spent, 194, date(2026, 11, 20)) == 300
    assert forecast_month({}, 0, date(2026, 12, 31)) == 0


def test_budgets_from_four_fifths_on_need_attention() -> None:
    names = {"key_1": 79, "key_2": 80, "key_3": 120}
    made = [SimpleNamespace(id=ident, description=ident, state="active") for ident in names]
    statuses = {ident: Status(Limits(100 * NANO), used * NANO, 0, None, None) for ident, used in names.items()}
    notices = find_budgets(made, statuses)
    assert [(notice.level, notice.percent) for notice in notices] == [("bad", 120), ("warn", 80)]


def test_a_failing_provider_key_needs_the_attention_of_managers(used: Tenants) -> None:
    owner = used["acme owner"]
    body = {"organizationId": owner.organization_id, "provider": "openai", "token": "sk-wrong-key", "name": "Ours"}
    made = used.ok("POST", "/keys/provider", owner, body)["providerKey"]
    assert "Your OpenAI key" not in read(used, owner)
    used.services.routing.health.cooldowns.trip(f"openai#{made['id']}", "refused", None, owner.organization_id)
    shown = unescape(read(used, owner))
    assert "Your OpenAI key “Ours” fails: the provider rejected the credential" in shown
    assert f"/console/providers/keys?organization={owner.organization_id}" in shown
    assert "Your OpenAI key" not in read(used, used["acme developer"])
    used.services.routing.health.cooldowns.clear(f"openai#{made['id']}")


@pytest.mark.parametrize(
    "role,balance,notice",
    [
        ("owner", Balance(100 * NANO, 40 * NANO, 0), "The credits of Acme ($60.00) last about 6 more days."),
        ("owner", Balance(100 * NANO, 100 * NANO, 0), "Acme has no credits left."),
        ("owner", Balance(100 * NANO, 20 * NANO, 0), None),
        ("owner", Balance(0, 10 * NANO, 0, unlimited=True), None),
        ("developer", Balance(100 * NANO, 100 * NANO, 0), None),
    ],
)
def test_credits_that_end_within_a_week_need_attention(role: str, balance: Balance, notice: str | None) -> None:
    ledger = SimpleNamespace(balance=lambda organization_id: balance)
    visitor = SimpleNamespace(
        organizations=lambda: [SimpleNamespace(id="org_1", name="Acme")],
        manages=lambda permission, organization_id: reach_of(role, permission) == "all",
        services=SimpleNamespace(management=SimpleNamespace(ledger=ledger)),
    )
    assert [credit.text for credit in find_credits(visitor, 10 * NANO)] == ([notice] if notice else [])


def test_a_provider_in_use_that_is_in_cooldown_needs_attention(used: Tenants) -> None:
    cooldowns = used.services.routing.health.cooldowns
    visitor = SimpleNamespace(services=used.services, memberships={used["acme owner"].organization_id: None})
    cooldowns.trip("openai/gpt-4o-mini", "failing", None, "")
    history, now_us = used.services.telemetry.alert_history, used.services.clock.now_us()
    change = StateChange("provider.resting", "provider openai", "openai rests", facts={"provider": "openai"})
    history.begin(change, now_us - HOUR_US)
    usage = {("gpt-4o-mini", "openai"), ("claude-sonnet-4-5", "anthropic")}
    [outage] = find_outages(visitor, usage)
    assert (outage.name, outage.parts, outage.path) == ("OpenAI", "gpt-4o-mini", "/console/providers/openai")
    assert outage.since == to_iso(now_us - HOUR_US)
    [model] = outage.models
    mapped = used.services.routing.catalogue.current().models["gpt-4o-mini"].mappings
    assert model.name == "gpt-4o-mini" and len(model.instead) == len({one.provider for one in mapped}) - 1
    assert "OpenAI" not in model.instead
    history.end("provider openai", ["provider.resting"], now_us - HOUR_US, now_us)
    assert find_outages(visitor, usage)[0].since == ""
    assert find_outages(visitor, {("claude-sonnet-4-5", "anthropic")}) == []
    cooldowns.clear("openai/gpt-4o-mini")


def test_the_overview_tells_what_changed_since_the_last_visit(used: Tenants) -> None:
    database, developer, rival = used.services.store.database, used["acme developer"], used["rival owner"]
    for person in (developer, rival):
        assert "Since your last visit" not in read(used, person)
    ago_us = 5 * HOUR_US
    database.write(lambda: database.execute("UPDATE last_visit SET seen_at = seen_at - ?", (ago_us,)))
    database.write(
        lambda: audit.append(
            "api_key.update_limit",
            developer.key.info.id,
            actor="operator",
            at_us=used.services.clock.now_us(),
            organization_id=developer.organization_id,
        )
    )
    page = read(used, developer)
    assert "Since your last visit" in page and "API key limit updated" in page
    assert "Since your last visit" not in read(used, rival), "nothing happened there"
    assert "Since your last visit" in read(used, developer), "the visit lasts"
    database.write(lambda: database.execute("UPDATE last_visit SET before_at = seen_at"))
    assert "Since your last visit" not in read(used, developer)


def test_the_top_people_lead_to_their_requests(used: Tenants) -> None:
    owner = read(used, used["acme owner"])
    assert "Top people" in owner and "Top people" not in read(used, used["acme developer"])
    assert re.search(r'href="[^"]*/console/logs\?userId=user_[^"]*" title="colleague', owner)


def test_models_in_use_that_end_within_a_month_need_attention() -> None:
    mapping = SimpleNamespace(provider="openai", deactivated="2026-12-01")
    catalogue = SimpleNamespace(models={"gpt-old": SimpleNamespace(mappings=[mapping])})
    services = SimpleNamespace(routing=SimpleNamespace(catalogue=SimpleNamespace(current=lambda: catalogue)))
    used = [("gpt-old", "openai"), ("gpt-old", "azure"), ("gone", "openai")]
    [notice] = find_retiring(services, used, date(2026, 11, 23))
    assert "openai/gpt-old will be retired on 01 December 2026" in notice.text
    assert not find_retiring(services, used, date(2026, 9, 1)) and not find_retiring(services, used, date(2027, 1, 1))
