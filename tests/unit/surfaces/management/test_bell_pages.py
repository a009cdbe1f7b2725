"""The bell and the colours of pages: alerts of the visitor's organizations, those not seen yet, and cookies."""

import re

import pytest
from support.console import CSRF, browser_headers, open_page
from support.management import Person, Tenants

from gateway.runtime.state_changes import StateChange

PATH = "/console/notices"


def note(tenants: Tenants, owner: str, message: str) -> None:
    facts = {"organization": owner} if owner else {}
    change = StateChange("provider.down", message, message, facts=facts)
    tenants.services.telemetry.alert_history.begin(change, tenants.services.clock.now_us())


def count(tenants: Tenants, who: Person, cookie: str = "") -> str:
    headers = browser_headers(who)
    headers["Cookie"] += f"; {cookie}"
    return re.sub(r"<[^>]*>|not seen|\s", "", tenants.client.get(f"{PATH}/count", headers=headers).text)


def test_the_bell_counts_what_was_not_seen(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    note(tenants, owner.organization_id, "<script>openai</script> fails.")
    note(tenants, tenants["rival owner"].organization_id, "Alert of a rival.")
    note(tenants, "", "The installation is ill.")
    assert count(tenants, owner) == "1"
    page = tenants.client.get(PATH, headers=browser_headers(owner))
    assert "&lt;script&gt;openai" in page.text and "rival" not in page.text and "installation is ill" not in page.text
    cookie = next(value for value in page.headers.getlist("Set-Cookie") if "seen_alerts" in value)
    assert count(tenants, owner, cookie.partition(";")[0]) == ""


def test_the_bell_is_for_those_who_may_see_alerts(tenants: Tenants) -> None:
    note(tenants, tenants["acme owner"].organization_id, "openai fails.")
    developer = tenants["acme developer"]
    assert count(tenants, developer) == ""
    assert "openai fails" not in open_page(tenants, developer, PATH)
    assert tenants.client.get(f"{PATH}/count").status_code in (200, 303)


@pytest.mark.parametrize(("theme", "shown"), [("dark", "dark"), ("light", "light"), ("", ""), ('x"><script>', "")])
def test_colours_are_kept_in_a_cookie(tenants: Tenants, theme: str, shown: str) -> None:
    owner = tenants["acme owner"]
    csrf = CSRF.findall(open_page(tenants, owner, "/console/account"))[-1]
    form = {"csrf": csrf, "theme": theme, "action": "theme"}
    answer = tenants.client.post("/console/account", headers=browser_headers(owner), data=form)
    assert answer.status_code == 303 and answer.headers["Location"].endswith("/console/account")
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    headers = browser_headers(owner)
    headers["Cookie"] += f"; {cookie}"
    page = tenants.client.get("/console", headers=headers).text
    assert re.findall(r'<html lang="en"(?: data-theme="([^"]*)")?>', page) == [shown]
