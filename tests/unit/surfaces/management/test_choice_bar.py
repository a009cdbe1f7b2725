"""The bar of organization, project and period: kept for the next page, ended by links that say something else."""

import re

import pytest
from support.console import browser_headers, open_page
from support.management import Person, Tenants

from gateway.accounts.members import add_member
from gateway.surfaces.console.kept_choices import COOKIE, PAGES

FIELD = re.compile(r'<select id="(\w+)".*?</select>', re.DOTALL)
CHOSEN = re.compile(r'<option value="([^"]*)" selected>')


def open_with(tenants: Tenants, who: Person, path: str, kept: str):
    headers = browser_headers(who)
    return tenants.client.get(path, headers={**headers, "Cookie": f"{headers['Cookie']}; {COOKIE}={kept}"})


def read_bar(page: str) -> dict[str, list[str]]:
    """Return the chosen values of the fields of the bar."""
    form = page.partition('class="choices"')[2].partition("</form>")[0]
    return {field.group(1): CHOSEN.findall(field.group(0)) for field in FIELD.finditer(form)}


def test_a_page_without_choices_leads_to_those_that_were_kept(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    chosen = shared_tenants.client.get(
        f"/console/explore?projectId={owner.project_id}&timeRange=30d", headers=browser_headers(owner)
    )
    assert read_bar(chosen.text) == {"projectId": [owner.project_id], "timeRange": ["30d"]}
    [kept] = [one for one in chosen.headers.getlist("Set-Cookie") if one.startswith(COOKIE)]
    kept = kept.partition("=")[2].partition(";")[0]
    led = open_with(shared_tenants, owner, "/console/logs", kept)
    assert led.status_code == 303
    assert led.headers["Location"].endswith(f"/console/logs?projectId={owner.project_id}&timeRange=30d")
    outcomes = open_with(shared_tenants, owner, "/console/outcomes", kept).headers["Location"]
    assert outcomes.endswith(f"/console/outcomes?projectId={owner.project_id}&timeRange=30d")
    assert f"/console/sessions?projectId={owner.project_id}" in chosen.text


@pytest.mark.parametrize("query", ["timeRange=7d", "projectId=", "model=gpt-4o", "q="])
def test_a_link_that_says_something_wins_over_what_was_kept(shared_tenants: Tenants, query: str) -> None:
    owner = shared_tenants["acme owner"]
    shown = open_with(shared_tenants, owner, f"/console/logs?{query}", f"projectId={owner.project_id}&timeRange=30d")
    assert shown.status_code == 200
    assert read_bar(shown.text)["projectId"] == [""]


@pytest.mark.parametrize("path", sorted(PAGES))
def test_a_choice_that_a_person_may_not_see_is_dropped(shared_tenants: Tenants, path: str) -> None:
    owner, rival = shared_tenants["acme owner"], shared_tenants["rival owner"]
    kept = f"organization={rival.organization_id}&projectId={rival.project_id}"
    shown = open_with(shared_tenants, owner, path, kept)
    assert shown.status_code == 200
    assert rival.project_id not in shown.text and rival.organization_id not in shown.text
    assert any(one.startswith(f"{COOKIE}=;") for one in shown.headers.getlist("Set-Cookie"))


def test_the_bar_keeps_the_other_parameters_of_the_address(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    page = open_page(shared_tenants, owner, "/console/explore?measure=requests&groupBy=apiKey&timeRange=7d&page=3&q=x")
    form = page.partition('class="choices"')[2].partition("</form>")[0]
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form))
    assert hidden == {"measure": "requests", "groupBy": "apiKey"}


def test_people_of_several_organizations_choose_one_for_each_page_about_one(tenants: Tenants) -> None:
    owner, rival = tenants["acme owner"], tenants["rival owner"]
    stores = tenants.services.store.database, tenants.services.store.control
    email = tenants.services.management.sessions.find(owner.token).email
    add_member(*stores, rival.organization_id, email, "owner", actor="test")
    for path in ("/console/people", "/console/teams", "/console/budgets", "/console/audit", "/console/settings"):
        page = open_page(tenants, owner, f"{path}?organization={rival.organization_id}")
        assert read_bar(page) == {"organization": [rival.organization_id]}
    kept = f"organization={rival.organization_id}"
    assert open_with(tenants, owner, "/console/people", kept).headers["Location"].endswith(f"?{kept}")
    overview = open_page(tenants, owner, f"/console?{kept}")
    assert read_bar(overview)["organization"] == [rival.organization_id]
    jobs = open_page(tenants, owner, f"/console/jobs?{kept}")
    assert read_bar(jobs) == {"organization": [rival.organization_id]}
