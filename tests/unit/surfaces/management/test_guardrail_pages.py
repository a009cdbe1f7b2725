"""Guardrails by the page for people and by the management API."""

import re

import pytest

EMAIL, PASSWORD = "owner@localhost", "correct horse battery"
OWN = {"Origin": "http://localhost"}
FIELD = re.compile(r'name="(\w+)" value="([^"]*)"')
PATH = "/console/guardrails"


@pytest.fixture
def browser(shared_tenants):
    found = shared_tenants.gateway.app.flask.test_client()
    found.post("/console/login", data={"email": EMAIL, "password": PASSWORD, "redirect": "/console"}, headers=OWN)
    return found


def test_page_adds_tests_changes_and_removes_a_guardrail(browser) -> None:
    page = browser.get(PATH)
    assert page.status_code == 200
    hidden = {name: value for name, value in FIELD.findall(page.text) if name in ("csrf", "organization")}

    def press(action: str, **more: str):
        return browser.post(PATH, data={**hidden, "action": action, **more}, headers=OWN)

    added = press(
        "add", name="No cards", action_of_rule="block", detectors="payment_card", terms="Falcon", in_prompt="on"
    )
    assert "The guardrail was added" in added.text
    assert "Block the request: payment_card, 1 own term in prompts" in added.text
    rule = re.findall(r'name="rule" value="([^"]+)"', added.text)[-1]
    tested = press("check", text="Pay with 4111 1111 1111 1111", place="prompt")
    assert "The request would be blocked." in tested.text and "No cards: payment_card (block)" in tested.text
    excepted = press("except", rule=rule, value="4111 1111 1111 1111")
    assert "1 exceptions" in excepted.text
    assert "No guardrail finds anything" in press("check", text="Pay with 4111 1111 1111 1111").text
    assert "on probation" in press("probation", rule=rule, probation="False").text
    assert "inactive" in press("switch", rule=rule, status="active").text
    refused = press("add", name="Broken", action_of_rule="log", patterns="(")
    assert refused.status_code == 400 and "RE2 cannot read the pattern" in refused.text
    removed = press("remove", rule=rule)
    assert "The guardrail was removed" in removed.text and rule not in removed.text


def test_guardrail_needs_something_to_look_for_and_a_place_of_the_organization(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/guardrails"
    for body in (
        {"name": "x", "action": "log"},
        {"name": "x", "action": "log", "detectors": ["nothing"]},
        {"name": "x", "action": "log", "detectors": ["email"], "places": ["moon"]},
        {"name": "x", "action": "log", "detectors": ["email"], "places": []},
        {"name": "x", "action": "log", "detectors": ["email"], "unknown": 1},
    ):
        assert shared_tenants.call("POST", path, owner, body)[0] == 400, body
    elsewhere = {"name": "x", "action": "log", "detectors": ["email"], "scope": "project", "scopeId": "proj_other"}
    assert shared_tenants.call("POST", path, owner, elsewhere)[0] == 404


def test_rule_that_blocks_refuses_what_it_cannot_read_unless_it_says_otherwise(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/guardrails"
    for action, unread in (("block", "refuse"), ("mask", "pass"), ("log", "pass")):
        made = shared_tenants.ok("POST", path, owner, {"name": "x", "action": action, "detectors": ["email"]})
        assert made["guardrail"]["unread"] == unread
        shared_tenants.ok("DELETE", f"{path}/{made['guardrail']['id']}", owner)


def test_checker_of_a_guardrail_is_set_changed_and_shown_without_its_credential(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/guardrails"
    body = {
        "name": "People", "action": "mask", "checker": "webhook", "address": "https://guard.example.com/check",
        "credential": "whsec_c2VjcmV0LW9mLXRoZS10ZXN0", "timeoutMs": 500,
    }  # fmt: skip
    made = shared_tenants.ok("POST", path, owner, body)["guardrail"]
    assert made["checker"] == {
        "form": "webhook",
        "address": "https://guard.example.com/check",
        "settings": [],
        "timeoutMs": 500,
        "onFailure": "block",
        "streaming": "window",
        "hasCredential": True,
    }
    rule = f"{path}/{made['id']}"
    status, moved = shared_tenants.call("PATCH", rule, owner, {"address": "https://thief.example.com/"})
    assert (status, "credential again" in str(moved)) == (400, True)
    both = {"address": "https://other.example.com/", "credential": "another-secret", "onFailure": "warn"}
    changed = shared_tenants.ok("PATCH", rule, owner, both)["guardrail"]
    assert (changed["checker"]["address"], changed["checker"]["onFailure"]) == ("https://other.example.com/", "warn")
    entries = shared_tenants.ok("GET", f"/orgs/{owner.organization_id}/audit", owner)
    for shown in (made, changed, entries):
        assert "another-secret" not in str(shown) and "whsec_" not in str(shown)
    assert shared_tenants.call("POST", f"{rule}/replay", owner, {"days": 1})[0] == 400
    shared_tenants.ok("DELETE", rule, owner)


def test_checker_that_is_not_complete_is_refused(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/guardrails"
    presidio = {"checker": "presidio", "address": "https://presidio.example.com"}
    for members, message in (
        ({"checker": "nobody"}, "checker"),
        ({"checker": "presidio"}, "needs its address"),
        (presidio | {"detectors": ["email"]}, "either a checker or detectors"),
        (presidio | {"settings": ["language=english"]}, "ISO 639-1"),
        (presidio | {"address": "ftp://x"}, "http or https"),
        (presidio | {"timeoutMs": 5}, "timeoutMs"),
        ({"address": "https://presidio.example.com"}, "belongs to a checker"),
        ({"checker": "lakera_guard"}, "needs a credential"),
        (presidio | {"checker": "azure_content_safety", "credential": "k"}, "use block, warn or log"),
        ({"checker": "model"}, "needs the setting model"),
        ({"checker": "model", "settings": ["model=m"], "address": "https://a.example.com"}, "has no address"),
    ):  # fmt: skip
        status, answer = shared_tenants.call("POST", path, owner, {"name": "x", "action": "mask", **members})
        assert status == 400 and message in str(answer), (members, answer)


def test_page_adds_a_guardrail_with_a_checker_and_says_why_it_failed(browser) -> None:
    page = browser.get(PATH)
    hidden = {name: value for name, value in FIELD.findall(page.text) if name in ("csrf", "organization")}

    def press(action: str, **more: str):
        return browser.post(PATH, data={**hidden, "action": action, **more}, headers=OWN)

    fields = {"name": "People", "action_of_rule": "block", "checker": "presidio", "settings": "language=en"}
    assert "needs its address" in press("add", **fields).text
    fields |= {"address": "http://127.0.0.1:9/", "on_failure": "pass", "timeout_ms": "200", "in_prompt": "on"}
    added = press("add", **fields)
    assert "Block the request: Presidio analyzer in prompts" in added.text
    rule = re.findall(r'name="rule" value="([^"]+)"', added.text)[-1]
    assert "People could not be checked:" in press("check", text="Anna Meyer", place="prompt").text
    press("remove", rule=rule)
