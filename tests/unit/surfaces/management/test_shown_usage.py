"""The figures of stored usage on the overview and on the pages of providers and requests."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import date, timedelta

import pytest
from support.console import open_page
from support.management import Tenants
from support.usage import insert_rows, usage_row

from gateway.clock import DAY_US
from gateway.limits.models import TOTAL, budget_id
from gateway.metering.models import SETTLEMENT
from gateway.metering.usage_table import UsageRecord, raw_id
from gateway.money import NANO

pytestmark = pytest.mark.slow

RANKING = re.compile(r'aria-label="(Top \w+)".*?</section>', re.DOTALL)
RANKED = re.compile(r'href="http://localhost([^"]*)" title="([^"]*)".*?<span title="(\d+)"', re.DOTALL)
# Days ago, person, model with its provider, dollars, app.
REQUESTS = (
    (26, "acme colleague", "openai/gpt-5", 1, "codex"),
    (25, "acme developer", "openai/gpt-5", 2, "claude-code"),
    (3, "acme developer", "openai/gpt-5", 1, "codex"),
    (3, "acme developer", "openai/gpt-4o", 0, ""),
    (2, "acme colleague", "anthropic/claude-sonnet-4-5", 0, ""),
    (2, "acme owner", "anthropic/claude-sonnet-4-5", 0, "cursor"),
    (2, "acme owner", "anthropic/claude-haiku-4-5", 0, "cursor"),
)


@pytest.fixture(scope="module")
def used(open_tenants: Callable[..., AbstractContextManager[Tenants]]) -> Iterator[Tenants]:
    with open_tenants() as tenants:
        rows = [usage_of(tenants, *request) for request in REQUESTS]
        insert_rows(tenants.services.store.database, *sorted(rows, key=lambda row: row.at))
        tenants.services.billing.rollups.catch_up()
        yield tenants


def usage_of(tenants: Tenants, days: int, name: str, model: str, dollars: int, source: str) -> UsageRecord:
    """Return the usage row of a request; requests for gpt-4o failed."""
    now, person = tenants.services.clock.now_us(), tenants[name]
    provider, _, served = model.partition("/")
    failed = served == "gpt-4o"
    return usage_row(
        now - days * DAY_US,
        posted_at=now,  # rollups read rows in this order
        organization=raw_id(person.organization_id),
        project=raw_id(person.project_id),
        api_key=raw_id(person.key.info.id),
        member=raw_id(person.member_id),
        kind=SETTLEMENT,
        operation="chat",
        provider=provider,
        asked=served,
        served=served,
        source=source,
        cost_nusd=dollars * NANO,
        input=100,
        output=20,
        ttft_ms=0 if failed else 420,
        duration_ms=3_900,
        status=503 if failed else 200,
        error="upstream_error" if failed else None,
    )


def read_rankings(page: str) -> dict[str, list[tuple[str, str, str]]]:
    """Return path, name and number of requests of each row of the rankings."""
    return {found[1]: RANKED.findall(found[0]) for found in RANKING.finditer(page)}


def test_rankings_count_the_requests_to_which_they_lead(used: Tenants) -> None:
    owner = used["acme owner"]
    rankings = read_rankings(open_page(used, owner, "/console"))
    assert set(rankings) == {"Top models", "Top keys", "Top people", "Top apps"}
    for ranking, rows in rankings.items():
        assert sum(int(count) for _, _, count in rows) == len(REQUESTS), ranking
        for path, name, count in rows:
            assert open_page(used, owner, path).count('class="open"') == int(count), (ranking, name)


def test_names_are_ranked_by_cost_then_by_requests_then_by_name(used: Tenants) -> None:
    models = read_rankings(open_page(used, used["acme owner"], "/console"))["Top models"]
    assert [name for _, name, _ in models] == ["gpt-5", "claude-sonnet-4-5", "claude-haiku-4-5", "gpt-4o"]


def test_plots_show_the_spending_and_the_outcomes_of_each_day(used: Tenants) -> None:
    page = open_page(used, used["acme owner"], "/console")
    titles = re.findall(r"<title>[\d-]+: ([^<]*)</title>", page)
    assert len(titles) == 60 and {"$2.00", "$1.00", "2\nAnswered: 1\nFailed: 1"} <= set(titles)
    assert re.search(r'<rect class="s4"[^>]*/></svg><span>Failed<', page)


def test_a_provider_shows_outcomes_times_and_models_of_each_day(used: Tenants) -> None:
    page = open_page(used, used["acme developer"], "/console/providers/openai?timeRange=30d")
    plots = re.findall(r'<section class="plot" aria-label="([^"]*)">(.*?)</section>', page, re.DOTALL)
    titles = {name: re.findall(r"<title>[\d-]+: ([^<]*)</title>", plot) for name, plot in plots}
    assert {"1\nAnswered: 1", "2\nAnswered: 1\nFailed: 1"} <= set(titles["Your upstream calls by day"])
    assert titles["Time to the first token by day"].count("420 ms") == 2
    assert titles["Time to the end of the answer by day"].count("3.90 s") == 2
    assert {"1\ngpt-5: 1", "2\ngpt-5: 1\ngpt-4o: 1"} <= set(titles["Your requests by day"])
    table = page.partition("Your latency by model")[2].partition("</table>")[0]
    cells = re.findall(
        r"<td[^>]*>(?:<[^>]*>)?([^<]*)", table.partition('/console/models/gpt-5"')[2].partition("</tr>")[0]
    )
    assert cells == ["2", "420 ms", "420 ms", "3.90 s", "3.90 s"]
    assert table.count("<th ") == 1 + len(cells)


@pytest.mark.parametrize(
    ("measure", "largest", "smallest"),
    [("spend", "$2.00", "$1.00"), ("requests", "3", "1"), ("tokens", "360", "120")],
)
def test_the_plot_of_usage_shows_each_measure(used: Tenants, measure: str, largest: str, smallest: str) -> None:
    page = open_page(used, used["acme owner"], f"/console/explore?timeRange=30d&measure={measure}")
    titles = re.findall(r"<title>[\d-]+: ([^<\n]*)", page)
    assert {largest, smallest} <= set(titles)


def test_names_are_sorted_by_the_change_of_their_spending(used: Tenants) -> None:
    today = date.today()
    period = f"timeRange=custom&from={today - timedelta(days=13)}&to={today}"
    page = open_page(used, used["acme owner"], f"/console/explore?{period}&groupBy=user&sort=change")
    assert re.findall(r'title="Show only this">(\w+)@', page) == ["colleague", "developer", "owner"]


def test_requests_are_filtered_by_what_was_used_in_the_month(used: Tenants) -> None:
    page = open_page(used, used["acme owner"], "/console/logs")
    assert list_offered(page, "source") == ["unknown", "claude-code", "codex", "cursor"]
    assert list_offered(page, "model") == ["claude-haiku-4-5", "claude-sonnet-4-5", "gpt-4o", "gpt-5"]
    assert list_offered(page, "provider") == ["anthropic", "openai"]
    developer = open_page(used, used["acme developer"], "/console/logs")
    assert list_offered(developer, "model") == ["gpt-4o", "gpt-5"]
    assert list_offered(open_page(used, used["rival owner"], "/console/logs"), "model") == []


def list_offered(page: str, name: str) -> list[str]:
    [offered] = re.findall(rf'<datalist id="{name}-names">(.*?)</datalist>', page, re.DOTALL)
    return re.findall(r'value="([^"]*)"', offered)


def test_all_that_needs_attention_is_listed(used: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, developer = used["acme owner"], used["acme developer"]
    models = used.services.routing.catalogue.current().models
    end = date.today() + timedelta(days=10)
    mappings = [replace(mapping, deactivated=end.isoformat()) for mapping in models["gpt-5"].mappings]
    monkeypatch.setitem(models, "gpt-5", replace(models["gpt-5"], mappings=tuple(mappings)))
    used.services.billing.ledger.grant(owner.organization_id, NANO // 2, "attention")
    used.services.routing.health.cooldowns.trip("anthropic/claude-haiku-4-5", "failing", None, "")
    used.ok("PATCH", f"/keys/api/limit/{developer.key.info.id}", owner, {"usageLimit": "10"})
    spent = (9 * NANO, budget_id(developer.key.info.id, TOTAL))
    database = used.services.store.database
    database.write(lambda: database.execute("UPDATE budget SET settled_nusd = ? WHERE id = ?", spent))
    overview = open_page(used, owner, "/console")
    outages = re.sub(r"<[^>]*>", "", overview.partition("Outage now")[2].partition("</section>")[0])
    page = overview.partition("Needs attention")[2].partition("</section>")[0]
    assert "The credits of acme ($0.50) last about" in page
    assert "Anthropic is in cooldown" in outages
    assert "used 90 % of its spending limit of $10.00" in page
    assert f"openai/gpt-5 will be retired on {end:%d %B %Y}" in page
