"""Addresses for alerts by the management API and by the page for people, each with its test."""

import re

import pytest

from gateway.surfaces.management.alert_routes import TESTS

EMAIL, PASSWORD = "owner@localhost", "correct horse battery"
OWN = {"Origin": "http://localhost"}
FIELD = re.compile(r'name="(\w+)" value="([^"]*)"')


@pytest.fixture
def browser(shared_tenants):
    found = shared_tenants.gateway.app.flask.test_client()
    found.post("/console/login", data={"email": EMAIL, "password": PASSWORD, "redirect": "/console"}, headers=OWN)
    return found


def test_a_manager_adds_tests_and_removes_an_address(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/alerts"
    made = shared_tenants.ok("POST", path, owner, {"url": "https://127.0.0.1:9/hook", "events": ["budget.spent"]})[
        "alert"
    ]
    assert made["secret"].startswith("whsec_") and made["events"] == ["budget.spent"]
    listed = shared_tenants.ok("GET", path, owner)["alerts"]
    assert made["id"] in {one["id"] for one in listed} and all("secret" not in one for one in listed)
    tested = shared_tenants.ok("POST", f"{path}/{made['id']}/test", owner)
    assert tested["delivered"] is False and tested["result"]
    shared_tenants.ok("DELETE", f"{path}/{made['id']}", owner)
    status, _ = shared_tenants.call("DELETE", f"{path}/{made['id']}", owner)
    assert status == 404


def test_events_that_do_not_exist_are_refused(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    status, _ = shared_tenants.call(
        "POST", f"/orgs/{owner.organization_id}/alerts", owner, {"url": "https://x.example", "events": ["rain"]}
    )
    assert status == 400


def test_the_page_has_a_button_that_tests(browser) -> None:
    page = browser.get("/console/alerts")
    assert page.status_code == 200
    form = dict(FIELD.findall(page.text)) | {"url": "https://127.0.0.1:9/hook", "action": "add"}
    added = browser.post("/console/alerts", data=form, headers=OWN)
    assert "whsec_" in added.text and "https://127.0.0.1:9/hook" in added.text
    hook = re.findall(r'name="hook" value="([^"]+)"', added.text)[-1]
    tested = browser.post("/console/alerts", data={**form, "hook": hook, "action": "test"}, headers=OWN)
    assert tested.status_code == 400 and "Signed JSON, all events</span>" in tested.text
    assert "The test alert could not be delivered" in tested.text and "whsec_" not in tested.text
    removed = browser.post("/console/alerts", data={**form, "hook": hook, "action": "remove"}, headers=OWN)
    assert "The webhook was removed" in removed.text and hook not in removed.text


def test_the_page_and_the_api_count_the_same_tests(browser) -> None:
    form = dict(FIELD.findall(browser.get("/console/alerts").text)) | {"hook": "unknown", "action": "test"}
    statuses = [browser.post("/console/alerts", data=form, headers=OWN).status_code for _ in range(TESTS + 1)]
    assert statuses[-1] == 429 and set(statuses[:5]) == {404}


def test_a_form_without_its_token_changes_nothing(browser) -> None:
    form = dict(FIELD.findall(browser.get("/console/alerts").text)) | {"url": "https://x.example", "action": "add"}
    assert browser.post("/console/alerts", data={**form, "csrf": "0" * 64}, headers=OWN).status_code == 403
    assert browser.post("/console/alerts", data=form, headers={"Origin": "https://evil.example"}).status_code == 403


def test_a_form_is_chosen_and_pagerduty_needs_its_key(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/alerts"
    teams = shared_tenants.ok("POST", path, owner, {"url": "https://x.example/hook", "form": "teams"})["alert"]
    assert (teams["form"], teams["secret"]) == ("teams", None)
    page = {"url": "https://events.pagerduty.com/v2/enqueue"}
    assert shared_tenants.refused("POST", path, owner, page) == "400 invalid_parameters"
    made = shared_tenants.ok("POST", path, owner, page | {"routingKey": "R" * 32})["alert"]
    assert (made["form"], made["secret"]) == ("pagerduty", None)
    assert shared_tenants.refused("POST", path, owner, {"url": "https://x.example", "form": "fax"}).startswith("400")


def test_alerts_by_mail_go_to_members_alone(tenants) -> None:
    rival = tenants["rival owner"]
    path = f"/orgs/{rival.organization_id}/alerts"
    assert tenants.refused("POST", path, rival, {"url": "mailto:stranger@example.com"}) == "400 invalid_parameters"
    email = tenants.ok("GET", "/user/me", rival)["user"]["email"]
    assert tenants.ok("POST", path, rival, {"url": f"mailto:{email}"})["alert"]["form"] == "email"


def test_a_limit_may_have_its_own_thresholds(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/keys/api/limit/{owner.key.info.id}"
    given = {"usageLimit": "10", "alertThresholds": [95, 50]}
    assert shared_tenants.ok("PATCH", path, owner, given)["apiKey"]["alertThresholds"] == [50, 95]
    assert shared_tenants.refused("PATCH", path, owner, {"alertThresholds": [0]}) == "400 invalid_parameters"
