"""The overview: what changed since the period before and why, what needs its visitor, and what is theirs."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import date, timedelta
from html import unescape

import pytest
from support.console import browser_headers, open_page, press_button
from support.management import Tenants
from support.usage import insert_rows, usage_row

from gateway.clock import DAY_US
from gateway.metering.models import SETTLEMENT
from gateway.metering.usage_table import UsageRecord, raw_id
from gateway.money import NANO

LINE = re.compile(
    r'<li><a href="[^"]*">([^<]*)</a>: <strong>([^<]*)</strong>, ([^<]*)\.((?: <span class="reasons">.*?)?)</li>',
    re.DOTALL,
)
REASON = re.compile(r'(model|API key|person) <a href="http://localhost([^"]*)">([^<]*)</a> <span class="note">([^<]*)<')
# Days ago, person, model, dollars, failed: the developer's model got dearer, and failures moved to the colleague.
REQUESTS = (
    (10, "acme developer", "gpt-5", 10, True),
    (9, "acme colleague", "gpt-4o", 5, False),
    (8, "acme colleague", "gpt-4o", 5, False),
    (3, "acme developer", "gpt-5", 30, False),
    (2, "acme colleague", "gpt-4o", 4, True),
    (1, "acme colleague", "gpt-4o", 4, True),
)


@pytest.fixture(scope="module")
def used(open_tenants: Callable[..., AbstractContextManager[Tenants]]) -> Iterator[Tenants]:
    with open_tenants() as tenants:
        rows = [usage_of(tenants, *request) for request in REQUESTS]
        insert_rows(tenants.services.store.database, *rows)
        tenants.services.billing.rollups.catch_up()
        yield tenants


def usage_of(tenants: Tenants, days: int, name: str, model: str, dollars: int, failed: bool) -> UsageRecord:
    now, person = tenants.services.clock.now_us(), tenants[name]
    return usage_row(
        now - days * DAY_US,
        posted_at=now,
        organization=raw_id(person.organization_id),
        project=raw_id(person.project_id),
        api_key=raw_id(person.key.info.id),
        member=raw_id(person.member_id),
        kind=SETTLEMENT,
        operation="chat",
        provider="openai",
        asked=model,
        served=model,
        cost_nusd=dollars * NANO,
        input=10,
        status=503 if failed else 200,
        error="upstream_error" if failed else None,
    )


def changes_of(page: str) -> dict[str, tuple[str, str, dict[str, tuple[str, str, str]]]]:
    """Return of each line its value, its change, and its reasons by kind: name, difference and path."""
    card = page.partition('id="changes"')[2].partition("</section>")[0]
    return {
        name: (now, change, {kind: (who, more, path) for kind, path, who, more in REASON.findall(reasons)})
        for name, now, change, reasons in LINE.findall(card)
    }


def test_the_overview_says_what_changed_and_who_did_it(used: Tenants) -> None:
    owner = used["acme owner"]
    lines = changes_of(open_page(used, owner, "/console?timeRange=7d"))
    now, change, reasons = lines["Spend"]
    assert (now, change) == ("$38.00", "90 % more than $20.00")
    assert {kind: (who, more) for kind, (who, more, _) in reasons.items()} == {
        "model": ("openai/gpt-5", "+$20.00"),
        "API key": (used["acme developer"].key.info.description, "+$20.00"),
        "person": ("developer@acme.example", "+$20.00"),
    }
    assert lines["Requests"][1] == "no more than 3" and lines["Requests"][2] == {}
    now, change, reasons = lines["Failed requests"]
    assert (now, change) == ("2", "100 % more than 1")
    assert reasons["person"][:2] == ("colleague@acme.example", "+2")


def test_each_reason_leads_to_its_own_usage(used: Tenants) -> None:
    owner = used["acme owner"]
    for name, (_, _, reasons) in changes_of(open_page(used, owner, "/console?timeRange=7d")).items():
        for kind, (who, _, path) in reasons.items():
            page = open_page(used, owner, path.replace("&amp;", "&"))
            first, last = date.today() - timedelta(days=6), date.today()
            assert f'name="from" value="{first}"' in page and f'name="to" value="{last}"' in page
            assert who in page and 'class="chip"' in page, (name, kind)


def test_a_developer_sees_the_changes_of_their_own_keys_and_no_people(used: Tenants) -> None:
    lines = changes_of(open_page(used, used["acme developer"], "/console?timeRange=7d"))
    now, change, reasons = lines["Spend"]
    assert (now, change) == ("$30.00", "200 % more than $10.00") and set(reasons) == {"model", "API key"}
    assert changes_of(open_page(used, used["rival owner"], "/console")) == {}


def test_figures_are_those_of_the_chosen_period(used: Tenants) -> None:
    for period, days, requests in (("7d", 7, 3), ("30d", 30, 6), ("90d", 90, 6), ("x", 30, 6)):
        page = open_page(used, used["acme owner"], f"/console?timeRange={period}")
        assert f'Requests, {days} days</dt><dd><span title="{requests}"' in page
        assert len(re.findall(r"<title>[\d-]+: \$", page)) == days


def test_people_ask_for_more_and_owners_see_it_on_their_overview(used: Tenants) -> None:
    owner, developer = used["acme owner"], used["acme developer"]
    limits = f"/orgs/{owner.organization_id}/limits"
    used.ok("PUT", f"{limits}/everyone", owner, {"subjects": ["each member"], "amount": "5"})
    used.ok(
        "PUT", f"{limits}/colleague", owner, {"subjects": [f"member={used['acme colleague'].member_id}"], "amount": "5"}
    )
    page = open_page(used, developer, "/console")
    offered = re.findall(rf'<option value="([^"]* {owner.organization_id})"', page)
    assert offered == [f"everyone {owner.organization_id}"]
    assert developer.key.info.description in page.partition('id="mine"')[2].partition("</section>")[0]
    fields = {"limit": offered[0], "amount": "7", "until": "2099-01-31", "note": "<b>A launch</b>"}
    sent = press_button(used, developer, "/console", "ask", **fields)
    assert sent.status_code == 200 and "The request was sent" in unescape(sent.text)
    page = open_page(used, owner, "/console")
    assert "developer@acme.example asks for $7.00 more of “everyone”." in page
    [path] = re.findall(r'href="http://localhost(/console/budgets/[^"]*/everyone)"', page)
    assert "more until" in open_page(used, owner, path)
    refused = press_button(used, developer, "/console", "ask", limit="everyone org_x", amount="1", until="2099-01-31")
    assert refused.status_code in (403, 404)
    refused = press_button(used, developer, "/console", "ask", limit=offered[0], amount="much", until="2099-01-31")
    assert refused.status_code == 400 and 'value="much"' in refused.text
    assert "asks for" not in open_page(used, used["rival owner"], "/console")
    assert used.client.get("/console", headers=browser_headers(developer)).status_code == 200
