"""The page Outcomes shows outcomes with their prices, savings and wastes, and compares people only where it may."""

import re
from collections.abc import Iterator

import pytest
from support.console import open_page, press_button
from support.management import Person, Tenants
from support.usage import insert_rows, usage_row

from gateway import ids
from gateway.accounts.outcome_settings import find_settings
from gateway.clock import HOUR_US, to_datetime
from gateway.metering.outcomes.outcome_points import NO_SERIES, OutcomeExport, OutcomePoint
from gateway.metering.outcomes.outcome_table import store_exports
from gateway.metering.usage_table import raw_id
from gateway.money import NANO

PATH = "/console/outcomes"
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def tenants(open_tenants) -> Iterator[Tenants]:
    with open_tenants() as opened:
        yield opened


@pytest.fixture
def worked(tenants: Tenants) -> Person:
    """A developer whose agent spent three dollars on four edits, two commits and one failed attempt."""
    person = tenants["acme developer"]
    database = tenants.services.store.database
    organization, project, key, member = map(
        raw_id, (person.organization_id, person.project_id, person.key.info.id, person.member_id)
    )
    owners = {"organization": organization, "project": project, "api_key": key, "member": member}
    at_us = database.now_us() - HOUR_US
    for number, error in enumerate((None, "request_cancelled")):
        row = usage_row(
            at_us + number, request=bytes.fromhex(ids.new_hex()), cost_nusd=3 * NANO // 2, error=error, **owners
        )
        insert_rows(database, row)
    tenants.services.billing.rollups.catch_up()
    points = [
        OutcomePoint("claude-code", name, "s", HOSTILE, amount, NO_SERIES, 0, at_us)
        for name, amount in (("edits_accepted", 4), ("commits", 2), ("lines_added", 30), ("active_ms", 90_000))
    ]
    store_exports(database, [OutcomeExport(b"d", organization, project, key, member, points)])
    return person


def test_the_page_shows_outcomes_with_their_prices_and_wastes(tenants: Tenants, worked: Person) -> None:
    page = open_page(tenants, worked, PATH)
    for text in ("$0.75", "$1.50", "Callers left before the answer was complete"):
        assert text in page
    assert "No agent has reported anything" not in page
    assert "Settings of" not in page  # those of owners


@pytest.mark.parametrize("shown", ["edits", "lines", "active", "agentCost", "nonsense"])
@pytest.mark.parametrize("period", ["24h", "30d", "nonsense"])
def test_each_plot_and_period_is_drawn(tenants: Tenants, worked: Person, shown: str, period: str) -> None:
    page = open_page(tenants, worked, f"{PATH}?show={shown}&timeRange={period}")
    assert '<svg viewBox="0 0 1000 240"' in page


def test_a_hostile_model_is_only_text(tenants: Tenants, worked: Person) -> None:
    answer = tenants.client.get(f"{PATH}?groupBy=model", headers={"Cookie": f"llmgateway.session_token={worked.token}"})
    assert "alert(" in answer.text and HOSTILE not in answer.text


def test_an_owner_turns_the_comparison_of_people_on(tenants: Tenants, worked: Person) -> None:
    owner, admin = tenants["acme owner"], tenants["acme admin"]
    path = f"{PATH}?groupBy=person"
    assert "does not compare people" in open_page(tenants, owner, path)
    assert "developer@acme.example" not in open_page(tenants, owner, path)
    assert "does not compare people" not in open_page(tenants, owner, f"{path}&mine=1")
    fields = {"organization": owner.organization_id, "comparePeople": "on"}
    assert press_button(tenants, admin, PATH, "save_settings", **fields).status_code in (200, 403)
    database = tenants.services.store.database
    assert not find_settings(database, owner.organization_id).compare_people
    assert "The settings are saved." in press_button(tenants, owner, PATH, "save_settings", **fields).text
    settings = find_settings(database, owner.organization_id)
    assert (settings.compare_people, settings.hold_unusual) == (True, False)
    assert "developer@acme.example" in open_page(tenants, admin, path)


def test_a_site_without_telemetry_learns_how_to_begin(tenants: Tenants) -> None:
    page = open_page(tenants, tenants["rival owner"], PATH)
    assert "CLAUDE_CODE_ENABLE_TELEMETRY=1" in page and "No agent has reported anything" in page


def test_bars_and_rows_lead_to_what_is_behind_them(tenants: Tenants, worked: Person) -> None:
    owner = tenants["acme owner"]
    day = to_datetime(tenants.services.store.database.now_us() - HOUR_US).date().isoformat()
    page = open_page(tenants, worked, PATH)
    assert "A bar leads to the sessions of its day." in page
    (bar,) = set(re.findall(rf'href="[^"]*(/console/outcomes\?[^"]*groupBy=session[^"]*day={day})"', page))
    narrowed = open_page(tenants, worked, bar)
    assert "/console/sessions/turns?session=s" in narrowed and "A bar leads to its requests." in narrowed
    (requests,) = set(re.findall(r'<a href="[^"]*(/console/logs\?from=[^"]*)" tabindex', narrowed))
    assert "failed" in open_page(tenants, worked, requests).lower()
    # An owner sees no single people: a day leads to the same group, its bar to requests.
    page = open_page(tenants, owner, f"{PATH}?groupBy=team")
    assert f"groupBy=team&day={day}" in page and "groupBy=session&day" not in page
    assert "/console/logs?" in open_page(tenants, owner, f"{PATH}?groupBy=project")


def test_the_page_offers_what_it_shows_as_csv(tenants: Tenants, worked: Person) -> None:
    page = open_page(tenants, worked, f"{PATH}?groupBy=session&timeRange=7d")
    (path,) = re.findall(r'href="[^"]*(/activity/outcomes/export\?[^"]*)"', page)
    first, *lines = open_page(tenants, worked, path).splitlines()
    assert first.startswith('"id","name","sessions","commits"')
    assert any(line.startswith('"s","s","0","2"') for line in lines)
    owner = open_page(tenants, tenants["acme owner"], f"{PATH}?groupBy=person")
    (path,) = re.findall(r'href="[^"]*(/activity/outcomes/export\?[^"]*)"', owner)
    assert "groupBy" not in path


def test_figures_of_one_other_person_give_way_to_the_visitors_own(tenants: Tenants, worked: Person) -> None:
    owner, colleague = tenants["acme owner"], tenants["acme colleague"]
    path = f"/orgs/{owner.organization_id}/teams"
    ident = tenants.ok("POST", path, owner, {"name": "Red"})["team"]["id"]
    for person in (worked, colleague):
        tenants.ok("PUT", f"{path}/{ident}/members/{person.member_id}", owner)
    tenants.ok("PUT", f"{path}/{ident}/leads/{colleague.member_id}", owner)
    for group in ("team", "session"):
        page = open_page(tenants, colleague, f"{PATH}?groupBy={group}")
        assert "These are your own outcomes" in page and "$0.75" not in page
        (exported,) = re.findall(r'href="[^"]*(/activity/outcomes/export\?[^"]*)"', page)
        assert "mine=true" in exported


def test_the_page_says_which_sessions_a_repository_has_the_cost_of(tenants: Tenants, worked: Person) -> None:
    assert "at most the 4,000 with" in open_page(tenants, worked, f"{PATH}?groupBy=repository")
